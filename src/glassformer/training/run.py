"""The folder of a run: what was asked for (`run.toml`), what came of it (`metrics.jsonl`), and whose it is."""

from __future__ import annotations

import json
import shutil
import tomllib
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from glassformer.errors import ConfigError, RunError
from glassformer.files import sync
from glassformer.store.checkpoint import whole_checkpoints
from glassformer.store.folder import CONFIG
from glassformer.text.tokenizer import JOINT_MODEL, SRC_MODEL, TGT_MODEL
from glassformer.training.recipe import Recipe, to_toml

RUN: Final = "run.toml"
METRICS: Final = "metrics.jsonl"
CHECKPOINTS: Final = "checkpoints"


def claim(out: Path, recipe: Recipe, fresh: bool, accept_changes: bool) -> list[str]:
    """Make `out` the folder of this run, new or going on, and list the settings that differ from before."""
    path = out / RUN
    try:
        if fresh and path.exists():
            shutil.rmtree(out)
        out.mkdir(parents=True, exist_ok=True)
        changes = dict[str, str]()
        if path.exists() and not has_begun(out):
            _clear_failed_start(out, recipe)
        elif path.exists():
            changes = changed_settings(_begun_with(path), recipe)
        elif any(out.iterdir()):
            raise RunError(f"{out} holds files that no run wrote; name an empty or a new folder with --out")
        if changes and not accept_changes:
            raise RunError(
                f"{out} was begun with other settings: {'; '.join(changes.values())}; "
                "give --accept-changes to go on with the new ones, --fresh to start over, or another --out"
            )
        if fixed := [change for name, change in changes.items() if _is_fixed(name)]:
            raise RunError(
                f"{out} cannot go on with another model or vocabulary: {'; '.join(fixed)}; "
                "give --fresh to start over, or another --out"
            )
        write_whole(path, to_toml(recipe.model_dump(mode="json", exclude_none=True)))
    except OSError as error:
        raise RunError(f"{error.filename or out}: {error.strerror}; the run needs a folder that it may write") from None
    return list(changes.values())


def has_begun(out: Path) -> bool:
    """Say whether a folder has what a run can go on from, or what one has ended with."""
    return (out / CONFIG).exists() or bool(whole_checkpoints(out / CHECKPOINTS))


def _clear_failed_start(out: Path, recipe: Recipe) -> None:
    """Forget what a start that came to nothing has left, unless it can be used: the settings are the same."""
    with suppress(RunError):
        if not changed_settings(_begun_with(out / RUN), recipe):
            return
    for name in (RUN, JOINT_MODEL, SRC_MODEL, TGT_MODEL):
        (out / name).unlink(missing_ok=True)
    shutil.rmtree(out / "data", ignore_errors=True)


def _is_fixed(name: str) -> bool:
    """Say whether a setting is one that the weights of a run depend on."""
    return name == "preset" or (name.startswith(("model.", "tokenizer.")) and "dropout" not in name)


def _begun_with(path: Path) -> Recipe:
    try:
        return Recipe.parse(tomllib.loads(path.read_text(encoding="utf-8")), str(path))
    except (ConfigError, ValueError) as error:
        raise RunError(f"{error}; another version wrote it, or it is damaged: --fresh starts over") from None


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
