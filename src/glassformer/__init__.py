"""glassformer: the encoder-decoder Transformer you can train, run and see through."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from glassformer.config import ModelConfig, SearchConfig, TokenizerConfig, preset
    from glassformer.convert.torch_transformer import from_torch
    from glassformer.errors import GlassformerError
    from glassformer.model.trace import Trace, altering, look, replace, scale, skip, zero
    from glassformer.model.transformer import Transformer
    from glassformer.search.beam import beam_search
    from glassformer.search.hypotheses import Hypotheses
    from glassformer.store.folder import load_model, save_model
    from glassformer.text.tokenizer import Tokenizer, Tokenizers
    from glassformer.translate.results import Translation
    from glassformer.translate.translator import Translator

__version__ = "0.1.0"

# Looked up on first use, so that `import glassformer` does not wait for torch.
_HOMES = {
    "GlassformerError": "errors",
    "Hypotheses": "search.hypotheses",
    "ModelConfig": "config",
    "SearchConfig": "config",
    "Tokenizer": "text.tokenizer",
    "TokenizerConfig": "config",
    "Tokenizers": "text.tokenizer",
    "Trace": "model.trace",
    "Transformer": "model.transformer",
    "Translation": "translate.results",
    "Translator": "translate.translator",
    "altering": "model.trace",
    "beam_search": "search.beam",
    "from_torch": "convert.torch_transformer",
    "load_model": "store.folder",
    "look": "model.trace",
    "preset": "config",
    "replace": "model.trace",
    "save_model": "store.folder",
    "scale": "model.trace",
    "skip": "model.trace",
    "zero": "model.trace",
}

__all__ = [
    "GlassformerError",
    "Hypotheses",
    "ModelConfig",
    "SearchConfig",
    "Tokenizer",
    "TokenizerConfig",
    "Tokenizers",
    "Trace",
    "Transformer",
    "Translation",
    "Translator",
    "altering",
    "beam_search",
    "from_torch",
    "load_model",
    "look",
    "preset",
    "replace",
    "save_model",
    "scale",
    "skip",
    "zero",
]


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
