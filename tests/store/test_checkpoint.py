"""Checkpoints are whole or not there, whatever happens while one is written."""

from __future__ import annotations

import errno
import json
from pathlib import Path
from typing import Any

import pytest
import torch

from glassformer.errors import RunError
from glassformer.store import checkpoint
from glassformer.store.checkpoint import load_checkpoint, load_latest, prune, save_checkpoint, whole_checkpoints


def tensors(value: float) -> dict[str, dict[str, torch.Tensor]]:
    return {"model": {"w": torch.full((3,), value)}, "optimizer": {"m": torch.full((2, 2), value)}}


class Crash(BaseException):
    """What a power loss looks like from inside."""


def test_what_is_saved_comes_back(tmp_path: Path) -> None:
    path = save_checkpoint(tmp_path, 7, tensors(1.5), {"step": 7, "best": None})
    found, complaints = load_latest(tmp_path)
    assert found is not None
    assert not complaints
    assert found.path == path
    assert found.state == {"step": 7, "best": None}
    assert torch.equal(found.tensors["optimizer"]["m"], torch.full((2, 2), 1.5))
    assert (tmp_path / "latest").read_text().strip() == path.name


@pytest.mark.parametrize("share", [0.0, 0.5, 1.0])
@pytest.mark.parametrize("which", range(3))  # two files of tensors, the state
def test_a_crash_inside_a_write_loses_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, which: int, share: float
) -> None:
    save_checkpoint(tmp_path, 1, tensors(1.0), {"step": 1})
    calls = iter(range(100))

    def crash(path: Path, data: bytes) -> None:
        if next(calls) == which:
            path.write_bytes(data[: int(len(data) * share)])
            raise Crash
        path.write_bytes(data)

    with monkeypatch.context() as patched:
        patched.setattr(checkpoint, "_write", crash)
        with pytest.raises(Crash):
            save_checkpoint(tmp_path, 2, tensors(2.0), {"step": 2})
    found, complaints = load_latest(tmp_path)
    assert found is not None
    assert not complaints
    assert found.state["step"] == 1
    assert (tmp_path / (tmp_path / "latest").read_text().strip()).is_dir(), "latest names a whole checkpoint"
    save_checkpoint(tmp_path, 3, tensors(3.0), {"step": 3})
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == []


def test_a_crash_before_latest_is_written_keeps_the_new_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    save_checkpoint(tmp_path, 1, tensors(1.0), {"step": 1})

    def crash(*_: object) -> None:
        raise Crash

    with monkeypatch.context() as patched:
        patched.setattr(checkpoint, "_point_latest", crash)
        with pytest.raises(Crash):
            save_checkpoint(tmp_path, 2, tensors(2.0), {"step": 2})
    found, complaints = load_latest(tmp_path)
    assert found is not None
    assert (found.state["step"], complaints) == (2, [])


def test_what_a_killed_process_left_is_removed(tmp_path: Path) -> None:
    (tmp_path / ".step-00000001.abc/step-00000001").mkdir(parents=True)
    (tmp_path / ".unfinished-step-00000001").mkdir()  # older versions
    (tmp_path / ".latest.77.part").touch()
    (tmp_path / ".mine").touch()
    save_checkpoint(tmp_path, 1, tensors(1.0), {"step": 1})
    assert sorted(path.name for path in tmp_path.iterdir()) == [".mine", "latest", "step-00000001"]


def test_the_same_step_again_replaces_the_first(tmp_path: Path) -> None:
    for value in (1.0, 2.0):
        path = save_checkpoint(tmp_path, 1, tensors(value), {"step": 1})
    assert load_checkpoint(path).tensors["model"]["w"].tolist() == [2.0, 2.0, 2.0]


@pytest.mark.parametrize("version", [None, 1, 2])
def test_a_newer_format_is_refused(tmp_path: Path, version: int | None) -> None:
    save_checkpoint(tmp_path, 1, tensors(1.0), {"step": 1})
    state = save_checkpoint(tmp_path, 2, tensors(2.0), {"step": 2}) / "state.json"
    content = json.loads(state.read_text())
    assert content.pop("version") == 1
    state.write_text(json.dumps(content if version is None else {**content, "version": version}))
    if version == 2:
        with pytest.raises(RunError, match="step-00000002 has format version 2, this program reads up to 1; update"):
            load_latest(tmp_path)
    else:
        found, complaints = load_latest(tmp_path)
        assert found is not None
        assert (found.state, complaints) == ({"step": 2}, [])


@pytest.mark.parametrize("damage", ["cut", "flip", "missing", "state"])
def test_a_damaged_one_is_passed_over_and_named(tmp_path: Path, damage: str) -> None:
    save_checkpoint(tmp_path, 1, tensors(1.0), {"step": 1})
    path = save_checkpoint(tmp_path, 2, tensors(2.0), {"step": 2})
    victim = path / ("state.json" if damage == "state" else "model.safetensors")
    data = bytearray(victim.read_bytes())
    if damage == "missing":
        victim.unlink()
    elif damage == "flip":
        data[-1] ^= 1
        victim.write_bytes(data)
    else:
        victim.write_bytes(data[: len(data) // 2])
    found, complaints = load_latest(tmp_path)
    assert found is not None
    assert found.state["step"] == 1
    assert len(complaints) == 1
    assert path.name in complaints[0]
    assert (tmp_path / "latest").read_text().strip() == found.path.name


def test_a_full_disk_is_one_sentence_and_nothing_is_lost(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    save_checkpoint(tmp_path, 1, tensors(1.0), {"step": 1})

    def full(path: Path, data: bytes) -> None:
        path.write_bytes(data[:10])
        raise OSError(errno.ENOSPC, "No space left on device", str(path))

    monkeypatch.setattr(checkpoint, "_write", full)
    message = (
        r"step-00000002 cannot be written: No space left on device; the newest checkpoint is step-00000001; fix it"
    )
    with pytest.raises(RunError, match=message):
        save_checkpoint(tmp_path, 2, tensors(2.0), {"step": 2})
    assert [path.name for path in whole_checkpoints(tmp_path)] == ["step-00000001"]
    assert not list(tmp_path.glob(".*"))


def test_old_ones_go(tmp_path: Path) -> None:
    for step in range(6):
        save_checkpoint(tmp_path, step, tensors(step), {"step": step})
    prune(tmp_path, keep=2)
    assert [path.name for path in whole_checkpoints(tmp_path)] == ["step-00000004", "step-00000005"]
    assert load_checkpoint(tmp_path / "step-00000004").state == {"step": 4}


def test_none_at_all(tmp_path: Path) -> None:
    nothing: tuple[Any, list[str]] = (None, [])
    assert load_latest(tmp_path / "none") == nothing
