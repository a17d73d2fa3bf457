"""Recipe settings as options of `train` and `plan`: `--training.lr` or, where the name is unique, `--lr`."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Sequence
from functools import lru_cache
from inspect import Parameter, Signature
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer
from typer.core import TyperCommand

from glassformer.errors import UsageError, nearest

if TYPE_CHECKING:
    from glassformer.training.recipe import Recipe, Setting

Recipes = Annotated[
    list[str] | None, typer.Argument(help="Recipe file (TOML); settings override it.", metavar="RECIPE.toml")
]

_REPEATABLE: Final = ("train", "dev")
_TEXTS: Final = ("out", "vocabulary", "init")  # taken as they are: 2025-01-02 is a folder, not a date
_PANELS: Final = ("Data", "Model", "Tokenizer", "Reader", "Noise", "Batch", "Training", "Search")
_PANEL_OF: Final = {  # settings outside any section
    "preset": "Model",
    "init": "Model",
    "lower_capitals": "Model",
    "vocabulary": "Tokenizer",
    "seed": "Training",
    "bleu_tokenize": "Training",
}
_METAVARS: Final = {"train": "FILE", "dev": "FILE", "out": "FOLDER", "vocabulary": "PATH", "init": "MODEL"}
_TYPES: Final[dict[type, str]] = {int: "INT", float: "FLOAT", bool: "BOOL"}
_SHORT: Final = "glassformer.short_names"


class SettingsCommand(TyperCommand):
    """A command that takes every setting of a recipe as an option; they are made when the command is used."""

    def get_params(self, ctx: Any) -> list[Any]:
        """Return the command's own parameters and the settings."""
        return [*super().get_params(ctx), *_options(_SHORT in ctx.meta)]

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Show each setting under its short name only: a line has no room for both."""
        ctx.meta[_SHORT] = True
        super().format_help(ctx, formatter)

    def invoke(self, ctx: Any) -> Any:
        """Collect the settings given on the command line in `ctx.obj`, and run the command."""
        given = {name: ctx.params.pop(_identifier(name)) for name in settings()}
        ctx.obj = {
            name: value
            for name, value in given.items()
            if ctx.get_parameter_source(_identifier(name)).name == "COMMANDLINE"
        }
        return super().invoke(ctx)


# Unknown options reach the command as words, so that its error can name the nearest setting.
CONTEXT: Final = {
    "ignore_unknown_options": True,
    "allow_extra_args": True,
    "token_normalize_func": lambda name: _normal(name),
}


def read_settings(context: typer.Context, words: Sequence[str]) -> Recipe:
    """Read the recipe file and change it by the settings given on the command line."""
    from glassformer.training.recipe import Recipe

    for word in words:
        if word.startswith("-"):
            raise _unknown(word.lstrip("-").partition("=")[0].replace("_", "-"))
    if len(words) > 1:
        raise UsageError(f"{words[1]!r}: expected one recipe, got {words[0]} already; settings are --name value")
    changes = {name: _value(name, given) for name, given in context.obj.items()}
    return Recipe.read(Path(words[0]) if words else None, changes)


def describe_settings() -> Iterator[str]:
    """Yield one line per setting: its option, meaning, choices and default."""
    for name, setting in settings().items():
        default = _default(setting)
        yield f"{_flag(name):34s} {_help(setting)}{'' if default is None else f' [{default}]'}"


@lru_cache(maxsize=1)
def settings() -> dict[str, Setting]:
    """Return every setting by its dotted name, in the order of the help."""
    from glassformer.training.recipe import list_settings

    return dict(sorted(list_settings().items(), key=lambda item: _PANELS.index(_panel(item[0]))))


def _panel(name: str) -> str:
    section = name.rpartition(".")[0].rpartition(".")[2]
    return section.capitalize() or _PANEL_OF.get(name, "Data")


def _help(setting: Setting) -> str:
    return f"{setting.description} ({', '.join(setting.choices)})" if setting.choices else setting.description


def _default(setting: Setting) -> str | None:
    """Write the default as it would be typed."""
    if isinstance(setting.default, bool):
        return str(setting.default).lower()
    return None if setting.default in (None, "") else str(setting.default)


@lru_cache
def _options(short: bool) -> list[Any]:
    """Return an option per setting, made by typer from the signature of a function that is never called."""

    def command() -> None: ...

    parameters = [_parameter(name, setting, short) for name, setting in settings().items()]
    command.__signature__ = Signature(parameters)  # type: ignore[attr-defined]
    app = typer.Typer(add_completion=False)
    app.command()(command)
    return typer.main.get_command(app).params


def _parameter(name: str, setting: Setting, short: bool) -> Parameter:
    leaf = name.rpartition(".")[2]
    names = [leaf] if _full_names(leaf) == [name] else []
    if not (short and names) and name not in names:
        names.insert(0, name)
    panel, words = _panel(name), setting.choices or (("true", "false") if isinstance(setting.default, bool) else ())
    option = typer.Option(
        *map(_flag, names),
        metavar=_METAVARS.get(leaf, _TYPES.get(type(setting.default), "TEXT")),
        help=_help(setting),
        rich_help_panel=f"{panel} (defaults of preset small)" if panel == "Model" else panel,
        autocompletion=lambda: list(words),
    )
    is_list = name in _REPEATABLE
    kind = Annotated[list[str] | None, option] if is_list else Annotated[str | None, option]
    return Parameter(_identifier(name), Parameter.KEYWORD_ONLY, default=_default(setting), annotation=kind)


def _identifier(name: str) -> str:
    return name.replace(".", "__")


def _flag(name: str) -> str:
    return f"--{name.replace('_', '-')}"


def _full_names(name: str) -> list[str]:
    """Return the settings that `name`, dotted or not, may stand for; an exact match is the only one."""
    return [name] if name in settings() else [path for path in settings() if path.endswith(f".{name}")]


def _normal(name: str) -> str:
    """Write an option's name with dashes and, if it is part of one setting's dotted name, in full."""
    matches = _full_names(name.replace("-", "_"))
    return (matches[0] if len(matches) == 1 else name).replace("_", "-")


def _unknown(name: str) -> UsageError:
    matches = _full_names(name.replace("-", "_"))
    if matches:
        return UsageError(f"--{name} is ambiguous: use {' or '.join(map(_flag, matches))}")
    leaves = {path.rpartition(".")[2].replace("_", "-") for path in settings()}
    return UsageError(f"unknown setting --{name}; {nearest(name, leaves)}")


def _value(name: str, given: Any) -> Any:
    """Read a value as TOML would, and anything else as plain text."""
    if any(text.startswith("--") for text in ([given] if isinstance(given, str) else given)):
        raise UsageError(f"{_flag(name.rpartition('.')[2])} needs a value")
    if name in (*_REPEATABLE, *_TEXTS):
        return given
    try:
        return tomllib.loads(f"x = {given}")["x"]
    except tomllib.TOMLDecodeError:
        return given
