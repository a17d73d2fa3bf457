"""Required words come as words: the shipped model does not glue them to their neighbours."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from glassformer.config import SearchConfig
from glassformer.translate.request import continuing_tokens, whole_words
from glassformer.translate.translator import Translator
from tests.translate.fakes import tokenizers

TEXTS = [
    "Il travaille dans un bureau.",
    "L'officier est parti hier soir.",
    "J'aime les chats.",
    "Où habites-tu ?",
    "Elle lui a donné un livre avant de partir.",
    "Merci.",
]


@pytest.fixture(scope="module")
def translator() -> Iterator[Translator]:
    with Translator.load("fr-en", engine="torch", threads=1) as loaded:
        yield loaded


@pytest.mark.parametrize(
    "words", [["office"], ["cat"], ["off"], ["book", "pen"], ["New York"], ["office", "officer"], ["naïve"], ["e.g."]]
)
@pytest.mark.parametrize("width", [1, 5])
def test_required_words_are_not_glued(words: list[str], width: int, translator: Translator) -> None:
    found = translator.translate(TEXTS, require=words, search=SearchConfig(width=width, max_length=60))
    for text in found:
        for word in words:
            assert re.search(rf"(?<!\w){re.escape(word)}(?!\w)", text), text


def test_a_suppressed_word_does_not_come(translator: Translator) -> None:
    words = ["officer", "the", "book"]
    for text in translator.translate(TEXTS, suppress=words):
        assert not whole_words(words).search(text.lower()), text


def test_tokens_that_continue_a_word() -> None:
    tokenizer = tokenizers().tgt
    found = continuing_tokens(tokenizer)
    for token, piece in enumerate(tokenizer.pieces(range(tokenizer.vocab_size))):
        if piece[:1] in ("▁", ".", ",", ";"):
            assert token not in found
        elif piece[:1].isalnum() or tokenizer.is_byte(token):
            assert token in found


def test_whole_words_stand_alone() -> None:
    pattern = whole_words(["New York", "e.g."])
    assert [match[0] for match in pattern.finditer("New York, New Yorker, (e.g. this), e.g.x")] == ["New York", "e.g."]
