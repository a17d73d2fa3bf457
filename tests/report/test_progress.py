"""Progress on stderr: bars for terminals, lines for log files, JSON for programs."""

from __future__ import annotations

import io
import json
import logging
import sys
from pathlib import Path

import pytest

from glassformer.report.progress import JsonLines, PlainProgress, ProgressBar, choose_progress, progress
from glassformer.training.observer import Observer

FIGURES = {"loss": 1.5, "lr": 0.001, "tokens_per_s": 12345.0}


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def use_terminal(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    """Make stderr a terminal; not a fixture, because pytest replaces stderr after fixtures have run."""
    file = Terminal()
    monkeypatch.setattr(sys, "stderr", file)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "120")
    return file


def drive(observer: Observer) -> None:
    observer.start(Path("run"), 100)
    for step in (1, 2, 3):
        observer.advance(step, FIGURES)
        observer.record("train", {"step": step, **FIGURES})
    observer.validated(Path("run"))
    observer.record("dev", {"step": 3, "loss": 2.0})
    observer.finished(Path("run"))
    observer.close()


@pytest.mark.parametrize("unit", ["bytes", "steps", None])
@pytest.mark.parametrize("total", [10, None])
def test_a_bar_on_a_terminal(monkeypatch: pytest.MonkeyPatch, unit: object, total: int | None) -> None:
    terminal = use_terminal(monkeypatch)
    with progress("reading", total, unit=unit) as advance:  # type: ignore[arg-type]
        advance(4)
        advance(6)
    assert "reading" in terminal.getvalue()


def test_no_bar_in_a_log(capsys: pytest.CaptureFixture[str]) -> None:
    with progress("reading", 10) as advance:
        advance(4)
    assert capsys.readouterr() == ("", "")


def test_a_run_on_a_terminal_has_a_bar_with_its_figures(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = use_terminal(monkeypatch)
    observer = choose_progress()
    assert isinstance(observer, ProgressBar)
    drive(observer)
    assert "update 3/100" in terminal.getvalue()
    assert "loss 1.500  lr 1.00e-03  12,345 tokens/s" in terminal.getvalue()


def test_what_is_logged_meanwhile_stands_above_the_bar(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = use_terminal(monkeypatch)
    observer = ProgressBar()
    observer.start(Path("run"), 100)
    sys.stderr.write("glassformer: hello\n")
    observer.close()
    assert "glassformer: hello" in terminal.getvalue()


def test_a_bar_that_never_started_closes(monkeypatch: pytest.MonkeyPatch) -> None:
    use_terminal(monkeypatch)
    observer = ProgressBar()
    observer.advance(1, FIGURES)
    observer.close()


def test_a_run_in_a_log_writes_lines(capsys: pytest.CaptureFixture[str]) -> None:
    observer = choose_progress()
    assert isinstance(observer, PlainProgress)
    drive(observer)
    lines = capsys.readouterr().err.splitlines()
    assert lines[0] == "update 1/100  loss 1.500  lr 1.00e-03  12,345 tokens/s"
    assert lines[1].startswith(lines[0].replace("1/100", "2/100"))
    assert lines[1].endswith(" s left")
    assert len(lines) == 3


def test_json_lines_hold_metrics_and_messages(capsys: pytest.CaptureFixture[str]) -> None:
    observer = choose_progress(json_logs=True)
    assert isinstance(observer, JsonLines)
    log = logging.getLogger("glassformer.test_progress")
    log.addHandler(observer)
    try:
        log.warning("é %d", 1)
    finally:
        log.removeHandler(observer)
    drive(observer)
    lines = [json.loads(line) for line in capsys.readouterr().err.splitlines()]
    assert lines[0] == {"kind": "message", "text": "é 1"}
    assert [line["kind"] for line in lines[1:]] == ["train", "train", "train", "dev"]
    assert lines[1] == {"kind": "train", "step": 1, **FIGURES}
