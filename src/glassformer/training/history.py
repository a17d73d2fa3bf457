"""What the folder of a run tells of it: what was asked for, how it went, and how far it has come."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any, Final, NamedTuple, Self

from glassformer.errors import RunError
from glassformer.training.recipe import Recipe
from glassformer.training.run import RUN, Metrics, flat

_RECENT: Final = 20  # lines of metrics.jsonl that say how fast it goes now

_Lines = list[dict[str, Any]]


class History(NamedTuple):
    """A run, as its folder tells it."""

    recipe: Recipe
    train: _Lines  # a line for every report
    dev: _Lines  # a line for every look at dev
    rollbacks: _Lines
    ends: _Lines  # a line for every set of weights that was tried at the end

    @classmethod
    def read(cls, out: Path) -> Self:
        """Read `run.toml` and `metrics.jsonl`."""
        kinds: dict[str, _Lines] = {"train": [], "dev": [], "rollback": [], "end": []}
        for entry in Metrics(out).read():
            kinds.get(entry["kind"], []).append(entry)
        return cls(read_run(out), *kinds.values())

    @property
    def step(self) -> int:
        """How many updates are told of."""
        return max((lines[-1]["step"] for lines in self[1:] if lines), default=0)

    @property
    def seconds(self) -> float:
        """How long it has trained, looks at dev not counted."""
        return float(self.train[-1]["seconds"]) if self.train else 0.0

    @property
    def pace(self) -> float | None:
        """How many seconds an update takes at present."""
        if not self.train:
            return None
        last = self.train[-1]
        first = self.train[-_RECENT] if len(self.train) >= _RECENT else {"step": 0, "seconds": 0.0}
        if last["step"] <= first["step"]:
            return None
        return float((last["seconds"] - first["seconds"]) / (last["step"] - first["step"]))

    @property
    def best(self) -> dict[str, Any] | None:
        """The look at dev that the run itself calls the best."""
        if not self.dev:
            return None
        by_bleu = self.recipe.training.metric == "bleu"
        return max(self.dev, key=lambda look: look["bleu"] if by_bleu else -look["loss"])

    @property
    def chosen(self) -> dict[str, Any] | None:
        """The weights that the run ended with."""
        return next((end for end in self.ends if end["chosen"]), None)


def read_run(out: Path) -> Recipe:
    """Read what a run was asked for."""
    path = out / RUN
    try:
        return Recipe.parse(tomllib.loads(path.read_text(encoding="utf-8")), str(path))
    except OSError as error:
        raise RunError(f"{out} is not the folder of a run: {RUN}: {error.strerror}") from None
    except ValueError as error:
        raise RunError(f"{path} is damaged: {error}") from None


def own_settings(recipe: Recipe) -> dict[str, Any]:
    """Give the settings that differ from their defaults, by their dotted names; the corpora are not among them."""
    return dict(flat(recipe.model_dump(mode="json", exclude_defaults=True, exclude={"train", "dev"})))


def duration(seconds: float) -> str:
    """Write a time as people say it."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    if minutes < 90:
        return f"{minutes} min"
    return f"{minutes // 60} h {minutes % 60:02d}" if minutes < 48 * 60 else f"{minutes / 1440:.1f} days"
