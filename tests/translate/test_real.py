"""A trained model on real sentences: what must hold of translations, whatever the engine and the batch.

GLASSFORMER_MODEL is a model folder, GLASSFORMER_TEXT a file whose lines begin with a source sentence, before a tab if
there is one; 2,000 of them are translated. `make slow` runs it where both are set.
"""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest

from glassformer.config import SearchConfig
from glassformer.store.folder import load_model
from glassformer.text.tokenizer import Tokenizers
from glassformer.translate.engines.ctranslate2 import Setup
from glassformer.translate.engines.engine import Engine, IdHypothesis, Request, Source
from glassformer.translate.engines.probe import choose_setup, load_engine
from glassformer.translate.engines.torch import TorchEngine

MODEL, TEXT = (os.environ.get(f"GLASSFORMER_{name}", "") for name in ("MODEL", "TEXT"))
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not (MODEL and TEXT), reason="GLASSFORMER_MODEL and GLASSFORMER_TEXT name nothing to translate"),
]
NEAR_TIE = 1e-4


@pytest.fixture(scope="module")
def sources() -> list[Source]:
    lines = Path(TEXT).read_text(encoding="utf-8").splitlines()[:2000]
    tokens = Tokenizers.load(Path(MODEL)).src.encode_batch([line.split("\t")[0] for line in lines])
    return [Source(some) for some in tokens if len(some) < 100]


@pytest.fixture(scope="module")
def ours() -> TorchEngine:
    return TorchEngine([load_model(Path(MODEL))])


def best(engine: Engine, sources: list[Source], width: int, size: int) -> list[IdHypothesis]:
    """Translate in groups of `size` sentences."""
    request, found = Request(SearchConfig(width=width, max_length=100)), dict[int, IdHypothesis]()
    for first in range(0, len(sources), size):
        answers = engine.translate(sources[first : first + size], request)
        found |= {first + number: of_one[0] for number, of_one in answers}
    return [found[number] for number in range(len(sources))]


@pytest.mark.parametrize("width", [1, 5])
def test_the_batch_does_not_matter(ours: TorchEngine, sources: list[Source], width: int) -> None:
    alone = [found.tokens for found in best(ours, sources, width, 1)]
    for size in (8, 64, len(sources)):
        assert [found.tokens for found in best(ours, sources, width, size)] == alone
    order = list(range(len(sources)))
    random.Random(1).shuffle(order)
    shuffled = best(ours, [sources[i] for i in order], width, 64)
    assert [found.tokens for found in shuffled] == [alone[i] for i in order]


@pytest.mark.parametrize("width", [1, 5])
def test_ctranslate2_gives_the_same_text(ours: TorchEngine, sources: list[Source], width: int) -> None:
    """In float32; where it differs both have the same score to 1e-4, and that is rare."""
    theirs = best(load_engine(Path(MODEL), Setup("float32", 1, 2)), sources[:1000], width, 1000)
    mine = best(ours, sources[:1000], width, 1000)
    different = [(a, b) for a, b in zip(mine, theirs, strict=True) if a.tokens != b.tokens]
    print(f"{len(different)} of {len(mine)} differ")
    for a, b in different:
        assert a.score == pytest.approx(b.score, abs=NEAR_TIE)
    assert len(different) <= 3


def test_the_chosen_setup_keeps_the_text(ours: TorchEngine, sources: list[Source]) -> None:
    """What the probe chooses on this machine changes few translations, and hardly their probability."""
    setup = choose_setup(Path(MODEL))
    theirs = best(load_engine(Path(MODEL), setup), sources[:1000], 5, 1000)
    mine = best(ours, sources[:1000], 5, 1000)
    print(setup, sum(a.tokens == b.tokens for a, b in zip(mine, theirs, strict=True)), "of 1000 are the same")
    assert sum(b.score for b in theirs) / 1000 == pytest.approx(sum(a.score for a in mine) / 1000, abs=0.02)
