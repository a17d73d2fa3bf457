"""The encoder: N identical layers, the first of which reads the embedding and each next one the layer below."""

from __future__ import annotations

from torch import Tensor, nn

from glassformer.config import ModelConfig
from glassformer.model.attention import MultiHeadAttention
from glassformer.model.layers import AddNorm, FeedForward, LayerNorm
from glassformer.model.scope import BLIND, Scope


class EncoderLayer(nn.Module):
    """Self-attention, then the feed-forward network, each with its residual connection (paper, Figure 1 left)."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.self_attention = MultiHeadAttention(config, rotary=config.positions == "rotary")
        self.around_self = AddNorm(config)
        self.feed_forward = FeedForward(config) if config.d_ff else None
        self.around_ff = AddNorm(config) if config.d_ff else None

    def forward(self, x: Tensor, allowed: Tensor | None, scope: Scope = BLIND) -> Tensor:
        """Map `x` (B, S, D), reading only where `allowed` (B, 1, 1, S) is True."""
        looking = (scope / "self").reading(scope.rows)
        query, memory = self.self_attention.query_and_memory(self.around_self.before(x, 1, scope), looking)
        x = self.around_self.after(x, self.self_attention(query, memory, allowed, scope=looking), 1, scope)
        if self.feed_forward is None or self.around_ff is None:
            return x
        y = self.feed_forward(self.around_ff.before(x, 2, scope), scope / "ff")
        return self.around_ff.after(x, y, 2, scope)


class Encoder(nn.Module):
    """A stack of encoder layers, with a norm at its end if final_norm is set."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.layers = nn.ModuleList(EncoderLayer(config) for _ in range(config.n_encoder_layers))
        self.norm = LayerNorm(config.d_model, config.norm_eps) if config.final_norm else None

    def forward(self, x: Tensor, allowed: Tensor | None, scope: Scope = BLIND) -> Tensor:
        """Map embedded sources (B, S, D) to what the decoder reads (B, S, D)."""
        for number, layer in enumerate(self.layers):
            x = layer(x, allowed, scope / number)
        return x if self.norm is None else self.norm(x, scope / "norm")
