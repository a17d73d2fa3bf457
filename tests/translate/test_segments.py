"""Segments: nothing of a text is lost when it is split, cut and put back."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from glassformer.translate import segments
from glassformer.translate.segments import Segment, cut_segment, fill, split_text, windows

TEXTS = st.text("aé. !?\n\t\u00a0\u3000。", max_size=60)


@given(TEXTS, st.booleans(), st.integers(2, 5))
def test_segments_are_the_text_and_one_is_the_first(text: str, whole: bool, n_parts: int) -> None:
    found = split_text(text, "fr", whole=whole)
    assert "".join(segment.text for segment in found) == text
    sentences = [segment for segment in found if not segment.is_space]
    assert [segment.is_first for segment in sentences] == [number == 0 for number in range(len(sentences))]
    assert all(segment.text == segment.text.strip() for segment in sentences)
    for sentence in sentences:
        parts = cut_segment(sentence, n_parts)
        assert "".join(part.text for part in parts) == sentence.text
        assert sum(part.is_first for part in parts) == sentence.is_first


def test_translated_segments_take_the_place_of_sentences() -> None:
    found = split_text(" Un. Deux. ", "fr", whole=False)
    translated = iter([[Segment("One.")], [Segment("T"), Segment(" "), Segment("wo.")]])
    assert [segment.text for segment in fill(found, translated)] == [" ", "One.", " ", "T", " ", "wo.", " "]


def test_windows_are_limited_in_texts_and_characters() -> None:
    assert list(windows([])) == []
    assert [len(window) for window in windows(["x"] * (segments._WINDOW + 3))] == [segments._WINDOW, 3]
    long = "x" * (segments._MAX_CHARACTERS + 1)
    assert [len(window) for window in windows(["a", long, "b"])] == [2, 1]
