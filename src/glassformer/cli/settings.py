"""Settings of a recipe as words of the command line."""

from __future__ import annotations

import tomllib
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import Any, Final

from glassformer.errors import UsageError, nearest
from glassformer.training.recipe import list_settings

_CORPORA: Final = ("train", "dev")
_FOLDERS: Final = ("out", "vocabulary", "init")


def describe_settings() -> Iterator[str]:
    """Yield one line per setting: its option, meaning, choices and default."""
    for name, (description, choices, default) in list_settings().items():
        words = f" ({', '.join(choices)})" if choices else ""
        usual = "" if default in (None, "") else f" [{default}]"
        yield f"--{name.replace('_', '-'):32s} {description}{words}{usual}"


def parse_words(words: Sequence[str]) -> tuple[Path | None, dict[str, Any]]:
    """Read `[RECIPE] --setting value --setting=value ...`; a name needs its section only where two share it."""
    known, found = list_settings(), dict[str, Any]()
    recipe: Path | None = None
    rest = list(words)
    while rest:
        word = rest.pop(0)
        if not word.startswith("-"):
            if recipe is not None:
                raise UsageError(f"{word!r}: expected one recipe, got {recipe} already; settings are --name value")
            recipe = Path(word)
            continue
        name, has_value, value = word.lstrip("-").partition("=")
        path = _full_name(name.replace("-", "_"), known)
        if not has_value:
            if not rest or rest[0].startswith("--"):
                raise UsageError(f"--{name} needs a value")
            value = rest.pop(0)
        if path in _CORPORA:
            found.setdefault(path, []).append(value)
        else:
            found[path] = value if path in _FOLDERS else _value(value)  # 2025-01-02 is a folder, too
    return recipe, found


def _full_name(name: str, known: Collection[str]) -> str:
    matches = [path for path in known if path == name or path.endswith(f".{name}")]
    if len(matches) == 1 or name in known:
        return name if name in known else matches[0]
    if matches:
        choices = " or ".join(f"--{path.replace('_', '-')}" for path in matches)
        raise UsageError(f"--{name.replace('_', '-')} is ambiguous: use {choices}")
    leaves = {path.rpartition(".")[2].replace("_", "-") for path in known}
    raise UsageError(f"unknown setting --{name.replace('_', '-')}; {nearest(name.replace('_', '-'), leaves)}")


def _value(text: str) -> Any:
    """Read a value as TOML would, and anything else as plain text."""
    try:
        return tomllib.loads(f"x = {text}")["x"]
    except tomllib.TOMLDecodeError:
        return text
