"""What a run says while it runs: a bar in a terminal, plain lines in a log file, JSON for machines; all on stderr."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Protocol

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeRemainingColumn


class Reporter(Protocol):
    """Whoever is told how a run goes."""

    def say(self, text: str) -> None:
        """Pass on one sentence for a person."""
        ...

    def advance(self, step: int, figures: Mapping[str, float]) -> None:
        """Pass on the figures of an update."""
        ...

    def record(self, kind: str, entry: Mapping[str, Any]) -> None:
        """Pass on a line of metrics.jsonl."""
        ...


class Bar:
    """A progress bar with the figures beside it."""

    def __init__(self, progress: Progress, task: TaskID) -> None:
        self.progress, self.task = progress, task

    def say(self, text: str) -> None:
        """Print above the bar."""
        self.progress.console.print(text, markup=False, highlight=False)

    def advance(self, step: int, figures: Mapping[str, float]) -> None:
        """Move the bar."""
        self.progress.update(self.task, completed=step, figures=_words(figures))

    def record(self, kind: str, entry: Mapping[str, Any]) -> None:
        """Leave it to the file."""


class Plain:
    """A line now and then."""

    def __init__(self, total: int) -> None:
        self.total, self.start, self.first = total, time.monotonic(), 0

    def say(self, text: str) -> None:
        """Print a line."""
        _line(text)

    def advance(self, step: int, figures: Mapping[str, float]) -> None:
        """Remember where the run began, to know how long it will take."""
        if not self.first:
            self.first, self.start = step, time.monotonic()

    def record(self, kind: str, entry: Mapping[str, Any]) -> None:
        """Print the figures of a line of metrics.jsonl."""
        if kind == "train":
            done = entry["step"] - self.first
            left = (time.monotonic() - self.start) / done * (self.total - entry["step"]) if done > 0 else 0.0
            _line(f"step {entry['step']}/{self.total}  {_words(entry)}  {_duration(left)} to go")


class JsonLines:
    """One JSON object a line, for machines."""

    def say(self, text: str) -> None:
        """Print a message as JSON."""
        _line(json.dumps({"kind": "message", "text": text}, ensure_ascii=False))

    def advance(self, step: int, figures: Mapping[str, float]) -> None:
        """Leave it to `record`."""

    def record(self, kind: str, entry: Mapping[str, Any]) -> None:
        """Print a line of metrics.jsonl."""
        _line(json.dumps({"kind": kind, **entry}, ensure_ascii=False))


@contextmanager
def reporter(total: int, json_logs: bool = False, quiet: bool = False) -> Iterator[Reporter]:
    """Choose how to report: `total` updates; `quiet` for processes that are not to speak."""
    if quiet:
        yield _Silent()
    elif json_logs:
        yield JsonLines()
    elif not sys.stderr.isatty():
        yield Plain(total)
    else:
        columns = (
            TextColumn("step {task.completed:.0f}/{task.total:.0f}"),
            BarColumn(),
            TextColumn("{task.fields[figures]}"),
            TimeRemainingColumn(elapsed_when_finished=True),
        )
        with Progress(*columns, console=Console(stderr=True)) as progress:
            yield Bar(progress, progress.add_task("train", total=total, figures=""))


class _Silent:
    def say(self, text: str) -> None:
        pass

    def advance(self, step: int, figures: Mapping[str, float]) -> None:
        pass

    def record(self, kind: str, entry: Mapping[str, Any]) -> None:
        pass


def _words(figures: Mapping[str, Any]) -> str:
    shapes = {"loss": "loss {:.3f}", "lr": "lr {:.2e}", "tokens_per_s": "{:,.0f} tokens/s"}
    return "  ".join(shape.format(figures[name]) for name, shape in shapes.items() if name in figures)


def _duration(seconds: float) -> str:
    minutes = int(seconds) // 60
    return f"{minutes // 60}:{minutes % 60:02d} h" if minutes >= 60 else f"{minutes}:{int(seconds) % 60:02d} min"


def _line(text: str) -> None:
    print(text, file=sys.stderr, flush=True)  # noqa: T201 - what a run says is its own output
