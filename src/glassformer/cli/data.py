"""Commands for corpora: check, tokenizer."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from glassformer.cli import options

app = typer.Typer()


@app.command()
def check(
    files: options.Files,
    dev: Annotated[
        list[str] | None, typer.Option("--dev", metavar="FILE", help="Validation corpus that FILE must not overlap.")
    ] = None,
    test: Annotated[
        list[str] | None, typer.Option("--test", metavar="FILE", help="Test corpus that FILE must not overlap.")
    ] = None,
    write_clean: Annotated[
        str | None,
        typer.Option(
            "--write-clean", metavar="FILE", help="Write the cleaned corpus, and the removed pairs next to it."
        ),
    ] = None,
    html: Annotated[Path | None, typer.Option("--html", metavar="FILE", help="Write a report with charts.")] = None,
    as_json: Annotated[Path | None, typer.Option("--json", metavar="FILE", help="Write all figures as JSON.")] = None,
    keep: Annotated[
        list[str] | None, typer.Option("--keep", metavar="KIND", help="Do not remove pairs with this kind of finding.")
    ] = None,
    remove: Annotated[
        list[str] | None, typer.Option("--remove", metavar="KIND", help="Also remove pairs with this kind of finding.")
    ] = None,
    file_format: options.Format = "auto",
    languages: options.Languages = None,
    fields: options.Fields = "src,tgt",
    swap: options.Swap = False,
    max_length: Annotated[int, typer.Option(metavar="N", help="Longest side, in characters.")] = 2000,
    max_ratio: Annotated[
        float,
        typer.Option(metavar="X", help="Largest length ratio of the two sides, relative to the corpus's usual one."),
    ] = 3.0,
    strict: options.Strict = False,
) -> None:
    """Check a parallel corpus: report problems, and optionally write a cleaned copy."""
    from glassformer.config import DoctorConfig
    from glassformer.data.doctor import what_to_remove
    from glassformer.report.doctor import check_corpora

    train_set, dev_set, test_set = (
        options.corpora(words or [], file_format=file_format, swap=swap, fields=fields, languages=languages)
        for words in (files, dev, test)
    )
    out = None if write_clean is None else options.corpora([write_clean], fields=fields, languages=languages)[0]
    config = DoctorConfig.parse({"max_length": max_length, "max_ratio": max_ratio}, "check")
    kinds = what_to_remove(keep or (), remove or ())
    check_corpora(train_set, dev_set, test_set, config, kinds, options.on_fault(strict), out, html, as_json)


@app.command()
def tokenizer(
    files: options.Files,
    out: Annotated[Path, typer.Option("--out", metavar="PATH", help="Folder, or FILE.model, to write.")],
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
        typer.Option(metavar="X", help="Share of the text covered by character tokens; the rest is encoded as bytes."),
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
    from glassformer.config import TokenizerConfig
    from glassformer.report.vocabulary import learn_vocabulary

    corpora = options.corpora(files, file_format=file_format, swap=swap, fields=fields, languages=languages)
    values = {
        "model": model,
        "vocab_size": vocab_size,
        "joint": joint,
        "normalise": normalise,
        "character_coverage": character_coverage,
        "split_digits": split_digits,
        "max_sentences": max_sentences,
        "seed": seed,
    }
    learn_vocabulary(corpora, TokenizerConfig.parse(values, "tokenizer"), options.on_fault(strict), out)
