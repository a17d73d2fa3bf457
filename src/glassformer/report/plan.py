"""The forecast of a training run in the terminal."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence

from rich.console import Console
from rich.filesize import decimal
from rich.table import Table

from glassformer.report.terminal import duration
from glassformer.training.plan import Forecast


def print_forecast(found: Forecast, as_json: bool) -> None:
    """Print a forecast on stdout, as a table or as JSON."""
    console = Console(highlight=False, soft_wrap=True)
    if as_json:
        console.out(json.dumps(found._asdict(), indent=1))
        return
    table = Table(box=None, pad_edge=False, show_edge=False, show_header=False)
    table.add_column(style="dim")
    table.add_column(justify="right")
    table.add_column(style="dim")
    for title, rows in _tables(found):
        table.add_row(f"[bold not dim]{title}[/]")
        for row in rows:
            table.add_row(*row)
        table.add_row()
    console.print(table)
    for note in found.notes:
        console.print(f"note: {note}", markup=False)


def _tables(found: Forecast) -> Iterator[tuple[str, Sequence[tuple[str, str, str]]]]:
    largest = found.largest_max_tokens
    threads = f", {found.threads} thread{'s' * (found.threads > 1)}" if found.device == "cpu" else ""
    yield "parameters", [(name, f"{n:,}", "") for name, n in found.parameters.items()]
    yield (
        "memory",
        [
            *((name, decimal(n), "") for name, n in found.memory.items()),
            ("peak", decimal(found.memory_peak), f"of {decimal(found.memory_free)} free"),
            (
                "largest max_tokens",
                "any" if largest is None else f"{largest:,}",
                f"the recipe has {found.max_tokens:,}",
            ),
        ],
    )
    yield (
        "data",
        [
            ("pairs an epoch", f"{found.n_pairs:,}", ""),
            ("tokens an epoch", f"{found.tokens_per_epoch:,}", "source and target"),
            ("updates an epoch", f"{found.updates_per_epoch:,}", ""),
            ("epochs", f"{found.epochs:,.1f}", ""),
        ],
    )
    yield (
        "time",
        [
            ("tokens a second", f"{found.tokens_per_s:,.0f}", f"on {found.device}{threads}"),
            ("an update", f"{1000 * found.seconds_per_update:,.0f} ms", ""),
            ("an epoch", duration(found.seconds_per_epoch), ""),
            ("start, vocabulary, corpus", duration(found.seconds_preparing), ""),
            ("training", duration(found.seconds_training), ""),
            ("looks at dev", duration(found.seconds_looking), ""),
            ("checkpoints", duration(found.seconds_saving), ""),
            ("to the end", duration(found.seconds), ""),
        ],
    )
    yield "disk", [(name, decimal(n), "") for name, n in found.disk.items()]
