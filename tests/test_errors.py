"""A user's mistake, said in one sentence."""

from __future__ import annotations

import pytest

from glassformer import errors
from glassformer.errors import AddressError, ConfigError, GlassformerError, ModelFileError, UsageError, nearest


@pytest.mark.parametrize(
    ("word", "known", "said"),
    [
        ("d_modle", ["n_heads", "d_model"], "did you mean d_model?"),
        ("bse", ["big", "base"], "did you mean base?"),
        ("xyz", ["big", "base"], "known: base, big"),
        ("anything", [], "known: "),
    ],
)
def test_nearest(word: str, known: list[str], said: str) -> None:
    assert nearest(word, known) == said


@pytest.mark.parametrize("kind", [ConfigError, ModelFileError, AddressError, UsageError])
def test_every_mistake_is_one_kind_and_says_only_its_sentence(kind: type[GlassformerError]) -> None:
    assert issubclass(kind, GlassformerError)
    assert str(kind("it's not there; look elsewhere")) == "it's not there; look elsewhere"


def test_every_mistake_is_drawn_on_top_of_the_file() -> None:
    assert errors.__doc__ is not None
    kinds = [name for name, kind in vars(errors).items() if isinstance(kind, type) and issubclass(kind, Exception)]
    assert len(kinds) > 5
    for name in kinds:
        assert name in errors.__doc__
