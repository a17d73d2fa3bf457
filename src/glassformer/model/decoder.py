"""The decoder: like the encoder, but blind to the future, and with a second attention that reads the source."""

from __future__ import annotations

from torch import Tensor, nn

from glassformer.config import ModelConfig
from glassformer.model.attention import KeyValue, MultiHeadAttention
from glassformer.model.layers import AddNorm, FeedForward, LayerNorm
from glassformer.model.scope import BLIND, Scope
from glassformer.model.state import DecoderState, Memory


class DecoderLayer(nn.Module):
    """Masked self-attention, encoder-decoder attention, feed-forward network (paper, Figure 1 right)."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.self_attention = MultiHeadAttention(config, rotary=config.positions == "rotary")
        self.around_self = AddNorm(config)
        self.cross_attention = MultiHeadAttention(config)
        self.around_cross = AddNorm(config)
        self.feed_forward = FeedForward(config) if config.d_ff else None
        self.around_ff = AddNorm(config) if config.d_ff else None

    def forward(
        self, x: Tensor, source: KeyValue, allowed: Tensor | None, prefix: KeyValue | None, scope: Scope = BLIND
    ) -> tuple[Tensor, KeyValue]:
        """Map the new positions `x` (N, T, D), after `prefix`, and return the prefix extended by them."""
        looking = (scope / "self").reading(scope.rows)
        start = 0 if prefix is None else prefix.keys.size(2)
        query, new = self.self_attention.query_and_memory(self.around_self.before(x, 1, scope), looking, start)
        prefix = new if prefix is None else prefix.append(new)
        x = self.around_self.after(x, self.self_attention(query, prefix, causal=True, scope=looking), 1, scope)

        looking = (scope / "cross").reading("src")
        query = self.cross_attention.query(self.around_cross.before(x, 2, scope), looking)
        x = self.around_cross.after(x, self.cross_attention(query, source, allowed, scope=looking), 2, scope)

        if self.feed_forward is None or self.around_ff is None:
            return x, prefix
        y = self.feed_forward(self.around_ff.before(x, 3, scope), scope / "ff")
        return self.around_ff.after(x, y, 3, scope), prefix


class Decoder(nn.Module):
    """A stack of decoder layers, with a norm at its end if final_norm is set."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.layers = nn.ModuleList(DecoderLayer(config) for _ in range(config.n_decoder_layers))
        self.norm = LayerNorm(config.d_model, config.norm_eps) if config.final_norm else None

    def start(self, memory: Memory, scope: Scope = BLIND) -> DecoderState:
        """Project the source for each layer, once for all target tokens."""
        source = []
        for number, layer in enumerate(self.layers):
            assert isinstance(layer, DecoderLayer)
            source.append(layer.cross_attention.memory(memory.states, (scope / number / "cross").reading("src")))
        return DecoderState(tuple(source), memory.allowed, ())

    def forward(self, x: Tensor, state: DecoderState, scope: Scope = BLIND) -> tuple[Tensor, DecoderState]:
        """Read embedded new tokens (N, T, D) after those in `state`."""
        extended = []
        for number, layer in enumerate(self.layers):
            before = state.prefix[number] if state.prefix else None
            x, after = layer(x, state.source[number], state.allowed, before, scope / number)
            extended.append(after)
        if self.norm is not None:
            x = self.norm(x, scope / "norm")
        return x, state._replace(prefix=tuple(extended))
