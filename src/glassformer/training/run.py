"""The folder of a run: what was asked for (`run.toml`), what came of it (`metrics.jsonl`), and whose it is."""

from __future__ import annotations

import json
import logging
import tomllib
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from glassformer.errors import ConfigError, RunError
from glassformer.files import remove, sync
from glassformer.store.checkpoint import whole_checkpoints
from glassformer.store.folder import CARD, CONFIG, EXAMPLES, WEIGHTS, is_signed
from glassformer.store.registry import find_model
from glassformer.text.tokenizer import JOINT_MODEL, SRC_MODEL, TGT_MODEL
from glassformer.training.lock import LOCK
from glassformer.training.recipe import Recipe, to_toml

RUN: Final = "run.toml"
METRICS: Final = "metrics.jsonl"
CHECKPOINTS: Final = "checkpoints"
DATA: Final = "data"
BEST: Final = "best.safetensors"

# All that runs and the programs that read them write into a run folder: nothing else in it is ours to delete.
_FILES: Final = (METRICS, CONFIG, WEIGHTS, BEST, EXAMPLES, JOINT_MODEL, SRC_MODEL, TGT_MODEL)
_VIEWS: Final = ("report.html", "ctranslate2.json", *(f"ctranslate2{kind}" for kind in ("", "-int8", "-*float16")))
_INSIDE: Final = {
    CHECKPOINTS: ("step-*", "latest", ".*"),
    DATA: ("lock", "[0-9a-f]" * 20 + "*"),
    "tensorboard": ("events.out.tfevents.*",),
}

_log = logging.getLogger(__name__)


def claim(out: Path, recipe: Recipe, fresh: bool, accept_changes: bool) -> list[str]:
    """Make `out` the folder of this run, new or going on, and list the settings that differ from before."""
    path = out / RUN
    try:
        out.mkdir(parents=True, exist_ok=True)
        changes = dict[str, str]()
        if path.exists() and fresh:
            _remove_run(out, recipe)
        elif path.exists() and not has_begun(out):
            _clear_failed_start(out, recipe)
        elif path.exists():
            changes = changed_settings(_begun_with(path), recipe)
        elif any(path.name != LOCK for path in out.iterdir()):
            raise RunError(f"{out} contains files but no run; set out to a new or empty folder")
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
        write_whole(path, to_toml(recipe.model_dump(mode="json", exclude_none=True)))
    except OSError as error:
        raise RunError(f"{error.filename or out}: {error.strerror}; the run needs a writable folder") from None
    return list(changes.values())


def has_begun(out: Path) -> bool:
    """Say whether a folder has what a run can go on from, or what one has ended with."""
    return (out / CONFIG).exists() or bool(whole_checkpoints(out / CHECKPOINTS))


def _clear_failed_start(out: Path, recipe: Recipe) -> None:
    """Remove what a start that failed has left, unless its settings are the same and it can be used."""
    with suppress(RunError):
        if not changed_settings(_begun_with(out / RUN), recipe):
            return
    _remove_run(out, recipe)


def _remove_run(out: Path, recipe: Recipe) -> None:
    """Delete what a run made in `out`, except `run.toml`, which is overwritten next; other files stay."""
    made = list(_made_in(out))
    folder = None if recipe.init is None else find_model(recipe.init) / WEIGHTS
    corpora = (path for corpus in (*recipe.train, *recipe.dev) for path in (corpus.path, corpus.target_path))
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
    """Say whether a setting is one that the weights of a run depend on."""
    return name == "preset" or (name.startswith(("model.", "tokenizer.")) and "dropout" not in name)


def _begun_with(path: Path) -> Recipe:
    try:
        return Recipe.parse(tomllib.loads(path.read_text(encoding="utf-8")), str(path))
    except (ConfigError, ValueError) as error:
        raise RunError(f"{error}; it is damaged or from another version; start over (fresh=True)") from None


def changed_settings(before: Recipe, after: Recipe) -> dict[str, str]:
    """Say of each setting that differs, by its name, what it was and what it is; a folder may have been moved."""
    old, new = (dict(flat(recipe.model_dump(mode="json", exclude={"out"}))) for recipe in (before, after))
    changed = [name for name in sorted({*old, *new}) if old.get(name) != new.get(name)]
    return {
        name: f"{name} was {_brief(old.get(name), new.get(name))}, is {_brief(new.get(name), old.get(name))}"
        for name in changed
    }


def _brief(value: Any, other: Any) -> Any:
    """Write corpora as their paths, if these tell them apart."""
    paths = _paths(value)
    return value if paths is None or paths == _paths(other) else paths


def _paths(value: Any) -> str | None:
    if not isinstance(value, list) or not all(isinstance(each, dict) and "path" in each for each in value):
        return None
    return " ".join(",".join(filter(None, (each["path"], each.get("target_path")))) for each in value)


class Metrics:
    """The lines of `metrics.jsonl`, one for each report."""

    def __init__(self, out: Path) -> None:
        self.path = out / METRICS

    def append(self, kind: str, entry: Mapping[str, Any]) -> None:
        """Add a line."""
        with self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps({"kind": kind, **entry}, ensure_ascii=False) + "\n")

    def read(self) -> list[dict[str, Any]]:
        """Read all lines that are whole."""
        if not self.path.exists():
            return []
        found = []
        for line in self.path.read_text(encoding="utf-8").split("\n"):
            try:
                found.append(json.loads(line))
            except ValueError:
                continue  # cut short by a power loss: the update it tells of will be made again
        return found

    def cut(self, step: int) -> None:
        """Forget what came after `step`, from which the run goes on, and how it ended, if it had."""
        if self.path.exists():
            kept = (entry for entry in self.read() if entry["step"] <= step and entry["kind"] != "end")
            lines = [json.dumps(entry, ensure_ascii=False) for entry in kept]
            write_whole(self.path, "".join(f"{line}\n" for line in lines))


def flat(values: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Give each setting with its dotted name."""
    for name, value in values.items():
        if isinstance(value, dict):
            yield from flat(value, f"{prefix}{name}.")
        else:
            yield prefix + name, value


def write_whole(path: Path, text: str) -> None:
    """Write a file, whole or not at all."""
    draft = path.with_name(f".{path.name}")
    with draft.open("w", encoding="utf-8") as file:
        file.write(text)
        sync(file)
    draft.replace(path)
