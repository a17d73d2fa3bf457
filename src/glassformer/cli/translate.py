"""Commands that run a model on lines: translate, score."""

from __future__ import annotations

import contextlib
import gc
import json
import logging
import math
import os
import signal
import sys
import threading
from itertools import tee
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from glassformer.cli import options
from glassformer.errors import Stopped, UsageError

if TYPE_CHECKING:
    from glassformer.data.pair import Pair
    from glassformer.translate.score import PairScore

app = typer.Typer()

_log = logging.getLogger(__name__)


@app.command()
def translate(
    model: Annotated[
        str | None,
        typer.Argument(
            help="Model folder or name (default: by --from, --to or the language of the text); several, separated by "
            "commas, form an ensemble.",
            metavar="MODEL",
        ),
    ] = None,
    source: Annotated[
        Path | None,
        typer.Option("--input", metavar="FILE", help="Read from FILE, which may be .gz or .zst (default: stdin)."),
    ] = None,
    output: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write to FILE atomically (default: stdout).")
    ] = None,
    src: Annotated[str, typer.Option("--from", metavar="LANG", help="Language of the text, such as en.")] = "",
    tgt: Annotated[str, typer.Option("--to", metavar="LANG", help="Language to translate into, such as fr.")] = "",
    as_json: Annotated[
        bool, typer.Option("--json", help="Write one JSON object per line, with scores, tokens and alignment.")
    ] = False,
    nbest: Annotated[
        int,
        typer.Option(metavar="N", help="Print the N best translations of each line: line number, score, text.", min=1),
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
        float | None, typer.Option(metavar="FLOAT", help="Length penalty; values above 0 favour longer translations.")
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

    from glassformer.config import TranslateOptions
    from glassformer.data.lines import no_watch
    from glassformer.report.progress import progress
    from glassformer.translate.filter import converse, open_input, peek, run_filter
    from glassformer.translate.loading import choose_model, shipped_directions
    from glassformer.translate.translator import Translator

    if model is not None and (src or tgt):
        raise UsageError(f"--from and --to choose a model that ships; leave them out, or {model}")
    file = None if source == Path("-") else source
    if output is not None and threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))  # so that no partial file stays
    try:
        with contextlib.ExitStack() as stack:
            read, beginning = None, ""
            if model is None and not interactive and len(shipped_directions(src, tgt)) > 1:
                beginning, read = peek(stack.enter_context(open_input(file)))
            names = (model or choose_model(beginning, src, tgt)).split(",")
            if beginning:
                _log.info("translating with %s, by the language of the text", names[0])
            loaded = Translator.load(names, engine=engine, threads=threads, device=device, compute=compute)
            translator = stack.enter_context(loaded)
            wanted = {
                "search": options.search_settings(translator.search, search, beam, length_penalty),
                "prefix": prefix,
                "suppress": suppress or (),
                "require": require or (),
                "n_best": nbest,
                "alignment": alignment,
                "attention": attention,
            }
            request = TranslateOptions.parse(wanted, "translate")
            if interactive:
                with contextlib.suppress(ImportError):
                    import readline  # noqa: F401 - gives `input` line editing and a history
                converse(translator, lambda: input(f"{translator.about.src_lang}> "), typer.echo, request)
            else:
                read = read or stack.enter_context(open_input(file))
                gc.freeze()  # the model is never garbage: collections need not go through it
                is_plain = file is not None and file.is_file() and file.suffix.lower() not in (".gz", ".zst")
                size = file.stat().st_size if file is not None and is_plain else None
                is_shown = file is not None and output is not None
                bar = progress("translating", size, unit="bytes") if is_shown else contextlib.nullcontext(no_watch)
                with bar as watch:
                    run_filter(translator, read, output, request, as_json=as_json, watch=watch)
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
    from glassformer.data.formats import Faults, open_corpus
    from glassformer.store.folder import load_model
    from glassformer.store.registry import find_model
    from glassformer.text.tokenizer import Tokenizers
    from glassformer.translate.score import perplexity, score_pairs

    (corpus,) = options.corpora([file], file_format=file_format, swap=swap, fields=fields, languages=languages)
    folder, faults = find_model(model), Faults()
    loaded, tokenizers = load_model(folder, device), Tokenizers.load(folder)
    total, n_tokens, n_too_long = 0.0, 0, 0
    # Pairs are scored in windows; `tee` keeps those whose scores have not come yet.
    pairs, again = tee(open_corpus(corpus, faults, options.on_fault(strict)))
    for pair, scored in zip(again, score_pairs(loaded, tokenizers, pairs), strict=True):
        if math.isnan(scored.log_prob):
            n_too_long += 1
        else:
            total, n_tokens = total + scored.log_prob, n_tokens + scored.n_tokens
        if as_json:
            typer.echo(json.dumps(_facts(pair, scored), ensure_ascii=False))
        else:
            typer.echo(f"{scored.log_prob:.4f}\t{scored.n_tokens}\t{scored.perplexity:.4f}")
    if faults.n_skipped:
        for line in faults.report():
            _log.info("%s", line)
    if n_too_long:
        limit = loaded.config.max_positions
        _log.info(f"{n_too_long:,} pairs not scored: longer than the model's {limit:,} positions")
    value = perplexity(total, n_tokens)
    _log.info(f"{faults.n_pairs:,} pairs, {n_tokens:,} tokens, log-probability {total:.2f}, perplexity {value:.3f}")


def _facts(pair: Pair, scored: PairScore) -> dict[str, Any]:
    is_scored = not math.isnan(scored.log_prob)
    return {
        "line": pair.line,
        "src": pair.src,
        "tgt": pair.tgt,
        "log_prob": scored.log_prob if is_scored else None,
        "tokens": scored.n_tokens,
        "perplexity": scored.perplexity if is_scored else None,
    }
