"""What commands and training runs show on stderr while they work: a bar, plain lines, or JSON lines."""

from __future__ import annotations

import json
import logging
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, Literal

from rich.console import Console
from rich.progress import (
    BarColumn,
    DownloadColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    TaskID,
    TaskProgressColumn,
    TextColumn,
    TimeRemainingColumn,
)

from glassformer.report.terminal import duration
from glassformer.training.observer import Observer

_FIGURES: Final = {"loss": "loss {:.3f}", "lr": "lr {:.2e}", "tokens_per_s": "{:,.0f} tokens/s"}


@contextmanager
def progress(
    description: str, total: float | None, *, unit: Literal["bytes", "steps"] | None = None
) -> Iterator[Callable[[int], None]]:
    """Show a bar on stderr, if that is a terminal, and yield a function to advance it; it disappears at the end.

    Without a `total` the bar moves to and fro, and the time is what has passed.
    """
    console = Console(stderr=True)
    count: dict[str | None, ProgressColumn] = {"bytes": DownloadColumn(), "steps": MofNCompleteColumn()}
    columns = TextColumn("{task.description}"), BarColumn(), count.get(unit, TaskProgressColumn())
    left = TimeRemainingColumn(elapsed_when_finished=True)
    with Progress(*columns, left, console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task(description, total=total)
        yield lambda n: bar.advance(task, n)


class ProgressBar(Observer):
    """A progress bar of a training run, with its figures; what is logged meanwhile appears above it."""

    def __init__(self) -> None:
        self._bar = Progress(
            TextColumn("update {task.completed:,.0f}/{task.total:,.0f}"),
            BarColumn(),
            TextColumn("{task.fields[figures]}"),
            TimeRemainingColumn(elapsed_when_finished=True),
            console=Console(stderr=True),
        )
        self._task: TaskID | None = None

    def start(self, out: Path, max_updates: int) -> None:
        """Draw the bar."""
        self._task = self._bar.add_task("", total=max_updates, figures="")
        self._bar.start()

    def advance(self, step: int, figures: Mapping[str, float]) -> None:
        """Move the bar."""
        if self._task is not None:
            self._bar.update(self._task, completed=step, figures=_figures(figures))

    def close(self) -> None:
        """Leave the bar as it stands."""
        self._bar.stop()


class PlainProgress(Observer):
    """A line on stderr for each line of metrics.jsonl about training, for log files."""

    def __init__(self) -> None:
        self._total, self._first, self._begun = 0, 0, 0.0

    def start(self, out: Path, max_updates: int) -> None:
        """Remember how long the run is."""
        self._total = max_updates

    def advance(self, step: int, figures: Mapping[str, float]) -> None:
        """Remember the first update, to estimate the time that remains."""
        if not self._first:
            self._first, self._begun = step, time.monotonic()

    def record(self, kind: str, entry: Mapping[str, Any]) -> None:
        """Write the figures of an entry."""
        if kind == "train":
            step = entry["step"]
            pace = (time.monotonic() - self._begun) / max(step - self._first, 1)
            left = f"  {duration(pace * (self._total - step))} left" if step > self._first else ""
            _write(f"update {step:,}/{self._total:,}  {_figures(entry)}{left}")


class JsonLines(logging.Handler, Observer):
    """One JSON object per line on stderr: each line of metrics.jsonl and, added to a logger, each message."""

    def emit(self, record: logging.LogRecord) -> None:
        """Write a log record as a message."""
        _write(json.dumps({"kind": "message", "text": self.format(record)}, ensure_ascii=False))

    def record(self, kind: str, entry: Mapping[str, Any]) -> None:
        """Write a line of metrics.jsonl."""
        _write(json.dumps({"kind": kind, **entry}, ensure_ascii=False))


def choose_progress(json_logs: bool = False) -> Observer:
    """Choose how a run shows its progress: in JSON if asked, else as a bar on a terminal and as lines elsewhere."""
    if json_logs:
        return JsonLines()
    return ProgressBar() if sys.stderr.isatty() else PlainProgress()


def _figures(figures: Mapping[str, Any]) -> str:
    return "  ".join(form.format(figures[name]) for name, form in _FIGURES.items() if name in figures)


def _write(line: str) -> None:
    sys.stderr.write(f"{line}\n")
    sys.stderr.flush()
