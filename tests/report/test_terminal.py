"""Pictures in the terminal: what the blocks say, that columns hold, and that any encoding can show them."""

from __future__ import annotations

import io
import math

import pytest
from rich.cells import cell_len
from rich.console import Console, RenderableType
from rich.text import Text

from glassformer.report.terminal import (
    bar,
    bars,
    duration,
    heat_map,
    legend,
    legible,
    percent,
    show,
    side_by_side,
    table,
    tiny,
    vector,
)


def shown(renderable: RenderableType, width: int = 80) -> str:
    file = io.StringIO()
    show(Console(file=file, width=width, highlight=False), renderable)
    return file.getvalue()


def test_denser_blocks_mean_larger_numbers() -> None:
    line = heat_map([[0.0, 0.25, 0.5, 0.75, 1.0]], ["x"], [""] * 5).plain
    assert line == "x ·· ░░ ▒▒ ▓▓ ██"


def test_numbers_beyond_the_limits_take_the_end_blocks() -> None:
    assert heat_map([[-9.0, 0.0, 9.0]], ["x"], [""] * 3, low=-1, high=1).plain == "x ·· ▒▒ ██"


def test_an_even_matrix_is_drawn_dense() -> None:
    assert heat_map([[0.2, 0.2]], ["x"], ["", ""]).plain == "x ██ ██"


def test_what_is_not_finite_stays_blank() -> None:
    drawn = heat_map([[1.0, -math.inf], [0.0, math.nan]], ["a", "b"], ["", ""], digits=1).plain
    assert [line.rstrip() for line in drawn.split("\n")] == ["a ██ 1.0", "b ·· 0.0"]


def test_columns_stand_below_their_names_whatever_the_script() -> None:
    names = ["Jane", "l'Afrique", "九月"]
    lines = heat_map([[0.0, 0.5, 1.0], [1.0, 0.5, 0.0]], ["woman", "浣熊"], names, digits=2).plain.split("\n")
    head, first, second = lines
    for name, number, below in zip(names, ("0.00", "0.50", "1.00"), ("1.00", "0.50", "0.00"), strict=True):
        column = cell_len(head[: head.index(name)])
        assert {start_of_cell(first, number), start_of_cell(second, below)} == {column}


def start_of_cell(line: str, number: str) -> int:
    """The column where the block of a number stands, which is three cells before the number."""
    return cell_len(line[: line.index(number)]) - 3


def test_signs_align_and_zero_has_none() -> None:
    assert heat_map([[-0.001, 1.0, -1.0]], ["x"], [""] * 3, digits=1).plain == "x ▒▒  0.0 ██  1.0 ·· -1.0"


def test_legend_names_both_ends_and_shows_every_block() -> None:
    assert legend("0", "1").plain == "0 ·· ░░ ▒▒ ▓▓ ██ 1"
    drawn = heat_map([[0.0, 1.0]], ["x"], ["", ""], ends=("none", "all")).plain
    assert drawn.endswith("\n\n" + legend("none", "all").plain)


@pytest.mark.parametrize(
    ("value", "expected"),
    [(0.0, ""), (-1.0, ""), (0.5, "██"), (1.0, "████"), (7.0, "████"), (1 / 32, "▏"), (0.25 + 4 / 32, "█▌")],
)
def test_bars_are_as_long_as_their_share(value: float, expected: str) -> None:
    assert bar(value, 1.0, width=4).plain == expected


def test_a_bar_of_nothing_is_empty() -> None:
    assert bar(1.0, 0.0).plain == ""


def test_bars_share_one_measure() -> None:
    lines = shown(bars({"one": 1.0, "half": 0.5}, digits=1, width=4)).splitlines()
    assert [line.split() for line in lines] == [["one", "1.0", "████"], ["half", "0.5", "██"]]
    assert shown(bars({"half": 0.5}, digits=1, full=1.0, width=4)).split() == ["half", "0.5", "██"]


def test_tables_put_numbers_right_and_words_left() -> None:
    lines = shown(table(("word", "score", "what"), [("a", "7", "first"), ("b", "112", "second")])).splitlines()
    assert lines == ["word   score   what", "a          7   first", "b        112   second"]


def test_tables_print_brackets_as_they_are() -> None:
    assert "enc.self[bold]" in shown(table(("x[red]",), [("enc.self[bold]",)]))
    assert "x[red]" in shown(table(("x[red]",), [("1",)]))


def test_pictures_stand_side_by_side_under_their_captions() -> None:
    one, two = (heat_map([[value]], ["r"], [""], low=0, high=1) for value in (0.0, 1.0))
    lines = shown(side_by_side({"left": one, "right": two})).splitlines()
    assert lines == ["left     right", "r ··     r ██"]


def test_vectors_align_or_not() -> None:
    assert vector([0.5, -3.0]) == "( 0.50, -3.00)"
    assert vector([0.5, -0.0], 1, aligned=False) == "(0.5, 0.0)"


def test_tiny_tells_nothing_from_almost_nothing() -> None:
    assert (tiny(0.0), tiny(2.2e-16)) == ("0", "2e-16")


def test_legible_changes_only_what_the_encoding_lacks() -> None:
    text = "√d_k · 2² → ██ …"
    assert legible(text, "utf-8") == text
    assert legible(text, "ascii") == "sqrt d_k . 2^2 -> ## ..."
    assert legible(text, "latin-1") == "sqrt d_k · 2² -> ## ..."
    assert legible("浣", "ascii") == "?"


def test_every_block_survives_ascii_with_its_width() -> None:
    picture = heat_map([[0.0, 0.25, 0.5, 0.75, 1.0]], ["x"], [""] * 5).plain + bar(0.7, 1.0).plain
    plain = legible(picture, "ascii")
    assert plain.isascii()
    assert len(plain) == len(picture)
    assert "?" not in plain
    assert len(set(plain.split()[1:6])) == 5


def test_show_writes_to_an_ascii_stream_without_trailing_blanks() -> None:
    raw = io.BytesIO()
    file = io.TextIOWrapper(raw, encoding="ascii")
    show(Console(file=file, width=40), heat_map([[0.0, 1.0]], ["√"], ["", ""]))
    file.flush()
    assert raw.getvalue().decode("ascii") == "sqrt  .. ##\n"
    assert shown(table(("a", "b"), [("x", ""), ("y", "")])) == "a   b\nx\ny\n"


def test_pictures_need_no_colour(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    file = io.StringIO()
    show(Console(file=file, force_terminal=True, width=40), heat_map([[0.0, 1.0]], ["x"], ["", ""]))
    assert "x ·· ██" in file.getvalue()
    assert "\x1b[36m" not in file.getvalue()


def test_columns_that_are_asked_to_stand_right_do() -> None:
    lines = shown(table(("", "x"), [("a", "word"), ("b", "7")], right=(1,))).splitlines()
    assert lines == ["       x", "a   word", "b      7"]


def test_lines_that_are_not_wrapped_stay_whole() -> None:
    file = io.StringIO()
    show(Console(file=file, width=10), Text("a word or two or three"), wrap=False)
    assert file.getvalue() == "a word or two or three\n"


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (0, "0 s"),
        (89, "89 s"),
        (90, "2 min"),
        (5340, "89 min"),
        (5400, "1 h 30"),
        (90000, "25 h 00"),
        (216000, "2.5 days"),
    ],
)
def test_durations_in_words(seconds: float, words: str) -> None:
    assert duration(seconds) == words


@pytest.mark.parametrize(("part", "words"), [(1, "0.0013%"), (1234, "1.6%"), (72000, "92%"), (77999, "100%")])
def test_shares_to_two_digits(part: int, words: str) -> None:
    assert percent(part, 78000) == words
