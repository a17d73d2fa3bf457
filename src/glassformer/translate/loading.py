"""From model folders to what a Translator needs of them: vocabularies that fit, and an engine or two."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from glassformer.errors import ConfigError, ModelFileError, nearest
from glassformer.store.folder import About, FolderConfig, load_model
from glassformer.text.tokenizer import Tokenizers
from glassformer.translate.engines.engine import Engine, Say

ENGINES: Final = ("auto", "torch", "ctranslate2")


def load_tokenizers(folders: Sequence[Path], configs: Sequence[FolderConfig]) -> Tokenizers:
    """Read the vocabularies that all folders share."""
    tokenizers = Tokenizers.load(folders[0])
    for folder, config in zip(folders, configs, strict=True):
        theirs = Tokenizers.load(folder)
        if theirs != tokenizers:
            raise ModelFileError(f"{folder} has another vocabulary than {folders[0]}; an ensemble shares one")
        _check_tokenizers(folder, theirs, config.about, (config.model.src_vocab, config.model.tgt_vocab))
    return tokenizers


def load_engines(
    name: str, folders: Sequence[Path], about: About, threads: int, device: str, compute: str, say: Say | None
) -> tuple[Engine, Callable[[], Engine] | None]:
    """Load the engine of that name, and say how to make another one for what it refuses, if there is any."""
    if name not in ENGINES:
        raise ConfigError(f"unknown engine {name}; {nearest(name, ENGINES)}")
    if compute != "auto":
        from glassformer.convert.ctranslate2 import as_quantization

        as_quantization(compute)
        if name == "torch":
            raise ConfigError(f"compute={compute} is for ctranslate2; torch computes in the model's own numbers")

    def with_torch() -> Engine:
        return _torch_engine(folders, about, threads, device)

    fast = (
        None
        if name == "torch"
        else _ctranslate2_engine(folders, threads, device, compute, name == compute == "auto", say)
    )
    return (with_torch(), None) if fast is None else (fast, with_torch)


def _torch_engine(folders: Sequence[Path], about: About, threads: int, device: str) -> Engine:
    import torch

    from glassformer.model.fast.allocator import keep_large_blocks
    from glassformer.translate.engines.torch import TorchEngine

    if threads:
        torch.set_num_threads(threads)
    if device == "cpu":
        keep_large_blocks()
    return TorchEngine([load_model(folder, device) for folder in folders], about.alignment)


def _ctranslate2_engine(
    folders: Sequence[Path], threads: int, device: str, compute: str, may_be_none: bool, say: Say | None
) -> Engine | None:
    """Load CTranslate2; None, with a word, if it cannot express the model and nobody insists."""
    from glassformer.translate.engines.probe import choose_setup, load_engine

    reason = "an ensemble" if len(folders) > 1 else f"device={device}" if device != "cpu" else ""
    if not reason:
        try:
            setup = choose_setup(folders[0], compute, say)
            if threads:
                several = setup.workers > 1
                setup = setup._replace(workers=threads if several else 1, threads=1 if several else threads)
            return load_engine(folders[0], setup)
        except (ConfigError, ModelFileError) as error:  # not expressible, or nowhere to keep the export
            reason = str(error)
    if not may_be_none:
        raise ConfigError(f"ctranslate2 cannot translate with this: {reason}")
    if say is not None:
        say(f"ctranslate2 cannot translate with this ({reason}): torch tries")
    return None


def _check_tokenizers(folder: Path, tokenizers: Tokenizers, about: About, sizes: tuple[int, int]) -> None:
    for side, tokenizer, size in zip(("source", "target"), tokenizers, sizes, strict=True):
        if tokenizer.vocab_size > size:
            raise ModelFileError(
                f"{folder}: the {side} vocabulary has {tokenizer.vocab_size:,} ids, the model knows {size:,}; "
                "they do not belong together"
            )
    fingerprints = tuple(tokenizer.sha256 for tokenizer in tokenizers)
    if about.tokenizer_sha256 and about.tokenizer_sha256 != fingerprints:
        raise ModelFileError(
            f"{folder}: the vocabulary is not the one that the model was trained with "
            f"({fingerprints[0][:12]}…, trained with {about.tokenizer_sha256[0][:12]}…); copy the folder again"
        )
