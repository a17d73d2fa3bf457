"""Import the weights of a `torch.nn.Transformer`, with the same outputs."""

from __future__ import annotations

from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from glassformer.config import ModelConfig
from glassformer.errors import ModelFileError
from glassformer.model.attention import MultiHeadAttention
from glassformer.model.decoder import DecoderLayer
from glassformer.model.encoder import EncoderLayer
from glassformer.model.layers import AddNorm, LayerNorm
from glassformer.model.transformer import Transformer


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
    with torch.no_grad():
        model.src_embedding.table.copy_(source.weight)
        model.tgt_embedding.table.copy_(target.weight)
        model.output.weight.copy_(output.weight)
        if model.output.bias is not None:
            model.output.bias.copy_(output.bias)
        for ours, theirs in zip(model.encoder.layers, core.encoder.layers, strict=True):
            assert isinstance(ours, EncoderLayer)
            _copy_layer(ours, theirs, [ours.around_self, ours.around_ff])
        for ours, theirs in zip(model.decoder.layers, core.decoder.layers, strict=True):
            assert isinstance(ours, DecoderLayer)
            _copy_layer(ours, theirs, [ours.around_self, ours.around_cross, ours.around_ff])
            _copy_attention(ours.cross_attention, theirs.multihead_attn)
        if model.config.final_norm:
            _copy_norm(model.encoder.norm, core.encoder.norm)
            _copy_norm(model.decoder.norm, core.decoder.norm)
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


def _copy_linear(ours: nn.Linear, weight: Tensor, bias: Tensor | None) -> None:
    ours.weight.copy_(weight)
    if ours.bias is not None and bias is not None:
        ours.bias.copy_(bias)


def _copy_attention(ours: MultiHeadAttention, theirs: nn.MultiheadAttention) -> None:
    _copy_linear(ours.projection, theirs.in_proj_weight, theirs.in_proj_bias)
    _copy_linear(ours.output, theirs.out_proj.weight, theirs.out_proj.bias)


def _copy_layer(ours: EncoderLayer | DecoderLayer, theirs: Any, around: list[AddNorm | None]) -> None:
    """Copy what both kinds of layers have: self-attention, feed-forward network, and norms."""
    assert ours.feed_forward is not None, "torch's layers always have one"
    _copy_attention(ours.self_attention, theirs.self_attn)
    _copy_linear(ours.feed_forward.hidden, theirs.linear1.weight, theirs.linear1.bias)
    _copy_linear(ours.feed_forward.output, theirs.linear2.weight, theirs.linear2.bias)
    for number, part in enumerate(around, 1):
        assert part is not None
        _copy_norm(part.norm, getattr(theirs, f"norm{number}"))


def _copy_norm(ours: LayerNorm | None, theirs: nn.LayerNorm) -> None:
    assert ours is not None, "the settings were read off a model that has this norm"
    ours.gamma.copy_(theirs.weight)
    ours.beta.copy_(theirs.bias)
