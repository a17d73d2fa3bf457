"""What a preparation shows: a bar in a terminal, lines elsewhere, nothing unasked."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from glassformer.data import progress
from glassformer.data.progress import show_progress


def shown(is_terminal: bool, *heard: tuple[int, float]) -> str:
    stream = io.StringIO()
    with show_progress("preparing", Console(file=stream, force_terminal=is_terminal, width=100)) as hear:
        for n_pairs, share in heard:
            hear(n_pairs, share)
    return stream.getvalue()


def test_a_terminal_has_a_bar() -> None:
    text = shown(True, (2048, 0.25), (4096, 0.99), (5000, 1.0))
    assert "preparing" in text
    assert "100%" in text
    assert "5,000 pairs" in text


def test_a_file_has_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    """One at the end, and one every few seconds."""
    assert shown(False, (2048, 0.25), (4096, 0.99), (5000, 1.0)).startswith("preparing: 100%, 5,000 pairs, ")
    assert shown(False, (2048, 0.25), (4096, 0.99), (5000, 1.0)).count("\n") == 1
    monkeypatch.setattr(progress, "_INTERVAL", 0.0)
    lines = shown(False, (2048, 0.25), (5000, 1.0)).splitlines()
    assert [line[:16] for line in lines] == ["preparing: 25%, ", "preparing: 100%,"]


@pytest.mark.parametrize("is_terminal", [True, False])
def test_nothing_heard_is_nothing_shown(is_terminal: bool) -> None:
    assert shown(is_terminal).strip("\x1b[?25lh\n") == ""


def test_it_is_stderr(capsys: pytest.CaptureFixture[str]) -> None:
    with show_progress("preparing") as hear:
        hear(1, 1.0)
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("preparing: 100%, 1 pairs")
