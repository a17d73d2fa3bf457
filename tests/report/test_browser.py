"""All pages in a real browser: they fit a phone and a desk, fetch nothing, and their scripts do what they promise."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page

from glassformer.config import CorpusConfig
from glassformer.data.doctor import examine
from glassformer.data.pair import Pair
from glassformer.evaluation.evaluation import Evaluation
from glassformer.evaluation.scores import compare
from glassformer.report.doctor import doctor_html
from glassformer.report.evaluation import comparison_html
from glassformer.report.info import info_html
from glassformer.report.run import REPORT, write_report
from tests.explainer.browser import launch, needs_browser
from tests.runs import look, report, write_run

pytestmark = needs_browser

LONG = "incomprehensibilities" * 6
BACK = {"kind": "rollback", "step": 100, "bad_step": 130, "parameter": "x" * 80, "rate_cut": 0.5}


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with launch() as browser:
        yield browser


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("pages")
    lines = [report(step) for step in range(10, 401, 10)] + [look(step, texts=(LONG, "un")) for step in (200, 400)]
    write_run(folder, [*lines, BACK, look(400, "end", weights="last", chosen=True)], train=[f"{LONG}.tsv"])
    write_report(folder)
    corpus = folder / "a.tsv"
    corpus.write_text("".join(f"un chat {i} {LONG[:i]}\ta cat {i}\n" for i in range(90)), encoding="utf-8")
    test = [Pair("un", "one two three", "f", 1), Pair("deux", "four five six", "f", 2), Pair(LONG, LONG, "f", 3)]
    systems = [["one two three", "seven", LONG], ["one two", "four five six", LONG]]
    first, other = (Evaluation(name, texts, {}, math.nan) for name, texts in zip((LONG, "b"), systems, strict=True))
    texts = {
        "doctor": doctor_html(examine([CorpusConfig(path=corpus)])),
        "comparison": comparison_html(first, other, compare(systems[0], systems[1], [pair.tgt for pair in test]), test),
        "info": info_html("fr-en"),
    }
    for name, text in texts.items():
        (folder / f"{name}.html").write_text(text, encoding="utf-8")
    return {"run": folder / REPORT, **{name: folder / f"{name}.html" for name in texts}}


@pytest.mark.parametrize("width", [400, 1280])
@pytest.mark.parametrize("name", ["run", "doctor", "comparison", "info"])
def test_a_page_fits_and_stands_alone(browser: Browser, pages: dict[str, Path], name: str, width: int) -> None:
    faults: list[str] = []
    requests: list[str] = []
    with browser.new_page(viewport={"width": width, "height": 900}) as page:
        page.on("console", lambda message: faults.append(message.text))
        page.on("pageerror", lambda error: faults.append(str(error)))
        page.on("request", lambda request: requests.append(request.url))
        page.goto(pages[name].as_uri())
        for details in page.locator("details").all():
            details.evaluate("one => { one.open = true; }")
        assert page.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0
        colours = set()
        for scheme in ("light", "dark"):
            page.emulate_media(color_scheme=scheme)
            colours.add(page.evaluate("getComputedStyle(document.body).backgroundColor"))
    assert len(colours) == 2
    assert faults == []
    assert requests == [pages[name].as_uri()]


def test_the_curves_can_be_read_and_switched(browser: Browser, pages: dict[str, Path]) -> None:
    with browser.new_page() as page:
        page.goto(pages["run"].as_uri())
        loss = page.locator("figure").first
        resting = loss.locator(".read").inner_text()
        loss.locator(".plot").hover()
        assert loss.locator(".read").inner_text().startswith("update 200: training")
        page.mouse.move(0, 0)
        assert loss.locator(".read").inner_text() == resting
        assert not loss.locator("g.log").is_visible()
        page.locator("#scale").check()
        assert loss.locator("g.log").is_visible()


def test_sentences_can_be_ordered_and_found(browser: Browser, pages: dict[str, Path]) -> None:
    def places(page: Page) -> list[str]:
        return [str(one.get_attribute("data-place")) for one in page.locator("article:visible").all()]

    with browser.new_page() as page:
        page.goto(pages["comparison"].as_uri())
        orders = {"differ": ["1", "0", "2"], "worse": ["0", "2", "1"], "better": ["1", "2", "0"]}
        for order, expected in {**orders, "place": ["0", "1", "2"], "low": ["1", "0", "2"]}.items():
            page.locator("#order").select_option(order)
            assert places(page) == expected
        page.locator("#find").fill("DEUX")
        assert places(page) == ["1"]
