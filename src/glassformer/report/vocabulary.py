"""How well a vocabulary fits its text, in the terminal."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from rich.console import Console
from rich.text import Text

from glassformer.data.pair import excerpt
from glassformer.report.terminal import show, table
from glassformer.text.tokenizer import Tokenizer, Tokenizers

_SHOWN: Final = 3
_LINE: Final = 160  # characters of an example


class Fit(NamedTuple):
    """How many pieces a vocabulary makes of some texts."""

    n_texts: int
    n_words: int  # separated by white space
    n_pieces: int
    n_bytes: int  # pieces that are one byte of a character


def measure_fit(tokenizer: Tokenizer, texts: Sequence[str]) -> Fit:
    """Count the pieces that a vocabulary makes of `texts`."""
    ids = [token for tokens in tokenizer.encode_batch(texts) for token in tokens]
    return Fit(len(texts), sum(len(text.split()) for text in texts), len(ids), sum(map(tokenizer.is_byte, ids)))


def show_vocabulary(tokenizers: Tokenizers, pairs: Sequence[tuple[str, str]], console: Console) -> None:
    """Print the size of each side's vocabulary, how it splits `pairs`, and the first of these as pieces."""
    rows = []
    for side, tokenizer, texts in zip(("source", "target"), tokenizers, zip(*pairs, strict=True), strict=True):
        fit = measure_fit(tokenizer, texts)
        figures = fit.n_pieces / fit.n_texts, fit.n_pieces / fit.n_words, 100 * fit.n_bytes / fit.n_pieces
        size = f"{tokenizer.vocab_size:,}"
        rows.append((side, size, f"{figures[0]:.1f}", f"{figures[1]:.2f}", f"{figures[2]:.2f}", tokenizer.sha256[:12]))
    header = "side", "vocabulary", "pieces per sentence", "pieces per word", "% bytes", "sha256"
    show(console, table(header, rows), wrap=False)
    for pair in pairs[:_SHOWN]:
        for tokenizer, text in zip(tokenizers, pair, strict=True):
            pieces = " ".join(tokenizer.pieces(tokenizer.encode(text)))
            show(console, Text(f"  {excerpt(pieces, _LINE)}"), wrap=False)
