"""The decoder's state between two tokens, as a value, and the protocol of a model that steps through it.

B sentences, W prefixes of each, N = B * W, S source length, T tokens so far.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol, TypeVar, runtime_checkable

from torch import Tensor

from glassformer.config import ModelConfig
from glassformer.model.attention import KeyValue

S = TypeVar("S")  # the state of a Stepper


class Memory(NamedTuple):
    """An encoded batch of sources."""

    states: Tensor  # (B, S, D)
    allowed: Tensor | None  # (B, 1, 1, S) True where there is a token; None if nothing is padded


class DecoderState(NamedTuple):
    """The source, projected once, and the prefixes read so far; prefix i belongs to sentence i // W."""

    source: tuple[KeyValue, ...]  # a layer: (B, H, S, K)
    allowed: Tensor | None  # (B, 1, 1, S)
    prefix: tuple[KeyValue, ...]  # a layer: (N, H, T, K); empty before the first token

    @property
    def length(self) -> int:
        """Count the tokens read so far."""
        return self.prefix[0].keys.size(2) if self.prefix else 0

    def select(self, rows: Tensor) -> DecoderState:
        """Keep, repeat or reorder prefixes within their sentences; the sources stay where they are."""
        return self._replace(prefix=tuple(layer.select(rows) for layer in self.prefix))

    def keep(self, sentences: Tensor) -> DecoderState:
        """Keep some sentences only, sources and prefixes."""
        allowed = None if self.allowed is None else self.allowed.index_select(0, sentences)
        source = tuple(layer.select(sentences) for layer in self.source)
        kept = DecoderState(source, allowed, self.prefix)
        if not self.prefix:
            return kept
        width = self.prefix[0].keys.size(0) // self.source[0].keys.size(0)
        return kept.select((sentences.unsqueeze(1) * width + sentences.new_tensor(range(width))).flatten())


@runtime_checkable
class Stepper(Protocol[S]):
    """A model that translates token by token: `Transformer` and `PackedTransformer`."""

    @property
    def config(self) -> ModelConfig:
        """The model's settings."""

    @property
    def start_id(self) -> int:
        """The id that the decoder reads first."""

    def encode(self, src: Tensor, src_mask: Tensor | None = None) -> Memory:
        """Encode sources (B, S); `src_mask` (B, S) is True for tokens, None if nothing is padded."""

    def start(self, memory: Memory) -> S:
        """Return the state of a decoder that has read no token yet."""

    def step(self, tokens: Tensor, state: S) -> tuple[Tensor, S]:
        """Read the next token (N, 1) of each prefix and return the logits (N, 1, V) after it."""
