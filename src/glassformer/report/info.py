"""Model folders in the terminal, and a model as a page."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from rich.console import Console
from rich.filesize import decimal
from rich.text import Text

from glassformer.model.transformer import Transformer
from glassformer.report.page import render
from glassformer.report.terminal import duration, show, table
from glassformer.store.folder import CARD, WEIGHTS, load_model, read_config
from glassformer.store.registry import find_model, shipped_models
from glassformer.training.validation import SCORES

_WIDE: Final = 1000  # columns of a table in a pipe
_HIDDEN: Final = re.compile(r"\A---\n.*?\n---\n|<!--.*?-->", re.DOTALL)  # in a card: front matter, comments
_TITLE: Final = re.compile(r"\A\s*# [^\n]*\n")


def show_models(console: Console) -> None:
    """List the models that come with the package."""
    rows = []
    for name, folder in shipped_models().items():
        about, size = read_config(folder).about, (folder / WEIGHTS).stat().st_size
        rows.append((name, f"{about.src_lang} to {about.tgt_lang}", decimal(size), str(folder)))
    if not console.is_terminal:
        console = Console(file=console.file, width=_WIDE)  # a path can be taken from a pipe as it is
    show(console, table(("name", "languages", "weights", "folder (its model card is README.md)"), rows), wrap=False)


def show_info(model: str | Path, console: Console) -> None:
    """Load a model and print its settings and the size of its parts."""
    folder = find_model(model)
    loaded = load_model(folder)
    title = Text(f"{folder}  ", style="bold")
    show(console, title.append(f"{_size(folder)} of weights\n", style="not bold"), wrap=False)
    parts = [(part, f"{n:,}") for part, n in _parts(loaded).items()]
    settings = [(name, str(value)) for name, value in loaded.config.model_dump().items()]
    for header, rows in ((("part", "parameters"), parts), (("setting", "value"), settings)):
        show(console, table(header, ((Text(name, "dim"), value) for name, value in rows), right=(1,)), wrap=False)


def info_html(model: str | Path) -> str:
    """Load a model and return what is known of it as a page: its card, its parts, its settings."""
    folder = find_model(model)
    loaded, about = load_model(folder), read_config(folder).about
    card = folder / CARD
    text = card.read_text(encoding="utf-8", errors="replace") if card.is_file() else ""
    return render(
        "card.html.j2",
        name=folder.absolute().name,
        command=shlex.quote(str(model)),
        about=about,
        config=loaded.config,
        size=_size(folder),
        parts=_parts(loaded),
        training=dict(_training(about.training)),
        card=_TITLE.sub("", _HIDDEN.sub("", text)),
    )


def _training(figures: Mapping[str, str | int | float]) -> Iterator[tuple[str, str]]:
    """Name and format the figures of a training run that a model folder holds."""
    for name, value in figures.items():
        if name == "seconds":
            yield "time", duration(float(value))
        else:
            words = " ".join({"dev": "validation", **SCORES}.get(word, word) for word in name.split("_"))
            yield words, f"{value:,}" if isinstance(value, int) else str(value)


def _parts(model: Transformer) -> dict[str, int]:
    counts = model.count_parameters()
    return counts | {"all": sum(counts.values())}


def _size(folder: Path) -> str:
    return decimal((folder / WEIGHTS).stat().st_size)
