"""The command line: words to settings to one library call; data on stdout, everything else on stderr."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Literal

import typer

from glassformer.errors import GlassformerError, UsageError

__all__ = ["app", "average", "check", "info", "main", "notes", "tokenizer", "train"]

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


@app.command()
def average(
    run: Annotated[Path, typer.Argument(help="The folder of a training run.", metavar="RUN")],
    out: Annotated[Path, typer.Option("--out", help="Where the model goes.")],
    last: Annotated[int, typer.Option("--last", help="How many checkpoints, the newest.", min=1)] = 5,
) -> None:
    """Average the newest checkpoints of a run into a model."""
    from glassformer.training.average import average_run

    average_run(run, out, last)


@app.command()
def check(
    files: Annotated[
        list[str], typer.Argument(help="FILE, or SOURCE,TARGET for two parallel files.", metavar="FILES...")
    ],
    dev: Annotated[list[str] | None, typer.Option("--dev", help="A file that FILES must not overlap with.")] = None,
    test: Annotated[list[str] | None, typer.Option("--test", help="Another such file.")] = None,
    write_clean: Annotated[
        str | None, typer.Option("--write-clean", help="Write the cleaned corpus here, and what was removed beside it.")
    ] = None,
    html: Annotated[Path | None, typer.Option("--html", help="Write a report with pictures here.")] = None,
    as_json: Annotated[Path | None, typer.Option("--json", help="Write all figures here.")] = None,
    keep: Annotated[list[str] | None, typer.Option("--keep", help="A kind of finding to leave in.")] = None,
    remove: Annotated[list[str] | None, typer.Option("--remove", help="A kind of finding to take out.")] = None,
    file_format: Annotated[
        str, typer.Option("--format", help="tsv, moses, jsonl or tmx; else by the ending.")
    ] = "auto",
    languages: Annotated[str | None, typer.Option(help="SRC,TGT (fr,en) for TMX, and for JSONL by language.")] = None,
    fields: Annotated[str, typer.Option(help="SRC,TGT: the fields of JSONL.")] = "src,tgt",
    swap: Annotated[bool, typer.Option("--swap", help="Take the target for the source.")] = False,
    max_length: Annotated[int, typer.Option(help="Characters of a side.")] = 2000,
    max_ratio: Annotated[float, typer.Option(help="How many times longer than usual a side may be.")] = 3.0,
    strict: Annotated[bool, typer.Option("--strict", help="End at the first line that is no pair.")] = False,
) -> None:
    """Examine a parallel corpus: what is wrong with it, and what a cleaned one leaves out."""
    from glassformer.config import CorpusConfig, DoctorConfig
    from glassformer.data.doctor import what_to_remove
    from glassformer.explain.checkup import check_corpora

    src_field, tgt_field = _two(fields, "--fields")
    src_lang, tgt_lang = (None, None) if languages is None else _two(languages, "--languages")
    shared = {"src_field": src_field, "tgt_field": tgt_field, "src_lang": src_lang, "tgt_lang": tgt_lang}
    train_set, dev_set, test_set = (
        [CorpusConfig.parse_word(word, format=file_format, swap=swap, **shared) for word in words or ()]
        for words in (files, dev, test)
    )
    out = None if write_clean is None else CorpusConfig.parse_word(write_clean, **shared)
    config = DoctorConfig.parse({"max_length": max_length, "max_ratio": max_ratio}, "check")
    kinds = what_to_remove(keep or (), remove or ())
    on_fault: Literal["skip", "fail"] = "fail" if strict else "skip"
    check_corpora(train_set, dev_set, test_set, config, kinds, on_fault, out, html, as_json)


@app.command()
def tokenizer(
    files: Annotated[
        list[str], typer.Argument(help="FILE, or SOURCE,TARGET for two parallel files.", metavar="FILES...")
    ],
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
    file_format: Annotated[
        str, typer.Option("--format", help="tsv, moses, jsonl or tmx; else by the ending.")
    ] = "auto",
    languages: Annotated[str | None, typer.Option(help="SRC,TGT (fr,en) for TMX, and for JSONL by language.")] = None,
    fields: Annotated[str, typer.Option(help="SRC,TGT: the fields of JSONL.")] = "src,tgt",
    swap: Annotated[bool, typer.Option("--swap", help="Take the target for the source.")] = False,
    strict: Annotated[bool, typer.Option("--strict", help="End at the first line that is no pair.")] = False,
) -> None:
    """Learn a vocabulary from a parallel corpus, for `train` to use; without one, `train` learns its own."""
    from glassformer.config import CorpusConfig, TokenizerConfig
    from glassformer.explain.vocabulary import learn_vocabulary

    src_field, tgt_field = _two(fields, "--fields")
    src_lang, tgt_lang = (None, None) if languages is None else _two(languages, "--languages")
    shared = {"src_field": src_field, "tgt_field": tgt_field, "src_lang": src_lang, "tgt_lang": tgt_lang}
    corpora = [CorpusConfig.parse_word(word, format=file_format, swap=swap, **shared) for word in files]
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


def _two(word: str, option: str) -> tuple[str, str]:
    source, _, target = word.partition(",")
    if not source or not target or "," in target:
        raise UsageError(f"{option} {word}: write SRC,TGT")
    return source, target


def main() -> None:
    """Run the command line; a user's mistake is one line on stderr and exit code 2."""
    try:
        app()
    except GlassformerError as error:
        print(f"glassformer: {error}", file=sys.stderr)  # noqa: T201
        sys.exit(error.exit_code)
