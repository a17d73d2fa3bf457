"""Search: what it returns is what the model says when asked again, and nothing better was overlooked.

B sentences, W beam width, N = B * W prefixes, T tokens, V vocabulary.
"""

from __future__ import annotations

import math
import threading
from typing import Any

import hypothesis
import hypothesis.strategies as st
import pytest
import torch
from hypothesis import given
from torch import Tensor

from glassformer.config import SearchConfig
from glassformer.model.state import DecoderState
from glassformer.model.transformer import Transformer
from glassformer.search.beam import beam_search
from glassformer.search.hypotheses import Hypotheses
from glassformer.search.rules import Rules
from glassformer.text.vocab import BOS, EOS, PAD
from tests.models import EACH_CHOICE, build, ids, padding, same
from tests.search.toys import Prefixes, Toy, all_sequences, score, strip

LENGTHS = [5, 2, 4, 1]


def rescore(model: Transformer, src: Tensor, tokens: list[int]) -> float:
    """Ask the model again, without cache or beam."""
    tgt = torch.tensor([[model.start_id, *tokens]])
    log_probs = model.decode(tgt[:, :-1], model.encode(src.unsqueeze(0))).log_softmax(dim=-1)[0]
    return log_probs[range(len(tokens)), tokens].sum().item()


def talker(seed: int = 0, **changes: Any) -> Transformer:
    """Make a model that ends its sentences sooner or later."""
    model = build(seed, **{"output_bias": True, **changes})
    if model.output.bias is not None:
        with torch.no_grad():
            model.output.bias[EOS] += 1.0
    return model


def search(model: Transformer, src: Tensor, mask: Tensor | None = None, **settings: Any) -> Hypotheses:
    start = torch.full((len(src),), model.start_id)
    return beam_search(model.step, model.start(model.encode(src, mask)), start, SearchConfig(**settings))


def check_scores(model: Transformer, width: int, penalty: float, seed: int = 0) -> None:
    src = ids(seed, len(LENGTHS), max(LENGTHS), vocab=model.config.src_vocab)
    found = search(model, src, padding(LENGTHS), width=width, length_penalty=penalty, max_length=7)
    assert found.scores.shape == found.log_probs.shape == found.tokens.shape[:2] == (len(LENGTHS), width)
    for row, length in enumerate(LENGTHS):
        for tokens, log_prob, given_score in zip(*(part[row] for part in found[:3]), strict=True):
            right = rescore(model, src[row, :length], strip(tokens))
            assert log_prob.item() == pytest.approx(right, abs=1e-10)
            assert given_score.item() == pytest.approx(score(right, strip(tokens), penalty), abs=1e-10)


@pytest.mark.parametrize("penalty", [0.0, 0.6, 1.0, 2.0])
@pytest.mark.parametrize("width", [1, 2, 5])
@pytest.mark.parametrize("seed", range(3))
def test_the_score_is_the_models_own(seed: int, width: int, penalty: float) -> None:
    check_scores(talker(seed), width, penalty, seed)


@EACH_CHOICE
def test_the_score_is_the_models_own_whatever_the_model(changes: dict[str, Any]) -> None:
    check_scores(talker(**changes), 3, 1.0)


@pytest.mark.parametrize("penalty", [0.0, 0.6, 1.0, 1.7])
@pytest.mark.parametrize("seed", range(4))
def test_a_wide_beam_is_exhaustive_search(seed: int, penalty: float) -> None:
    """Vocabulary 5, length 3: a beam as wide as there are sequences finds all of them, in order."""
    model = talker(seed, src_vocab=5, tgt_vocab=5)
    sequences, src = all_sequences(5, 3), ids(seed, 2, 4, vocab=5)
    found = search(model, src, width=len(sequences), length_penalty=penalty, max_length=3)
    for row in range(2):
        scores = {tuple(s): score(rescore(model, src[row], s), s, penalty) for s in sequences}
        ranked = sorted(scores, key=lambda s: -scores[s])
        assert [tuple(strip(tokens)) for tokens in found.tokens[row]] == ranked
        same(found.scores[row], torch.tensor([scores[s] for s in ranked], dtype=torch.float64), 1e-10)


@pytest.mark.parametrize("width", [41, 64, 125])
def test_a_beam_wider_than_all_there_is_says_so(width: int) -> None:
    found = Toy(vocab=5).search(2, width=width, max_length=3)
    n_found = len(all_sequences(5, 3))
    assert found.scores.isfinite().sum(dim=1).tolist() == [n_found, n_found]
    assert (found.scores[:, n_found:] == -math.inf).all()
    assert found.scores.isnan().sum() == found.log_probs.isnan().sum() == 0


@pytest.mark.parametrize("penalty", [0.0, 1.0])
@pytest.mark.parametrize("seed", range(6))
def test_a_beam_of_one_is_greedy_search(seed: int, penalty: float) -> None:
    model, src = talker(seed), ids(seed, len(LENGTHS), max(LENGTHS))
    found = search(model, src, padding(LENGTHS), max_length=9, length_penalty=penalty)
    for row, length in enumerate(LENGTHS):
        memory, tokens = model.encode(src[row : row + 1, :length]), [model.start_id]
        while len(tokens) < 10 and (tokens[-1] != EOS or len(tokens) == 1):
            logits = model.decode(torch.tensor([tokens]), memory)[0, -1]
            logits[PAD] = -math.inf
            tokens.append(int(logits.argmax()))
        assert strip(found.tokens[row, 0]) == tokens[1:]


def reference(toy: Toy, sentence: int, config: SearchConfig) -> list[tuple[float, list[int]]]:
    """Search with lists: 2 W candidates, of which the first W may end and the first W others go on."""
    width, beams, done = config.width, [(0.0, [BOS])], list[tuple[float, list[int]]]()
    for length in range(1, config.max_length + 1):
        candidates = [
            (total + log_prob, [*prefix, token])
            for total, prefix in beams
            for token, log_prob in enumerate(toy.logits(sentence, prefix).log_softmax(dim=0).tolist())
            if token != PAD and log_prob > -math.inf
        ]
        candidates = sorted(candidates, reverse=True)[: 2 * width]
        for total, prefix in candidates[:width]:
            if prefix[-1] == EOS or length == config.max_length:
                done.append((score(total, prefix[1:], config.length_penalty), prefix[1:]))
        beams = [(total, prefix) for total, prefix in candidates if prefix[-1] != EOS][:width]
        if len(done) >= width or not beams:
            break
    return sorted(done, reverse=True)[:width]


def check_against_reference(toy: Toy, batch: int, config: SearchConfig) -> None:
    found = beam_search(toy.step, toy.start(batch), torch.full((batch,), BOS), config)
    for row in range(batch):
        right = reference(toy, row, config)
        is_there = found.scores[row] > -math.inf
        assert [strip(tokens) for tokens in found.tokens[row, is_there]] == [tokens for _, tokens in right]
        assert found.scores[row, is_there].tolist() == pytest.approx([score for score, _ in right], abs=1e-10)
        assert found.ended[row, is_there].tolist() == [EOS in tokens for _, tokens in right]


@hypothesis.settings(max_examples=150)
@given(
    vocab=st.integers(4, 9),
    seed=st.integers(0, 999),
    ending=st.floats(-3, 4),
    batch=st.integers(1, 4),
    width=st.integers(1, 6),
    limit=st.integers(1, 6),
    penalty=st.sampled_from([-0.5, 0.0, 0.6, 1.0, 1.5]),
)
def test_a_search_with_lists_finds_the_same(
    vocab: int, seed: int, ending: float, batch: int, width: int, limit: int, penalty: float
) -> None:
    config = SearchConfig(width=width, max_length=limit, length_penalty=penalty)
    check_against_reference(Toy(vocab, seed, {EOS: ending}), batch, config)


@hypothesis.settings(max_examples=60)
@given(
    seed=st.integers(0, 999),
    ending=st.floats(-3, 4),
    batch=st.integers(1, 5),
    limit=st.integers(1, 6),
    shortest=st.integers(0, 5),
)
def test_the_short_way_of_greedy_search_leads_where_the_long_one_does(
    seed: int, ending: float, batch: int, limit: int, shortest: int
) -> None:
    """A rule that forbids nothing takes a beam of one the long way."""
    toy, idle = Toy(8, seed, {EOS: ending}), Rules(suppressed=(torch.tensor([[1, 1, 1, 1, 1, 1, 1]]),))
    settings: dict[str, Any] = {"max_length": limit, "min_length": min(shortest, limit - 1), "length_penalty": 0.7}
    short, long = toy.search(batch, **settings), toy.search(batch, idle, **settings)
    assert torch.equal(short.tokens, long.tokens)
    for part in ("log_probs", "scores", "margin"):
        same(getattr(short, part), getattr(long, part))


@pytest.mark.parametrize("forbidden", [[1], [1, BOS], [1, BOS, 4, 5], [1, BOS, 4, 5, 6]])
def test_words_that_cannot_come_do_not_come(forbidden: list[int]) -> None:
    """A rule of the search's caller puts -inf; with only EOS left there is one hypothesis."""
    toy = Toy(7, bias=dict.fromkeys(forbidden, -math.inf))
    config = SearchConfig(width=4, max_length=4)
    check_against_reference(toy, 3, config)
    found = toy.search(3, width=4, max_length=4)
    assert not found.scores.isnan().any()
    assert not torch.isin(found.tokens[found.scores > -math.inf], torch.tensor(forbidden)).any()


def test_padding_is_never_chosen() -> None:
    toy = Toy(bias={PAD: 50.0})
    found = toy.search(2, width=3, max_length=5)
    for tokens in found.tokens.flatten(0, 1):
        sentence = strip(tokens)
        assert tokens[: len(sentence)].tolist() == sentence  # padding stands behind, not between
        assert sentence


@pytest.mark.parametrize("width", [1, 2, 4])
@pytest.mark.parametrize("seed", range(4))
def test_a_row_of_a_batch_is_that_row_alone(seed: int, width: int) -> None:
    """Though sources are padded and sentences end at different steps."""
    model, src = talker(seed), ids(seed, len(LENGTHS), max(LENGTHS))
    together = search(model, src, padding(LENGTHS), width=width, max_length=9)
    for row, length in enumerate(LENGTHS):
        alone = search(model, src[row : row + 1, :length], width=width, max_length=9)
        assert [strip(t) for t in together.tokens[row]] == [strip(t) for t in alone.tokens[0]]
        same(together.scores[row], alone.scores[0])
        same(together.log_probs[row], alone.log_probs[0])


def test_sentences_that_have_ended_cost_nothing_more() -> None:
    toy = Toy(seed=3, bias={EOS: 0.5})
    toy.search(6, width=2, max_length=30)
    assert toy.calls[0] == 6  # one prefix each
    assert toy.calls[1] == 12
    assert sorted(toy.calls[1:], reverse=True) == toy.calls[1:]
    assert toy.calls[-1] < 12
    alone = []
    for row in range(6):
        one = Toy(seed=3, bias={EOS: 0.5})
        state = one.start(6).keep(torch.tensor([row]))
        beam_search(one.step, state, torch.tensor([BOS]), SearchConfig(width=2, max_length=30))
        alone.append(len(one.calls))
    assert len(toy.calls) == max(alone)
    assert sum(toy.calls) == sum(1 + 2 * (calls - 1) for calls in alone)
    assert len(set(alone)) > 1


@pytest.mark.parametrize("limit", [1, 2, 5])
def test_the_limit_is_kept_and_told(limit: int) -> None:
    endless = Toy(bias={EOS: -math.inf})
    found = endless.search(2, width=3, max_length=limit)
    assert found.tokens.shape == (2, 3, limit)
    assert not found.ended.any()
    assert len(endless.calls) == limit
    hasty = Toy(bias={EOS: 50.0}).search(2, width=1, max_length=limit)
    assert hasty.tokens.tolist() == [[[EOS]], [[EOS]]]
    assert hasty.ended.all()


def test_at_the_limit_both_kinds_come_out() -> None:
    found = Toy(seed=1).search(4, width=4, max_length=3)
    assert set(found.ended.flatten().tolist()) == {True, False}
    for tokens, ended in zip(found.tokens.flatten(0, 1), found.ended.flatten(), strict=True):
        assert (strip(tokens)[-1] == EOS) == ended
        assert ended or len(strip(tokens)) == 3


@pytest.mark.parametrize("width", [2, 5, 8])
@pytest.mark.parametrize("seed", range(3))
def test_hypotheses_are_sorted_and_distinct(seed: int, width: int) -> None:
    model, src = talker(seed), ids(seed, len(LENGTHS), max(LENGTHS))
    found = search(model, src, padding(LENGTHS), width=width, max_length=8)
    assert (found.scores.diff(dim=1) <= 0).all()
    for row in found.tokens:
        assert len({tuple(strip(tokens)) for tokens in row}) == width


@pytest.mark.parametrize("token", ["bos", "eos", "pad"])
def test_the_start_token_is_read_first_and_not_returned(token: str) -> None:
    """With EOS as the start token the search does not take it for an end."""
    model = talker(start_token=token)
    check_scores(model, 3, 1.0)
    assert search(model, ids(0, 1, 3), max_length=6).tokens.size(2) > 1


def test_half_precision_log_probs_are_summed_in_full() -> None:
    toy = Toy(seed=2, bias={EOS: -2.0})

    def step(tokens: Tensor, state: Prefixes) -> tuple[Tensor, Prefixes]:
        logits, state = toy.step(tokens, state)
        return logits.bfloat16(), state

    found = beam_search(step, toy.start(2), torch.full((2,), BOS), SearchConfig(width=2, max_length=8))
    assert found.scores.dtype == torch.float32


def test_two_decodes_on_one_model_do_not_touch_each_other() -> None:
    """Two searches take turns, step by step, in two threads on one model."""
    model = talker(seed=5)
    assert model.output.bias is not None
    with torch.no_grad():
        model.output.bias[EOS] = -20.0  # both go on to the limit, so each step of one meets one of the other
    sources, widths = [ids(1, 3, 5), ids(2, 2, 4)], [3, 2]
    alone = [search(model, src, width=width, max_length=9) for src, width in zip(sources, widths, strict=True)]
    together: list[Hypotheses | None] = [None, None]
    turn = threading.Barrier(2, timeout=20)
    met: list[int] = []

    def run(number: int) -> None:
        def step(tokens: Tensor, state: DecoderState) -> tuple[Tensor, DecoderState]:
            turn.wait()
            met.append(number)
            return model.step(tokens, state)

        src = sources[number]
        state = model.start(model.encode(src))
        start = torch.full((len(src),), model.start_id)
        together[number] = beam_search(step, state, start, SearchConfig(width=widths[number], max_length=9))

    threads = [threading.Thread(target=run, args=(number,)) for number in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(met) == 18
    for one, other in zip(alone, together, strict=True):
        assert other is not None
        assert torch.equal(one.tokens, other.tokens)
        same(one.scores, other.scores)


def test_two_states_read_in_turns_are_two_states_read_apart() -> None:
    model = talker()
    targets, sources = [ids(1, 2, 6), ids(2, 3, 6)], [ids(3, 2, 5), ids(4, 3, 2)]
    states = [model.start(model.encode(src)) for src in sources]
    logits: list[list[Tensor]] = [[], []]
    for t in range(6):
        for n in (0, 1):
            new, states[n] = model.step(targets[n][:, t : t + 1], states[n])
            logits[n].append(new)
    for n in (0, 1):
        same(torch.cat(logits[n], dim=1), model.decode(targets[n], model.encode(sources[n])))
