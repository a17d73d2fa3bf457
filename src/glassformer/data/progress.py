"""How far a preparation has come, for people: a bar in a terminal, now and then a line elsewhere, on stderr.

Nothing here is shown unless a caller asks for it and passes it on.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

from glassformer.data import prepared

__all__ = ["show_progress"]

_INTERVAL: Final = 10.0  # seconds between lines


@contextmanager
def show_progress(title: str, console: Console | None = None) -> Iterator[prepared.Progress]:
    """Give a callback that shows what it hears; nothing is shown before it hears something."""
    console = Console(stderr=True) if console is None else console
    if not console.is_terminal:
        yield _Lines(title, console)
        return
    pace = TextColumn("{task.fields[n_pairs]:,} pairs, {task.fields[pace]:,.0f} per second")
    columns = (
        TextColumn(title),
        BarColumn(),
        TaskProgressColumn(),
        pace,
        TimeRemainingColumn(elapsed_when_finished=True),
    )
    bar = Progress(*columns, console=console)
    start = time.monotonic()

    def hear(n_pairs: int, share: float) -> None:
        if not bar.live.is_started:
            bar.add_task(title, total=1.0, n_pairs=0, pace=0.0)
            bar.start()
        bar.update(bar.task_ids[0], completed=share, n_pairs=n_pairs, pace=n_pairs / (time.monotonic() - start))

    try:
        yield hear
    finally:
        bar.stop()


class _Lines:
    """A line every few seconds, and one at the end."""

    def __init__(self, title: str, console: Console) -> None:
        self._title, self._console = title, console
        self._start = self._last = time.monotonic()

    def __call__(self, n_pairs: int, share: float) -> None:
        now = time.monotonic()
        if now - self._last < _INTERVAL and share < 1:
            return
        self._last = now
        pace = n_pairs / max(now - self._start, 1e-9)
        line = f"{self._title}: {share:.0%}, {n_pairs:,} pairs, {pace:,.0f} per second"
        self._console.print(line, markup=False, highlight=False, soft_wrap=True)
