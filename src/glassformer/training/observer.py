"""Observers of a training run: they receive values, so that training knows nothing of bars, pages and boards."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any


class Observer:
    """What a run tells those who watch it; subclasses override what they need, the rest is ignored."""

    def start(self, out: Path, max_updates: int) -> None:
        """The run folder is open."""

    def advance(self, step: int, figures: Mapping[str, float]) -> None:
        """An update was made."""

    def record(self, kind: str, entry: Mapping[str, Any]) -> None:
        """A line was added to metrics.jsonl: train, dev, rollback or end."""

    def validated(self, out: Path) -> None:
        """A validation was recorded."""

    def finished(self, out: Path) -> None:
        """The model folder was written."""

    def close(self) -> None:
        """The run has ended, in whatever way."""
