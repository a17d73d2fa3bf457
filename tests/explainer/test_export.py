"""The exported page: one file, in which no text can leave its element."""

from __future__ import annotations

import json
import re

import pytest

from glassformer.explainer.page import page_html, static_file, static_names
from glassformer.explainer.stations import stations_json
from tests.explainer.golden import SENTENCE, golden_document, golden_explanation, golden_translator


def inside(page: str) -> object:
    """Return the document that a page holds, read as a browser does: up to the first end of the element."""
    return element(page, "trace")


def element(page: str, name: str) -> object:
    """Return the JSON in the element of that id."""
    pattern = rf'<script type="application/json" id="{name}">(.*?)</script'
    match = re.search(pattern, page, re.DOTALL | re.IGNORECASE)
    assert match is not None
    return json.loads(match[1])


def test_the_page_is_one_file() -> None:
    page = page_html(golden_document())
    assert inside(page) == json.loads(json.dumps(golden_document()))
    assert element(page, "stations") == json.loads(stations_json())
    assert not re.search(r'(?:src|href)="(?!#|data:)[^"]+"', page)
    assert not re.search(r"^(?:import|export) ", page, re.MULTILINE)
    for name in static_names() - {"index.html"}:
        last = static_file(name).decode().rstrip().splitlines()[-1]
        assert last.removeprefix("export ") in page


@pytest.mark.parametrize("text", ["</script><script>alert(1)</script>", "<!--<script>", '"><img src=x>', "שלום 👩‍👩‍👧"])
def test_hostile_text_stays_inside_its_element(text: str) -> None:
    page = page_html(golden_translator().explain(text, reference=text).document())
    assert text.encode() not in page.encode() or "<" not in text
    document = inside(page)
    assert isinstance(document, dict)
    assert (document["run"]["src"], document["run"]["reference"]) == (text, text)
    assert page.count("<script") == page_html(golden_document()).count("<script")


def test_a_notebook_shows_the_page_in_a_frame() -> None:
    html = golden_explanation()._repr_html_()
    assert html.startswith('<iframe srcdoc="')
    assert html.count("<") == 2


def test_an_explanation_says_in_a_line_what_it_is() -> None:
    assert repr(golden_explanation()).startswith(f"<Explanation of {SENTENCE!r}: ")
