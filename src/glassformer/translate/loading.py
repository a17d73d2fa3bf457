"""From model folders to what a Translator needs: matching vocabularies, an engine, and a fallback for it."""

from __future__ import annotations

import logging
import math
import os
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Final

from glassformer.data.languages import identify_among
from glassformer.errors import ConfigError, ModelFileError, nearest
from glassformer.model.transformer import Transformer
from glassformer.store.folder import About, FolderConfig, load_model, read_config
from glassformer.store.registry import DEFAULT_MODEL, shipped_models
from glassformer.text.tokenizer import Tokenizers
from glassformer.translate.engines.engine import Engine, IdHypothesis, Request, Source, run_in_thread

ENGINES: Final = ("auto", "torch", "ctranslate2")

_log = logging.getLogger(__name__)


def shipped_directions(src: str = "", tgt: str = "") -> dict[str, str]:
    """Return the shipped models from `src` to `tgt`, each of which may be empty: name and source language."""
    abouts = {name: read_config(folder).about for name, folder in shipped_models().items()}
    found = {
        name: about.src_lang
        for name, about in abouts.items()
        if _primary(src) in ("", about.src_lang) and _primary(tgt) in ("", about.tgt_lang)
    }
    if not found:
        wanted = " ".join(filter(None, [src and f"from {src}", tgt and f"to {tgt}"]))
        there = ", ".join(f"{about.src_lang} to {about.tgt_lang}" for about in abouts.values())
        raise ConfigError(f"no model that ships translates {wanted}; there are: {there}")
    return found


def choose_model(text: str, src: str = "", tgt: str = "") -> str:
    """Return the name of the shipped model for `text`; where several directions fit, its language decides."""
    found = shipped_directions(src, tgt)
    if len(found) == 1:
        return next(iter(found))
    language = identify_among(text, found.values()) if text.strip() else found.get(DEFAULT_MODEL, "")
    return next(name for name, each in found.items() if language in ("", each))


def _primary(language: str) -> str:
    """Return the part of a language code that names the language: en of EN-US."""
    return language.replace("_", "-").split("-")[0].lower()


def load_tokenizers(folders: Sequence[Path], configs: Sequence[FolderConfig]) -> Tokenizers:
    """Read the vocabularies that all folders share."""
    tokenizers = Tokenizers.load(folders[0])
    for folder, config in zip(folders, configs, strict=True):
        theirs = Tokenizers.load(folder)
        if theirs != tokenizers:
            raise ModelFileError(f"{folder} and {folders[0]} have different vocabularies; an ensemble must share one")
        _check_tokenizers(folder, theirs, config.about, (config.model.src_vocab, config.model.tgt_vocab))
    return tokenizers


def load_engines(
    name: str, folders: Sequence[Path], about: About, *, threads: int, device: str, compute: str
) -> tuple[Engine, Callable[[], Engine] | None]:
    """Load the engine of that name, and return with it what makes the fallback for requests it refuses, if any."""
    if name not in ENGINES:
        raise ConfigError(f"unknown engine {name}; {nearest(name, ENGINES)}")
    if compute != "auto":
        from glassformer.convert.ctranslate2 import as_quantization

        as_quantization(compute)
        if name == "torch":
            raise ConfigError(f"compute={compute} is for ctranslate2; torch computes in the model's own number format")

    def with_torch() -> Engine:
        return _torch_engine(folders, about, threads, device)

    if name == "torch":
        return with_torch(), None
    try:
        return _ctranslate2_engine(folders, threads, device, compute), with_torch
    except (ConfigError, ModelFileError) as error:  # not expressible, or nowhere to keep the export
        if name != "auto" or compute != "auto":
            raise ConfigError(f"CTranslate2 cannot run this model: {error}") from None
        _log.warning("CTranslate2 cannot run this model (%s); falling back to torch", error)
    return with_torch(), None


def _torch_engine(folders: Sequence[Path], about: About, threads: int, device: str) -> Engine:
    import torch

    from glassformer.model.fast.device import keep_large_blocks
    from glassformer.translate.engines.torch import TorchEngine

    if threads:
        torch.set_num_threads(threads)
    if device == "cpu":
        keep_large_blocks()
    return TorchEngine([load_model(folder, device) for folder in folders], about.alignment)


def _ctranslate2_engine(folders: Sequence[Path], threads: int, device: str, compute: str) -> Engine:
    from glassformer.translate.engines.probe import choose_setup, load_engine

    if len(folders) > 1:
        raise ConfigError("an ensemble")
    if device != "cpu":
        raise ConfigError(f"device={device}")
    setup = choose_setup(folders[0], compute)
    if threads:
        several = setup.workers > 1
        setup = setup._replace(workers=threads if several else 1, threads=1 if several else threads)
    return load_engine(folders[0], setup)


def _check_tokenizers(folder: Path, tokenizers: Tokenizers, about: About, sizes: tuple[int, int]) -> None:
    for side, tokenizer, size in zip(("source", "target"), tokenizers, sizes, strict=True):
        if tokenizer.vocab_size > size:
            raise ModelFileError(
                f"{folder}: the {side} vocabulary has {tokenizer.vocab_size:,} ids, the model {size:,}; "
                "they do not belong together"
            )
    fingerprints = tuple(tokenizer.sha256 for tokenizer in tokenizers)
    if about.tokenizer_sha256 and about.tokenizer_sha256 != fingerprints:
        raise ModelFileError(
            f"{folder}: the vocabulary is not the one that the model was trained with "
            f"({fingerprints[0][:12]}…, trained with {about.tokenizer_sha256[0][:12]}…); copy the folder again"
        )


class Engines:
    """Runs each request with the first engine, or with the fallback, which is made when it is needed."""

    def __init__(self, first: Engine, make_fallback: Callable[[], Engine] | None = None) -> None:
        self.first = first
        self._make_fallback = make_fallback
        self._fallback: Engine | None = None
        self._remarks: set[str] = set()
        self._process: int | None = os.getpid()

    def run(self, sources: Sequence[Source], request: Request) -> list[list[IdHypothesis]]:
        """Return the hypotheses of each source, best first; where nothing is found, the translation is empty."""
        if not sources:
            return []
        if self._process is None:
            raise ConfigError("this Translator is closed: load another one")
        if self._process != os.getpid():
            raise ConfigError(
                "this Translator was loaded before the process forked, which left its threads behind: "
                "load one in each process, or start processes by spawn"
            )
        engine = self.choose(request)
        answers = engine.translate(sources, request)
        if engine is not self.first:
            answers = iter(run_in_thread(partial(list, answers)))
        found = dict(answers)
        nothing = [IdHypothesis([], -math.inf, -math.inf, False)]
        return [found.get(number) or nothing for number in range(len(sources))]

    def choose(self, request: Request) -> Engine:
        """Return the engine that runs a request."""
        reason = self.first.refuses(request)
        if reason is None:
            return self.first
        if self._make_fallback is None:
            raise ConfigError(f"the engine {self.first.name} does not support {reason}")
        if self._fallback is None:
            self._fallback = run_in_thread(self._make_fallback)
        self.remark(f"{self.first.name} does not support {reason}; falling back to {self._fallback.name}")
        reason = self._fallback.refuses(request)
        if reason is not None:
            raise ConfigError(f"no engine supports {reason}")
        return self._fallback

    def model(self) -> Transformer:
        """Return the torch model, whichever engine runs with its weights."""
        from glassformer.translate.engines.torch import TorchEngine

        if not isinstance(self.first, TorchEngine) and self._fallback is None and self._make_fallback is not None:
            self._fallback = self._make_fallback()
        for engine in (self.first, self._fallback):
            if isinstance(engine, TorchEngine) and len(engine.models) == 1:
                return engine.models[0]
        raise ConfigError("an ensemble cannot be explained: load one model")

    def remark(self, message: str) -> None:
        """Log a warning once."""
        if message not in self._remarks:
            self._remarks.add(message)
            _log.warning("%s", message)

    def close(self) -> None:
        """Release threads and memory."""
        self._process = None
        self.first.close()
        if self._fallback is not None:
            self._fallback.close()
