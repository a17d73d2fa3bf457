"""The wheel: built from a copy of the tree, installed where nothing else is, and used."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from zipfile import ZipFile

import pytest

import glassformer

ROOT = Path(__file__).parents[1]
LEFT_BEHIND = shutil.ignore_patterns(".*", "__pycache__", "*.egg-info", "build", "dist", "runs")
CONSTRAINTS = ROOT / "constraints.txt"
CLEAN = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
USE = """
import torch
from glassformer import Transformer, load_model, preset, save_model

model = Transformer(preset("pocket", vocab=20))
save_model(model, "pocket")
loaded = load_model("pocket")
for ours, theirs in zip(model.parameters(), loaded.parameters(), strict=True):
    assert torch.equal(ours, theirs)
"""


def run(*words: str | Path, folder: Path) -> str:
    """Run a command in `folder` and give what it prints; show all it said if it fails."""
    answer = subprocess.run(words, cwd=folder, env=CLEAN, capture_output=True, text=True, check=False)
    assert answer.returncode == 0, f"{words}\n{answer.stdout}\n{answer.stderr}"
    return answer.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    tree = tmp_path_factory.mktemp("wheel") / "tree"
    shutil.copytree(ROOT, tree, ignore=LEFT_BEHIND)
    run(sys.executable, "-m", "build", "--wheel", "--no-isolation", folder=tree)
    (built,) = (tree / "dist").iterdir()
    return built


def test_wheel_holds_the_package_and_nothing_else(wheel: Path) -> None:
    with ZipFile(wheel) as archive:
        held = set(archive.namelist())
    information = f"glassformer-{glassformer.__version__}.dist-info"
    assert {name.split("/")[0] for name in held} == {"glassformer", information}
    assert {"glassformer/py.typed", f"{information}/licenses/LICENSE"} <= held
    source = ROOT / "src"
    static = {str(path.relative_to(source)) for path in (source / "glassformer/explainer/static").iterdir()}
    assert static | {"glassformer/explainer/stations.json"} <= held
    models = {str(path.relative_to(source)) for path in (source / "glassformer/models").rglob("*") if path.is_file()}
    assert models == {name for name in held if name.startswith("glassformer/models/")}
    assert "glassformer/models/fr-en/model.safetensors" in models
    modules = {str(path.relative_to(source)) for path in (source / "glassformer").rglob("*.py")}
    assert {name for name in held if name.endswith(".py")} == modules


@pytest.mark.long
def test_wheel_works_where_nothing_else_is(wheel: Path, tmp_path: Path) -> None:
    """Install it as the Makefile does, torch first; one test, because the installing takes a minute."""
    run(sys.executable, "-m", "venv", ".venv", folder=tmp_path)
    binaries = tmp_path / ".venv" / "bin"
    (torch,) = (line for line in CONSTRAINTS.read_text().splitlines() if line.startswith("torch=="))
    run(binaries / "pip", "install", "--quiet", torch, folder=tmp_path)
    run(binaries / "pip", "install", "--quiet", "-c", CONSTRAINTS, wheel, folder=tmp_path)

    where = run(binaries / "python", "-c", "import glassformer; print(glassformer.__file__)", folder=tmp_path)
    assert Path(where).is_relative_to(tmp_path)
    assert run(binaries / "glassformer", "--version", folder=tmp_path) == f"glassformer {glassformer.__version__}\n"
    run(binaries / "python", "-c", USE, folder=tmp_path)
    assert "3,584" in run(binaries / "glassformer", "info", "pocket", folder=tmp_path)
    (tmp_path / "source.txt").write_text("Je suis étudiant.\n", encoding="utf-8")
    translated = run(binaries / "glassformer", "translate", "--input", "source.txt", folder=tmp_path)
    assert translated in ("I'm a student.\n", "I am a student.\n")
    shown = run(binaries / "glassformer", "notes", "7", folder=tmp_path)
    assert "0.88" in shown
    assert "0.12" in shown
