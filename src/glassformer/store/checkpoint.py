"""Checkpoints: folders that are whole or not there, whatever happens while they are written.

    checkpoints/step-00002000/{model,optimizer,...}.safetensors, state.json
    checkpoints/latest          the name of the newest whole one

A checkpoint is written under another name, forced to the disk, and renamed. `state.json` is written last
and holds the fingerprint of every other file, so that damage shows.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

from safetensors import SafetensorError
from safetensors.torch import load_file, save
from torch import Tensor

from glassformer.errors import RunError
from glassformer.files import sync, sync_folder

_LATEST: Final = "latest"
_STATE: Final = "state.json"
_UNFINISHED: Final = ".unfinished-"

Tensors = Mapping[str, Mapping[str, Tensor]]  # file name without ending -> tensors by name


class Checkpoint(NamedTuple):
    """A whole checkpoint, read back."""

    path: Path
    tensors: dict[str, dict[str, Tensor]]
    state: dict[str, Any]


def save_checkpoint(folder: Path, step: int, tensors: Tensors, state: Mapping[str, Any]) -> Path:
    """Write a checkpoint into `folder` and point `latest` at it, or leave everything as it was."""
    name = _name(step)
    draft = folder / f"{_UNFINISHED}{name}"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for leftover in folder.glob(f"{_UNFINISHED}*"):
            shutil.rmtree(leftover)
        draft.mkdir()
        prints = {}
        for part, content in tensors.items():
            data = save({key: tensor.detach().contiguous().cpu() for key, tensor in content.items()})
            prints[f"{part}.safetensors"] = hashlib.sha256(data).hexdigest()
            _write(draft / f"{part}.safetensors", data)
        _write(draft / _STATE, json.dumps({**state, "sha256": prints}, indent=1).encode())
        sync_folder(draft)
        if (folder / name).exists():  # the same step again, after a roll-back
            shutil.rmtree(folder / name)
        draft.rename(folder / name)
        sync_folder(folder)
        _point_latest(folder, name)
    except OSError as error:
        shutil.rmtree(draft, ignore_errors=True)
        raise RunError(
            f"the checkpoint of step {step} could not be written to {folder}: {error.strerror}; "
            f"{_whole_one(folder)}; mend it and give the same command again"
        ) from None
    return folder / name


def load_checkpoint(path: Path) -> Checkpoint:
    """Read a checkpoint, or say what is wrong with it."""
    try:
        state = json.loads((path / _STATE).read_text(encoding="utf-8"))
        tensors = {}
        for name, fingerprint in state.pop("sha256").items():
            if hashlib.sha256((path / name).read_bytes()).hexdigest() != fingerprint:
                raise RunError(f"{path / name} is not what was written: its fingerprint differs")
            tensors[name.removesuffix(".safetensors")] = load_file(path / name)
    except OSError as error:
        raise RunError(f"{error.filename} cannot be read: {error.strerror}") from None
    except (ValueError, KeyError, AttributeError, SafetensorError) as error:
        raise RunError(f"{path} is damaged: {error}") from None
    return Checkpoint(path, tensors, state)


def load_latest(folder: Path) -> tuple[Checkpoint | None, list[str]]:
    """Read the newest whole checkpoint, and say of each newer one why it was passed over."""
    complaints = []
    for path in reversed(whole_checkpoints(folder)):
        try:
            found = load_checkpoint(path)
        except RunError as error:
            complaints.append(str(error))
        else:
            if complaints:
                _point_latest(folder, path.name)
            return found, complaints
    return None, complaints


def whole_checkpoints(folder: Path) -> list[Path]:
    """List the checkpoints that were finished, oldest first."""
    return sorted(path for path in folder.glob("step-*") if path.is_dir())


def newest_checkpoints(folder: Path, count: int) -> list[Path]:
    """List the newest of them, oldest first; never the beginning, which has learned nothing."""
    return [path for path in whole_checkpoints(folder) if path.name != _name(0)][-count:]


def prune(folder: Path, keep: int) -> None:
    """Delete all but the newest `keep` checkpoints."""
    for path in whole_checkpoints(folder)[:-keep]:
        shutil.rmtree(path)


def _name(step: int) -> str:
    return f"step-{step:08d}"


def _whole_one(folder: Path) -> str:
    found = whole_checkpoints(folder) if folder.is_dir() else []
    return f"{found[-1].name} is whole and the newest" if found else "there is none yet"


def _write(path: Path, data: bytes) -> None:
    with path.open("wb") as file:
        file.write(data)
        sync(file)


def _point_latest(folder: Path, name: str) -> None:
    draft = folder / f".{_LATEST}"
    _write(draft, f"{name}\n".encode())
    draft.replace(folder / _LATEST)
    sync_folder(folder)
