"""glassformer: the encoder-decoder Transformer you can train, run and see through."""

from __future__ import annotations

import logging
import warnings
from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from glassformer.api import distill, train
    from glassformer.config import ModelConfig, SearchConfig, TokenizerConfig, TranslateOptions, preset
    from glassformer.convert.torch_transformer import from_torch
    from glassformer.errors import GlassformerError
    from glassformer.evaluation.evaluation import Evaluation, evaluate
    from glassformer.explainer.explanation import Explanation, explain
    from glassformer.model.transformer import Transformer
    from glassformer.search.beam import beam_search
    from glassformer.search.hypotheses import Hypotheses
    from glassformer.store.folder import load_model, save_model
    from glassformer.text.tokenizer import Tokenizer, Tokenizers
    from glassformer.training.recipe import Recipe
    from glassformer.translate.results import Translation
    from glassformer.translate.translator import Translator

__version__ = "0.2.0"

# Looked up on first use, so that `import glassformer` does not wait for torch.
_HOMES = {
    "Evaluation": "evaluation.evaluation",
    "Explanation": "explainer.explanation",
    "GlassformerError": "errors",
    "Hypotheses": "search.hypotheses",
    "ModelConfig": "config",
    "Recipe": "training.recipe",
    "SearchConfig": "config",
    "Tokenizer": "text.tokenizer",
    "TokenizerConfig": "config",
    "Tokenizers": "text.tokenizer",
    "Transformer": "model.transformer",
    "TranslateOptions": "config",
    "Translation": "translate.results",
    "Translator": "translate.translator",
    "beam_search": "search.beam",
    "distill": "api",
    "evaluate": "evaluation.evaluation",
    "explain": "explainer.explanation",
    "from_torch": "convert.torch_transformer",
    "load_model": "store.folder",
    "preset": "config",
    "save_model": "store.folder",
    "train": "api",
}
_MOVED = ("Trace", "altering", "look", "replace", "scale", "skip", "zero")  # to glassformer.trace, in version 0.2

__all__ = [
    "Evaluation",
    "Explanation",
    "GlassformerError",
    "Hypotheses",
    "ModelConfig",
    "Recipe",
    "SearchConfig",
    "Tokenizer",
    "TokenizerConfig",
    "Tokenizers",
    "Transformer",
    "TranslateOptions",
    "Translation",
    "Translator",
    "beam_search",
    "distill",
    "evaluate",
    "explain",
    "from_torch",
    "load_model",
    "preset",
    "save_model",
    "train",
]

logging.getLogger(__name__).addHandler(logging.NullHandler())


def __getattr__(name: str) -> object:
    if name in _MOVED:
        warnings.warn(f"use glassformer.trace.{name} instead of glassformer.{name}", DeprecationWarning, stacklevel=2)
        return getattr(import_module(f"{__name__}.trace"), name)
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
