"""Files that version 0.1 wrote still open: a model folder, an interrupted run with a checkpoint, and a trace."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from glassformer import Recipe, Translator, explain
from glassformer.store.checkpoint import load_latest
from glassformer.training.history import History
from glassformer.training.start import train_run

OLD = Path(__file__).parent / "v0_1"


def test_an_old_model_folder_translates() -> None:
    with Translator.load(OLD / "model", engine="torch") as translator:
        assert translator.translate(["bonne nuit", "merci"]) == ["good night", "thank you"]


def test_an_old_run_is_read_and_resumed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.copytree(OLD / "run", tmp_path / "run")
    shutil.copy(OLD / "pocket.tsv", tmp_path)
    monkeypatch.chdir(tmp_path)
    assert [entry["step"] for entry in History.read(Path("run")).train] == [50, 100]
    found, complaints = load_latest(Path("run/checkpoints"))
    assert (found is not None and found.state["step"], complaints) == (100, [])
    changes = {"training.max_updates": 120, "training.validate_every": 60, "training.metric": "bleu"}
    recipe = Recipe.read("run/run.toml", {"train": ["pocket.tsv"], "dev": ["pocket.tsv"], "out": "run", **changes})
    train_run(recipe, accept_changes=True)
    assert History.read(Path("run")).step == 120
    with Translator.load("run", engine="torch") as translator:
        assert translator.translate("bonne nuit") == "good night"


def test_an_old_trace_holds_the_numbers_of_today() -> None:
    """The page opens it in tests/explainer; here its tensors are compared with those of the same model now."""
    old = json.loads((OLD / "trace.json").read_text(encoding="utf-8"))
    with Translator.load(OLD / "model", engine="torch") as translator:
        search = translator.search.model_copy(update={"width": 2})
        new = explain(translator, "bonne nuit", search=search, name="model").document()
    assert (old["format"], old["version"]) == (new["format"], new["version"])
    assert [t["name"] for t in old["tensors"]] == [t["name"] for t in new["tensors"]]
    for before, after in zip(old["tensors"], new["tensors"], strict=True):
        assert after["stats"] == pytest.approx(before["stats"], abs=1e-5)
    assert old["run"]["tgt"] == new["run"]["tgt"] == "good night"
