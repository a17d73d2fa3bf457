"""TensorBoard reads what a run drew, and each update once, however often the run stopped or went back."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from glassformer.report import board
from glassformer.report.board import TENSORBOARD, TensorBoard

SAMPLES = [{"src": "un", "hypothesis": "# one", "reference": "one"}]


def line(step: int, **changes: Any) -> dict[str, Any]:
    figures = {"loss": 1.0 / step, "lr": 0.1, "tokens_per_s": 9.0, "norm": 1.0, "epoch": 0}
    return {"step": step, **figures, "bleu": 3.0, "perplexity": 4.0, "samples": SAMPLES, **changes}


def scalars(out: Path, name: str) -> list[tuple[int, Any]]:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator  # type: ignore[import-untyped]

    events = EventAccumulator(str(out / TENSORBOARD))
    events.Reload()
    return [(event.step, pytest.approx(event.value)) for event in events.Scalars(name)]


def board_of(out: Path) -> TensorBoard:
    made = TensorBoard()
    made.start(out, 10)
    return made


class TestBoard:
    def test_what_is_drawn_can_be_read(self, tmp_path: Path) -> None:
        drawn = board_of(tmp_path)
        for step in (1, 2, 3):
            drawn.record("train", line(step))
        drawn.record("dev", line(3, chrf=5.0))
        drawn.record("end", line(3, weights="average", chosen=True))
        drawn.close()
        assert scalars(tmp_path, "train/loss") == [(1, 1.0), (2, 0.5), (3, 1 / 3)]
        assert scalars(tmp_path, "dev/bleu") == [(3, 3.0)]
        assert scalars(tmp_path, "dev/chrf") == [(3, 5.0)]
        assert scalars(tmp_path, "end/average/perplexity") == [(3, 4.0)]

    def test_a_run_that_was_stopped_draws_each_update_once(self, tmp_path: Path) -> None:
        first = board_of(tmp_path)
        for step in (1, 2, 3, 4):
            first.record("train", line(step))
        first.close()
        second = board_of(tmp_path)  # goes on from a checkpoint of update 2
        for step in (3, 4, 5):
            second.record("train", line(step, loss=7.0))
        second.close()
        assert scalars(tmp_path, "train/loss") == [(1, 1.0), (2, 0.5), (3, 7.0), (4, 7.0), (5, 7.0)]

    def test_a_run_that_went_back_draws_each_update_once(self, tmp_path: Path) -> None:
        drawn = board_of(tmp_path)
        for step in (1, 2, 3):
            drawn.record("train", line(step))
        drawn.record("rollback", {"step": 1, "bad_step": 4, "parameter": "x", "rate_cut": 0.5})
        drawn.record("train", line(2, loss=7.0))
        drawn.close()
        assert scalars(tmp_path, "train/loss") == [(1, 1.0), (2, 7.0)]


def test_without_tensorboard_nothing_happens(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(board, "find_spec", lambda _: None)
    drawn = board_of(tmp_path)
    drawn.record("train", line(1))
    drawn.close()
    assert not (tmp_path / TENSORBOARD).exists()


def test_it_is_imported_only_when_used() -> None:
    program = (
        "import sys; from pathlib import Path; from glassformer.report.board import TensorBoard; "
        "board = TensorBoard(); board.start(Path(), 1); board.close(); "
        "print('tensorboard' in sys.modules, 'torch.utils.tensorboard' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "False False\n"
