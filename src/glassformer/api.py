"""Train and distill from Python as the commands do: with report, model card and TensorBoard beside the run."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from glassformer.report.board import TensorBoard
from glassformer.report.card import ModelCard
from glassformer.report.run import HtmlReport
from glassformer.training.distill import Distillation, translate_sources
from glassformer.training.observer import Observer
from glassformer.training.recipe import Recipe
from glassformer.training.start import train_run


def train(
    recipe: Recipe, *, fresh: bool = False, accept_changes: bool = False, observers: Sequence[Observer] = ()
) -> Path:
    """Train as the recipe says, or resume the run in its folder; return that folder.

    `fresh` starts over, `accept_changes` resumes with settings that differ from the run's. What happens on the way is
    logged to the logger "glassformer" and passed to `observers`.
    """
    usual = (TensorBoard(), HtmlReport(), ModelCard())
    return train_run(recipe, fresh=fresh, accept_changes=accept_changes, observers=[*observers, *usual])


def distill(
    recipe: Recipe,
    teachers: str | Path | Sequence[str | Path],
    *,
    text: Sequence[str | Path] = (),
    folder: str | Path | None = None,
    n_best: int = 5,
    beam: int | None = None,
    add_references: bool = False,
    engine: str = "auto",
    fresh: bool = False,
    accept_changes: bool = False,
    observers: Sequence[Observer] = (),
) -> Path:
    """Let a teacher, or several as an ensemble, translate the training sources, and train a student on the result.

    `recipe` describes the student, `text` are files with further sentences, one per line. Of the `n_best` translations
    of a sentence, the one closest to its reference is kept. Translations go to `folder` (default: the run folder's name
    with "-distilled" added), from which an interrupted call resumes. `add_references` trains on the original pairs,
    too. Return the student's run folder.
    """
    several = (teachers,) if isinstance(teachers, str | Path) else tuple(teachers)
    where = None if folder is None else Path(folder)
    plan = Distillation(recipe, several, tuple(map(Path, text)), where, n_best, beam, add_references)
    translate_sources(plan, fresh=fresh, accept_changes=accept_changes, engine=engine)
    return train(plan.student, fresh=fresh, accept_changes=accept_changes, observers=observers)
