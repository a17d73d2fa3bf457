"""A small seeded model with a vocabulary, and the document of one translation: what the faces are tested with."""

from __future__ import annotations

from functools import cache
from typing import Any

import torch

from glassformer.config import SearchConfig
from glassformer.explainer.document import Document
from glassformer.explainer.explanation import Explanation
from glassformer.store.folder import About, AttentionHead
from glassformer.text.vocab import EOS
from glassformer.translate.engines.torch import TorchEngine
from glassformer.translate.translator import Translator
from tests.models import build
from tests.translate.fakes import tokenizers

__all__ = ["SENTENCE", "golden_document", "golden_explanation", "golden_translator"]

SENTENCE = "Le chat dort."


@cache
def golden_translator(seed: int = 17, **changes: Any) -> Translator:
    """Make a translator of a model of 1 + 1 layers, 2 heads and d_model 16, that ends its sentences."""
    size = tokenizers().src.vocab_size
    small = {"d_model": 16, "d_ff": 32, "n_encoder_layers": 1, "n_decoder_layers": 1}
    settings = {"src_vocab": size, "tgt_vocab": size, "output_bias": True, "tie": "none", **small, **changes}
    model = build(seed, torch.float32, **settings)
    assert model.output.bias is not None
    with torch.no_grad():
        model.output.weight.mul_(2.0)  # so that words differ in probability
        model.output.bias.zero_()
        model.output.bias[:260] = -6.0  # marks and bytes
        model.output.bias[EOS] = 2.0
    about = About(src_lang="fr", tgt_lang="en", alignment=AttentionHead(layer=0, head=1))
    return Translator(
        TorchEngine([model]), tokenizers(), about, max_positions=80, search=SearchConfig(width=3, max_length=12)
    )


@cache
def golden_explanation() -> Explanation:
    """Explain the sentence."""
    return golden_translator().explain(SENTENCE, reference="The cat sleeps.", name="golden")


@cache
def golden_document() -> Document:
    """Write the explanation down."""
    return golden_explanation().document()
