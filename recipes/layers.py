"""Give a trained pre-norm model other numbers of layers, to go on training from there.

    python recipes/layers.py MODEL OUT N_ENCODER_LAYERS N_DECODER_LAYERS

Layers that are too many are left out from the top. New ones are copies of the last whose output matrices are zero, so
that at first they change nothing.
"""

from __future__ import annotations

import re
import sys
from typing import Final

import torch
from torch import Tensor

from glassformer.errors import UsageError
from glassformer.model.transformer import Transformer
from glassformer.store.folder import load_model, read_config, save_model
from glassformer.text.tokenizer import Tokenizers

LAYER: Final = re.compile(r"(encoder|decoder)\.layers\.(\d+)\.(.*)")


def weight(name: str, known: dict[str, Tensor], n_layers: dict[str, int]) -> Tensor:
    """Find the weights for a name, or make those of a new layer."""
    found = LAYER.fullmatch(name)
    if found is None or int(found[2]) < n_layers[found[1]]:
        return known[name]
    last = known[f"{found[1]}.layers.{n_layers[found[1]] - 1}.{found[3]}"]
    return torch.zeros_like(last) if re.search(r"(^|\.)output\.", found[3]) else last


def main(source: str, out: str, n_encoder_layers: str, n_decoder_layers: str) -> None:
    """Write the model with other layers."""
    old, about = load_model(source), read_config(source).about
    if old.config.norm != "pre":
        raise UsageError(f"{source} has norm={old.config.norm!r}; only a pre-norm layer can begin by changing nothing")
    sizes = {"n_encoder_layers": int(n_encoder_layers), "n_decoder_layers": int(n_decoder_layers)}
    new = Transformer(old.config.model_copy(update=sizes))
    known, n_layers = old.state_dict(), {"encoder": len(old.encoder.layers), "decoder": len(old.decoder.layers)}
    new.load_state_dict({name: weight(name, known, n_layers) for name in new.state_dict()})
    save_model(new, out, about)
    Tokenizers.load(source).save(out)


if __name__ == "__main__":
    main(*sys.argv[1:])
