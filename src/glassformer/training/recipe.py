"""A recipe: all settings of a training run, from a TOML file, from values, or both."""

from __future__ import annotations

import json
import os
import re
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple, Self, get_args, get_origin

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
from glassformer.errors import ConfigError

_CORPORA: Final = {"train": "training", "dev": "validation"}
_FOLDERS: Final = ("out", "vocabulary", "init")
INHERITED: Final = {"src_lang", "tgt_lang", "lower_capitals"}  # what a model folder says, and a fine-tuned model keeps


class Setting(NamedTuple):
    """What is known about a setting."""

    description: str
    choices: tuple[str, ...]  # the values it may have, if these are words
    default: object  # None if there is none


class Recipe(Settings):
    """The settings of a training run."""

    train: tuple[CorpusConfig, ...] = Field(min_length=1, description="training corpora")
    dev: tuple[CorpusConfig, ...] = Field(min_length=1, description="validation corpora")
    out: Path | None = Field(None, description="run folder")
    preset: str = Field("small", description=f"model size: {', '.join(PRESETS)}")
    vocabulary: Path | None = Field(
        None, description="folder or file of an existing vocabulary; trained on the corpora if not given"
    )
    init: Path | None = Field(None, description="model to fine-tune, by folder or name")
    seed: int = Field(1, ge=0, description="random seed of weights, batch order, dropout and noise")
    src_lang: str = Field("", description="source language, for the model card")
    tgt_lang: str = Field("", description="target language, for the model card")
    lower_capitals: bool = Field(False, description="read a sentence in ALL CAPITALS as lower case")
    bleu_tokenize: str = Field("13a", description="sacreBLEU tokenizer for validation; none for tokenized text")
    model: dict[str, Any] = Field(default_factory=dict, description="changes to the preset")
    tokenizer: TokenizerConfig = TokenizerConfig()
    reader: ReaderConfig = ReaderConfig()
    batch: BatchConfig = BatchConfig()
    training: TrainingConfig = TrainingConfig()
    search: SearchConfig = SearchConfig()

    @classmethod
    def read(cls, path: str | Path | None = None, changes: Mapping[str, Any] | None = None) -> Self:
        """Read a recipe from a TOML file, from `changes` by dotted names, or from both, of which `changes` win."""
        path, changes, values = None if path is None else Path(path), changes or {}, dict[str, Any]()
        if path is not None:
            try:
                values = tomllib.loads(path.read_text(encoding="utf-8"))
            except OSError as error:
                raise ConfigError(f"{path}: {error.strerror}; a recipe is a TOML file like recipes/copy.toml") from None
            except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
                if path.suffix != ".toml":
                    raise ConfigError(f"{path} is not a recipe; if it is a corpus, set train to it") from None
                raise ConfigError(f"{path} is not valid TOML: {error}") from None
        where = str(path) if path else "recipe"
        for name, value in changes.items():
            section, _, leaf = name.rpartition(".")
            place = values
            for part in filter(None, section.split(".")):
                place = place.setdefault(part, {})
                if not isinstance(place, dict):
                    raise ConfigError(f"{where}: {part} is a table of settings, got {place!r}")
            place[leaf] = value
        for side in _CORPORA:
            if side not in values:
                raise ConfigError(f"{where}: {side} is not set: name a {_CORPORA[side]} corpus")
            given = values[side] if isinstance(values[side], list) else [values[side]]
            base = path.parent if path and side not in changes else Path()
            values[side] = [_corpus(item, where, base) for item in given]
        for name in _FOLDERS:
            if isinstance(values.get(name), str):
                values[name] = _expand(values[name])
        recipe = cls.parse(values, where)
        recipe.model_settings(100, 100)  # raise now, not after the vocabulary is trained
        return recipe

    def model_settings(self, src_vocab: int, tgt_vocab: int) -> ModelConfig:
        """Return the model settings for vocabularies of these sizes; with `init` only dropout can be changed."""
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
                f"reader.max_length={self.reader.max_length} exceeds the model's "
                f"max_positions={model.max_positions}; lower the former or raise the latter"
            )
        return model


def _corpus(item: object, where: str, base: Path) -> CorpusConfig:
    """Read a corpus, given by name or as a table; relative paths are relative to `base`."""
    if isinstance(item, str):
        found = CorpusConfig.parse_word(_expand(item))
    elif isinstance(item, dict):
        found = CorpusConfig.parse({k: _expand(v) if isinstance(v, str) else v for k, v in item.items()}, where)
    else:
        raise ConfigError(f"{where}: a corpus is a file name or a table with a path, got {item!r}")
    target = None if found.target_path is None else base / found.target_path
    return found.model_copy(update={"path": base / found.path, "target_path": target})


def _expand(text: str) -> str:
    expanded = os.path.expanduser(os.path.expandvars(text))
    unset = re.search(r"\$\{?(\w+)", expanded)
    if unset:
        raise ConfigError(
            f"{text}: the environment variable {unset[1]} is not set; set it to the folder of the corpora"
        )
    return expanded


def list_settings() -> dict[str, Setting]:
    """Return every setting by its dotted name; those of the model have the defaults of the default preset."""
    usual = preset(Recipe.model_fields["preset"].default)
    model = {
        f"model.{name}": _setting(field, getattr(usual, name))
        for name, field in ModelConfig.model_fields.items()
        if name not in ("src_vocab", "tgt_vocab")  # these follow from the vocabulary
    }
    return {**dict(_leaves(Recipe)), **model}


def _leaves(cls: type[BaseModel], prefix: str = "") -> Iterator[tuple[str, Setting]]:
    for name, field in cls.model_fields.items():
        kind = field.annotation
        if isinstance(kind, type) and issubclass(kind, BaseModel):
            yield from _leaves(kind, f"{prefix}{name}.")
        elif prefix or name != "model":
            yield prefix + name, _setting(field, None if field.is_required() else field.default)


def _setting(field: FieldInfo, default: object) -> Setting:
    choices = get_args(field.annotation) if get_origin(field.annotation) is Literal else ()
    return Setting(field.description or "", choices, default)


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
