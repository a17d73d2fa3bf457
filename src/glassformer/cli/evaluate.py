"""The command that measures quality: evaluate."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Annotated

import typer

from glassformer.cli import options

app = typer.Typer()

_log = logging.getLogger(__name__)


@app.command()
def evaluate(
    system: Annotated[
        str,
        typer.Argument(help="Model folder or name, or a file with one translation per line.", metavar="MODEL"),
    ],
    test: Annotated[
        str,
        typer.Option("--test", metavar="FILE", help="File of pairs, or SOURCE,TARGET for two parallel files."),
    ],
    compare: Annotated[
        str | None,
        typer.Option(
            "--compare", metavar="MODEL", help="Second system: adds a significance test and a side-by-side page."
        ),
    ] = None,
    html: Annotated[
        Path | None,
        typer.Option("--html", metavar="FILE", help="With --compare: the page to write (default: comparison.html)."),
    ] = None,
    output: Annotated[
        Path | None, typer.Option("--output", metavar="FILE", help="Write the translations to FILE.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print all figures as JSON.")] = False,
    tokenize: Annotated[
        str, typer.Option(metavar="NAME", help="sacreBLEU tokenizer; none for tokenized text.")
    ] = "13a",
    comet: Annotated[
        str | None,
        typer.Option("--comet", metavar="FILE", help="COMET checkpoint to score with (needs unbabel-comet)."),
    ] = None,
    beam: options.Beam = None,
    search: options.Search = None,
    file_format: options.Format = "auto",
    languages: options.Languages = None,
    fields: options.Fields = "src,tgt",
    swap: options.Swap = False,
    engine: options.Engine = "auto",
    threads: options.Threads = 0,
) -> None:
    """Evaluate a model on a test set: BLEU, chrF, TER, perplexity and speed; or compare two."""
    from glassformer.report.evaluation import evaluate_systems

    words = [*(search or ()), *([] if beam is None else [f"width={beam}"])]
    (corpus,) = options.corpora([test], file_format=file_format, swap=swap, fields=fields, languages=languages)
    systems = [system] if compare is None else [system, compare]
    evaluate_systems(systems, corpus, tokenize, engine, words, threads, comet, output, html, as_json, _log.info)
