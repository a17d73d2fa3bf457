"""Recipe settings as options of `train` and `plan`: `--training.lr` or, where the name is unique, `--lr`."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Sequence
from functools import lru_cache
from inspect import Parameter, Signature
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, NamedTuple, get_args, get_origin

import typer
from typer.core import TyperCommand

from glassformer.errors import UsageError, nearest

if TYPE_CHECKING:
    from pydantic import BaseModel

    from glassformer.training.recipe import Recipe

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
_TYPES: Final[dict[object, str]] = {int: "INT", float: "FLOAT", bool: "BOOL"}
_SHORT: Final = "glassformer.short_names"


class Setting(NamedTuple):
    """A setting of a recipe, under its dotted name."""

    name: str
    description: str
    kind: object
    default: object

    @property
    def choices(self) -> tuple[str, ...]:
        """The words that it may be, if these are limited."""
        if self.kind is bool:
            return ("true", "false")
        return get_args(self.kind) if get_origin(self.kind) is Literal else ()

    @property
    def help(self) -> str:
        """What it means, and the words that it may be."""
        is_choice = self.choices and self.kind is not bool
        return f"{self.description} ({', '.join(self.choices)})" if is_choice else self.description

    @property
    def usual(self) -> str | None:
        """The default as it would be written, if there is one."""
        if isinstance(self.default, bool):
            return str(self.default).lower()
        return None if self.default in (None, "") else str(self.default)

    @property
    def panel(self) -> str:
        """The group that it is listed in."""
        section = self.name.rpartition(".")[0].rpartition(".")[2]
        return section.capitalize() or _PANEL_OF.get(self.name, "Data")


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
    from glassformer.training.recipe import read_recipe

    for word in words:
        if word.startswith("-"):
            raise _unknown(word.lstrip("-").partition("=")[0].replace("_", "-"))
    if len(words) > 1:
        raise UsageError(f"{words[1]!r}: expected one recipe, got {words[0]} already; settings are --name value")
    changes = {name: _value(name, given) for name, given in context.obj.items()}
    return read_recipe(Path(words[0]) if words else None, changes)


def list_settings() -> Iterator[str]:
    """Yield one line per setting: its option, meaning, choices and default."""
    for name, setting in settings().items():
        default = "" if setting.usual is None else f" [{setting.usual}]"
        yield f"{_flag(name):34s} {setting.help}{default}"


@lru_cache(maxsize=1)
def settings() -> dict[str, Setting]:
    """Return every setting by its dotted name, in the order of the help."""
    from glassformer.config import ModelConfig, preset
    from glassformer.training.recipe import Recipe

    usual = preset(Recipe.model_fields["preset"].default)
    known = [*_leaves(Recipe)]
    for name, field in ModelConfig.model_fields.items():
        if name not in ("src_vocab", "tgt_vocab"):  # these follow from the vocabulary
            known.append(Setting(f"model.{name}", field.description or "", field.annotation, getattr(usual, name)))
    known.sort(key=lambda setting: _PANELS.index(setting.panel))
    return {setting.name: setting for setting in known}


def _leaves(cls: type[BaseModel], section: str = "") -> Iterator[Setting]:
    from pydantic import BaseModel

    for name, field in cls.model_fields.items():
        kind = field.annotation
        if isinstance(kind, type) and issubclass(kind, BaseModel):
            yield from _leaves(kind, f"{section}{name}.")
        elif section or name != "model":
            default = None if field.is_required() else field.default
            yield Setting(section + name, field.description or "", kind, default)


@lru_cache
def _options(short: bool) -> list[Any]:
    """Return an option per setting, made by typer from the signature of a function that is never called."""

    def command() -> None: ...

    parameters = [_parameter(setting, short) for setting in settings().values()]
    command.__signature__ = Signature(parameters)  # type: ignore[attr-defined]
    app = typer.Typer(add_completion=False)
    app.command()(command)
    return typer.main.get_command(app).params


def _parameter(setting: Setting, short: bool) -> Parameter:
    leaf = setting.name.rpartition(".")[2]
    names = [leaf] if _full_names(leaf) == [setting.name] else []
    if not (short and names) and setting.name not in names:
        names.insert(0, setting.name)
    option = typer.Option(
        *map(_flag, names),
        metavar=_METAVARS.get(leaf, _TYPES.get(setting.kind, "TEXT")),
        help=setting.help,
        rich_help_panel=f"{setting.panel} (defaults of preset small)" if setting.panel == "Model" else setting.panel,
        autocompletion=lambda: list(setting.choices),
    )
    is_list = setting.name in _REPEATABLE
    kind = Annotated[list[str] | None, option] if is_list else Annotated[str | None, option]
    return Parameter(_identifier(setting.name), Parameter.KEYWORD_ONLY, default=setting.usual, annotation=kind)


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
