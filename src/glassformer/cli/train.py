"""Commands for training: train, distill, plan, average."""

from __future__ import annotations

import json
import logging
import signal
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from glassformer.cli import options
from glassformer.cli.settings import CONTEXT, Recipes, SettingsCommand, describe_settings, read_settings
from glassformer.errors import Stopped

if TYPE_CHECKING:
    from glassformer.training.observer import Observer

Fresh = Annotated[bool, typer.Option("--fresh", help="Start over: delete what the run has written.")]
AcceptChanges = Annotated[bool, typer.Option("--accept-changes", help="Resume even if settings differ from the run's.")]
JsonLogs = Annotated[bool, typer.Option("--json-logs", help="Log one JSON object per line.")]

app = typer.Typer()

_log = logging.getLogger(__name__)


@app.command(cls=SettingsCommand, context_settings=CONTEXT)
def train(
    context: typer.Context,
    recipe: Recipes = None,
    fresh: Fresh = False,
    accept_changes: AcceptChanges = False,
    json_logs: JsonLogs = False,
    settings: Annotated[bool, typer.Option("--settings", help="List every setting and exit.")] = False,
) -> None:
    """Train a model from a recipe, from corpora given as options, or both.

    Run the same command again to resume where it stopped.

    Settings can also be written with their section: --training.lr is the same as --lr.
    """
    if settings:
        typer.echo("\n".join(describe_settings()))
        return
    checked = read_settings(context, recipe or [])

    from glassformer.api import train as train_model

    train_model(checked, fresh=fresh, accept_changes=accept_changes, observers=_observers(json_logs))


def _observers(json_logs: bool) -> list[Observer]:
    from glassformer.report.progress import choose_progress

    progress = choose_progress(json_logs)
    if isinstance(progress, logging.Handler):  # then messages are JSON, too
        logging.getLogger("glassformer").handlers[:] = [progress]
    return [progress]


@app.command(cls=SettingsCommand, context_settings=CONTEXT)
def distill(
    context: typer.Context,
    teacher: Annotated[
        list[str], typer.Option("--teacher", metavar="MODEL", help="Model to learn from; several form an ensemble.")
    ],
    recipe: Recipes = None,
    text: Annotated[
        list[Path] | None,
        typer.Option("--text", metavar="FILE", help="More source text, one sentence per line. Repeatable."),
    ] = None,
    folder: Annotated[
        Path | None,
        typer.Option("--distilled", metavar="FOLDER", help="Folder of the translations (default: OUT-distilled)."),
    ] = None,
    nbest: Annotated[
        int, typer.Option("--nbest", metavar="N", help="Keep the best of N by BLEU against the reference.", min=1)
    ] = 5,
    beam: Annotated[int | None, typer.Option("--beam", metavar="N", help="Beam size of the teacher.", min=1)] = None,
    add_references: Annotated[bool, typer.Option("--add-references", help="Train on the original pairs, too.")] = False,
    engine: options.Engine = "auto",
    fresh: Fresh = False,
    accept_changes: AcceptChanges = False,
    json_logs: JsonLogs = False,
) -> None:
    """Train a small student on the translations of a teacher (sequence-level distillation).

    The recipe describes the student; the teacher translates the source side of its training corpora.

    Run the same command again to resume where it stopped.
    """
    checked = read_settings(context, recipe or [])

    from glassformer.api import train as train_model
    from glassformer.report.progress import progress
    from glassformer.training.distill import Distillation, translate_sources

    plan = Distillation(checked, tuple(teacher), tuple(text or ()), folder, nbest, beam, add_references)
    observers = _observers(json_logs)
    try:
        with progress("translating", plan.size, unit="bytes") as watch:
            translate_sources(plan, fresh=fresh, accept_changes=accept_changes, engine=engine, watch=watch)
    except KeyboardInterrupt:
        raise Stopped("stopped while translating; resume with the same command", signal.SIGINT) from None
    train_model(plan.student, fresh=fresh, accept_changes=accept_changes, observers=observers)


@app.command(cls=SettingsCommand, context_settings=CONTEXT)
def plan(
    context: typer.Context,
    recipe: Recipes = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print all figures as JSON.")] = False,
    seconds: Annotated[
        float, typer.Option(metavar="SECONDS", help="Length of the trial training run.", min=0.1)
    ] = 15.0,
) -> None:
    """Estimate time, memory and disk space of a training run by training for a few seconds.

    Takes the same recipe and settings as `train`.
    """
    checked = read_settings(context, recipe or [])

    from rich.console import Console

    from glassformer.report.plan import show_forecast
    from glassformer.training.plan import forecast

    found = forecast(checked, seconds)
    if as_json:
        typer.echo(json.dumps(found._asdict(), indent=1))
    else:
        show_forecast(found, Console())


@app.command()
def average(
    run: Annotated[Path, typer.Argument(help="Folder of a training run.", metavar="RUN")],
    out: Annotated[Path, typer.Option(metavar="FOLDER", help="Model folder to write.")],
    last: Annotated[int, typer.Option(metavar="N", help="Number of checkpoints to average.", min=1)] = 5,
) -> None:
    """Average the weights of a run's last checkpoints into a model."""
    from glassformer.training.average import average_run

    averaged = average_run(run, out, last)
    _log.info("averaged %d checkpoints: %s", len(averaged), ", ".join(averaged))
    typer.echo(out)
