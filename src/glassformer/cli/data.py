"""Commands for corpora: check, tokenizer."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from contextlib import ExitStack, nullcontext
from pathlib import Path
from typing import Annotated, Final

import typer

from glassformer.cli import options
from glassformer.errors import UsageError

app = typer.Typer()

_SHOWN_PAIRS: Final = 10_000  # the first ones, which show how well a vocabulary fits

_log = logging.getLogger(__name__)


@app.command()
def check(
    files: options.Files,
    dev: Annotated[
        list[str] | None, typer.Option(metavar="FILE", help="Validation corpus that FILE must not overlap.")
    ] = None,
    test: Annotated[
        list[str] | None, typer.Option(metavar="FILE", help="Test corpus that FILE must not overlap.")
    ] = None,
    write_clean: Annotated[
        str | None, typer.Option(metavar="FILE", help="Write the cleaned corpus, and the removed pairs next to it.")
    ] = None,
    html: Annotated[Path | None, typer.Option(metavar="FILE", help="Write a report with charts.")] = None,
    as_json: Annotated[Path | None, typer.Option("--json", metavar="FILE", help="Write all figures as JSON.")] = None,
    keep: Annotated[
        list[str] | None,
        typer.Option(metavar="KIND", help="Do not remove pairs with this kind of finding. Repeatable."),
    ] = None,
    remove: Annotated[
        list[str] | None, typer.Option(metavar="KIND", help="Also remove pairs with this kind of finding. Repeatable.")
    ] = None,
    file_format: options.Format = "auto",
    languages: options.Languages = None,
    fields: options.Fields = "src,tgt",
    swap: options.Swap = False,
    max_length: Annotated[int, typer.Option(metavar="N", help="Longest side, in characters.")] = 2000,
    max_ratio: Annotated[
        float,
        typer.Option(metavar="FLOAT", help="Largest length ratio of the two sides, relative to the corpus median."),
    ] = 3.0,
    strict: options.Strict = False,
) -> None:
    """Check a parallel corpus: report problems, and optionally write a cleaned copy."""
    from rich.console import Console

    from glassformer.config import DoctorConfig
    from glassformer.data.clean import CleanCorpus
    from glassformer.data.doctor import examine, what_to_remove
    from glassformer.data.formats import corpus_size
    from glassformer.files import check_parent, write_text
    from glassformer.report.doctor import doctor_html, remarks, show_diagnosis
    from glassformer.report.progress import progress

    train_set, dev_set, test_set = (
        options.corpora(words or [], file_format=file_format, swap=swap, fields=fields, languages=languages)
        for words in (files, dev, test)
    )
    config = DoctorConfig.parse({"max_length": max_length, "max_ratio": max_ratio}, "check")
    kinds = what_to_remove(keep or (), remove or ())
    clean = None
    if write_clean is not None:
        clean = CleanCorpus(*options.corpora([write_clean], fields=fields, languages=languages))
        clean.refuse_to_overwrite([*train_set, *dev_set, *test_set])
    for path in filter(None, (html, as_json)):
        check_parent(path)
    size = 2 * sum(map(corpus_size, train_set)) + sum(map(corpus_size, [*dev_set, *test_set]))  # FILE is read twice
    with progress("checking", size, unit="bytes") as watch, clean or nullcontext():
        diagnosis = examine(train_set, dev_set, test_set, config, kinds, options.on_fault(strict), clean, watch)
    show_diagnosis(diagnosis, Console())
    for line in (*remarks(diagnosis), "--keep KIND and --remove KIND change which pairs are removed"):
        _log.info("%s", line)
    written = [] if clean is None else [*clean.paths, clean.removed_path]
    if html is not None:
        write_text(html, doctor_html(diagnosis))
        written.append(html)
    if as_json is not None:
        write_text(as_json, json.dumps(diagnosis.as_dict(), ensure_ascii=False, indent=1) + "\n")
        written.append(as_json)
    for path in written:
        _log.info("wrote %s", path)


@app.command()
def tokenizer(
    context: typer.Context,
    files: options.Files,
    out: Annotated[Path, typer.Option(metavar="PATH", help="Folder, or FILE.model, to write.")],
    vocab_size: Annotated[
        int, typer.Option(metavar="N", help="Number of tokens, including 4 special tokens and 256 bytes.")
    ] = 8000,
    model: Annotated[str, typer.Option(metavar="MODEL", help="Subword model: unigram or bpe.")] = "unigram",
    joint: Annotated[
        bool, typer.Option("--joint/--separate", help="One vocabulary for both languages, or one for each.")
    ] = True,
    normalise: Annotated[
        str, typer.Option(metavar="FORM", help="none keeps every text exactly; nfkc applies Unicode NFKC.")
    ] = "none",
    character_coverage: Annotated[
        float,
        typer.Option(
            metavar="FLOAT", help="Share of the text covered by character tokens; the rest is encoded as bytes."
        ),
    ] = 0.9999,
    split_digits: Annotated[bool, typer.Option(help="Split numbers into single digits.")] = True,
    max_sentences: Annotated[int, typer.Option(metavar="N", help="Lines to learn from, sampled at random.")] = 500_000,
    seed: Annotated[int, typer.Option(metavar="N", help="Random seed of the sample.")] = 0,
    file_format: options.Format = "auto",
    languages: options.Languages = None,
    fields: options.Fields = "src,tgt",
    swap: options.Swap = False,
    strict: options.Strict = False,
) -> None:
    """Learn a subword vocabulary from a parallel corpus. Optional: `train` learns one if none is given."""
    from rich.console import Console

    from glassformer.config import TokenizerConfig
    from glassformer.data.formats import Faults, corpus_size, open_corpora
    from glassformer.report.progress import progress
    from glassformer.report.vocabulary import show_vocabulary
    from glassformer.text.tokenizer import train_tokenizers

    corpora = options.corpora(files, file_format=file_format, swap=swap, fields=fields, languages=languages)
    # These options have the names of the settings.
    config = TokenizerConfig.parse({name: context.params[name] for name in TokenizerConfig.model_fields}, "tokenizer")
    _check_out(out, joint)
    faults, first = Faults(), list[tuple[str, str]]()
    with ExitStack() as learning:

        def read() -> Iterator[tuple[str, str]]:
            with progress("reading", sum(map(corpus_size, corpora)), unit="bytes") as watch:
                for pair in open_corpora(corpora, faults, options.on_fault(strict), watch):
                    if len(first) < _SHOWN_PAIRS:
                        first.append((pair.src, pair.tgt))
                    yield pair.src, pair.tgt
            for line in faults.report():
                _log.info("%s", line)
            learning.enter_context(progress("learning", None))

        tokenizers = train_tokenizers(read(), config)
    (tokenizers.src if _is_file(out) else tokenizers).save(out)
    show_vocabulary(tokenizers, first, Console(stderr=True))
    _log.info("wrote %s", out)


def _is_file(out: Path) -> bool:
    return out.suffix == ".model"


def _check_out(out: Path, joint: bool) -> None:
    """Raise if a vocabulary would be overwritten: a model trained with it would be lost with it."""
    from glassformer.text.tokenizer import JOINT_MODEL, SRC_MODEL, TGT_MODEL

    if _is_file(out) and not joint:
        raise UsageError(f"--out {out} is one file, but --separate writes two: name a folder")
    if not _is_file(out) and out.is_file():
        raise UsageError(f"--out {out} is a file: name a folder, or a file that ends in .model")
    for path in (out,) if _is_file(out) else (out / JOINT_MODEL, out / SRC_MODEL, out / TGT_MODEL):
        if path.exists():
            raise UsageError(f"{path} already exists: delete it, or choose another --out")
