"""Commands that run a model on lines: translate, score."""

from __future__ import annotations

import contextlib
import gc
import logging
import os
import signal
import sys
import threading
from pathlib import Path
from typing import Annotated

import typer

from glassformer.cli import options
from glassformer.errors import Stopped, UsageError

app = typer.Typer()

_log = logging.getLogger(__name__)


@app.command()
def translate(
    model: Annotated[
        str | None,
        typer.Argument(
            help="Model folder or name (default: fr-en); several, separated by commas, form an ensemble.",
            metavar="MODEL",
        ),
    ] = None,
    source: Annotated[
        Path | None,
        typer.Option("--input", metavar="FILE", help="Read from FILE, which may be .gz or .zst (default: stdin)."),
    ] = None,
    output: Annotated[
        Path | None, typer.Option("--output", metavar="FILE", help="Write to FILE atomically (default: stdout).")
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Write one JSON object per line, with scores, tokens and alignment.")
    ] = False,
    nbest: Annotated[
        int,
        typer.Option(
            "--nbest",
            metavar="N",
            help="Print the N best translations of each line: line number, score, text.",
            min=1,
        ),
    ] = 1,
    alignment: Annotated[
        bool, typer.Option("--alignment", help="Append the word alignment to each line, as in 0-0 1-2.")
    ] = False,
    attention: Annotated[
        bool, typer.Option("--attention", help="With --json: include the attention to the source.")
    ] = False,
    interactive: Annotated[
        bool, typer.Option("--interactive", help="Prompt for sentences; show confidence and alignment.")
    ] = False,
    beam: options.Beam = None,
    length_penalty: Annotated[
        float | None,
        typer.Option(metavar="X", help="Length penalty; values above 0 favour longer translations."),
    ] = None,
    search: options.Search = None,
    prefix: Annotated[str, typer.Option(metavar="TEXT", help="Text that every translation starts with.")] = "",
    suppress: Annotated[
        list[str] | None, typer.Option(metavar="WORD", help="Word that must not appear. Repeatable.")
    ] = None,
    require: Annotated[
        list[str] | None, typer.Option(metavar="WORD", help="Word that must appear. Repeatable.")
    ] = None,
    engine: options.Engine = "auto",
    compute: options.Compute = "auto",
    threads: options.Threads = 0,
    device: options.Device = "cpu",
) -> None:
    """Translate line by line, from stdin to stdout."""
    if attention and not as_json:
        raise UsageError("--attention needs --json")
    if alignment and nbest > 1 and not as_json:
        raise UsageError("--alignment with --nbest needs --json")
    if interactive and (as_json or source or output or alignment or attention):
        raise UsageError("--interactive cannot be combined with --input, --output, --json, --alignment or --attention")

    from glassformer.store.registry import DEFAULT_MODEL
    from glassformer.translate.filter import Answers, converse, run_filter
    from glassformer.translate.translator import Translator

    wanted = (nbest, prefix, tuple(suppress or ()), tuple(require or ()), as_json, alignment, attention)
    names = (model or DEFAULT_MODEL).split(",")
    if output is not None and threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))  # so that no partial file stays
    try:
        with Translator.load(names, engine, None, threads, device, _log.info, compute=compute) as translator:
            answers = Answers(options.search_settings(translator.search, search, beam, length_penalty), *wanted)
            if interactive:
                with contextlib.suppress(ImportError):
                    import readline  # noqa: F401 - gives `input` line editing and a history
                converse(translator, lambda: input(f"{translator.about.src_lang}> "), typer.echo, answers)
            else:
                gc.freeze()  # the model is never garbage: collections need not go through it
                run_filter(translator, None if source == Path("-") else source, output, answers)
    except KeyboardInterrupt:
        raise Stopped("stopped", signal.SIGINT) from None
    except BrokenPipeError:  # the reader has closed the pipe, as `head` does
        close_stdout()
        raise typer.Exit(128 + signal.SIGPIPE) from None


def close_stdout() -> None:
    """Keep Python from flushing at exit what cannot be written."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


@app.command()
def score(
    model: options.Model,
    file: Annotated[
        str, typer.Argument(help="File of pairs, or SOURCE,TARGET for two parallel files.", metavar="FILE")
    ],
    as_json: Annotated[bool, typer.Option("--json", help="Write one JSON object per pair.")] = False,
    file_format: options.Format = "auto",
    languages: options.Languages = None,
    fields: options.Fields = "src,tgt",
    swap: options.Swap = False,
    strict: options.Strict = False,
    device: options.Device = "cpu",
) -> None:
    """Score given translations: log-probability, number of tokens and perplexity of each pair."""
    from glassformer.translate.score import score_file

    (corpus,) = options.corpora([file], file_format=file_format, swap=swap, fields=fields, languages=languages)
    score_file(model, corpus, options.on_fault(strict), as_json, device, typer.echo, _log.info)
