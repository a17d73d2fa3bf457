"""The named arithmetic that a trace is made of: pure functions, each one formula of the paper.

Positional arguments are recorded tensors, batch first; keyword arguments are weights and constants.
The explicit path of every module is written in these, and a trace recomputes a tensor by calling them again.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

Function = Callable[..., Tensor]


def given(*, value: Tensor) -> Tensor:
    """Return a value from outside: the ids that the model reads."""
    return value


def gather(ids: Tensor, *, table: Tensor) -> Tensor:
    """Look up one row of `table` (V, D) for each id."""
    return F.embedding(ids, table)


def rows(*, table: Tensor, start: int, length: int) -> Tensor:
    """Take `length` rows of `table` (P, D) in order, as (1, T, D)."""
    return table[None, start : start + length]


def sinusoid(*, start: int, length: int, width: int, layout: str, dtype: torch.dtype = torch.float64) -> Tensor:
    """Return for position p the channels sin(p / 10000^(2i/d)) and cos of the same angle (paper, section 3.5)."""
    position = torch.arange(start, start + length, dtype=torch.float64).unsqueeze(1)
    angle = position / 10000 ** (torch.arange(0, width, 2, dtype=torch.float64) / width)  # (T, D / 2)
    pair = torch.stack([angle.sin(), angle.cos()], dim=2 if layout == "interleaved" else 1)
    return pair.flatten(1).to(dtype).unsqueeze(0)  # (1, T, D)


def rotate(x: Tensor, *, start: int) -> Tensor:
    """Rotate the channels (2i, 2i + 1) of position p by the angle p / 10000^(2i/K) (Su et al. 2021)."""
    turns = sinusoid(start=start, length=x.size(-2), width=x.size(-1), layout="halves", dtype=x.dtype)[0]
    return turn_pairs(x, turns.to(x.device))


def turn_pairs(x: Tensor, turns: Tensor) -> Tensor:
    """Rotate each pair of channels of `x` (..., T, K) by an angle; `turns` (T, K) holds all sines, then all cosines."""
    sin, cos = turns.chunk(2, dim=-1)  # (T, K / 2)
    even, odd = x[..., 0::2], x[..., 1::2]
    return torch.stack([even * cos - odd * sin, even * sin + odd * cos], dim=-1).flatten(-2)


def scale(x: Tensor, *, factor: float) -> Tensor:
    """Multiply every number by one factor."""
    return x * factor


def add(a: Tensor, b: Tensor) -> Tensor:
    """Add number by number."""
    return a + b


def linear(x: Tensor, *, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """Map each position by one matrix: W x + b."""
    return F.linear(x, weight, bias)


def heads(x: Tensor, *, weight: Tensor, bias: Tensor | None, n_heads: int) -> Tensor:
    """Map each position by one matrix and split the result into heads (B, H, T, K)."""
    return split_heads(F.linear(x, weight, bias), n_heads)


def split_heads(x: Tensor, n_heads: int) -> Tensor:
    """Split (B, T, D) into heads (B, H, T, K)."""
    return x.view(*x.shape[:2], n_heads, -1).transpose(1, 2)


def matmul_t(a: Tensor, b: Tensor) -> Tensor:
    """Take the dot product of each row of `a` with each row of `b`."""
    return a @ b.mT


def mask(scores: Tensor, *, allowed: Tensor) -> Tensor:
    """Put minus infinity where `allowed` is False, so that softmax gives it no weight."""
    return scores.masked_fill(~allowed, -math.inf)


def causal_mask(n_queries: int, n_keys: int, device: torch.device) -> Tensor:
    """Return the mask (T, S) that lets query i see the keys up to its own position; the last query sees all keys."""
    return torch.ones(n_queries, n_keys, dtype=torch.bool, device=device).tril(n_keys - n_queries)


def softmax(x: Tensor) -> Tensor:
    """Turn each row into positive weights that sum to 1."""
    return x.softmax(dim=-1)


def log_softmax(x: Tensor) -> Tensor:
    """Turn each row into log-probabilities."""
    return x.log_softmax(dim=-1)


def weighted_sum(weights: Tensor, values: Tensor) -> Tensor:
    """Mix the values by the weights."""
    return weights @ values


def concat(context: Tensor) -> Tensor:
    """Join the heads (B, H, T, K) side by side (B, T, D)."""
    return context.transpose(1, 2).flatten(2)


def mean(x: Tensor) -> Tensor:
    """Average over the channels of each token."""
    return x.mean(dim=-1, keepdim=True)


def variance(x: Tensor, mean: Tensor) -> Tensor:
    """Average the squared distance from the mean over the channels of each token."""
    return (x - mean).square().mean(dim=-1, keepdim=True)


def normalise(x: Tensor, mean: Tensor, variance: Tensor, *, eps: float) -> Tensor:
    """Bring each token's channels to mean 0 and variance 1."""
    return (x - mean) / (variance + eps).sqrt()


def affine(x: Tensor, *, gamma: Tensor, beta: Tensor) -> Tensor:
    """Give each channel its learned scale and shift."""
    return x * gamma + beta


def relu(x: Tensor) -> Tensor:
    """Set negative numbers to 0."""
    return x.relu()


def gelu(x: Tensor) -> Tensor:
    """Weigh each number by the normal distribution up to it (Hendrycks & Gimpel 2016)."""
    return F.gelu(x)


def silu(x: Tensor) -> Tensor:
    """Weigh each number by its sigmoid (Elfwing et al. 2017)."""
    return F.silu(x)


# The first input of these can stand in for their result: same meaning, same axes.
_SKIPPABLE = (add, affine, gelu, log_softmax, mask, normalise, relu, rotate, scale, silu, softmax)
_OTHERS = (concat, gather, given, heads, linear, matmul_t, mean, rows, sinusoid, variance, weighted_sum)
OPERATIONS: dict[str, Function] = {function.__name__: function for function in (*_SKIPPABLE, *_OTHERS)}
SKIPPABLE: frozenset[str] = frozenset(function.__name__ for function in _SKIPPABLE)
