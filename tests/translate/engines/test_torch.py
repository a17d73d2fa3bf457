"""The torch engine: what it answers is what the models say when asked again, and the batch does not matter."""

from __future__ import annotations

import math
import random
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import torch

from glassformer.config import SearchConfig
from glassformer.errors import ConfigError
from glassformer.model.trace import look
from glassformer.model.transformer import Transformer
from glassformer.store.folder import AttentionHead
from glassformer.text.vocab import EOS
from glassformer.translate.engines.engine import Engine, IdHypothesis, Request, Source
from glassformer.translate.engines.torch import TorchEngine, translate_ids
from tests.models import build


def talker(seed: int = 0, dtype: torch.dtype = torch.float64, loud: float = 1.0, **changes: Any) -> Transformer:
    """Make a model that ends its sentences sooner or later."""
    model = build(seed, dtype, **{"output_bias": True, **changes})
    assert model.output.bias is not None
    with torch.no_grad():
        model.output.weight.mul_(loud)
        model.output.bias[EOS] += 1.0
    return model


def sentences(seed: int, count: int, longest: int = 9, vocab: int = 11) -> list[Source]:
    chance = random.Random(seed)
    return [Source([chance.randrange(4, vocab) for _ in range(chance.randrange(longest + 1))]) for _ in range(count)]


def run(engine: TorchEngine, sources: list[Source], request: Request) -> list[list[IdHypothesis]]:
    answers = dict(engine.translate(sources, request))
    assert sorted(answers) == list(range(len(sources)))
    return [answers[number] for number in range(len(sources))]


def ask(models: list[Transformer], source: Source, found: IdHypothesis) -> list[float]:
    """Ask again, without cache, beam or batch: the log-probability of each token."""
    tokens = [*found.tokens, EOS] if found.ended else found.tokens
    tgt = torch.tensor([[models[0].start_id, *tokens[:-1]]])
    src = torch.tensor([[*source.tokens, EOS]])
    with torch.no_grad():
        probs = sum(model.decode(tgt, model.encode(src)).softmax(dim=-1)[0] for model in models)
    assert isinstance(probs, torch.Tensor)
    result: list[float] = (probs / len(models)).log()[range(len(tokens)), tokens].tolist()
    return result


REQUESTS: dict[str, Request] = {
    "greedy": Request(SearchConfig(max_length=12)),
    "beam": Request(SearchConfig(width=4, max_length=12), n_best=4),
    "gnmt": Request(SearchConfig(width=3, max_length=12, penalty_form="gnmt", length_penalty=0.6), n_best=2),
    "exact": Request(SearchConfig(width=3, max_length=12, stop="exact", length_penalty=0.4), n_best=3),
    "coverage": Request(SearchConfig(width=3, max_length=12, coverage_penalty=0.3), n_best=3),
    "groups": Request(SearchConfig(width=4, groups=2, max_length=12), n_best=4),
    "rules": Request(
        SearchConfig(width=3, max_length=12, no_repeat_ngram=2, min_length=2), suppressed=((5,), (6, 7)), n_best=3
    ),
    "required": Request(SearchConfig(width=3, max_length=12), required=((8, 9), (4,)), n_best=2),
    "draws": Request(SearchConfig(method="sample", width=3, max_length=12, temperature=0.8), n_best=3),
    "few draws": Request(SearchConfig(method="sample", width=2, max_length=12, top_k=4, top_p=0.9), n_best=2),
    "mbr": Request(SearchConfig(method="mbr", width=3, max_length=12, seed=3), n_best=3),
}


@pytest.mark.parametrize("n_models", [1, 2])
@pytest.mark.parametrize("kind", REQUESTS)
def test_log_probabilities_and_scores_are_the_models_own(kind: str, n_models: int) -> None:
    models, request = [talker(seed) for seed in range(n_models)], REQUESTS[kind]._replace(token_log_probs=True)
    sources, search = sentences(1, 12), request.search
    for source, answers in zip(sources, run(TorchEngine(models), sources, request), strict=True):
        assert 1 <= len(answers) <= request.n_best
        if search.method == "beam":
            assert [found.score for found in answers] == sorted((found.score for found in answers), reverse=True)
        for found in answers:
            right = ask(models, source, found)
            assert found.token_log_probs == pytest.approx(right, abs=1e-9)
            assert found.log_prob == pytest.approx(sum(right), abs=1e-9)
            assert found.ended or len(found.tokens) == search.max_length
            length = len(found.tokens)
            base = (5 + length) / 6 if search.penalty_form == "gnmt" else max(1, length)
            covered = found.score - sum(right) / base**search.length_penalty
            assert covered == pytest.approx(0, abs=1e-9) if not search.coverage_penalty else covered < 1e-9


def test_the_coverage_penalty_is_the_formula_on_what_a_look_shows() -> None:
    model, sources = talker(2), sentences(4, 8)
    for source, answers in zip(sources, run(TorchEngine([model]), sources, REQUESTS["coverage"]), strict=True):
        for found in answers:
            tokens = [*found.tokens, EOS] if found.ended else found.tokens
            trace = look(model, [*source.tokens, EOS], [model.start_id, *tokens[:-1]])
            weights = trace.entry("dec.1.cross.weights").value[0].mean(dim=0)  # (T, S)
            penalty = 0.3 * weights.sum(dim=0).clamp(max=1.0).log().sum().item()
            assert found.score == pytest.approx(found.log_prob / max(1, len(found.tokens)) + penalty, abs=1e-9)


@pytest.mark.parametrize("head", [None, AttentionHead(layer=0, head=1)])
def test_attention_is_what_a_look_shows(head: AttentionHead | None) -> None:
    model, sources = talker(3), sentences(5, 10)
    request = Request(SearchConfig(width=3, max_length=8), n_best=3, attention=True)
    for source, answers in zip(sources, run(TorchEngine([model], head), sources, request), strict=True):
        for found in answers:
            assert found.attention is not None
            assert found.attention.shape == (len(found.tokens), len(source.tokens))
            trace = look(model, [*source.tokens, EOS], [model.start_id, *found.tokens])
            weights = trace.entry(f"dec.{0 if head else 1}.cross.weights").value[0]
            right = weights[1] if head else weights.mean(dim=0)
            np.testing.assert_allclose(found.attention, right[: len(found.tokens), :-1].numpy(), atol=1e-6)


def test_rules_are_kept() -> None:
    model, sources = talker(1), [Source(s.tokens, [7, 4, 7][: i % 4]) for i, s in enumerate(sentences(6, 12))]
    for source, answers in zip(sources, run(TorchEngine([model]), sources, REQUESTS["rules"]), strict=True):
        for found in answers:
            assert found.tokens[: len(source.prefix)] == list(source.prefix)
            rest = found.tokens[len(source.prefix) :]
            assert 5 not in rest
            assert (6, 7) not in list(pairwise(rest))
    for answers in run(TorchEngine([model]), sources, REQUESTS["required"]):
        for found in answers:
            assert (8, 9) in list(pairwise(found.tokens))
            assert 4 in found.tokens


@pytest.mark.parametrize("kind", REQUESTS)
@pytest.mark.parametrize("seed", range(2))
def test_the_batch_does_not_matter(kind: str, seed: int) -> None:
    """In float32, with a model that hardly prefers one token to another, so that near ties abound."""
    model = talker(seed, torch.float32, loud=0.02, tie="none")
    sources, request = sentences(seed, 64), REQUESTS[kind]
    alone = [[found.tokens for found in run(TorchEngine([model]), [source], request)[0]] for source in sources]
    order = list(range(64))
    redone = 0
    for size, shuffled in ((8, False), (64, False), (8, True), (64, True)):
        if shuffled:
            random.Random(seed).shuffle(order)
        engine = TorchEngine([model], max_tokens=10**6)
        for first in range(0, 64, size):
            numbers = order[first : first + size]
            answers = run(engine, [sources[i] for i in numbers], request)
            assert [[found.tokens for found in each] for each in answers] == [alone[i] for i in numbers]
        redone += engine.redone
    assert redone < 4 * 64


def test_near_ties_are_what_makes_the_batch_matter() -> None:
    """Two tokens with the same weights tie: sentences are redone, and without it some would come out otherwise."""
    model = talker(0, torch.float32, tie="none", d_model=64, n_heads=4, d_ff=128)
    assert model.output.bias is not None
    with torch.no_grad():
        model.output.weight[8:11] = model.output.weight[5:8] + 1e-7 * torch.randn(3, 64)
        model.output.bias[8:11] = model.output.bias[5:8]
        model.output.bias[EOS] -= 2.0
    sources, request = sentences(9, 200, longest=20), Request(SearchConfig(width=4, max_length=20))
    engine, careless = TorchEngine([model]), TorchEngine([model], tolerance=0.0)
    alone = [run(careless, [source], request)[0][0].tokens for source in sources]
    assert [answers[0].tokens for answers in run(engine, sources, request)] == alone
    assert engine.redone > 20
    assert [answers[0].tokens for answers in run(careless, sources, request)] != alone
    assert careless.redone == 0


def test_translate_ids_is_the_engine() -> None:
    model, sources, search = talker(4), sentences(2, 9), SearchConfig(width=2, max_length=9)
    answers = dict(translate_ids(model, [source.tokens for source in sources], search))
    assert [answers[i] for i in range(9)] == run(TorchEngine([model]), sources, Request(search, n_best=2))


@pytest.mark.parametrize("max_tokens", [1, 40, 10**6])
def test_batches_stay_within_their_tokens(max_tokens: int, monkeypatch: pytest.MonkeyPatch) -> None:
    model, sources = talker(4), sentences(2, 30)
    shapes: list[tuple[int, int]] = []
    encode = model.encode

    def seen(src: torch.Tensor, mask: torch.Tensor | None) -> Any:
        shapes.append((src.size(0), src.size(1)))
        return encode(src, mask)

    monkeypatch.setattr(model, "encode", seen)
    monkeypatch.setattr(torch, "get_num_threads", lambda: 1)  # which would each get a batch
    engine = TorchEngine([model], max_tokens=max_tokens)
    numbers = [number for number, _ in engine.translate(sources, Request(SearchConfig(width=2, max_length=4)))]
    assert engine.redone == 0
    assert all(rows == 1 or rows * columns * 2 <= max_tokens for rows, columns in shapes)
    lengths = [len(sources[number].tokens) for number in numbers]
    assert lengths == sorted(lengths, reverse=True)
    assert len(shapes) == {1: 30, 10**6: 1}.get(max_tokens, len(shapes))


def test_an_ensemble_of_equals_is_one() -> None:
    one, sources = talker(6), sentences(3, 10)
    request = Request(SearchConfig(width=3, max_length=10, coverage_penalty=0.2), n_best=3)
    for twice, once in zip(
        run(TorchEngine([one, one]), sources, request), run(TorchEngine([one]), sources, request), strict=True
    ):
        assert [found.tokens for found in twice] == [found.tokens for found in once]
        assert [found.score for found in twice] == pytest.approx([found.score for found in once], abs=1e-9)


def test_models_of_other_vocabularies_are_refused() -> None:
    with pytest.raises(ConfigError, match="must share their vocabularies"):
        TorchEngine([talker(), talker(src_vocab=12, tgt_vocab=12)])


def test_the_models_limit_is_a_limit_of_the_search() -> None:
    model = talker(positions="learned", max_positions=7)
    with torch.no_grad():
        assert model.output.bias is not None
        model.output.bias[EOS] = -math.inf
    (found,) = run(TorchEngine([model]), [Source([4, 5])], Request())[0]
    assert len(found.tokens) == 7
    assert not found.ended


def test_it_refuses_only_what_it_cannot_do() -> None:
    engine: Engine = TorchEngine([talker()])
    assert all(engine.refuses(request) is None for request in REQUESTS.values())
    said = engine.refuses(Request(SearchConfig(method="sample"), required=((4,),)))
    assert said is not None
    assert "required words" in said
    engine.close()


def test_batches_side_by_side_give_what_a_sentence_gets_alone() -> None:
    """With threads enough that some batches hold one sentence, and a model of a size that threads share."""
    model = talker(5, torch.float32, loud=0.02, tie="none", d_model=256, n_heads=4, d_ff=1024)
    sources, request = sentences(7, 26, longest=20), Request(SearchConfig(width=4, max_length=12))
    threads = torch.get_num_threads()
    try:
        torch.set_num_threads(2)
        alone = [run(TorchEngine([model]), [source], request)[0] for source in sources]
        for most in (1, 200, 10**6):
            engine = TorchEngine([model], max_tokens=most)
            assert [[found.tokens for found in each] for each in run(engine, sources, request)] == [
                [found.tokens for found in each] for each in alone
            ]
            assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(threads)


def test_a_fault_in_one_batch_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    engine = TorchEngine([talker(5)], max_tokens=60)
    monkeypatch.setattr(engine, "_encode", lambda sources: (_ for _ in ()).throw(RuntimeError("no memory")))
    threads = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        with pytest.raises(RuntimeError, match="no memory"):
            run(engine, sentences(7, 40), Request(SearchConfig(max_length=4)))
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(threads)
