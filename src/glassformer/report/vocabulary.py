"""How well a vocabulary fits its text, in the terminal."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Final, NamedTuple

from rich.console import Console
from rich.text import Text

from glassformer.config import CorpusConfig, TokenizerConfig
from glassformer.data.formats import Faults, OnFault, corpus_size, open_corpora
from glassformer.data.pair import excerpt
from glassformer.errors import UsageError
from glassformer.report.progress import progress
from glassformer.report.terminal import show, table
from glassformer.text.tokenizer import JOINT_MODEL, SRC_MODEL, TGT_MODEL, Tokenizer, Tokenizers, train_tokenizers

_MEASURED: Final = 10_000  # pairs, from the beginning
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


def learn_vocabulary(corpora: Sequence[CorpusConfig], config: TokenizerConfig, on_fault: OnFault, out: Path) -> None:
    """Learn a vocabulary from corpora, write it to `out`, a folder or FILE.model, and show how well it fits."""
    _refuse_to_overwrite(out, config.joint)
    console = Console(stderr=True, highlight=False, soft_wrap=True)
    faults = Faults()
    first: list[tuple[str, str]] = []
    with ExitStack() as learning:

        def read() -> Iterator[tuple[str, str]]:
            with progress("reading", sum(map(corpus_size, corpora)), unit="bytes") as watch:
                for pair in open_corpora(corpora, faults, on_fault, watch):
                    if len(first) < _MEASURED:
                        first.append((pair.src, pair.tgt))
                    yield pair.src, pair.tgt
            for line in faults.report():
                console.print(line, markup=False)
            learning.enter_context(progress("learning", None))

        tokenizers = train_tokenizers(read(), config)
    if _is_file(out):
        tokenizers.src.save(out)
    else:
        tokenizers.save(out)
    show_vocabulary(tokenizers, first, console)
    console.print(f"wrote {out}", markup=False)


def _is_file(out: Path) -> bool:
    return out.suffix == ".model"


def _refuse_to_overwrite(out: Path, joint: bool) -> None:
    """Raise if a vocabulary exists in `out`: a model trained with it would be lost with it."""
    if _is_file(out) and not joint:
        raise UsageError(f"--out {out} is one file, and --separate makes two: name a folder")
    if not _is_file(out) and out.is_file():
        raise UsageError(f"--out {out} is a file: name a folder, or a file that ends in .model")
    for path in (out,) if _is_file(out) else (out / JOINT_MODEL, out / SRC_MODEL, out / TGT_MODEL):
        if path.exists():
            raise UsageError(f"{path} already exists: delete it, or name another --out")
