"""A recipe: everything that a training run needs to know, from a TOML file, the command line, or both."""

from __future__ import annotations

import json
import os
import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Literal, get_args, get_origin

from pydantic import BaseModel, Field
from pydantic.fields import FieldInfo

from glassformer.config import (
    PRESETS,
    BatchConfig,
    CorpusConfig,
    ModelConfig,
    ReaderConfig,
    SearchConfig,
    Settings,
    TokenizerConfig,
    TrainingConfig,
    preset,
)
from glassformer.errors import ConfigError, UsageError, nearest

_CORPORA: Final = ("train", "dev")
_FOLDERS: Final = ("out", "vocabulary", "init")


class Recipe(Settings):
    """A training run, as settings."""

    train: tuple[CorpusConfig, ...] = Field(min_length=1, description="what is learned from")
    dev: tuple[CorpusConfig, ...] = Field(min_length=1, description="what is looked at on the way")
    out: Path | None = Field(None, description="the folder of the run")
    preset: str = Field("small", description=f"the model's size: {', '.join(PRESETS)}")
    vocabulary: Path | None = Field(None, description="a folder or file that `glassformer tokenizer` made beforehand")
    init: Path | None = Field(None, description="a model folder to start from: fine-tuning")
    seed: int = Field(1, ge=0, description="of weights, order, dropout and noise")
    src_lang: str = Field("", description="the source's language, for the model card")
    tgt_lang: str = Field("", description="the target's language")
    lower_capitals: bool = Field(False, description="the model reads a sentence ALL IN CAPITALS as lower case")
    bleu_tokenize: str = Field("13a", description="sacreBLEU's tokenizer on dev; none for text that is tokenised")
    model: dict[str, Any] = Field(default_factory=dict, description="what differs from the preset")
    tokenizer: TokenizerConfig = TokenizerConfig()
    reader: ReaderConfig = ReaderConfig()
    batch: BatchConfig = BatchConfig()
    training: TrainingConfig = TrainingConfig()
    search: SearchConfig = SearchConfig()

    def model_settings(self, src_vocab: int, tgt_vocab: int) -> ModelConfig:
        """Make the model's settings, now that the vocabularies are known; of `init` only dropout can be changed."""
        if self.init is None:
            values = {**self.model, "src_vocab": src_vocab, "tgt_vocab": tgt_vocab}
            return self._within_positions(ModelConfig.parse({**preset(self.preset).model_dump(), **values}, "model"))
        from glassformer.store.folder import read_config  # loads torch, which naming the settings does not need

        base = read_config(self.init).model.model_dump()
        for name, value in self.model.items():
            if "dropout" not in name and value != base.get(name, value):
                raise ConfigError(
                    f"model.{name}={value!r}: the run starts from {self.init}, which has {base[name]!r}; "
                    f"leave out model.{name} or init"
                )
        return self._within_positions(ModelConfig.parse({**base, **self.model}, f"init={self.init}"))

    def _within_positions(self, model: ModelConfig) -> ModelConfig:
        if model.positions != "none" and self.reader.max_length > model.max_positions:
            raise ConfigError(
                f"reader.max_length={self.reader.max_length} lets in what is longer than the model's "
                f"max_positions={model.max_positions}; lower the one or raise the other"
            )
        return model


def read_recipe(path: Path | None, changes: Mapping[str, Any]) -> Recipe:
    """Read a recipe from a TOML file and apply what the command line changes."""
    values: dict[str, Any] = {}
    if path is not None:
        try:
            values = tomllib.loads(path.read_text(encoding="utf-8"))
        except OSError as error:
            raise ConfigError(f"{path}: {error.strerror}; a recipe is a TOML file such as recipes/copy.toml") from None
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            if path.suffix != ".toml":
                raise ConfigError(f"{path} is no recipe; if it is a corpus, write --train {path}") from None
            raise ConfigError(f"{path} is not TOML: {error}") from None
    where = str(path) if path else "the command line"
    for name, value in changes.items():
        section, _, leaf = name.rpartition(".")
        place = values
        for part in filter(None, section.split(".")):
            place = place.setdefault(part, {})
            if not isinstance(place, dict):
                raise ConfigError(f"{where}: {part} is a table of settings, not {place!r}")
        place[leaf] = value
    for side in _CORPORA:
        if side not in values:
            raise ConfigError(
                f"{where}: no corpus to {'learn from' if side == 'train' else 'look at'}; give --{side} FILE"
            )
        given = values[side] if isinstance(values[side], list) else [values[side]]
        base = path.parent if path and side not in changes else Path()
        values[side] = [_corpus(item, where, base) for item in given]
    for name in _FOLDERS:
        if isinstance(values.get(name), str):
            values[name] = _expand(values[name])
    recipe = Recipe.parse(values, where)
    recipe.model_settings(100, 100)  # a wrong size is found now, not after the tokenizer is trained
    return recipe


def _corpus(item: object, where: str, base: Path) -> CorpusConfig:
    """Read what a recipe or the command line says of a corpus; a recipe's files lie beside it."""
    if isinstance(item, str):
        found = CorpusConfig.parse_word(_expand(item))
    elif isinstance(item, dict):
        found = CorpusConfig.parse({k: _expand(v) if isinstance(v, str) else v for k, v in item.items()}, where)
    else:
        raise ConfigError(f"{where}: a corpus is a file name or a table with a path, not {item!r}")
    target = None if found.target_path is None else base / found.target_path
    return found.model_copy(update={"path": base / found.path, "target_path": target})


def _expand(text: str) -> str:
    expanded = os.path.expanduser(os.path.expandvars(text))
    unset = re.search(r"\$\{?(\w+)", expanded)
    if unset:
        raise ConfigError(f"{text}: {unset[1]} is not set; say where the corpora are: export {unset[1]}=FOLDER")
    return expanded


def flags() -> dict[str, str]:
    """List every setting by its dotted name, with what it means."""
    names = dict(_leaves(Recipe))
    usual = preset(Recipe.model_fields["preset"].default)
    for name, field in ModelConfig.model_fields.items():
        if name not in ("src_vocab", "tgt_vocab"):
            names[f"model.{name}"] = _meaning(field, getattr(usual, name))
    return names


def _leaves(cls: type[BaseModel], prefix: str = "") -> Iterator[tuple[str, str]]:
    for name, field in cls.model_fields.items():
        kind = field.annotation
        if isinstance(kind, type) and issubclass(kind, BaseModel):
            yield from _leaves(kind, f"{prefix}{name}.")
        elif prefix or name != "model":
            yield prefix + name, _meaning(field, None if field.is_required() else field.default)


def _meaning(field: FieldInfo, default: object) -> str:
    """Say what a setting is, the words it may be, and what it is when nobody says."""
    choices = f"({', '.join(get_args(field.annotation))})" if get_origin(field.annotation) is Literal else ""
    return " ".join(filter(None, (field.description, choices, f"[{default}]" if default not in (None, "") else "")))


def parse_words(words: Sequence[str]) -> tuple[Path | None, dict[str, Any]]:
    """Read `[RECIPE] --setting value --setting=value ...`; a name needs its section only where two share it."""
    known, found = flags(), dict[str, Any]()
    recipe: Path | None = None
    rest = list(words)
    while rest:
        word = rest.pop(0)
        if not word.startswith("-"):
            if recipe is not None:
                raise UsageError(f"{word!r}: one recipe is enough, and {recipe} is one; settings are --name value")
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


def _full_name(name: str, known: Mapping[str, str]) -> str:
    matches = [path for path in known if path == name or path.endswith(f".{name}")]
    if len(matches) == 1 or name in known:
        return name if name in known else matches[0]
    if matches:
        choices = " or ".join(f"--{path.replace('_', '-')}" for path in matches)
        raise UsageError(f"--{name.replace('_', '-')} could be {choices}")
    leaves = {path.rpartition(".")[2].replace("_", "-") for path in known}
    raise UsageError(f"unknown setting --{name.replace('_', '-')}; {nearest(name.replace('_', '-'), leaves)}")


def _value(text: str) -> Any:
    """Read a value as TOML would, and what is none as a plain word."""
    try:
        return tomllib.loads(f"x = {text}")["x"]
    except tomllib.TOMLDecodeError:
        return text


def to_toml(values: Mapping[str, Any]) -> str:
    """Write settings as TOML: scalars first, then tables."""
    return "\n".join(_toml(values, "")) + "\n"


def _toml(values: Mapping[str, Any], prefix: str) -> Iterator[str]:
    tables = {name: value for name, value in values.items() if isinstance(value, dict)}
    for name, value in values.items():
        if name not in tables:
            yield f"{name} = {_inline(value)}"
    for name, table in tables.items():
        yield f"\n[{prefix}{name}]"
        yield from _toml(table, f"{prefix}{name}.")


def _inline(value: Any) -> str:
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{k} = {_inline(v)}" for k, v in value.items()) + " }"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(_inline, value)) + "]"
    # A JSON string, number or boolean is a TOML one, but for DEL, which JSON leaves as it is.
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
