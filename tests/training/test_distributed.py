"""Several processes under torchrun: the same curve as one, and on again after one of them was killed."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from torch._C._distributed_c10d import HashStore
from torch.distributed.distributed_c10d import Store

from glassformer.training.distributed import rendezvous_store

PAIRS = [("un chat", "a cat"), ("un chien", "a dog"), ("le chat noir", "the black cat"), ("le chien", "the dog")]
SETTINGS = [
    "--preset=tiny",
    "--model.dropout=0",
    "--model.d-model=16",
    "--tokenizer.vocab-size=290",
    "--batch.max-tokens=40",
    "--search.max-length=12",
    "--max-updates=12",
    "--accumulate=2",
    "--ema=0.9",
    "--checkpoint-every=3",
    "--validate-every=12",
    "--metric=loss",
    "--log-every=1",
    "--warmup=4",
    "--threads=1",
    "--average-last=1",
]
# Without dropout losses differ only by the order in which numbers are added.
TOLERANCE = 1e-4


def words(folder: Path, *more: str) -> list[str]:
    corpus = folder / "corpus.tsv"
    corpus.write_text("".join(f"{src} {n}\t{tgt} {n}\n" for n in range(5) for src, tgt in PAIRS), encoding="utf-8")
    return ["-m", "glassformer", "train", f"--train={corpus}", f"--dev={corpus}", *SETTINGS, *more]


def torchrun(*more: str) -> list[str]:
    start = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    return [*start, "--max-restarts=3", *more]


def entries(run: Path, kind: str) -> list[dict[str, float]]:
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return [line for line in lines if line["kind"] == kind]


def curve(run: Path) -> list[float]:
    return [line["loss"] for line in entries(run, "train")]


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("alone")
    subprocess.run([sys.executable, *words(folder, f"--out={folder / 'run'}")], check=True, capture_output=True)
    return folder / "run"


@pytest.mark.long
@pytest.mark.parametrize("sharding", ["ddp", "fsdp"])
def test_two_processes_learn_as_one(tmp_path: Path, alone: Path, sharding: str) -> None:
    run = tmp_path / "run"
    if sharding == "fsdp":  # begun by one process without it
        begun = words(tmp_path, f"--out={run}", "--max-updates=5")
        subprocess.run([sys.executable, *begun], check=True, capture_output=True)
    command = [*torchrun(), *words(tmp_path, f"--out={run}", f"--sharding={sharding}", "--accept-changes")]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=200)
    assert done.returncode == 0, done.stderr
    assert len(curve(run)) == 12
    assert curve(run) == pytest.approx(curve(alone), rel=TOLERANCE)
    ends, expected = ({line["weights"]: line["loss"] for line in entries(r, "end")} for r in (run, alone))
    assert ends == pytest.approx(expected, rel=TOLERANCE)  # last, average, best and ema
    assert (run / "model.safetensors").exists()


@pytest.mark.long
def test_a_killed_worker_is_started_again_and_the_run_goes_on(tmp_path: Path, alone: Path) -> None:
    """Also with --fresh, which must not begin afresh after the accident; the other process does not wait for ever."""
    run = tmp_path / "run"
    command = [*torchrun(), *words(tmp_path, f"--out={run}", "--fresh", "--max-updates=40")]
    with (tmp_path / "log").open("w") as log, subprocess.Popen(command, stdout=log, stderr=log) as agent:
        metrics = run / "metrics.jsonl"
        deadline = time.monotonic() + 120
        while not (metrics.exists() and metrics.read_text().count("train") >= 4):  # past the checkpoint of update 3
            assert time.monotonic() < deadline, (tmp_path / "log").read_text()
            time.sleep(0.002)
        os.kill(_worker(agent.pid, rank=1), signal.SIGKILL)
        agent.wait(200)
    told = (tmp_path / "log").read_text()
    assert agent.returncode == 0, told
    assert (found := re.search(r"resuming from update (\d+)", told)), told
    assert int(found[1]) >= 3
    assert len(curve(run)) == 40
    assert curve(run)[:12] == pytest.approx(curve(alone), rel=TOLERANCE)


def test_processes_do_not_take_the_dead_for_the_living() -> None:
    """torchrun's store still holds what the processes before the accident said; also what some said who never met."""
    store = HashStore()

    def start(*order: int) -> list[Store]:
        def come(rank: int) -> Store:
            time.sleep(0.1 * order.index(rank))
            return rendezvous_store(store, rank, 3)

        with ThreadPoolExecutor() as pool:
            return list(pool.map(come, range(3)))

    dead = start(0, 1, 2)
    dead[1].set("address", "old")
    store.set("hello/2", "one who died before it was welcomed")
    for order in ((0, 1, 2), (2, 1, 0), (1, 0, 2)):
        alive = start(*order)
        assert not any(each.check(["address"]) for each in alive)
        alive[1].set("address", "new")
        assert alive[0].get("address") == alive[2].get("address") == b"new"


def _worker(agent: int, rank: int) -> int:
    children = Path(f"/proc/{agent}/task/{agent}/children").read_text().split()
    (found,) = [int(pid) for pid in children if f"\0RANK={rank}\0" in Path(f"/proc/{pid}/environ").read_text()]
    return found
