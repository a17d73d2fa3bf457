"""What a run shows while it trains."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from glassformer.report.progress import ProgressBar, choose_progress


def test_at_a_terminal_there_is_a_bar(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    monkeypatch.setenv("FORCE_COLOR", "1")
    bar = choose_progress()
    assert isinstance(bar, ProgressBar)
    bar.start(Path("run"), 40)
    print("one thing", file=sys.stderr)  # as a log handler does
    bar.advance(7, {"loss": 2.5})
    bar.close()
    shown = capsys.readouterr().err
    assert "one thing" in shown
    assert "update 7/40" in shown
    assert "loss 2.500" in shown
