"""The command line: words to settings to one library call; data on stdout, everything else on stderr."""

from __future__ import annotations

import contextlib
import errno
import gc
import logging
import os
import signal
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from glassformer.errors import GlassformerError, Stopped, UsageError

if TYPE_CHECKING:
    from glassformer.config import CorpusConfig


app = typer.Typer(
    name="glassformer",
    help="The encoder-decoder Transformer you can train, run and see through.",
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
    pretty_exceptions_enable=False,
)

_CANNOT_WRITE = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)

# What several commands take.
_Model = Annotated[str, typer.Argument(help="A model folder, or a name.", metavar="MODEL")]
_Files = Annotated[list[str], typer.Argument(help="FILE, or SOURCE,TARGET for two parallel files.", metavar="FILES...")]
_Format = Annotated[str, typer.Option("--format", help="tsv, moses, jsonl or tmx; else by the ending.")]
_Languages = Annotated[str | None, typer.Option(help="SRC,TGT (fr,en) for TMX, and for JSONL by language.")]
_Fields = Annotated[str, typer.Option(help="SRC,TGT: the fields of JSONL.")]
_Swap = Annotated[bool, typer.Option("--swap", help="Take the target for the source.")]
_Strict = Annotated[bool, typer.Option("--strict", help="End at the first line that is no pair.")]
_Beam = Annotated[int | None, typer.Option("--beam", help="Hypotheses of a sentence; 1 is greedy.", min=1)]
_Search = Annotated[
    list[str] | None, typer.Option("--search", help="NAME=VALUE, any setting of the search: length_penalty=0.6.")
]
_Engine = Annotated[str, typer.Option(help="torch, ctranslate2, or auto: the fastest that can do it.")]
_Compute = Annotated[str, typer.Option(help="float32 or int8 in ctranslate2; auto: the fastest that is accurate.")]
_Threads = Annotated[int, typer.Option(help="CPU threads; 0 takes all.", min=0)]
_Device = Annotated[str, typer.Option(help="Where torch computes.")]


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
def info(model: _Model) -> None:
    """Say what is in a model folder: its settings and its size, part by part."""
    from glassformer.report.info import print_info

    print_info(model)


@app.command()
def models() -> None:
    """List the models that come with glassformer."""
    from glassformer.report.info import print_models

    print_models()


@app.command()
def demo(
    page: Annotated[Path, typer.Option("--html", help="Where the explainer's page goes.")] = Path("explainer.html"),
) -> None:
    """Translate a few sentences, show what was looked at, and write a page with every number."""
    from glassformer.report.demo import run_demo
    from glassformer.translate.translator import Translator

    ask = (lambda: input("A French sentence of yours, or Enter to go on: ")) if sys.stdin.isatty() else None
    with Translator.load(say=_say) as translator:
        run_demo(translator, page, ask)


@app.command()
def notes(
    row: Annotated[int | None, typer.Argument(help="One row, 1 to 24; all of them without.", min=1, max=24)] = None,
    tour: Annotated[bool, typer.Option("--tour", help="Only the five rows to begin with.")] = False,
) -> None:
    """Walk through the lecture notes, row by row, with numbers that the real modules compute."""
    from glassformer.notes import show_notes

    show_notes(row, tour)


@app.command(context_settings={"allow_extra_args": True, "ignore_unknown_options": True})
def train(
    context: typer.Context,
    fresh: Annotated[bool, typer.Option("--fresh", help="Start over: delete what the folder holds.")] = False,
    accept_changes: Annotated[
        bool, typer.Option("--accept-changes", help="Go on although settings differ from the run's.")
    ] = False,
    json_logs: Annotated[bool, typer.Option("--json-logs", help="Report in JSON, a line each.")] = False,
    settings: Annotated[bool, typer.Option("--settings", help="List every setting and stop.")] = False,
) -> None:
    """Train a model: glassformer train [RECIPE.toml] [--train FILE --dev FILE --out FOLDER] [--SETTING VALUE ...].

    The same command again goes on where it stopped.
    """
    from glassformer.training.recipe import flags, parse_words, read_recipe

    if settings:
        for name, meaning in flags().items():
            typer.echo(f"--{name.replace('_', '-'):32s} {meaning}")
        return
    path, changes = parse_words(context.args)
    recipe = read_recipe(path, changes)

    from glassformer.training.start import train as start

    start(recipe, fresh, accept_changes, json_logs)


@app.command(context_settings={"allow_extra_args": True, "ignore_unknown_options": True})
def plan(
    context: typer.Context,
    as_json: Annotated[bool, typer.Option("--json", help="Print all figures as JSON.")] = False,
    seconds: Annotated[float, typer.Option(help="How long to train for the measurement.", min=0.1)] = 15.0,
) -> None:
    """Say what a training run will take, before it is begun: glassformer plan [RECIPE.toml] [--SETTING VALUE ...]."""
    from glassformer.training.recipe import parse_words, read_recipe

    recipe = read_recipe(*parse_words(context.args))

    from glassformer.training.plan import forecast, print_forecast

    print_forecast(forecast(recipe, seconds, _say), as_json)


@app.command()
def average(
    run: Annotated[Path, typer.Argument(help="The folder of a training run.", metavar="RUN")],
    out: Annotated[Path, typer.Option("--out", help="Where the model goes.")],
    last: Annotated[int, typer.Option("--last", help="How many checkpoints, the newest.", min=1)] = 5,
) -> None:
    """Average the newest checkpoints of a run into a model."""
    from glassformer.training.average import average_run

    averaged = average_run(run, out, last)
    _say(f"averaged {len(averaged)} checkpoints: {', '.join(averaged)}")
    typer.echo(out)


@app.command()
def explain(
    words: Annotated[
        list[str] | None,
        typer.Argument(help="A model folder or name, fr-en without, and a sentence.", metavar="[MODEL] [SENTENCE]"),
    ] = None,
    model: Annotated[str | None, typer.Option("--model", help="MODEL, where the first word could be either.")] = None,
    at: Annotated[str | None, typer.Option("--at", help="One number: enc.0.sum[2,5].")] = None,
    depth: Annotated[int, typer.Option("--depth", help="With --at: go back so many times.", min=0)] = 0,
    html: Annotated[Path | None, typer.Option("--html", help="Write the page here, in one file.")] = None,
    as_json: Annotated[Path | None, typer.Option("--json", help="Write all numbers here.")] = None,
    with_weights: Annotated[
        list[str] | None, typer.Option("--with-weights", help="With --html or --json: matrices too, of enc.0.self.*")
    ] = None,
    live: Annotated[bool, typer.Option("--open", help="Open the live page, to type sentences into.")] = False,
    browser: Annotated[bool, typer.Option("--browser/--no-browser", help="With --open: start a browser.")] = True,
    beam: _Beam = None,
    search: _Search = None,
    force: Annotated[list[str] | None, typer.Option("--force", help="STEP=WORD: this word comes at that step.")] = None,
    reference: Annotated[str | None, typer.Option("--reference", help="How a person translates it.")] = None,
    engine: Annotated[str, typer.Option(help="Whose text is compared: torch, ctranslate2 or auto.")] = "auto",
) -> None:
    """Show how a sentence is translated, number by number: in the terminal, as a page, or live in the browser."""
    if live and (at or html or as_json or with_weights or force or reference):
        raise UsageError("--open shows all of it live, and goes without --at, --html, --json, --force and --reference")
    if Path("-") in (html, as_json):
        raise UsageError("--html and --json write files: name one instead of -")
    if not live and not browser:
        raise UsageError("--no-browser goes with --open")
    if depth and at is None:
        raise UsageError("--depth goes with --at: what is to be followed back?")
    if with_weights and not (html or as_json):
        raise UsageError("--with-weights goes with --html or --json: the matrices are written there")
    model, text = _model_and_text(words or [], model, needs_text=not live)
    forced = _forced_words(force or [])

    from rich.console import Console

    from glassformer.report.explanation import show_cells, show_explanation
    from glassformer.translate.filter import search_settings
    from glassformer.translate.translator import Translator

    settings = _search_words(search, beam)
    # One sentence has little to share, and on a busy machine threads wait for each other longer than they compute.
    with Translator.load(model, engine, threads=1, say=_say) as translator:
        translator.search = search_settings(settings, translator.search)
        if live:
            from glassformer.explainer.live import serve_page

            logging.basicConfig(format="glassformer: %(message)s", level=logging.INFO)
            try:
                serve_page(translator, text, Path(model).name, browser=browser)
            except KeyboardInterrupt:
                _say("stopped")
            return
        explanation = translator.explain(text, reference=reference, forced=forced, name=Path(model).name)
        for path, write in ((html, explanation.to_html), (as_json, explanation.to_json)):
            if path is not None:
                write(path, with_weights or ())
                _say(f"wrote {path}")
        console = Console(highlight=False)
        if at is not None:
            show_cells(explanation, at, depth, console)
        elif html is None and as_json is None:
            show_explanation(explanation, console)


def _model_and_text(words: Sequence[str], model: str | None, *, needs_text: bool) -> tuple[str, str]:
    """Return the model and the sentence among the words of `explain`; without a model, the default one."""
    from glassformer.store.registry import DEFAULT_MODEL, shipped_models

    words = list(words)
    if model is None and words and (len(words) > 1 or words[0] in shipped_models() or os.path.isdir(words[0])):
        model = words.pop(0)
    model = model or DEFAULT_MODEL
    if len(words) > 1:
        raise UsageError(f"one sentence at a time: put quotes around it, as in '{' '.join(words)}'")
    if needs_text and not words:
        raise UsageError("no sentence given: use `glassformer explain [MODEL] SENTENCE`, or --open to type one")
    return model, words[0] if words else ""


def _forced_words(words: Sequence[str]) -> dict[int, str]:
    """Read words like `2=house`: at step 2 comes `house`."""
    forced = {}
    for word in words:
        step, _, text = word.partition("=")
        if not (step.isascii() and step.isdigit() and text):
            raise UsageError(f"--force {word}: write STEP=WORD, as in 2=house")
        forced[int(step)] = text
    return forced


@app.command()
def export(
    model: _Model,
    to: Annotated[str, typer.Option("--to", help="ctranslate2, or folder: a model folder in another number format.")],
    out: Annotated[Path | None, typer.Option("--out", help="Where it goes; else where `translate` finds it.")] = None,
    quantization: Annotated[str, typer.Option(help="float32, int8, float16 or bfloat16.")] = "float32",
) -> None:
    """Write a model for another engine, or in half the size."""
    if to not in ("ctranslate2", "folder"):
        raise UsageError(f"--to {to}: known: ctranslate2, folder")

    from glassformer.convert.ctranslate2 import as_quantization, export_folder
    from glassformer.store.registry import find_model
    from glassformer.translate.engines.probe import load_cached_export

    kind = as_quantization(quantization)
    if to == "folder":
        from glassformer.store.folder import copy_model

        if out is None or kind == "int8":
            raise UsageError("--to folder needs --out FOLDER, and float32, float16 or bfloat16 as --quantization")
        copy_model(model, out, kind)
    elif out is None:
        out = load_cached_export(find_model(model), kind)
    else:
        export_folder(find_model(model), out, kind)
    typer.echo(out)


@app.command()
def check(
    files: _Files,
    dev: Annotated[list[str] | None, typer.Option("--dev", help="A file that FILES must not overlap with.")] = None,
    test: Annotated[list[str] | None, typer.Option("--test", help="Another such file.")] = None,
    write_clean: Annotated[
        str | None, typer.Option("--write-clean", help="Write the cleaned corpus here, and what was removed beside it.")
    ] = None,
    html: Annotated[Path | None, typer.Option("--html", help="Write a report with pictures here.")] = None,
    as_json: Annotated[Path | None, typer.Option("--json", help="Write all figures here.")] = None,
    keep: Annotated[list[str] | None, typer.Option("--keep", help="A kind of finding to leave in.")] = None,
    remove: Annotated[list[str] | None, typer.Option("--remove", help="A kind of finding to take out.")] = None,
    file_format: _Format = "auto",
    languages: _Languages = None,
    fields: _Fields = "src,tgt",
    swap: _Swap = False,
    max_length: Annotated[int, typer.Option(help="Characters of a side.")] = 2000,
    max_ratio: Annotated[float, typer.Option(help="How many times longer than usual a side may be.")] = 3.0,
    strict: _Strict = False,
) -> None:
    """Examine a parallel corpus: what is wrong with it, and what a cleaned one leaves out."""
    from glassformer.config import DoctorConfig
    from glassformer.data.doctor import what_to_remove
    from glassformer.report.doctor import check_corpora

    train_set, dev_set, test_set = (
        _corpora(words or [], file_format, swap, fields, languages) for words in (files, dev, test)
    )
    out = None if write_clean is None else _corpora([write_clean], "auto", False, fields, languages)[0]
    config = DoctorConfig.parse({"max_length": max_length, "max_ratio": max_ratio}, "check")
    kinds = what_to_remove(keep or (), remove or ())
    on_fault: Literal["skip", "fail"] = "fail" if strict else "skip"
    check_corpora(train_set, dev_set, test_set, config, kinds, on_fault, out, html, as_json)


@app.command()
def tokenizer(
    files: _Files,
    out: Annotated[Path, typer.Option("--out", help="A folder, or FILE.model, for the vocabulary.")],
    vocab_size: Annotated[int, typer.Option(help="Ids in all: 4 special ones, 256 bytes, the rest learnt.")] = 8000,
    model: Annotated[str, typer.Option(help="unigram or bpe.")] = "unigram",
    joint: Annotated[bool, typer.Option("--joint/--separate", help="One for both sides, or one for each.")] = True,
    normalise: Annotated[str, typer.Option(help="none gives texts back as they were; nfkc folds them.")] = "none",
    character_coverage: Annotated[
        float, typer.Option(help="Share of the text whose characters get ids; the others are spelt in bytes.")
    ] = 0.9999,
    split_digits: Annotated[bool, typer.Option(help="Write a number digit by digit.")] = True,
    max_sentences: Annotated[int, typer.Option(help="Lines to learn from, drawn at random.")] = 500_000,
    seed: Annotated[int, typer.Option(help="Of the draw.")] = 0,
    file_format: _Format = "auto",
    languages: _Languages = None,
    fields: _Fields = "src,tgt",
    swap: _Swap = False,
    strict: _Strict = False,
) -> None:
    """Learn a vocabulary from a parallel corpus, for `train` to use; without one, `train` learns its own."""
    from glassformer.config import TokenizerConfig
    from glassformer.report.vocabulary import learn_vocabulary

    corpora = _corpora(files, file_format, swap, fields, languages)
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
    learn_vocabulary(corpora, TokenizerConfig.parse(values, "tokenizer"), "fail" if strict else "skip", out)


@app.command()
def translate(
    model: Annotated[
        str | None,
        typer.Argument(
            help="A model folder, or a name; several, with commas between, decide together; fr-en without.",
            metavar="[MODEL]",
        ),
    ] = None,
    source: Annotated[
        Path | None, typer.Option("--input", help="Read this file, .gz and .zst too; else stdin.")
    ] = None,
    output: Annotated[Path | None, typer.Option("--output", help="Write this file, whole or not; else stdout.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="An object a line, with all that is known.")] = False,
    nbest: Annotated[int, typer.Option("--nbest", help="So many ways a line: number, score, text.", min=1)] = 1,
    alignment: Annotated[bool, typer.Option("--alignment", help="And which words belong together: 0-0 1-2.")] = False,
    attention: Annotated[bool, typer.Option("--attention", help="With --json: the attention to the source.")] = False,
    interactive: Annotated[bool, typer.Option("--interactive", help="Ask for sentences and show more.")] = False,
    beam: _Beam = None,
    length_penalty: Annotated[float | None, typer.Option(help="Above 0: more for longer ones.")] = None,
    search: _Search = None,
    prefix: Annotated[str, typer.Option(help="What each translation begins with.")] = "",
    suppress: Annotated[list[str] | None, typer.Option(help="A word that must not come.")] = None,
    require: Annotated[list[str] | None, typer.Option(help="A word that must come.")] = None,
    engine: _Engine = "auto",
    compute: _Compute = "auto",
    threads: _Threads = 0,
    device: _Device = "cpu",
) -> None:
    """Translate lines from stdin to stdout, one for one."""
    if attention and not as_json:
        raise UsageError("--attention is written with --json only")
    if alignment and nbest > 1 and not as_json:
        raise UsageError("--alignment with --nbest is written with --json only")
    if interactive and (as_json or source or output or alignment or attention):
        raise UsageError(
            "--interactive reads and writes the terminal: without --input, --output, --json and what these write"
        )

    from glassformer.store.registry import DEFAULT_MODEL
    from glassformer.translate.filter import Answers, converse, run_filter, search_settings
    from glassformer.translate.translator import Translator

    words = _search_words(search, beam)
    words += [] if length_penalty is None else [f"length_penalty={length_penalty}"]
    wanted = (nbest, prefix, tuple(suppress or ()), tuple(require or ()), as_json, alignment, attention)
    names = (model or DEFAULT_MODEL).split(",")
    if output is not None and threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))  # so that no half of a file stays
    try:
        with Translator.load(names, engine, None, threads, device, _say, compute=compute) as translator:
            answers = Answers(search_settings(words, translator.search), *wanted)
            if interactive:
                with contextlib.suppress(ImportError):
                    import readline  # noqa: F401 - `input` edits lines and remembers them then
                converse(translator, lambda: input(f"{translator.about.src_lang}> "), typer.echo, answers)
            else:
                gc.freeze()  # what is loaded is no garbage, and looking through it again and again takes time
                run_filter(translator, None if source == Path("-") else source, output, answers)
    except KeyboardInterrupt:
        raise Stopped("stopped", signal.SIGINT) from None
    except BrokenPipeError:  # whoever read it has seen enough
        _close_stdout()
        raise typer.Exit(128 + signal.SIGPIPE) from None


@app.command()
def score(
    model: _Model,
    file: Annotated[str, typer.Argument(help="FILE, or SOURCE,TARGET for two parallel files.", metavar="FILE")],
    as_json: Annotated[bool, typer.Option("--json", help="An object a pair instead of a line of three.")] = False,
    file_format: _Format = "auto",
    languages: _Languages = None,
    fields: _Fields = "src,tgt",
    swap: _Swap = False,
    strict: _Strict = False,
    device: _Device = "cpu",
) -> None:
    """Say how likely a model finds given translations: log-probability, tokens and perplexity of each pair."""
    from glassformer.translate.score import score_file

    corpus = _corpora([file], file_format, swap, fields, languages)[0]
    score_file(model, corpus, "fail" if strict else "skip", as_json, device, typer.echo, _say)


@app.command()
def evaluate(
    system: Annotated[
        str, typer.Argument(help="A model folder or name, or a file of translations, a line each.", metavar="MODEL")
    ],
    test: Annotated[str, typer.Option("--test", help="FILE of pairs, or SOURCE,TARGET for two parallel files.")],
    compare: Annotated[
        str | None, typer.Option("--compare", help="Another model or file: paired bootstrap, and a page side by side.")
    ] = None,
    html: Annotated[Path | None, typer.Option("--html", help="Where that page goes; else comparison.html.")] = None,
    output: Annotated[Path | None, typer.Option("--output", help="Write the translations here.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print all figures as JSON.")] = False,
    tokenize: Annotated[str, typer.Option(help="sacreBLEU's tokenizer; none for text that is tokenised.")] = "13a",
    comet: Annotated[
        str | None, typer.Option("--comet", help="A checkpoint of COMET, to score by it too (needs unbabel-comet).")
    ] = None,
    beam: _Beam = None,
    search: _Search = None,
    file_format: _Format = "auto",
    languages: _Languages = None,
    fields: _Fields = "src,tgt",
    swap: _Swap = False,
    engine: _Engine = "auto",
    threads: _Threads = 0,
) -> None:
    """Measure a model on a test set: BLEU, chrF, TER, perplexity and speed; or compare two."""
    from glassformer.report.evaluation import evaluate_systems

    words = _search_words(search, beam)
    corpus = _corpora([test], file_format, swap, fields, languages)[0]
    systems = [system] if compare is None else [system, compare]
    evaluate_systems(systems, corpus, tokenize, engine, words, threads, comet, output, html, as_json, _say)


def _corpora(words: list[str], file_format: str, swap: bool, fields: str, languages: str | None) -> list[CorpusConfig]:
    """Read FILE or SOURCE,TARGET words and the options that all commands with corpora share."""
    from glassformer.config import CorpusConfig

    src_field, tgt_field = _two(fields, "--fields")
    src_lang, tgt_lang = (None, None) if languages is None else _two(languages, "--languages")
    shared = {"src_field": src_field, "tgt_field": tgt_field, "src_lang": src_lang, "tgt_lang": tgt_lang}
    return [CorpusConfig.parse_word(word, format=file_format, swap=swap, **shared) for word in words]


def _search_words(search: list[str] | None, beam: int | None) -> list[str]:
    return [*(search or ()), *([] if beam is None else [f"width={beam}"])]


def _say(word: str) -> None:
    typer.echo(f"glassformer: {word}", err=True)


def _close_stdout() -> None:
    """Keep Python from flushing once more what cannot be written."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _two(word: str, option: str) -> tuple[str, str]:
    source, _, target = word.partition(",")
    if not source or not target or "," in target:
        raise UsageError(f"{option} {word}: write SRC,TGT")
    return source, target


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
        _say(str(error))
        sys.exit(error.exit_code)
    except OSError as error:
        if error.filename is not None or error.errno not in _CANNOT_WRITE:  # files are explained where they are written
            raise
        _close_stdout()
        _say(f"standard output: {error.strerror}")
        sys.exit(UsageError.exit_code)
