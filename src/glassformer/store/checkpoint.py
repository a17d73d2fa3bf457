"""Checkpoints: folders that are complete or not there, whatever happens while they are written.

    checkpoints/step-00002000/{model,optimizer,...}.safetensors, state.json
    checkpoints/latest          the name of the newest one

`state.json` holds a format version and the SHA-256 of every other file, so that damage is noticed.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

from safetensors import SafetensorError
from safetensors.torch import load_file, save
from torch import Tensor

from glassformer.errors import RunError
from glassformer.files import atomic_folder, remove, sync, write_text

DRAFTS: Final = (".step-*", ".latest*", ".unfinished-*")  # what a killed process leaves; the last of older versions

_VERSION: Final = 1  # of state.json; raised when older programs cannot resume from it
_LATEST: Final = "latest"
_STATE: Final = "state.json"

Tensors = Mapping[str, Mapping[str, Tensor]]  # file name without ending -> tensors by name


class NewerCheckpointError(RunError):
    """A checkpoint that a newer version of glassformer wrote."""


class Checkpoint(NamedTuple):
    """A checkpoint, read back."""

    path: Path
    tensors: dict[str, dict[str, Tensor]]
    state: dict[str, Any]


def save_checkpoint(folder: Path, step: int, tensors: Tensors, state: Mapping[str, Any]) -> Path:
    """Write a checkpoint into `folder` atomically and point `latest` at it."""
    name = _name(step)
    try:
        for pattern in DRAFTS:  # of a process that was killed: a run folder has one writer
            for leftover in folder.glob(pattern):
                remove(leftover)
        with atomic_folder(folder / name, durable=True, error=RunError) as draft:
            prints = {}
            for part, content in tensors.items():
                data = save({key: tensor.detach().contiguous().cpu() for key, tensor in content.items()})
                prints[f"{part}.safetensors"] = hashlib.sha256(data).hexdigest()
                _write(draft / f"{part}.safetensors", data)
            _write(draft / _STATE, json.dumps({**state, "version": _VERSION, "sha256": prints}, indent=1).encode())
        _point_latest(folder, name)
    except (OSError, RunError) as error:
        raise RunError(f"{error}; {_newest_of(folder)}; fix it and resume with the same command") from None
    return folder / name


def load_checkpoint(path: Path) -> Checkpoint:
    """Read a checkpoint; raise if it is damaged or from a newer version."""
    try:
        state = json.loads((path / _STATE).read_text(encoding="utf-8"))
        version = state.pop("version", 1)
        if version > _VERSION:
            raise NewerCheckpointError(
                f"{path} has format version {version}, this program reads up to {_VERSION}; update glassformer"
            )
        tensors = {}
        for name, fingerprint in state.pop("sha256").items():
            if hashlib.sha256((path / name).read_bytes()).hexdigest() != fingerprint:
                raise RunError(f"{path / name} is damaged: its SHA-256 has changed")
            tensors[name.removesuffix(".safetensors")] = load_file(path / name)
    except OSError as error:
        raise RunError(f"{error.filename} cannot be read: {error.strerror}") from None
    except (ValueError, KeyError, TypeError, AttributeError, SafetensorError) as error:
        raise RunError(f"{path} is damaged: {error}") from None
    return Checkpoint(path, tensors, state)


def load_latest(folder: Path) -> tuple[Checkpoint | None, list[str]]:
    """Read the newest checkpoint that is intact, and say what is wrong with each newer one."""
    complaints = []
    for path in reversed(whole_checkpoints(folder)):
        try:
            found = load_checkpoint(path)
        except NewerCheckpointError:
            raise
        except RunError as error:
            complaints.append(str(error))
        else:
            if complaints:
                _point_latest(folder, path.name)
            return found, complaints
    return None, complaints


def whole_checkpoints(folder: Path) -> list[Path]:
    """Return the complete checkpoints, oldest first."""
    return sorted(path for path in folder.glob("step-*") if path.is_dir())


def newest_checkpoints(folder: Path, count: int) -> list[Path]:
    """Return the newest checkpoints, oldest first, without the initial state."""
    return [path for path in whole_checkpoints(folder) if path.name != _name(0)][-count:]


def prune(folder: Path, keep: int) -> None:
    """Delete all but the newest `keep` checkpoints."""
    for path in whole_checkpoints(folder)[:-keep]:
        remove(path)


def _name(step: int) -> str:
    return f"step-{step:08d}"


def _newest_of(folder: Path) -> str:
    found = whole_checkpoints(folder)
    return f"the newest checkpoint is {found[-1].name}" if found else "there is no checkpoint yet"


def _write(path: Path, data: bytes) -> None:
    with path.open("wb") as file:
        file.write(data)
        sync(file)


def _point_latest(folder: Path, name: str) -> None:
    write_text(folder / _LATEST, f"{name}\n", durable=True, error=RunError)
