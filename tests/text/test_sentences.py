"""Sentences: whatever the text, nothing is lost; whatever the language, M. Dupont is one person."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from glassformer.text.sentences import cut_sentence, split_sentences

LANGUAGES = ("fr", "en", "fr_CA", "de", "ja", "zh", "ar", "hi", "no-such-language", "")
HOSTILE = st.text("aM1. !?…«»()\"'’-\n\r\t\x0b\x85\0\u00a0\u2028\u3000。！\u200b\ufeff\u0301😀\ud800", max_size=60)


def sentences(text: str, language: str) -> list[str]:
    return [span for span in split_sentences(text, language) if not span.isspace()]


@given(st.one_of(st.text(st.characters(), max_size=60), HOSTILE), st.sampled_from(LANGUAGES))
def test_spans_are_the_text(text: str, language: str) -> None:
    spans = split_sentences(text, language)
    assert "".join(spans) == text
    for span in spans:
        assert span.isspace() or (span == span.strip() and len(span.splitlines()) == 1)


@pytest.mark.parametrize(
    ("language", "text"),
    [
        ("fr", "M. Dupont est venu.|Il est parti."),
        ("fr", "Je vois Mme Durand et M. Martin.|Bien."),
        ("fr", "Mme. Martin et le Dr. House arrivent.|Bonjour !"),
        ("fr", "J.-C. est né.|Fin."),
        ("fr", "J.-P. Martin vient.|Il part."),
        ("fr", "Il est 15 h. 30.|Il vit à St. Malo."),
        ("fr", "le 1er janv. 2020.|Fin"),
        ("fr", "J'ai 3.5 euros.|Et toi ?"),
        ("fr", "Des pommes, etc. et des poires.|Oui !"),
        ("fr", "www.example.com est bien.|Non."),
        ("fr", "Il a dit : « Viens ! »|Puis il est parti."),
        ("fr", "je suis là.|il est là."),
        ("en", "Mr. Smith came.|He left at 5 p.m.|They stayed."),
        ("en", "approx. 5 km, see vol. 3.|Ok."),
        ("en", "J. R. R. Tolkien paid 3.5 dollars.|And you?"),
        ("en", "See example.com.|Yes."),
        ("ja", "これはペンです。|はい。"),
        ("", "Hello there.|Yes."),
    ],
)
def test_sentences_end_where_they_end(language: str, text: str) -> None:
    assert sentences(text.replace("|", " " * (language != "ja")), language) == text.split("|")


@pytest.mark.parametrize("line_break", ["\n", "\r\n", "\n\n", " \n\t", "\u2028", "\x85", "\x0b"])
def test_a_line_break_ends_a_sentence(line_break: str) -> None:
    assert sentences(f"un{line_break}deux", "fr") == ["un", "deux"]
    assert "".join(split_sentences(f"un{line_break}deux", "fr")) == f"un{line_break}deux"


def test_items_of_a_list_keep_their_numbers() -> None:
    assert sentences("1. Un\n2. Deux", "fr") == ["1. Un", "2. Deux"]


@pytest.mark.parametrize("unit", ["a", "«", "J.", "M. ", " ", "a. ", "\n"])
def test_a_megabyte_is_no_matter(unit: str) -> None:
    """The time is linear: with sentencex alone, a megabyte of opening quotes takes minutes."""
    text = unit * (1_000_000 // len(unit))
    assert "".join(split_sentences(text, "fr")) == text


@given(st.one_of(st.text(st.characters(), min_size=2, max_size=60), HOSTILE), st.integers(2, 9))
def test_parts_are_the_sentence(sentence: str, n_parts: int) -> None:
    parts = cut_sentence(sentence, n_parts)
    assert "".join(parts) == sentence
    assert len(parts) <= n_parts
    assert len(parts) > 1 or len(sentence) < 2


@pytest.mark.parametrize(
    ("sentence", "parts"),
    [
        ("un deux trois, quatre; cinq six sept", ["un deux trois, quatre;", " cinq six sept"]),
        ("un deux trois quatre, cinq six sept", ["un deux trois quatre,", " cinq six sept"]),
        ("un deux trois quatre cinq six sept", ["un deux trois ", "quatre cinq six sept"]),
        ("aaaaaaaaaa", ["aaaaa", "aaaaa"]),
        ("aaaae\u0301aaaa", ["aaaa", "e\u0301aaaa"]),
    ],
)
def test_a_sentence_is_cut_at_the_best_place(sentence: str, parts: list[str]) -> None:
    assert cut_sentence(sentence, 2) == parts
