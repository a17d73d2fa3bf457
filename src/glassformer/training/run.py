"""The run folder: its lock, its settings (`run.toml`), its figures (`metrics.jsonl`), and which files a run wrote."""

from __future__ import annotations

import fcntl
import json
import logging
import os
import tomllib
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import IO, Any, Final

from glassformer.errors import ConfigError, RunError
from glassformer.files import remove, write_text
from glassformer.store.checkpoint import DRAFTS, whole_checkpoints
from glassformer.store.folder import CARD, CONFIG, EXAMPLES, WEIGHTS, is_signed
from glassformer.store.registry import find_model
from glassformer.text.tokenizer import JOINT_MODEL, SRC_MODEL, TGT_MODEL
from glassformer.training.recipe import Recipe, to_toml

LOCK: Final = "run.lock"
RUN: Final = "run.toml"
METRICS: Final = "metrics.jsonl"
CHECKPOINTS: Final = "checkpoints"
DATA: Final = "data"
BEST: Final = "best.safetensors"
ALIGNER: Final = "aligner.npz"

# All that runs and the programs that read them write into a run folder: nothing else in it is ours to delete.
_FILES: Final = (METRICS, ALIGNER, CONFIG, WEIGHTS, BEST, EXAMPLES, JOINT_MODEL, SRC_MODEL, TGT_MODEL)
_VIEWS: Final = ("report.html", "ctranslate2.json", *(f"ctranslate2{kind}" for kind in ("", "-int8", "-*float16")))
_INSIDE: Final = {
    CHECKPOINTS: ("step-*", "latest", *DRAFTS),
    DATA: ("lock", "[0-9a-f]" * 20 + "*"),
    "tensorboard": ("events.out.tfevents.*",),
}

_log = logging.getLogger(__name__)


@contextmanager
def lock_run(out: Path) -> Iterator[None]:
    """Hold `out`, which is created if necessary, for as long as the block lasts; raise if another process holds it.

    The system releases the lock of a process that is killed, so no stale lock is left. A folder that stays empty is
    removed again.
    """
    path = out / LOCK
    try:
        file = _open_locked(path)
    except BlockingIOError:
        holder = path.read_text(encoding="utf-8").strip() if path.exists() else ""
        by = f"process {holder}" if holder else "another process"
        raise RunError(f"{out} is in use: {by} is training into it; wait for it or set another out") from None
    except OSError as error:
        raise RunError(f"{error.filename or out}: {error.strerror}; the run needs a writable folder") from None
    with file:
        try:
            yield
        finally:
            with suppress(OSError):  # the folder may be gone
                path.unlink()
                out.rmdir()  # fails, as it should, if the folder is not empty


def _open_locked(path: Path) -> IO[str]:
    while True:
        path.parent.mkdir(parents=True, exist_ok=True)
        with suppress(FileNotFoundError), ExitStack() as stack:  # the process that held it has just deleted it
            file = stack.enter_context(path.open("a", encoding="utf-8"))
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if path.stat().st_ino == os.fstat(file.fileno()).st_ino:
                file.truncate(0)
                file.write(f"{os.getpid()}\n")
                file.flush()
                stack.pop_all()
                return file


def open_run_folder(out: Path, recipe: Recipe, *, fresh: bool, accept_changes: bool) -> list[str]:
    """Make `out` the folder of this run, new or resumed, and return the settings that have changed."""
    path = out / RUN
    try:
        out.mkdir(parents=True, exist_ok=True)
        changes = check_run_folder(out, recipe, fresh=fresh, accept_changes=accept_changes)
        if path.exists() and fresh:
            _remove_run(out, recipe)
        elif path.exists() and not has_begun(out):
            _clear_failed_start(out, recipe)
        settings = to_toml(recipe.model_dump(mode="json", exclude_none=True))
        write_text(path, settings, durable=True, error=RunError)
    except OSError as error:
        raise RunError(f"{error.filename or out}: {error.strerror}; the run needs a writable folder") from None
    return changes


def check_run_folder(out: Path, recipe: Recipe, *, fresh: bool, accept_changes: bool) -> list[str]:
    """Return the settings that have changed since the run in `out` began; raise if it cannot continue with them."""
    if not (out / RUN).exists():
        if out.is_dir() and any(path.name != LOCK for path in out.iterdir()):
            raise RunError(f"{out} contains files but no run; set out to a new or empty folder")
        return []
    changes = {} if fresh or not has_begun(out) else changed_settings(read_run(out), recipe)
    if changes and not accept_changes:
        raise RunError(
            f"{out} was started with other settings: {'; '.join(changes.values())}; continue with the new ones "
            "(accept_changes=True), start over (fresh=True), or set another out"
        )
    if fixed := [change for name, change in changes.items() if _is_fixed(name)]:
        raise RunError(
            f"{out} cannot continue with another model or vocabulary: {'; '.join(fixed)}; "
            "start over (fresh=True) or set another out"
        )
    return list(changes.values())


def has_begun(out: Path) -> bool:
    """Return whether a folder has a checkpoint to resume from, or a finished model."""
    return (out / CONFIG).exists() or bool(whole_checkpoints(out / CHECKPOINTS))


def _clear_failed_start(out: Path, recipe: Recipe) -> None:
    """Remove what a start that failed has left, unless its settings are the same and it can be used."""
    with suppress(RunError):
        if not changed_settings(read_run(out), recipe):
            return
    _remove_run(out, recipe)


def _remove_run(out: Path, recipe: Recipe) -> None:
    """Delete what a run made in `out`, except `run.toml`, which is overwritten next; other files stay."""
    made = list(_made_in(out))
    folder = None if recipe.init is None else find_model(recipe.init) / WEIGHTS
    corpora = (path for corpus in (*recipe.train, *recipe.dev) for path in corpus.paths)
    for path in filter(None, (folder, *corpora)):
        if any(path.resolve().is_relative_to(each.resolve()) for each in made):
            raise RunError(f"starting over would delete {path}, which this run reads; move it or set another out")
    for path in made:
        remove(path)
    for name in _INSIDE:
        with suppress(OSError):  # not there, or not empty
            (out / name).rmdir()
    if kept := sorted(path.name for path in out.iterdir() if path.name not in (RUN, LOCK)):
        _log.info("%s: kept files that no run wrote: %s", out, ", ".join(kept))


def _made_in(out: Path) -> Iterator[Path]:
    for name in (*_FILES, *_VIEWS):
        for pattern in (name, f".{name}", f".{name}.*", f"{name}.part"):  # and what a killed process left of it
            yield from out.glob(pattern)
    for folder, patterns in _INSIDE.items():
        for pattern in patterns:
            yield from (out / folder).glob(pattern)
    card = out / CARD
    if card.is_file() and is_signed(card.read_text(encoding="utf-8", errors="replace")):
        yield card


def _is_fixed(name: str) -> bool:
    """Return whether the shapes of the weights depend on a setting."""
    return name == "preset" or (name.startswith(("model.", "tokenizer.")) and "dropout" not in name)


def read_run(out: Path) -> Recipe:
    """Read the recipe of a run."""
    path = out / RUN
    try:
        return Recipe.parse(tomllib.loads(path.read_text(encoding="utf-8")), str(path))
    except OSError as error:
        raise RunError(f"{out} is not a run folder: {RUN}: {error.strerror}") from None
    except (ConfigError, ValueError) as error:
        raise RunError(f"{error}; it is damaged or from another version; start over (fresh=True)") from None


def changed_settings(before: Recipe, after: Recipe) -> dict[str, str]:
    """Describe each setting that differs, by its name; the folder may have been moved."""
    old, new = (dict(flat(recipe.model_dump(mode="json", exclude={"out"}))) for recipe in (before, after))
    changed = [name for name in sorted({*old, *new}) if old.get(name) != new.get(name)]
    return {
        name: f"{name} was {_brief(old.get(name), new.get(name))}, is {_brief(new.get(name), old.get(name))}"
        for name in changed
    }


def _brief(value: Any, other: Any) -> Any:
    """Write corpora as their paths, unless they differ in something else."""
    paths = _paths(value)
    return value if paths is None or paths == _paths(other) else paths


def _paths(value: Any) -> str | None:
    if not isinstance(value, list) or not all(isinstance(each, dict) and "path" in each for each in value):
        return None
    return " ".join(",".join(filter(None, (each["path"], each.get("target_path")))) for each in value)


class Metrics:
    """The lines of `metrics.jsonl`."""

    def __init__(self, out: Path) -> None:
        self.path = out / METRICS

    def append(self, kind: str, entry: Mapping[str, Any]) -> None:
        """Add a line."""
        with self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps({"kind": kind, **entry}, ensure_ascii=False) + "\n")

    def read(self) -> list[dict[str, Any]]:
        """Read all complete lines."""
        if not self.path.exists():
            return []
        found = []
        for line in self.path.read_text(encoding="utf-8").split("\n"):
            try:
                found.append(json.loads(line))
            except ValueError:
                continue  # truncated by a power loss: its update will be repeated
        return found

    def cut(self, step: int) -> None:
        """Delete the lines after `step`, from which the run resumes, and those of its end."""
        if self.path.exists():
            kept = (entry for entry in self.read() if entry["step"] <= step and entry["kind"] != "end")
            lines = [json.dumps(entry, ensure_ascii=False) for entry in kept]
            write_text(self.path, "".join(f"{line}\n" for line in lines), durable=True, error=RunError)


def flat(values: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield each setting with its dotted name."""
    for name, value in values.items():
        if isinstance(value, dict):
            yield from flat(value, f"{prefix}{name}.")
        else:
            yield prefix + name, value
