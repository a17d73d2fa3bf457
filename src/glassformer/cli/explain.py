"""Commands that show how it works: explain, notes, demo."""

from __future__ import annotations

import logging
import sys
from pathlib import Path
from typing import Annotated

import typer

from glassformer.cli import options
from glassformer.errors import UsageError

app = typer.Typer()

_log = logging.getLogger(__name__)


@app.command()
def explain(
    words: Annotated[
        list[str] | None,
        typer.Argument(
            help="Model folder or name (default: fr-en), and a sentence in quotes.", metavar="MODEL SENTENCE"
        ),
    ] = None,
    model: Annotated[
        str | None, typer.Option(metavar="MODEL", help="The model, if the first word is ambiguous.")
    ] = None,
    at: Annotated[
        str | None, typer.Option(metavar="ADDRESS", help="Explain one number, such as enc.0.sum[2,5].")
    ] = None,
    depth: Annotated[int, typer.Option(metavar="N", help="With --at: trace the number back N steps.", min=0)] = 0,
    html: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write the interactive page to a single file.")
    ] = None,
    as_json: Annotated[
        Path | None, typer.Option("--json", metavar="FILE", help="Write all intermediate numbers as JSON.")
    ] = None,
    with_weights: Annotated[
        list[str] | None,
        typer.Option(
            metavar="PATTERN",
            help="With --html or --json: include weight matrices, such as 'enc.0.self.*'. Repeatable.",
        ),
    ] = None,
    live: Annotated[
        bool, typer.Option("--open", help="Serve the page locally and translate what is typed into it.")
    ] = False,
    browser: Annotated[bool, typer.Option("--browser/--no-browser", help="With --open: open a browser.")] = True,
    beam: options.Beam = None,
    search: options.Search = None,
    force: Annotated[
        list[str] | None, typer.Option(metavar="STEP=WORD", help="Force a word at a step, such as 2=house. Repeatable.")
    ] = None,
    reference: Annotated[
        str | None, typer.Option(metavar="TEXT", help="Reference translation to show alongside.")
    ] = None,
    engine: Annotated[
        str, typer.Option(metavar="ENGINE", help="Engine whose translation is compared: torch, ctranslate2 or auto.")
    ] = "auto",
) -> None:
    """Explain a translation number by number: in the terminal, as a page, or live in the browser."""
    if live and (at or html or as_json or with_weights or force or reference):
        raise UsageError("--open cannot be combined with --at, --html, --json, --with-weights, --force or --reference")
    if Path("-") in (html, as_json):
        raise UsageError("--html and --json write files and cannot write to -")
    if not live and not browser:
        raise UsageError("--no-browser needs --open")
    if depth and at is None:
        raise UsageError("--depth needs --at")
    if with_weights and not (html or as_json):
        raise UsageError("--with-weights needs --html or --json")
    model, text = options.model_and_text(words or [], model, needs_text=not live)
    forced = options.forced_words(force or ())

    from rich.console import Console

    from glassformer.report.explanation import show_cells, show_explanation
    from glassformer.translate.translator import Translator

    name = Path(model).name
    # One sentence leaves little to do in parallel; on a busy machine threads would wait longer than they compute.
    with Translator.load(model, engine=engine, threads=1) as translator:
        translator.search = options.search_settings(translator.search, search, beam)
        if live:
            from glassformer.explainer.live import serve_page

            try:
                serve_page(translator, text, name, browser=browser)
            except KeyboardInterrupt:
                _log.info("stopped")
            return
        explanation = translator.explain(text, reference=reference, forced=forced, name=name)
        for path, write in ((html, explanation.to_html), (as_json, explanation.to_json)):
            if path is not None:
                write(path, with_weights or ())
                _log.info("wrote %s", path)
        console = Console(highlight=False)
        if at is not None:
            show_cells(explanation, at, depth, console)
        elif html is None and as_json is None:
            show_explanation(explanation, console)


@app.command()
def notes(
    row: Annotated[
        int | None, typer.Argument(help="Row to show, 1 to 24 (default: all).", metavar="ROW", min=1, max=24)
    ] = None,
    tour: Annotated[bool, typer.Option("--tour", help="Show only the five introductory rows.")] = False,
) -> None:
    """Walk through the Transformer in 24 rows, with numbers computed by the real modules."""
    if row is not None and tour:
        raise UsageError(f"row {row} and --tour exclude each other: choose one")

    from rich.console import Console

    from glassformer.notes import NOTES, TOUR, show

    show(TOUR if tour else tuple(NOTES) if row is None else (row,), Console(highlight=False))
    if tour:
        typer.echo("\nglassformer notes 7 shows one row, glassformer notes all of them.")


@app.command()
def demo(
    page: Annotated[Path, typer.Option("--html", metavar="FILE", help="Explainer page to write.")] = Path(
        "explainer.html"
    ),
) -> None:
    """Translate a few sentences, show their attention, and write an explainer page."""
    from glassformer.report.demo import run_demo
    from glassformer.translate.translator import Translator

    ask = (lambda: input("Type a French sentence, or press Enter to finish: ")) if sys.stdin.isatty() else None
    with Translator.load() as translator:
        run_demo(translator, page, ask)
