"""A run read back from its folder: its settings, its figures and its progress."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final, NamedTuple, Self

from glassformer.training.recipe import Recipe
from glassformer.training.run import Metrics, flat, read_run
from glassformer.training.validation import SCORES, goodness

_RECENT: Final = 20  # lines of metrics.jsonl that give the current pace

_Lines = list[dict[str, Any]]


class History(NamedTuple):
    """The recipe of a run and the lines of its metrics.jsonl by kind."""

    recipe: Recipe
    train: _Lines
    dev: _Lines  # one per validation
    rollbacks: _Lines
    ends: _Lines  # one per set of weights that was validated at the end

    @classmethod
    def read(cls, out: Path) -> Self:
        """Read `run.toml` and `metrics.jsonl`."""
        kinds: dict[str, _Lines] = {"train": [], "dev": [], "rollback": [], "end": []}
        for entry in Metrics(out).read():
            kinds.get(entry["kind"], []).append(entry)
        return cls(read_run(out), *kinds.values())

    @property
    def step(self) -> int:
        """The number of updates recorded."""
        return max((lines[-1]["step"] for lines in self[1:] if lines), default=0)

    @property
    def seconds(self) -> float:
        """The time spent in training, excluding validation."""
        return float(self.train[-1]["seconds"]) if self.train else 0.0

    @property
    def pace(self) -> float | None:
        """The seconds that an update currently takes."""
        if not self.train:
            return None
        last = self.train[-1]
        first = self.train[-_RECENT] if len(self.train) >= _RECENT else {"step": 0, "seconds": 0.0}
        if last["step"] <= first["step"]:
            return None
        return float((last["seconds"] - first["seconds"]) / (last["step"] - first["step"]))

    @property
    def best(self) -> dict[str, Any] | None:
        """The best validation by the metric of the run."""
        return max(self.dev, key=lambda entry: goodness(self.recipe.training.metric, entry), default=None)

    @property
    def end_scores(self) -> dict[str, str]:
        """The scores of the final weights: name in `ends` and label."""
        return {name: label for name, label in SCORES.items() if self.ends and name in self.ends[0]}

    @property
    def chosen(self) -> dict[str, Any] | None:
        """The final weights."""
        return next((end for end in self.ends if end["chosen"]), None)


def own_settings(recipe: Recipe) -> dict[str, Any]:
    """Return the settings that differ from their defaults by their dotted names, without the corpora."""
    return dict(flat(recipe.model_dump(mode="json", exclude_defaults=True, exclude={"train", "dev"})))
