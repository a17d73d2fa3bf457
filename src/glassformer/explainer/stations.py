"""The stations of a walk through the model, from the table that the page and the terminal share.

`stations.json` holds for each station its slug and number, where it stands on the map (`side`, `box`), the tensors
that belong to it (`home`, if any) and those that the terminal shows (`tensors`, if not the same), the pickers it uses
(`needs`, if any), its formula, and its words, each in English and French. `*` stands for one part of an address, such
as a layer. `variants` change a station for models with other positions.
"""

from __future__ import annotations

import json
from functools import cache
from importlib.resources import files
from typing import Any, NamedTuple


class Station(NamedTuple):
    """A station, in English."""

    slug: str
    number: int
    tensors: tuple[str, ...]
    title: str
    idea: str
    words: str
    slip: str = ""  # what people often get wrong here


@cache
def stations_json() -> str:
    """Return the table as it stands in the package."""
    return files("glassformer.explainer").joinpath("stations.json").read_text(encoding="utf-8")


@cache
def stations(positions: str = "") -> dict[str, Station]:
    """Return the stations by slug, in order, as they apply to a model with such positions."""
    return {entry["slug"]: _station(entry, positions) for entry in json.loads(stations_json())["stations"]}


def _station(entry: dict[str, Any], positions: str) -> Station:
    told = entry | entry.get("variants", {}).get(positions, {})
    words = {name: told[name][0] for name in ("title", "idea", "words", "slip") if name in told}
    return Station(entry["slug"], entry["number"], tuple(entry.get("tensors", entry.get("home", ()))), **words)
