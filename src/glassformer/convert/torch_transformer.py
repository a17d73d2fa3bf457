"""Import the weights of a `torch.nn.Transformer`, with the same outputs."""

from __future__ import annotations

from typing import Any, Final, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from glassformer.config import ModelConfig
from glassformer.errors import ModelFileError
from glassformer.model.transformer import Transformer

_SUBLAYERS: Final = {"encoder": ("self", "ff"), "decoder": ("self", "cross", "ff")}  # each with its norm, in order
_NAMES: Final = {
    "self_attn.": "self_attention.",
    "multihead_attn.": "cross_attention.",
    "in_proj_": "projection.",
    "out_proj.": "output.",
    "linear1.": "feed_forward.hidden.",
    "linear2.": "feed_forward.output.",
}


def from_torch(
    core: nn.Transformer,
    source: nn.Embedding,
    target: nn.Embedding,
    output: nn.Linear,
    positions: Literal["interleaved", "halves", "none"] = "interleaved",
    scale_embeddings: bool = True,
) -> Transformer:
    """Return our model with the weights of a `torch.nn.Transformer`, its embeddings and output layer."""
    config = _config(core, source, target, output, positions=positions, scale_embeddings=scale_embeddings)
    model = Transformer(config).to(output.weight.dtype)
    weights = {"src_embedding.table": source.weight, "tgt_embedding.table": target.weight}
    weights |= {f"output.{name}": parameter for name, parameter in output.named_parameters()}
    weights |= {_our_name(name): parameter for name, parameter in core.named_parameters()}
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.copy_(weights[name])
    return model.eval()


def _config(
    core: nn.Transformer, source: nn.Embedding, target: nn.Embedding, output: nn.Linear, **settings: Any
) -> ModelConfig:
    """Read the settings off the modules; `settings` are those that they do not show."""
    layer = core.encoder.layers[0]
    attention = layer.self_attn
    if not attention._qkv_same_embed_dim:
        raise ModelFileError("torch.nn.Transformer with keys or values of another width is not supported")
    if layer.linear1.bias is None:
        raise ModelFileError("torch.nn.Transformer(bias=False) is not supported: the model always has biases")
    if (core.encoder.norm is None) != (core.decoder.norm is None):
        raise ModelFileError("torch.nn.Transformer with a norm after one stack only is not supported")
    kinds = {_kind(each) for stack in (core.encoder, core.decoder) for each in stack.layers}
    if len(kinds) > 1:
        raise ModelFileError(
            f"torch.nn.Transformer with different layers is not supported: {' and '.join(sorted(kinds))}"
        )
    return ModelConfig.parse(
        {
            "src_vocab": source.num_embeddings,
            "tgt_vocab": target.num_embeddings,
            "d_model": attention.embed_dim,
            "n_heads": attention.num_heads,
            "d_ff": layer.linear1.out_features,
            "n_encoder_layers": len(core.encoder.layers),
            "n_decoder_layers": len(core.decoder.layers),
            "norm": "pre" if layer.norm_first else "post",
            "norm_eps": layer.norm1.eps,
            "final_norm": core.encoder.norm is not None,
            "activation": _activation(layer.activation),
            "output_bias": output.bias is not None,
            "tie": _tie(source.weight, target.weight, output.weight),
            "dropout": layer.dropout1.p,
            "attention_dropout": attention.dropout,
            "ff_dropout": layer.dropout.p,
            **settings,
        },
        "torch.nn.Transformer",
    )


def _kind(layer: nn.TransformerEncoderLayer | nn.TransformerDecoderLayer) -> str:
    # Layers can differ unintentionally: torch's decoder replaces an activation given as a module by ReLU.
    return (
        f"{layer.self_attn.num_heads} heads, {'pre' if layer.norm_first else 'post'}-norm with eps {layer.norm1.eps}, "
        f"{layer.linear1.out_features} hidden channels, {_activation(layer.activation)}"
    )


def _activation(function: object) -> str:
    is_approximate = getattr(function, "approximate", "none") != "none"  # by tanh, GELU is another function
    for name, ours in (("relu", F.relu), ("gelu", F.gelu), ("silu", F.silu)):
        if function is ours or (type(function).__name__.lower() == name and not is_approximate):
            return name
    raise ModelFileError(
        f"torch.nn.Transformer has the unsupported activation {function!r}; supported: relu, gelu, silu"
    )


def _tie(source: Tensor, target: Tensor, output: Tensor) -> str:
    if target is output:
        return "all" if source is target else "target"
    return "embeddings" if source is target else "none"


def _our_name(name: str) -> str:
    """Return our name for a parameter of `torch.nn.Transformer`, such as decoder.layers.0.norm2.weight."""
    stack = name.partition(".")[0]
    for number, sublayer in enumerate(_SUBLAYERS[stack], 1):
        name = name.replace(f"norm{number}.", f"around_{sublayer}.norm.")
    if "norm." in name:
        name = name.replace("weight", "gamma").replace("bias", "beta")
    for theirs, ours in _NAMES.items():
        name = name.replace(theirs, ours)
    return name
