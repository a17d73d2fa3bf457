"""The forecast of a training run in the terminal."""

from __future__ import annotations

from rich.console import Console
from rich.filesize import decimal
from rich.text import Text

from glassformer.report.terminal import duration, show, table
from glassformer.training.plan import Forecast


def show_forecast(forecast: Forecast, console: Console) -> None:
    """Print what a run will take: parameters, memory, data, time and disk."""
    rows: list[tuple[Text, str, Text]] = []
    for title, section in _sections(forecast).items():
        rows += [(Text(), "", Text())] if rows else []
        rows.append((Text(title, "bold"), "", Text()))
        rows += [(Text(name, "dim"), figure, Text(remark, "dim")) for name, figure, remark in section]
    show(console, table((), rows, right=(1,)), wrap=False)
    for note in forecast.notes:
        show(console, Text(f"note: {note}"), wrap=False)


def _sections(found: Forecast) -> dict[str, list[tuple[str, str, str]]]:
    """Return rows of name, figure and remark by title."""
    largest = found.largest_max_tokens
    threads = f", {found.threads} thread{'s' * (found.threads > 1)}" if found.device == "cpu" else ""
    return {
        "parameters": [(name, f"{n:,}", "") for name, n in found.parameters.items()],
        "memory": [
            *((name, decimal(n), "") for name, n in found.memory.items()),
            ("peak", decimal(found.memory_peak), f"of {decimal(found.memory_free)} free"),
            ("largest max_tokens", "any" if largest is None else f"{largest:,}", f"recipe: {found.max_tokens:,}"),
        ],
        "data": [
            ("pairs per epoch", f"{found.n_pairs:,}", ""),
            ("tokens per epoch", f"{found.tokens_per_epoch:,}", "source and target"),
            ("updates per epoch", f"{found.updates_per_epoch:,}", ""),
            ("epochs", f"{found.epochs:,.1f}", ""),
        ],
        "time": [
            ("tokens per second", f"{found.tokens_per_s:,.0f}", f"on {found.device}{threads}"),
            ("per update", f"{1000 * found.seconds_per_update:,.0f} ms", ""),
            ("per epoch", duration(found.seconds_per_epoch), ""),
            ("preparation", duration(found.seconds_preparing), "start, vocabulary, corpus"),
            ("training", duration(found.seconds_training), ""),
            ("validation", duration(found.validation_seconds), ""),
            ("checkpoints", duration(found.seconds_saving), ""),
            ("total", duration(found.seconds), ""),
        ],
        "disk": [(name, decimal(n), "") for name, n in found.disk.items()],
    }
