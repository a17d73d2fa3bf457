"""What is in a model folder, as a table in the terminal."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from rich.console import Console
from rich.filesize import decimal
from rich.table import Table
from rich.text import Text

from glassformer.model.transformer import Transformer
from glassformer.report.terminal import table
from glassformer.store.folder import WEIGHTS, load_model, read_config
from glassformer.store.registry import find_model, shipped_models

_WIDE: Final = 1000  # columns


def print_models() -> None:
    """List the models that come with the package."""
    rows = []
    for name, folder in shipped_models().items():
        about, size = read_config(folder).about, (folder / WEIGHTS).stat().st_size
        rows.append((name, f"{about.src_lang} to {about.tgt_lang}", decimal(size), str(folder)))
    console = Console(highlight=False, soft_wrap=True)
    if not console.is_terminal:
        console.width = _WIDE  # a path can be taken from a pipe as it is
    console.print(table(("name", "languages", "weights", "folder, with its card README.md"), rows))


def print_info(model_name: str | Path) -> None:
    """Read a model folder, whole, and print its settings and the size of its parts."""
    folder = find_model(model_name)
    model = load_model(folder)
    console = Console(highlight=False, soft_wrap=True)
    size = (folder / WEIGHTS).stat().st_size
    console.print(Text(f"{folder}  ", style="bold").append(f"{decimal(size)} of weights\n", style="not bold"))
    console.print(_table("part", "parameters", {part: f"{n:,}" for part, n in count_parameters(model).items()}))
    console.print(_table("setting", "value", {k: str(v) for k, v in model.config.model_dump().items()}))


def count_parameters(model: Transformer) -> dict[str, int]:
    """Count the numbers that are learned, part by part; a shared table counts where it is first used."""
    counts: dict[str, int] = {}
    for name, parameter in model.named_parameters():
        part = name.split(".")[0]
        counts[part] = counts.get(part, 0) + parameter.numel()
    return counts | {"all": sum(counts.values())}


def _table(left: str, right: str, rows: dict[str, str]) -> Table:
    table = Table(box=None, pad_edge=False, show_edge=False)
    table.add_column(left, style="dim")
    table.add_column(right, justify="right")
    for name, value in rows.items():
        table.add_row(name, value)
    return table
