"""The report of a run: one page without outside help, small however long the run, in which no text is obeyed."""

from __future__ import annotations

import json
import math
import re
import time
from collections.abc import Iterator
from html import unescape
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from glassformer.errors import RunError
from glassformer.report.charts import Chart, curve, draw_curves
from glassformer.report.run import REPORT, HtmlReport, write_report
from tests.runs import look, report, write_run

HOSTILE = '<script>alert("1")</script><img src=x onerror=alert(1)> & </bdi>\u202e\x07'
VOID = {"meta", "input"}


class Page(HTMLParser):
    """A page: its tags, its attributes, its text; it is an error if tags do not close as they open."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.words: list[str] = []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += attrs
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += attrs

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.words.append(data)

    @property
    def text(self) -> str:
        return " ".join(self.words)


def draw(out: Path, lines: list[dict[str, Any]], **changes: Any) -> str:
    write_run(out, lines, **changes)
    write_report(out)
    return (out / REPORT).read_text(encoding="utf-8")


def course(last: int = 400, every: int = 50) -> Iterator[dict[str, Any]]:
    for step in range(every, last + 1, every):
        yield report(step)
        if step % (2 * every) == 0:
            yield look(step)


def test_a_run_that_goes_on(tmp_path: Path) -> None:
    page = Page(draw(tmp_path, [*course()], training__max_updates=1000, src_lang="fr", tgt_lang="en"))
    for words in ("running", "400", "of 1,000 updates", "200 s", "fr → en", "un 400", "un 100"):
        assert words.replace("200 s", "3 min") in page.text
    assert "5 min" in page.text  # 600 updates to go at half a second each
    assert "Final weights" not in page.text


def test_a_run_that_ended_says_what_was_chosen(tmp_path: Path) -> None:
    ends = [look(400, "end", weights="last", chosen=False), look(400, "end", weights="ema", chosen=True, bleu=77.7)]
    page = Page(draw(tmp_path, [*course(), *ends], training__max_updates=400))
    assert "finished" in page.text
    assert "running" not in page.text
    assert "77.70" in page.text
    assert "ema weights" in page.text
    early = Page(draw(tmp_path, [*course(), *ends], training__max_updates=900, training__patience=3))
    assert "stopped early: no improvement in 3 validations" in early.text


def test_the_best_look_is_marked(tmp_path: Path) -> None:
    lines = [look(10, bleu=1.0), look(20, bleu=9.0), look(30, bleu=3.0)]
    assert "best 9.00 after update 20" in Page(draw(tmp_path, lines)).text
    by_loss = [look(10, bleu=1.0, loss=0.1), look(20, bleu=9.0, loss=0.2)]
    assert "best 1.00 after update 10" in Page(draw(tmp_path, by_loss, training__metric="loss")).text


def test_a_run_that_goes_by_chrf_shows_chrf(tmp_path: Path) -> None:
    looks = [look(10, chrf=50.0), look(20, chrf=61.25)]
    ends = [look(20, "end", weights="last", chosen=True, chrf=61.25)]
    page = Page(draw(tmp_path, [*looks, *ends], training__metric="chrf"))
    for words in ("Validation chrF", "validation chrF, last weights", "61.2", "35.50"):
        assert words in page.text
    assert "Validation BLEU" not in page.text
    old = Page(draw(tmp_path, [look(10)], training__metric="chrf"))  # written before chrF was measured
    assert "nothing yet" in old.text


def test_the_observer_writes_after_each_validation_and_at_the_end(tmp_path: Path) -> None:
    write_run(tmp_path, [*course()])
    for write in (HtmlReport().validated, HtmlReport().finished):
        write(tmp_path)
        (tmp_path / REPORT).unlink()


def test_a_roll_back_is_told(tmp_path: Path) -> None:
    back = {"kind": "rollback", "step": 100, "bad_step": 130, "parameter": "the gradient of <b>", "rate_cut": 0.5}
    page = draw(tmp_path, [*course(), back])
    assert "Update 130: loss or gradient not finite (the gradient of <b>); resumed from update 100" in Page(page).text
    assert page.count('class="back"') == 2  # in the curves of loss and gradient


@pytest.mark.parametrize("lines", [[], [report(1)], [look(1)], [report(1, loss=math.nan, norm=math.inf)]])
def test_a_run_that_has_hardly_begun(tmp_path: Path, lines: list[dict[str, Any]]) -> None:
    assert "nothing yet" in Page(draw(tmp_path, lines)).text


def test_texts_are_shown_and_not_obeyed(tmp_path: Path) -> None:
    def hold(out: Path, text: str) -> str:
        looks = [look(step, texts=(text, text)) for step in (1, 2, 3)]
        return draw(out, [*looks, look(3, "end", weights=text, chosen=True)], bleu_tokenize=text, src_lang=text)

    page = hold(tmp_path / "<i>name", HOSTILE)
    found = Page(page)
    assert found.tags == Page(hold(tmp_path / "name", "word")).tags
    assert not any(name.startswith("on") for name, _ in found.attributes)
    assert '<script>alert("1")</script>' in found.text
    assert "\u202e" not in page.split("<h2>Validation samples")[1].split("<h2>")[0]  # what turns text around is spelt


def test_nothing_is_fetched(tmp_path: Path) -> None:
    page = draw(tmp_path, [*course()])
    assert not {"link", "img", "iframe", "object", "embed"} & set(Page(page).tags)
    assert not re.search(r"https?:|url\(|@import|fetch\(|src=", page)


def test_settings_that_differ_and_all_of_them(tmp_path: Path) -> None:
    page = draw(tmp_path, [], training__lr=0.25, model__dropout=0.4)
    own, everything = page.split("All settings")
    assert "training.lr" in own
    assert "model.dropout" in own
    assert "training.warmup" not in own
    assert "training.warmup" in everything


def test_a_long_run_gives_a_small_page_quickly(tmp_path: Path) -> None:
    lines = [look(step) if step % 10 == 0 else report(step) for step in range(1, 100_001)]
    write_run(tmp_path, lines)
    taken = []
    for _ in range(2):  # the better one counts: the machine may be busy
        start = time.process_time()
        write_report(tmp_path)
        taken.append(time.process_time() - start)
    assert min(taken) < 2
    assert (tmp_path / REPORT).stat().st_size < 300_000


def test_no_run_no_report(tmp_path: Path) -> None:
    with pytest.raises(RunError, match="is not a run folder"):
        write_report(tmp_path)


def test_a_report_that_cannot_be_written(tmp_path: Path) -> None:
    write_run(tmp_path, [])
    (tmp_path / REPORT).mkdir()
    with pytest.raises(RunError, match=r"report\.html cannot be written"):
        write_report(tmp_path)


values = st.lists(st.floats(-1e6, 1e6) | st.just(math.nan), max_size=2000)


@given(values)
def test_a_thinned_curve_keeps_the_mean_and_the_range(numbers: list[float]) -> None:
    found = curve("", "alone", [{"step": i, "y": y} for i, y in enumerate(numbers)], "y")
    known = [y for y in numbers if not math.isnan(y)]
    assert len(found.steps) == len(found.values) <= 240
    if len(known) <= 240:
        assert found.values == known
    assert found.steps == sorted(found.steps)
    if known:
        assert min(known) - 1e-6 <= min(found.values) <= max(found.values) <= max(known) + 1e-6
        if len(known) % 240 == 0:
            assert sum(found.values) / len(found.values) == pytest.approx(sum(known) / len(known), abs=1e-6)


@given(st.lists(st.floats(1e-9, 1e9) | st.floats(-1e3, 1e3), min_size=1, max_size=40), st.booleans(), st.booleans())
def test_any_curve_stays_in_its_box(numbers: list[float], from_zero: bool, log_too: bool) -> None:
    drawn = curve("a", "first", [{"step": i, "y": y} for i, y in enumerate(numbers, 1)], "y")
    page = draw_curves(Chart("t", "", (drawn,), len(numbers), from_zero=from_zero, log_too=log_too))
    Page(page)
    paths = re.findall(r'<path class="[^"]*" d="M([^"]*?)(?:h0)?"', page)
    assert len(paths) == 1 + log_too
    for path in paths:
        points = [tuple(map(float, point.split())) for point in path.split("L")]
        assert len(points) == len(numbers)
        assert all(0 <= x <= 1000 and -1e-6 <= y <= 1000 + 1e-6 for x, y in points)
    for place in re.findall(r'class="y [^"]*" style="bottom:([\d.e+-]+)%', page):
        assert -1e-6 <= float(place) <= 100 + 1e-6
    data = re.search(r'data-curves="([^"]*)"', page)
    assert data is not None
    assert json.loads(unescape(data[1]))["curves"][0][2] == pytest.approx(numbers, rel=1e-4)
