"""From model folders to what a Translator needs: matching vocabularies, and one or two engines."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from glassformer.errors import ConfigError, ModelFileError, nearest
from glassformer.store.folder import About, FolderConfig, load_model
from glassformer.text.tokenizer import Tokenizers
from glassformer.translate.engines.engine import Engine

ENGINES: Final = ("auto", "torch", "ctranslate2")

_log = logging.getLogger(__name__)


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
