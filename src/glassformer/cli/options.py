"""Options that several commands share, and how the words behind them are read."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from glassformer.errors import ConfigError, UsageError, nearest

if TYPE_CHECKING:
    from glassformer.config import CorpusConfig, SearchConfig

Model = Annotated[str, typer.Argument(help="Model folder, or the name of a model.", metavar="MODEL")]
Files = Annotated[
    list[str],
    typer.Argument(help="Corpus file, or SOURCE,TARGET for two parallel files.", metavar="FILE", show_default=False),
]
Format = Annotated[
    str, typer.Option("--format", metavar="FORMAT", help="tsv, moses, jsonl or tmx; auto goes by the file extension.")
]
Languages = Annotated[
    str | None,
    typer.Option(metavar="SRC,TGT", help="Language codes, such as fr,en: for TMX, and for JSONL keyed by language."),
]
Fields = Annotated[str, typer.Option(metavar="SRC,TGT", help="JSONL fields of the source and the target.")]
Swap = Annotated[bool, typer.Option("--swap", help="Swap source and target.")]
Strict = Annotated[bool, typer.Option("--strict", help="Stop at the first invalid line instead of skipping it.")]
Beam = Annotated[int | None, typer.Option("--beam", metavar="N", help="Beam size; 1 is greedy search.", min=1)]
Search = Annotated[
    list[str] | None,
    typer.Option(
        "--search",
        metavar="NAME=VALUE",
        help="Change a search setting, for example length_penalty=0.6. Repeatable.",
        autocompletion=lambda incomplete: search_names(incomplete),
    ),
]
Engine = Annotated[
    str, typer.Option(metavar="ENGINE", help="torch, ctranslate2, or auto: the fastest that supports the request.")
]
Compute = Annotated[
    str, typer.Option(metavar="TYPE", help="CTranslate2 number type: float32, int8, or auto: the fastest accurate one.")
]
Threads = Annotated[int, typer.Option(metavar="N", help="CPU threads; 0 uses all cores.", min=0)]
Device = Annotated[str, typer.Option(metavar="DEVICE", help="Device for torch, such as cpu or cuda.")]


def search_names(incomplete: str = "") -> list[str]:
    """Return the search settings as `NAME=`, for shell completion."""
    from glassformer.config import SearchConfig

    return [f"{name}=" for name in SearchConfig.model_fields if name.startswith(incomplete)]


def corpora(
    words: Sequence[str],
    *,
    file_format: str = "auto",
    swap: bool = False,
    fields: str = "src,tgt",
    languages: str | None = None,
) -> list[CorpusConfig]:
    """Read FILE or SOURCE,TARGET words and the options that describe their format."""
    from glassformer.config import CorpusConfig

    src_field, tgt_field = _pair(fields, "--fields")
    src_lang, tgt_lang = (None, None) if languages is None else _pair(languages, "--languages")
    shared = {"src_field": src_field, "tgt_field": tgt_field, "src_lang": src_lang, "tgt_lang": tgt_lang}
    try:
        return [CorpusConfig.parse_word(word, format=file_format, swap=swap, **shared) for word in words]
    except ConfigError as error:
        hint = ", or --languages SRC,TGT here" if "src_lang" in str(error) else ""
        raise ConfigError(f"{error}{hint}") from None


def _pair(word: str, option: str) -> tuple[str, str]:
    source, _, target = word.partition(",")
    if not source or not target or "," in target:
        raise UsageError(f"{option} {word}: expected SRC,TGT")
    return source, target


def on_fault(strict: bool) -> Literal["skip", "fail"]:
    """Return what `--strict` means for invalid lines."""
    return "fail" if strict else "skip"


def search_changes(
    words: Sequence[str] | None, beam: int | None = None, length_penalty: float | None = None
) -> dict[str, Any]:
    """Read `--search NAME=VALUE` words and the options that stand for one search setting."""
    from glassformer.config import SearchConfig

    changes: dict[str, Any] = {}
    for word in words or ():
        name, has_value, value = word.partition("=")
        name = name.strip().replace("-", "_")
        if name not in SearchConfig.model_fields:
            raise UsageError(f"--search {word}: unknown setting {name}; {nearest(name, SearchConfig.model_fields)}")
        if not has_value:
            raise UsageError(f"--search {word}: expected {name}=VALUE")
        changes[name] = value.strip()
    options = {"width": beam, "length_penalty": length_penalty}
    return changes | {name: value for name, value in options.items() if value is not None}


def search_settings(
    default: SearchConfig, words: Sequence[str] | None, beam: int | None = None, length_penalty: float | None = None
) -> SearchConfig:
    """Return `default` with the changes of the search options."""
    changes = search_changes(words, beam, length_penalty)
    return type(default).parse({**default.model_dump(), **changes}, "--search") if changes else default


def forced_words(words: Sequence[str]) -> dict[int, str]:
    """Read `--force STEP=WORD` words."""
    forced = {}
    for word in words:
        step, _, text = word.partition("=")
        if not (step.isascii() and step.isdigit() and text):
            raise UsageError(f"--force {word}: expected STEP=WORD, such as 2=house")
        forced[int(step)] = text
    return forced


def model_and_text(words: Sequence[str], model: str | None, *, needs_text: bool) -> tuple[str, str]:
    """Split `[MODEL] [SENTENCE]` into the model, by default one that ships, by language, and the sentence."""
    from glassformer.store.registry import shipped_models
    from glassformer.translate.loading import choose_model

    words = list(words)
    if model is None and words and (len(words) > 1 or words[0] in shipped_models() or os.path.isdir(words[0])):
        model = words.pop(0)
    if len(words) > 1:
        raise UsageError(f"expected one sentence; quote it: '{' '.join(words)}'")
    if needs_text and not words:
        raise UsageError("no sentence given: use `glassformer explain [MODEL] SENTENCE`, or --open to type one")
    text = words[0] if words else ""
    return model or choose_model(text), text
