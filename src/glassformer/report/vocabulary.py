"""Learning a vocabulary in the terminal: progress, how well it fits the text, and examples, all on stderr."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from glassformer.config import CorpusConfig, TokenizerConfig
from glassformer.data.formats import Faults, OnFault, corpus_size, open_corpora
from glassformer.data.pair import excerpt
from glassformer.errors import UsageError
from glassformer.report.terminal import show, table
from glassformer.text.tokenizer import JOINT_MODEL, SRC_MODEL, TGT_MODEL, Tokenizer, Tokenizers, train_tokenizers

_MEASURED: Final = 10_000  # pairs, the first ones
_SHOWN: Final = 3
_LINE: Final = 160  # characters of an example


class Fit(NamedTuple):
    """How many pieces a vocabulary makes of some texts."""

    n_texts: int
    n_words: int  # what white space parts
    n_pieces: int
    n_bytes: int  # of the pieces, those that are a byte of a character


def measure_fit(tokenizer: Tokenizer, texts: Sequence[str]) -> Fit:
    """Count the pieces that a vocabulary makes of `texts`."""
    ids = [token for tokens in tokenizer.encode_batch(texts) for token in tokens]
    return Fit(len(texts), sum(len(text.split()) for text in texts), len(ids), sum(map(tokenizer.is_byte, ids)))


def learn_vocabulary(corpora: Sequence[CorpusConfig], config: TokenizerConfig, on_fault: OnFault, out: Path) -> None:
    """Learn from corpora, write to `out`, a folder or FILE.model, and say how well the vocabulary fits the text."""
    _refuse_to_overwrite(out, config.joint)
    console = Console(stderr=True, highlight=False, soft_wrap=True)
    faults = Faults()
    first: list[tuple[str, str]] = []
    columns = TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn()
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        reading = progress.add_task("reading", total=sum(map(corpus_size, corpora)))

        def read() -> Iterator[tuple[str, str]]:
            for pair in open_corpora(corpora, faults, on_fault, lambda n_read: progress.advance(reading, n_read)):
                if len(first) < _MEASURED:
                    first.append((pair.src, pair.tgt))
                yield pair.src, pair.tgt
            progress.add_task("learning", total=None)
            for line in faults.report():
                console.print(line, markup=False)

        tokenizers = train_tokenizers(read(), config)
    if _is_file(out):
        tokenizers.src.save(out)
    else:
        tokenizers.save(out)
    _describe(console, tokenizers, first)
    console.print(f"wrote {out}", markup=False)


def _is_file(out: Path) -> bool:
    return out.suffix == ".model"


def _refuse_to_overwrite(out: Path, joint: bool) -> None:
    """A vocabulary that a model was trained with is lost with the model, so none is replaced."""
    if _is_file(out) and not joint:
        raise UsageError(f"--out {out} is one file, and --separate makes two: name a folder")
    if not _is_file(out) and out.is_file():
        raise UsageError(f"--out {out} is a file: name a folder, or a file that ends in .model")
    for path in (out,) if _is_file(out) else (out / JOINT_MODEL, out / SRC_MODEL, out / TGT_MODEL):
        if path.exists():
            raise UsageError(f"{path} is there already: delete it, or name another --out")


def _describe(console: Console, tokenizers: Tokenizers, pairs: Sequence[tuple[str, str]]) -> None:
    rows = []
    for side, tokenizer, texts in zip(("source", "target"), tokenizers, zip(*pairs, strict=True), strict=True):
        fit = measure_fit(tokenizer, texts)
        figures = fit.n_pieces / fit.n_texts, fit.n_pieces / fit.n_words, 100 * fit.n_bytes / fit.n_pieces
        size = f"{tokenizer.vocab_size:,}"
        rows.append((side, size, f"{figures[0]:.1f}", f"{figures[1]:.2f}", f"{figures[2]:.2f}", tokenizer.sha256[:12]))
    header = "side", "vocabulary", "pieces per sentence", "pieces per word", "% bytes", "sha256"
    show(console, table(header, rows))
    for pair in pairs[:_SHOWN]:
        for tokenizer, text in zip(tokenizers, pair, strict=True):
            pieces = tokenizer.pieces(tokenizer.encode(text))
            console.print(f"  {excerpt(' '.join(pieces), _LINE)}", markup=False)
