"""Metrics that select checkpoints: the registry has what the settings allow, and each decides as it says."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, get_args

import pytest

from glassformer.config import TrainingConfig
from glassformer.evaluation.scores import Score, measure
from glassformer.training import validation as validation_of_a_run
from glassformer.training.history import History
from glassformer.training.observer import Observer
from glassformer.training.start import train_run
from glassformer.training.validation import SCORES, goodness
from tests.runs import validation, write_run
from tests.training.test_trainer import recipe, scores


def test_the_loss_and_each_score_can_select() -> None:
    assert {"loss", *SCORES} == set(get_args(TrainingConfig.model_fields["metric"].annotation))


def test_higher_or_lower_is_better() -> None:
    low, high = {"bleu": 1.0, "chrf": 5.0, "loss": 1.0}, {"bleu": 2.0, "chrf": 6.0, "loss": 3.0}
    assert goodness("bleu", low) < goodness("bleu", high)
    assert goodness("chrf", low) < goodness("chrf", high)
    assert goodness("loss", low) > goodness("loss", high)
    assert goodness("chrf", {"bleu": 1.0}) == goodness("bleu", {"bleu": float("nan")}) == -float("inf")


def test_scores_are_sacrebleus() -> None:
    found = measure(["the cat sat", "a dog"], ["the cat sits", "a dog"], names=list(SCORES.values()))
    assert list(found) == ["BLEU", "chrF"]
    assert 0 < found["chrF"].value < 100
    assert "tok:13a" in found["BLEU"].signature
    assert "nc:6" in found["chrF"].signature


@pytest.mark.parametrize(("metric", "best"), [("bleu", 1), ("chrf", 2), ("loss", 3)])
def test_the_history_knows_the_best_by_the_metric(tmp_path: Path, metric: str, best: int) -> None:
    entries = [
        validation(1, bleu=9.0, chrf=5.0, loss=2.0),
        validation(2, bleu=8.0, chrf=7.0, loss=3.0),
        validation(3, bleu=7.0, chrf=6.0, loss=1.0),
    ]
    write_run(tmp_path, entries, training__metric=metric)
    found = History.read(tmp_path).best
    assert found is not None
    assert found["step"] == best


def test_a_run_from_before_chrf_still_reads(tmp_path: Path) -> None:
    old = {key: value for key, value in validation(1).items() if key != "chrf"}
    write_run(tmp_path, [old, validation(2)], training__metric="chrf")
    found = History.read(tmp_path).best
    assert found is not None
    assert found["step"] == 2


class Told(Observer):
    """Remembers what a run told its observers."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.entries: list[dict[str, Any]] = []

    def start(self, out: Path, max_updates: int) -> None:
        self.calls.append(f"start {out.name} {max_updates}")

    def advance(self, step: int, figures: Mapping[str, float]) -> None:
        assert figures.keys() == {"loss", "lr", "tokens_per_s"}
        self.calls.append(f"advance {step}")

    def record(self, kind: str, entry: Mapping[str, Any]) -> None:
        self.calls.append(kind)
        self.entries.append({"kind": kind, **entry})

    def validated(self, out: Path) -> None:
        self.calls.append("validated")

    def finished(self, out: Path) -> None:
        assert (out / "config.json").exists()
        self.calls.append("finished")

    def close(self) -> None:
        self.calls.append("close")


def test_chrf_chooses(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With chrF falling while BLEU rises, the first validation is the best, and patience ends the run."""
    n_calls = iter(range(1000))

    def apart(*_: object) -> dict[str, Score]:
        number = next(n_calls)
        return {"BLEU": Score(1.0 + number, ""), "chrF": Score(100.0 - number, "")}

    monkeypatch.setattr(validation_of_a_run, "measure", apart)
    told = Told()
    changes: dict[str, Any] = {"training__metric": "chrf", "training__patience": 2, "training__max_updates": 100}
    run = train_run(recipe(tmp_path, **changes), observers=[told])
    assert [line["step"] for line in scores(run) if line["kind"] == "dev"] == [4, 8, 12], "the first is the best"
    ends = [line for line in scores(run) if line["kind"] == "end"]
    assert [line["weights"] for line in ends if line["chosen"]] == ["last"], "the first that was validated"
    assert all(line["chrf"] > 0 and line["bleu"] > 0 for line in ends)
    steps = [f"advance {step}" for step in range(1, 13)]
    assert [call for call in told.calls if call.startswith("advance")] == steps
    assert told.calls[0] == "start run 100"
    assert told.calls.count("validated") == 3
    assert told.calls[-2:] == ["finished", "close"]
    assert [{k: v for k, v in line.items() if k not in ("tokens_per_s", "seconds")} for line in told.entries] == scores(
        run
    )


def test_another_metric_forgets_the_best_of_the_first(tmp_path: Path) -> None:
    run = train_run(recipe(tmp_path, training__max_updates=4, training__metric="chrf"))
    train_run(recipe(tmp_path, training__max_updates=8, training__metric="loss"), accept_changes=True)
    last = [line for line in scores(run) if line["kind"] == "dev"][-1]
    state = (run / "checkpoints/step-00000008/state.json").read_text()
    assert f'"best": {-last["loss"]}' in state
    assert '"metric": "loss"' in state


def test_observers_are_closed_when_a_run_cannot_start(tmp_path: Path) -> None:
    told = Told()
    with pytest.raises(Exception, match="no such file"):
        train_run(recipe(tmp_path, train=["nowhere.tsv"]), observers=[told])
    assert told.calls == ["close"]
