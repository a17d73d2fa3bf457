"""The table of stations: complete in both languages, and every tensor at home in exactly one station."""

from __future__ import annotations

import json
import re
from typing import Any, Final

import pytest

from glassformer.explainer.page import static_file
from glassformer.explainer.stations import stations, stations_json
from glassformer.model.trace import look
from tests.models import EACH_CHOICE, build

TABLE: Final = json.loads(stations_json())
STATIONS: Final[list[dict[str, Any]]] = TABLE["stations"]


def patterns(station: dict[str, Any]) -> list[re.Pattern[str]]:
    """Return the homes of a station as patterns."""
    return [re.compile(re.escape(home).replace(r"\*", r"[^.]+")) for home in station.get("home", ())]


def test_slugs_and_numbers_are_unique() -> None:
    assert len({station["slug"] for station in STATIONS}) == len(STATIONS)
    assert [station["number"] for station in STATIONS] == list(range(len(STATIONS)))
    assert all(re.fullmatch(r"[a-z]+(-[a-z0-9]+)*", station["slug"]) for station in STATIONS)


def test_a_slug_is_no_element_that_a_browser_would_scroll_to() -> None:
    ids = re.findall(r' id="([\w-]+)"', static_file("index.html").decode())
    assert len(ids) > 40
    assert not {station["slug"] for station in STATIONS} & set(ids)


def test_every_station_has_a_box_and_every_box_a_station() -> None:
    boxes = {(box["side"], box["box"]) for box in TABLE["boxes"]}
    assert boxes == {(station["side"], station["box"]) for station in STATIONS}


@pytest.mark.parametrize("station", STATIONS, ids=lambda station: station["slug"])
def test_a_station_is_told_in_both_languages(station: dict[str, Any]) -> None:
    assert {"title", "idea", "words"} <= station.keys()
    words = {name: station[name] for name in ("title", "idea", "words", "slip") if name in station}
    assert all(len(pair) == 2 and all(pair) for pair in words.values())
    for variant in station.get("variants", {}).values():
        assert all(len(pair) == 2 for name, pair in variant.items() if name not in ("formula", "needs"))
    assert set(station.get("needs", ())) <= {"layer", "head"}
    assert station["formula"]


@pytest.mark.parametrize("slug", [station["slug"] for station in STATIONS])
def test_the_page_has_a_drawing_for_it(slug: str) -> None:
    quoted = f"'{slug}'" if "-" in slug else slug
    assert re.search(rf"^  {re.escape(quoted)}(\(view\) {{|: )", static_file("stations.js").decode(), re.MULTILINE)


@EACH_CHOICE
def test_every_tensor_is_at_home_in_one_station(changes: dict[str, Any]) -> None:
    homes = [home for station in STATIONS for home in patterns(station)]
    for name in look(build(0, **changes), [4, 5, 3], [2, 6]):
        assert sum(home.fullmatch(name) is not None for home in homes) == 1, name


def test_the_terminal_shows_tensors_that_are_at_home() -> None:
    for station in STATIONS:
        for tensor in stations()[station["slug"]].tensors:
            assert any(home.fullmatch(tensor.replace("*", "0")) for home in patterns(station)), tensor


def test_a_variant_changes_the_words() -> None:
    plain, rotary = stations()["positions"], stations("rotary")["positions"]
    assert rotary.title == "Rotary positions"
    assert rotary.tensors == plain.tensors
    assert stations("rotary")["scores"] == stations()["scores"]
