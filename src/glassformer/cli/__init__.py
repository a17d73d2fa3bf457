"""The command line: words become settings and one library call; data on stdout, everything else on stderr."""

from __future__ import annotations

import errno
import logging
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated, Final

import typer

from glassformer.cli import data, evaluate, explain, models, train, translate
from glassformer.errors import GlassformerError, UsageError

app = typer.Typer(
    name="glassformer",
    help="The encoder-decoder Transformer you can train, run and see through.",
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
    pretty_exceptions_enable=False,
)
for _group in (translate, explain, models, evaluate, train, data):
    app.add_typer(_group.app)

_CANNOT_WRITE: Final = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)

# Keywords and settings in the remedies that errors of the library propose.
_REMEDIES: Final = re.compile(
    r"\b(?:(?:accept_changes|fresh)=True|(?:train|dev|out)(?= is not set)|(?<=set )(?:train|out)|(?<=another )out)\b"
)


class StderrHandler(logging.Handler):
    """Print log records on whatever stderr is at that moment: a progress bar replaces it while it is drawn."""

    def emit(self, record: logging.LogRecord) -> None:
        """Print a record."""
        _say(self.format(record))


def _say(message: str) -> None:
    typer.echo(f"glassformer: {message}", err=True)


def with_options(message: str) -> str:
    """Write the remedies of a library error as options: `fresh=True` is `--fresh` here."""
    return _REMEDIES.sub(lambda found: f"--{found[0].removesuffix('=True').replace('_', '-')}", message)


def _version(asked: bool) -> None:
    if asked:
        from glassformer import __version__

        typer.echo(f"glassformer {__version__}")
        raise typer.Exit


@app.callback()
def _glassformer(
    context: typer.Context,
    version: Annotated[
        bool, typer.Option("--version", help="Print the version and exit.", callback=_version, is_eager=True)
    ] = False,
) -> None:
    context.with_resource(_logging())


@contextmanager
def _logging() -> Iterator[None]:
    """Print what the library logs on stderr while a command runs."""
    logger = logging.getLogger("glassformer")
    usual, level = logger.handlers[:], logger.level
    logger.setLevel(logging.INFO)
    logger.handlers[:] = [StderrHandler()]
    try:
        yield
    finally:
        logger.handlers[:] = usual
        logger.setLevel(level)


def main() -> None:
    """Run the command line; a user's mistake is one line on stderr and exit code 2."""
    if sys.stdin is None or sys.stdout is None:
        _say(f"standard {'input' if sys.stdin is None else 'output'} is closed")
        sys.exit(UsageError.exit_code)
    try:
        try:
            app()
        finally:
            sys.stdout.flush()
    except GlassformerError as error:
        _say(with_options(str(error)))
        sys.exit(error.exit_code)
    except OSError as error:
        if error.filename is not None or error.errno not in _CANNOT_WRITE:  # files are explained where they are written
            raise
        translate.close_stdout()
        _say(f"standard output: {error.strerror}")
        sys.exit(UsageError.exit_code)
