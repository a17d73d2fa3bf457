"""CTranslate2 gives the text and the probabilities that our own model gives, and refuses what it cannot do so."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from glassformer.config import SearchConfig, TokenizerConfig
from glassformer.convert.ctranslate2 import export_ctranslate2
from glassformer.errors import ModelFileError
from glassformer.model.transformer import Transformer
from glassformer.store.folder import About, AttentionHead
from glassformer.text.tokenizer import Tokenizer, Tokenizers
from glassformer.text.vocab import EOS, PAD
from glassformer.translate.engines.ctranslate2 import CTranslate2Engine, Setup
from glassformer.translate.engines.engine import IdHypothesis, Request, Source
from glassformer.translate.engines.torch import TorchEngine
from tests.models import build

VOCAB = 280
HEAD = AttentionHead(layer=0, head=2)
NEAR_TIE = 1e-4


@pytest.fixture(scope="module")
def tokenizers() -> Tokenizers:
    lines = ["le raton laveur lave son repas", "the raccoon washes its meal", "un deux trois", "one two three"]
    tokenizer = Tokenizer.train(lines, TokenizerConfig(vocab_size=VOCAB))
    return Tokenizers(tokenizer, tokenizer)


def trained(seed: int) -> Transformer:
    """Make a model that, like a trained one, has its preferences, never says PAD and comes to an end."""
    shape = {"src_vocab": VOCAB, "tgt_vocab": VOCAB, "d_model": 32, "n_heads": 4, "d_ff": 64, "output_bias": True}
    model = build(seed, dtype=torch.float32, **shape)
    with torch.no_grad():
        model.output.weight.mul_(3)
        assert model.output.bias is not None
        model.output.bias[PAD] = -30.0
        model.output.bias[EOS] = 5.0
    return model


def sentences(seed: int, count: int, longest: int = 20) -> list[Source]:
    draws = random.Random(seed)
    return [Source([draws.randrange(4, VOCAB) for _ in range(draws.randint(1, longest))]) for _ in range(count)]


def engines(seed: int, tokenizers: Tokenizers, folder: Path, **setup: Any) -> tuple[TorchEngine, CTranslate2Engine]:
    model = trained(seed)
    export_ctranslate2(model, tokenizers, folder / "out", About(alignment=HEAD))
    return TorchEngine([model], HEAD), CTranslate2Engine(folder / "out", Setup(**setup))


def score(engine: TorchEngine, source: Sequence[int], found: IdHypothesis, alpha: float) -> float:
    """Ask the model again for what a hypothesis is worth."""
    model = engine.models[0]
    tokens = [*found.tokens, *[EOS] * found.ended]
    with torch.inference_mode():
        given = torch.tensor([[model.start_id, *tokens[:-1]]])
        log_probs = model.decode(given, model.encode(torch.tensor([[*source, EOS]])))[0].log_softmax(dim=-1)
    total: float = log_probs[range(len(tokens)), tokens].sum().item()
    return total / float(max(len(found.tokens), 1) ** alpha)


SEARCHES = [
    SearchConfig(max_length=24),
    SearchConfig(max_length=24, width=2),
    SearchConfig(max_length=24, width=5),
    SearchConfig(max_length=24, width=5, length_penalty=0.0),
    SearchConfig(max_length=24, width=4, length_penalty=0.6),
    SearchConfig(max_length=24, width=4, length_penalty=1.3, penalty_form="gnmt"),
    SearchConfig(max_length=3, width=3),
]


@pytest.mark.parametrize(
    "search", SEARCHES, ids=lambda s: f"{s.width}-{s.length_penalty}-{s.penalty_form}-{s.max_length}"
)
def test_same_text_as_torch(search: SearchConfig, tokenizers: Tokenizers, tmp_path: Path) -> None:
    """Where they differ, it is a near tie by the model's own word; of 300 sentences that is at most one."""
    near_ties = n_ended = 0
    for seed in range(3):
        ours, theirs = engines(seed, tokenizers, tmp_path)
        sources = sentences(seed, 100)
        expected, found = (dict(engine.translate(sources, Request(search))) for engine in (ours, theirs))
        assert expected.keys() == found.keys()
        for number, source in enumerate(sources):
            (mine,), (its,) = expected[number], found[number]
            n_ended += mine.ended
            if (mine.tokens, mine.ended) == (its.tokens, its.ended):
                assert (its.log_prob, its.score) == pytest.approx((mine.log_prob, mine.score), abs=NEAR_TIE)
            elif search.penalty_form == "power":
                a, b = (score(ours, source.tokens, each, search.length_penalty) for each in (mine, its))
                assert abs(a - b) < NEAR_TIE
                near_ties += 1
    assert near_ties <= 1
    assert search.max_length == 3 or n_ended > 5, "models that never end prove nothing of the length penalty"


def test_n_best_are_ranked_and_mostly_the_same(tokenizers: Tokenizers, tmp_path: Path) -> None:
    ours, theirs = engines(0, tokenizers, tmp_path)
    sources, request = sentences(0, 100), Request(SearchConfig(max_length=24, width=4), n_best=3)
    expected, found = (dict(engine.translate(sources, request)) for engine in (ours, theirs))
    for hypotheses in found.values():
        scores = [each.score for each in hypotheses]
        assert len(scores) == 3
        assert scores == sorted(scores, reverse=True)
    same = [[a.tokens for a in expected[i]] == [b.tokens for b in found[i]] for i in range(100)]
    assert sum(same) >= 95  # of more than `width` that have ended it may keep another last one


@pytest.mark.parametrize("setup", [Setup(workers=2, batch=7), Setup(workers=1, threads=2, batch=1000), Setup(batch=1)])
def test_batches_and_workers_change_nothing(setup: Setup, tokenizers: Tokenizers, tmp_path: Path) -> None:
    _, plain = engines(0, tokenizers, tmp_path)
    sources, request = sentences(5, 60), Request(SearchConfig(max_length=16, width=3))
    other = CTranslate2Engine(tmp_path / "out", setup)
    expected, found = (dict(engine.translate(sources, request)) for engine in (plain, other))
    assert [expected[i][0].tokens for i in range(60)] == [found[i][0].tokens for i in range(60)]


@pytest.mark.parametrize("width", [1, 3])
def test_details_are_torchs(width: int, tokenizers: Tokenizers, tmp_path: Path) -> None:
    ours, theirs = engines(1, tokenizers, tmp_path)
    sources = sentences(1, 40)
    request = Request(SearchConfig(max_length=12, width=width), token_log_probs=True, attention=True, n_best=width)
    expected, found = (dict(engine.translate(sources, request)) for engine in (ours, theirs))
    compared = 0
    for number, source in enumerate(sources):
        for mine, its in zip(expected[number], found[number], strict=True):
            assert its.token_log_probs is not None
            assert its.attention is not None
            assert its.attention.shape == (len(its.tokens), len(source.tokens))
            assert sum(its.token_log_probs) == pytest.approx(its.log_prob, abs=1e-4)
            if mine.tokens == its.tokens:
                assert mine.attention is not None
                np.testing.assert_allclose(its.attention, mine.attention, atol=1e-5)
                assert its.token_log_probs == pytest.approx(mine.token_log_probs, abs=1e-4)
                compared += 1
    assert compared > 30 * width


RULES = [
    Request(SearchConfig(max_length=16, min_length=9)),
    Request(SearchConfig(max_length=16, no_repeat_ngram=2)),
    Request(SearchConfig(max_length=16), suppressed=((116,), (215, 94), (94,))),
]


@pytest.mark.parametrize("request_", RULES)
def test_rules_of_greedy_search(request_: Request, tokenizers: Tokenizers, tmp_path: Path) -> None:
    ours, theirs = engines(2, tokenizers, tmp_path)
    sources = sentences(2, 60)
    expected, found = (dict(engine.translate(sources, request_)) for engine in (ours, theirs))
    free = dict(theirs.translate(sources, Request(SearchConfig(max_length=16))))
    assert any(free[i][0].tokens != found[i][0].tokens for i in found), "a rule that changes nothing was not tested"
    for number in found:
        assert found[number][0].tokens == expected[number][0].tokens
        assert found[number][0].log_prob == pytest.approx(expected[number][0].log_prob, abs=1e-4)


@pytest.mark.parametrize("width", [1, 4])
def test_forced_prefix(width: int, tokenizers: Tokenizers, tmp_path: Path) -> None:
    ours, theirs = engines(0, tokenizers, tmp_path)
    draws = random.Random(0)
    plain = sentences(3, 60)
    sources = [
        source._replace(prefix=[draws.randrange(4, VOCAB) for _ in range(number % 4)])
        for number, source in enumerate(plain)
    ]
    request = Request(SearchConfig(max_length=16, width=width), token_log_probs=True, attention=True)
    expected, found = (dict(engine.translate(sources, request)) for engine in (ours, theirs))
    same = 0
    for number, source in enumerate(sources):
        best = found[number][0]
        assert best.tokens[: len(source.prefix)] == source.prefix
        assert best.attention is not None
        assert best.attention.shape == (len(best.tokens), len(source.tokens))
        assert best.score == pytest.approx(score(ours, source.tokens, best, 1.0), abs=1e-4)
        same += best.tokens == expected[number][0].tokens
    assert same >= 58


def test_no_source_no_text(tokenizers: Tokenizers, tmp_path: Path) -> None:
    _, theirs = engines(0, tokenizers, tmp_path)
    found = dict(theirs.translate([Source([]), Source([9, 8])], Request(SearchConfig(max_length=5, width=2), n_best=2)))
    assert [each.tokens for each in found[0]] == [[]]
    assert found[1][0].tokens
    assert list(theirs.translate([], Request())) == []


REFUSED = {
    "draws": Request(SearchConfig(method="sample")),
    "method=sample or mbr": Request(SearchConfig(method="mbr", width=4)),
    "stop=exact": Request(SearchConfig(width=2, stop="exact")),
    "groups=2": Request(SearchConfig(width=4, groups=2)),
    "coverage": Request(SearchConfig(width=2, coverage_penalty=0.2)),
    "length_penalty=-1": Request(SearchConfig(width=2, length_penalty=-1)),
    "required": Request(required=((5,),)),
    "min_length": Request(SearchConfig(width=2, min_length=3)),
    "no_repeat_ngram": Request(SearchConfig(width=2, no_repeat_ngram=3)),
    "suppressed": Request(SearchConfig(width=2), suppressed=((7,),)),
}


@pytest.mark.parametrize("word", REFUSED)
def test_refuses(word: str, tokenizers: Tokenizers, tmp_path: Path) -> None:
    _, theirs = engines(0, tokenizers, tmp_path)
    reason = theirs.refuses(REFUSED[word])
    assert reason is not None
    assert word in reason
    assert all(theirs.refuses(Request(search, n_best=search.width)) is None for search in SEARCHES)


def test_length_limit_of_the_model(tokenizers: Tokenizers, tmp_path: Path) -> None:
    """A model of 80 positions is not asked for a 81st."""
    endless = trained(0)
    with torch.no_grad():
        assert endless.output.bias is not None
        endless.output.bias[EOS] = -30.0
    export_ctranslate2(endless, tokenizers, tmp_path / "endless")
    (found,) = dict(CTranslate2Engine(tmp_path / "endless").translate([Source([7])], Request()))[0]
    assert len(found.tokens) == endless.config.max_positions
    assert not found.ended
    asked = Request(token_log_probs=True)
    (found,) = dict(CTranslate2Engine(tmp_path / "endless").translate([Source([7])], asked))[0]
    assert found.token_log_probs is not None
    assert len(found.tokens) == len(found.token_log_probs) == endless.config.max_positions - 1


def test_a_folder_that_is_no_export(tokenizers: Tokenizers, tmp_path: Path) -> None:
    with pytest.raises(ModelFileError, match="not a complete CTranslate2 export"):
        CTranslate2Engine(tmp_path)
    engines(0, tokenizers, tmp_path)
    weights = tmp_path / "out" / "model.bin"
    weights.write_bytes(weights.read_bytes()[:1000])
    with pytest.raises(ModelFileError, match="cannot be loaded by CTranslate2"):
        CTranslate2Engine(tmp_path / "out")


def test_close_lets_go(tokenizers: Tokenizers, tmp_path: Path) -> None:
    _, theirs = engines(0, tokenizers, tmp_path)
    theirs.close()
    with pytest.raises(RuntimeError):
        list(theirs.translate([Source([7])], Request()))
