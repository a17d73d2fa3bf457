"""Several processes under torchrun: the same curve as one."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

PAIRS = [("un chat", "a cat"), ("un chien", "a dog"), ("le chat noir", "the black cat"), ("le chien", "the dog")]
SETTINGS = [
    "--preset=pocket",
    "--tokenizer.vocab-size=290",
    "--batch.max-tokens=40",
    "--search.max-length=12",
    "--max-updates=8",
    "--checkpoint-every=4",
    "--validate-every=8",
    "--log-every=1",
    "--warmup=4",
    "--threads=1",
    "--average-last=1",
]


def words(folder: Path, *more: str) -> list[str]:
    corpus = folder / "corpus.tsv"
    corpus.write_text("".join(f"{src} {n}\t{tgt} {n}\n" for n in range(5) for src, tgt in PAIRS), encoding="utf-8")
    return ["-m", "glassformer", "train", f"--train={corpus}", f"--dev={corpus}", *SETTINGS, *more]


def torchrun(*more: str) -> list[str]:
    return [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", *more]


def curve(run: Path) -> list[float]:
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return [line["loss"] for line in lines if line["kind"] == "train"]


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> list[float]:
    folder = tmp_path_factory.mktemp("alone")
    subprocess.run([sys.executable, *words(folder, f"--out={folder / 'run'}")], check=True, capture_output=True)
    return curve(folder / "run")


@pytest.mark.slow  # about one two-process run in six hangs after its first checkpoint: a known, open bug
def test_two_processes_learn_as_one(tmp_path: Path, alone: list[float]) -> None:
    """Without dropout the losses differ only by the order in which numbers are added: 1e-4 of them at most."""
    command = [*torchrun(), *words(tmp_path, f"--out={tmp_path / 'run'}")]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=200)
    assert done.returncode == 0, done.stderr
    assert curve(tmp_path / "run") == pytest.approx(alone, rel=1e-4)
    assert (tmp_path / "run" / "model.safetensors").exists()
