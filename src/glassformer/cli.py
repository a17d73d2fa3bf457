"""The command line: words to settings to one library call; data on stdout, everything else on stderr."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from glassformer.errors import GlassformerError

__all__ = ["app", "info", "main", "notes"]

app = typer.Typer(
    name="glassformer",
    help="The encoder-decoder Transformer you can train, run and see through.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)


def _version(asked: bool) -> None:
    if asked:
        from glassformer import __version__

        typer.echo(f"glassformer {__version__}")
        raise typer.Exit


@app.callback()
def _glassformer(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version and stop.", callback=_version, is_eager=True)
    ] = False,
) -> None:
    pass


@app.command()
def info(model: Annotated[Path, typer.Argument(help="A model folder.", metavar="MODEL")]) -> None:
    """Say what is in a model folder: its settings and its size, part by part."""
    from glassformer.explain.info import print_info

    print_info(model)


@app.command()
def notes(
    row: Annotated[int | None, typer.Argument(help="One row, 1 to 24; all of them without.", min=1, max=24)] = None,
    tour: Annotated[bool, typer.Option("--tour", help="Only the five rows to begin with.")] = False,
) -> None:
    """Walk through the lecture notes, row by row, with numbers that the real modules compute."""
    from glassformer.explain.notes import show_notes

    show_notes(row, tour)


def main() -> None:
    """Run the command line; a user's mistake is one line on stderr and exit code 2."""
    try:
        app()
    except GlassformerError as error:
        print(f"glassformer: {error}", file=sys.stderr)  # noqa: T201
        sys.exit(2)
