"""How a text is cut into pieces: the two best paths of a unigram model, or the merges of BPE."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Any, Final, Literal, NamedTuple

from sentencepiece import SentencePieceProcessor

from glassformer.text.tokenizer import Tokenizer

_WORD: Final = re.compile("\u2581*[^\u2581]+|\u2581+")
_UNKNOWN: Final = 10.0  # penalty of sentencepiece for an unknown character, below the least likely piece


class Cut(NamedTuple):
    """One segmentation of a word."""

    pieces: tuple[tuple[str, int, float | None], ...]  # piece, id, log-probability; None for a byte
    score: float


class Merge(NamedTuple):
    """A word between two merges of BPE."""

    pieces: tuple[str, ...]
    merged: int | None  # index of the piece that was just made
    rank: float | None  # of the merge that made it


class Word(NamedTuple):
    """A word and how it is cut into pieces."""

    text: str
    best: Cut | None = None
    second: Cut | None = None
    merges: tuple[Merge, ...] = ()


def cut_words(tokenizer: Tokenizer, text: str) -> tuple[Literal["unigram", "bpe"], list[Word]]:
    """Cut a text word by word, as the tokenizer does, and return the kind of model and the steps."""
    sp = SentencePieceProcessor(model_proto=tokenizer.model_bytes)
    normal: str = sp.normalize(text)
    sp.override_normalizer_spec(add_dummy_prefix=False, remove_extra_whitespaces=False)
    words: Iterable[str] = _WORD.findall(normal)
    try:
        sp.nbest_encode("a", nbest_size=2)
    except RuntimeError:  # only unigram models return n-best lists
        return "bpe", [Word(word, merges=tuple(_merge(sp, word))) for word in words]
    ours = {their: our for our, their in enumerate(tokenizer.theirs)}
    unknown = min(sp.get_score(i) for i in range(sp.get_piece_size())) - _UNKNOWN
    found = []
    for word in words:
        ways = [_way(sp, ids, word, unknown, ours) for ids in sp.nbest_encode(word, nbest_size=2)]
        found.append(Word(word, ways[0], ways[1] if len(ways) > 1 else None))
    return "unigram", found


def _way(sp: SentencePieceProcessor, ids: Sequence[int], word: str, unknown: float, ours: dict[int, int]) -> Cut:
    pieces = [(sp.id_to_piece(i), ours[i], None if _has_no_score(sp, i) else float(sp.get_score(i))) for i in ids]
    known = sum(len(piece) for piece, _, score in pieces if score is not None)
    total = sum(score for _, _, score in pieces if score is not None) + unknown * (len(word) - known)
    return Cut(tuple(pieces), total)


def _has_no_score(sp: Any, token: int) -> bool:
    return bool(sp.is_byte(token) or sp.is_unknown(token))


def _merge(sp: SentencePieceProcessor, word: str) -> list[Merge]:
    """Merge the best pair of neighbours, leftmost first, until no pair is a piece."""
    parts = list(word)
    states = [Merge(tuple(parts), None, None)]
    while True:
        pairs = [(sp.piece_to_id(a + b), -place) for place, (a, b) in enumerate(pairwise(parts))]
        known = [(sp.get_score(token), place) for token, place in pairs if not _has_no_score(sp, token)]
        if not known:
            return states
        score, place = max(known)
        parts[-place : -place + 2] = [parts[-place] + parts[-place + 1]]
        states.append(Merge(tuple(parts), -place, -score))
