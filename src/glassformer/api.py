"""Train from Python as the command does: with the report, the model card and TensorBoard beside the run."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from glassformer.report.board import TensorBoard
from glassformer.report.card import ModelCard
from glassformer.report.run import HtmlReport
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
