"""Small models for the tests, in float64, and every choice that their settings offer.

B batch, S source length, T target length, V vocabulary.
"""

from __future__ import annotations

import itertools
from typing import Any

import pytest
import torch
from torch import Tensor

from glassformer.config import ModelConfig
from glassformer.model.transformer import Transformer
from glassformer.text.vocab import PAD

__all__ = ["EACH_CHOICE", "EXTRAS", "GRID", "VOCAB", "build", "ids", "padding", "same", "settings"]

VOCAB = 11
_SMALL = {
    "src_vocab": VOCAB,
    "tgt_vocab": VOCAB,
    "d_model": 8,
    "n_heads": 2,
    "d_ff": 12,
    "n_encoder_layers": 2,
    "n_decoder_layers": 2,
    "max_positions": 80,
}

GRID: list[dict[str, Any]] = [
    {"norm": norm, "positions": positions, "tie": tie}
    for norm, positions, tie in itertools.product(
        ("post", "pre", "none"),
        ("interleaved", "halves", "learned", "rotary", "none"),
        ("all", "target", "embeddings", "none"),
    )
]
EXTRAS: list[dict[str, Any]] = [
    {"final_norm": True},
    {"final_norm": True, "norm": "pre"},
    {"activation": "gelu"},
    {"activation": "silu"},
    {"scaled_attention": False},
    {"attention_bias": False},
    {"output_bias": True},
    {"output_bias": True, "tie": "none"},
    {"scale_embeddings": False},
    {"scale_embeddings": False, "positions": "none"},
    {"d_ff": 0},
    {"d_ff": 0, "norm": "none"},
    {"n_encoder_layers": 3, "n_decoder_layers": 1},
    {"n_encoder_layers": 1, "n_decoder_layers": 3},
    {"n_heads": 1},
    {"n_heads": 8},
    {"norm_eps": 0.5},
    {"tie": "target", "src_vocab": 7},
    {"tie": "none", "src_vocab": 17},
]


def _name(changes: dict[str, Any]) -> str:
    return "-".join(f"{key}={value}" for key, value in changes.items())


EACH_CHOICE = pytest.mark.parametrize("changes", GRID + EXTRAS, ids=_name)


def settings(**changes: Any) -> ModelConfig:
    """Make the settings of a small model."""
    return ModelConfig(**{**_SMALL, **changes})


def build(seed: int = 0, dtype: torch.dtype = torch.float64, **changes: Any) -> Transformer:
    """Make a small model, ready to translate, whose biases and norms are not those of a fresh one.

    A fresh model's biases are 0 and its norms change nothing: a test could not see one forgotten.
    """
    torch.manual_seed(seed)
    model = Transformer(settings(**changes)).to(dtype)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() == 1:
                parameter.add_(torch.randn_like(parameter), alpha=0.3)
    return model.eval()


def ids(seed: int, *shape: int, vocab: int = VOCAB) -> Tensor:
    """Draw tokens that are no padding."""
    return torch.randint(PAD + 1, vocab, shape, generator=torch.Generator().manual_seed(seed))


def padding(lengths: list[int]) -> Tensor:
    """Make the mask (B, S) of sequences of these lengths, padded on the right."""
    return torch.arange(max(lengths)) < torch.tensor(lengths).unsqueeze(1)


def same(ours: object, theirs: object, within: float = 1e-12) -> None:
    """Hold tensors, or tuples of tensors, equal up to rounding."""
    torch.testing.assert_close(ours, theirs, atol=within, rtol=0.0)
