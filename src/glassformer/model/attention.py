"""Multi-head attention: each query position reads from a memory of keys and values.

B batch, T query length, S memory length, D model width, H heads, K = D / H head width, N = B * W prefixes.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from glassformer.config import ModelConfig
from glassformer.model.fast.kernels import attend
from glassformer.model.operations import (
    causal_mask,
    concat,
    heads,
    linear,
    mask,
    matmul_t,
    scale,
    softmax,
    split_heads,
    weighted_sum,
)
from glassformer.model.positions import Rotary
from glassformer.model.scope import BLIND, Scope


class KeyValue(NamedTuple):
    """A memory, projected and split into heads."""

    keys: Tensor  # (B, H, S, K)
    values: Tensor  # (B, H, S, K)

    def append(self, new: KeyValue) -> KeyValue:
        """Return the memory followed by the positions of `new`."""
        return KeyValue(torch.cat([self.keys, new.keys], dim=2), torch.cat([self.values, new.values], dim=2))

    def select(self, rows: Tensor) -> KeyValue:
        """Keep, repeat or reorder batch rows, as a beam does."""
        return KeyValue(self.keys.index_select(0, rows), self.values.index_select(0, rows))


class MultiHeadAttention(nn.Module):
    """Scaled dot-product attention in H subspaces (Vaswani et al. 2017, section 3.2.2).

    W_Q, W_K and W_V are stacked in one matrix, so that self-attention projects once. `forward` takes queries and a
    memory that are already projected: a decoder projects the source once, and its own prefix one token at a time.
    With `rotary`, which is for self-attention, queries and keys are rotated by their position.
    """

    def __init__(self, config: ModelConfig, rotary: bool = False) -> None:
        super().__init__()
        self.n_heads = config.n_heads
        self.dropout = config.attention_dropout
        self.factor = (config.d_model // config.n_heads) ** -0.5 if config.scaled_attention else 1.0
        self.projection = nn.Linear(config.d_model, 3 * config.d_model, bias=config.attention_bias)
        self.output = nn.Linear(config.d_model, config.d_model, bias=config.attention_bias)
        self.rotary = Rotary(config) if rotary else None

    def query(self, x: Tensor, scope: Scope = BLIND) -> Tensor:
        """Project `x` (B, T, D) to queries (B, H, T, K)."""
        if scope.looking:
            return self._look(x, "q", scope, scope.rows)
        weight, bias = self._part(0, 1)
        return split_heads(F.linear(x, weight, bias), self.n_heads)

    def memory(self, x: Tensor, scope: Scope = BLIND) -> KeyValue:
        """Project `x` (B, S, D) to the keys and values that queries read."""
        if scope.looking:
            return KeyValue(*(self._look(x, name, scope, scope.keys) for name in "kv"))
        weight, bias = self._part(1, 3)
        return KeyValue(*self._split(F.linear(x, weight, bias), 2))

    def query_and_memory(self, x: Tensor, scope: Scope = BLIND, start: int = 0) -> tuple[Tensor, KeyValue]:
        """Project `x` (B, T, D), which begins at position `start`, for self-attention, in one multiplication."""
        if scope.looking:
            query, (keys, values) = self.query(x, scope), self.memory(x, scope)
        else:
            query, keys, values = self._split(self.projection(x), 3)
        if self.rotary is not None:
            query = self.rotary(query, start, "rotated_q", scope)
            keys = self.rotary(keys, start, "rotated_k", scope)
        return query, KeyValue(keys, values)

    def forward(
        self,
        query: Tensor,
        memory: KeyValue,
        allowed: Tensor | None = None,
        causal: bool = False,
        scope: Scope = BLIND,
    ) -> Tensor:
        """Read `memory` with `query` (N, H, T, K), where `allowed` is True, giving (N, T, D).

        `causal`: the last query sees the whole memory, each query before it one position less.
        N may be a multiple of the memory's B: the beams of a sentence then share its memory.
        """
        if scope.looking:
            return self._look_read(query, memory, allowed, causal, scope)
        n, _, n_queries, _ = query.shape
        batch = memory.keys.size(0)
        if n != batch:  # (B * W, H, T, K) -> (B, H, W * T, K)
            query = query.view(batch, -1, *query.shape[1:]).transpose(1, 2).flatten(2, 3)
        dropout = self.dropout if self.training else 0.0
        context = attend(query, *memory, allowed, causal=causal, factor=self.factor, dropout=dropout)
        if n != batch:
            context = context.view(*context.shape[:2], -1, n_queries, context.size(3)).transpose(1, 2).flatten(0, 1)
        return F.linear(concat(context), self.output.weight, self.output.bias)  # (N, T, D)

    def _look_read(self, query: Tensor, memory: KeyValue, allowed: Tensor | None, causal: bool, scope: Scope) -> Tensor:
        if query.size(0) != memory.keys.size(0):  # beams: each gets a copy, as each is recorded
            width = query.size(0) // memory.keys.size(0)
            memory = KeyValue(*(part.repeat_interleave(width, dim=0) for part in memory))
            allowed = None if allowed is None else allowed.repeat_interleave(width, dim=0)
        n_queries, n_keys = query.size(2), memory.keys.size(2)
        if causal:
            allowed = causal_mask(n_queries, n_keys, query.device)
        elif allowed is None:
            allowed = torch.ones(n_queries, n_keys, dtype=torch.bool, device=query.device)
        matrix, rows = ("head", f"{scope.rows}_q", f"{scope.keys}_k"), (scope.rows, "channel")
        scores = scope("scores", matmul_t, query, memory.keys, axes=matrix)
        scaled = scope("scaled", scale, scores, axes=matrix, factor=self.factor)
        masked = scope("masked", mask, scaled, axes=matrix, allowed=allowed)
        weights = scope("weights", softmax, masked, axes=matrix)
        context = scope("context", weighted_sum, weights, memory.values, axes=("head", scope.rows, "head_channel"))
        joined = scope("concat", concat, context, axes=rows)
        return scope("output", linear, joined, axes=rows, weight=self.output.weight, bias=self.output.bias)

    def _look(self, x: Tensor, name: str, scope: Scope, rows: str) -> Tensor:
        weight, bias = self._part("qkv".index(name), "qkv".index(name) + 1)
        axes = ("head", rows, "head_channel")
        return scope(name, heads, x, axes=axes, weight=weight, bias=bias, n_heads=self.n_heads)

    def _split(self, x: Tensor, parts: int) -> Tensor:
        return x.view(*x.shape[:2], parts, self.n_heads, -1).permute(2, 0, 3, 1, 4)  # (parts, B, H, T, K)

    def _part(self, first: int, end: int) -> tuple[Tensor, Tensor | None]:
        width = self.output.weight.size(0)
        bias = self.projection.bias
        rows = slice(first * width, end * width)
        return self.projection.weight[rows], None if bias is None else bias[rows]
