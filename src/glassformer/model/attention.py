"""Multi-head attention: each query position reads from a memory of keys and values.

B batch, T query length, S memory length, D model width, H heads, K = D / H head width.
"""

from __future__ import annotations

import math
from typing import Final, NamedTuple, Self

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from glassformer.config import ModelConfig
from glassformer.model.operations import (
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
from glassformer.model.scope import BLIND, Scope

_ROOM: Final = 16  # places that a growing memory has at first
_SHORT: Final = 64  # positions; forward and backward, the fused kernel needs 2.1 times the time at 8, 1.1 times at 64


class KeyValue(NamedTuple):
    """A memory, projected and split into heads."""

    keys: Tensor  # (B, H, S, K)
    values: Tensor  # (B, H, S, K)

    def append(self, new: KeyValue) -> KeyValue:
        """Lengthen the memory by the positions of `new`."""
        if torch.is_grad_enabled() or torch.compiler.is_compiling():
            return KeyValue(torch.cat([self.keys, new.keys], dim=2), torch.cat([self.values, new.values], dim=2))
        return _Room.of(self, new.keys.size(2)).append(new)

    def select(self, rows: Tensor) -> KeyValue:
        """Keep, repeat or reorder batch rows, as a beam does."""
        return KeyValue(self.keys.index_select(0, rows), self.values.index_select(0, rows))


class _Growing(KeyValue):
    """A memory with room behind it, in which the next positions are written and the others stay where they are."""

    room: _Room

    def append(self, new: KeyValue) -> KeyValue:
        length, more = self.keys.size(2), new.keys.size(2)
        # Only who ends where the room is filled may write on; anybody else copies, so that memories stay values.
        is_free = self.room.filled == length and length + more <= len(self.room.keys)
        return (self.room if is_free else _Room.of(self, more)).append(new)

    def select(self, rows: Tensor) -> KeyValue:
        length = self.keys.size(2)
        room = _Room(self.keys, len(rows), length, len(self.room.keys))
        torch.index_select(self.room.keys[:length], 1, rows, out=room.keys[:length])
        torch.index_select(self.room.values[:length], 1, rows, out=room.values[:length])
        return room.memory()


class _Room:
    """Space for a memory that grows, position by position: (places, B, H, K)."""

    def __init__(self, like: Tensor, rows: int, filled: int, places: int) -> None:
        _, n_heads, _, width = like.shape
        self.filled = filled
        self.keys, self.values = (like.new_empty(places, rows, n_heads, width) for _ in range(2))

    @classmethod
    def of(cls, memory: KeyValue, more: int) -> Self:
        """Copy a memory to where it has room for `more` positions, and for some to come."""
        rows, _, length, _ = memory.keys.shape
        room = cls(memory.keys, rows, 0, max(_ROOM, 2 * (length + more)))
        room.append(memory)
        return room

    def append(self, new: KeyValue) -> KeyValue:
        """Write positions behind those that are filled."""
        places = slice(self.filled, self.filled + new.keys.size(2))
        self.keys[places] = new.keys.permute(2, 0, 1, 3)
        self.values[places] = new.values.permute(2, 0, 1, 3)
        self.filled = places.stop
        return self.memory()

    def memory(self) -> KeyValue:
        """Give what is filled."""
        grown = _Growing(*(part[: self.filled].permute(1, 2, 0, 3) for part in (self.keys, self.values)))
        grown.room = self
        return grown


class MultiHeadAttention(nn.Module):
    """Scaled dot-product attention in H subspaces (Vaswani et al. 2017, section 3.2.2).

    W_Q, W_K and W_V lie stacked in one matrix, so that self-attention projects once. Reading takes
    queries and a memory that are already projected: a decoder projects the source once per sentence,
    and its own prefix one token at a time.
    """

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.n_heads = config.n_heads
        self.dropout = config.attention_dropout
        self.factor = (config.d_model // config.n_heads) ** -0.5 if config.scaled_attention else 1.0
        self.projection = nn.Linear(config.d_model, 3 * config.d_model, bias=config.attention_bias)
        self.output = nn.Linear(config.d_model, config.d_model, bias=config.attention_bias)

    def query(self, x: Tensor, scope: Scope = BLIND) -> Tensor:
        """Turn `x` (B, T, D) into questions (B, H, T, K)."""
        if scope.looking:
            return self._look(x, "q", scope, scope.rows)
        weight, bias = self._part(0, 1)
        return split_heads(F.linear(x, weight, bias), self.n_heads)

    def memory(self, x: Tensor, scope: Scope = BLIND) -> KeyValue:
        """Turn `x` (B, S, D) into what queries read."""
        if scope.looking:
            return KeyValue(*(self._look(x, name, scope, scope.keys) for name in "kv"))
        weight, bias = self._part(1, 3)
        return KeyValue(*self._split(F.linear(x, weight, bias), 2))

    def query_and_memory(self, x: Tensor, scope: Scope = BLIND) -> tuple[Tensor, KeyValue]:
        """Project `x` (B, T, D) for self-attention, in one multiplication."""
        if scope.looking:
            return self.query(x, scope), self.memory(x, scope)
        query, keys, values = self._split(self.projection(x), 3)
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

        `causal`: the last query is as far as the memory goes, each one before it sees one position less.
        N may be a multiple of the memory's B: the beams of a sentence then share its memory.
        """
        if scope.looking:
            return self._look_read(query, memory, allowed, causal, scope)
        n, _, n_queries, _ = query.shape
        batch, _, n_keys, _ = memory.keys.shape
        if n != batch:  # (B * W, H, T, K) -> (B, H, W * T, K)
            query = query.view(batch, -1, *query.shape[1:]).transpose(1, 2).flatten(2, 3)
        if n_queries == 1:  # branches, so that under torch.compile `causal` stays a bool when lengths are symbols
            causal = False
        if causal and n_queries != n_keys:
            allowed, causal = _triangle(n_queries, n_keys, query.device), False
        dropout = self.dropout if self.training else 0.0
        if _is_short(query, memory):
            context = _attend_short(query, memory, allowed, causal, self.factor, dropout)
        else:
            context = F.scaled_dot_product_attention(
                query, *memory, allowed, dropout, is_causal=causal, scale=self.factor
            )  # (B, H, W * T, K)
        if n != batch:
            context = context.view(*context.shape[:2], -1, n_queries, context.size(3)).transpose(1, 2).flatten(0, 1)
        return F.linear(concat(context), self.output.weight, self.output.bias)  # (N, T, D)

    def _look_read(self, query: Tensor, memory: KeyValue, allowed: Tensor | None, causal: bool, scope: Scope) -> Tensor:
        if query.size(0) != memory.keys.size(0):  # beams: each gets a copy, as each will be looked at
            width = query.size(0) // memory.keys.size(0)
            memory = KeyValue(*(part.repeat_interleave(width, dim=0) for part in memory))
            allowed = None if allowed is None else allowed.repeat_interleave(width, dim=0)
        n_queries, n_keys = query.size(2), memory.keys.size(2)
        if causal:
            allowed = _triangle(n_queries, n_keys, query.device)
        elif allowed is None:
            allowed = torch.ones(n_queries, n_keys, dtype=torch.bool, device=query.device)
        matrix = ("head", f"{scope.rows}_q", f"{scope.keys}_k")
        scores = scope("scores", matmul_t, query, memory.keys, axes=matrix)
        scaled = scope("scaled", scale, scores, axes=matrix, factor=self.factor)
        masked = scope("masked", mask, scaled, axes=matrix, allowed=allowed)
        weights = scope("weights", softmax, masked, axes=matrix)
        context = scope("context", weighted_sum, weights, memory.values, axes=("head", scope.rows, "head_channel"))
        joined = scope("concat", concat, context, axes=(scope.rows, "channel"))
        return scope(
            "output",
            linear,
            joined,
            axes=(scope.rows, "channel"),
            weight=self.output.weight,
            bias=self.output.bias,
        )

    def _look(self, x: Tensor, name: str, scope: Scope, rows: str) -> Tensor:
        weight, bias = self._part("qkv".index(name), "qkv".index(name) + 1)
        return scope(
            name, heads, x, axes=("head", rows, "head_channel"), weight=weight, bias=bias, n_heads=self.n_heads
        )

    def _split(self, x: Tensor, parts: int) -> Tensor:
        return x.view(*x.shape[:2], parts, self.n_heads, -1).permute(2, 0, 3, 1, 4)  # (parts, B, H, T, K)

    def _part(self, first: int, end: int) -> tuple[Tensor, Tensor | None]:
        width = self.output.weight.size(0)
        bias = self.projection.bias
        rows = slice(first * width, end * width)
        return self.projection.weight[rows], None if bias is None else bias[rows]


def _is_short(query: Tensor, memory: KeyValue) -> bool:
    """Whether plain multiplications beat torch's fused kernel: training on a CPU, on sentences rather than pages."""
    return (
        query.is_cpu
        and query.requires_grad
        and max(query.size(2), memory.keys.size(2)) <= _SHORT
        and not torch.compiler.is_compiling()
    )


def _attend_short(
    query: Tensor, memory: KeyValue, allowed: Tensor | None, causal: bool, factor: float, dropout: float
) -> Tensor:
    if causal:
        allowed = _triangle(query.size(2), query.size(2), query.device)
    scores = query @ memory.keys.mT  # (B, H, T, S)
    if allowed is None:
        scores = scores * factor
    else:
        barrier = torch.zeros(allowed.shape, dtype=scores.dtype).masked_fill_(~allowed, -math.inf)
        scores = torch.add(barrier, scores, alpha=factor)  # scale and mask in one pass
    return F.dropout(scores.softmax(dim=-1), dropout) @ memory.values  # (B, H, T, K)


def _triangle(n_queries: int, n_keys: int, device: torch.device) -> Tensor:
    """Let query i see the keys up to its own place, the last query being at the last key."""
    return torch.ones(n_queries, n_keys, dtype=torch.bool, device=device).tril(n_keys - n_queries)
