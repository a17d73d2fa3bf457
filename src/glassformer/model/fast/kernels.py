"""The steps of a training pass that have a faster version on a CPU: `model` calls these, and they choose.

On other devices, and under `torch.compile`, which fuses operations itself, each of them is torch's own function.
B batch, T query length, S memory length, H heads, K head width.
"""

from __future__ import annotations

import math
from typing import Any, Final

import torch
import torch.nn.functional as F
from torch import Tensor

from glassformer.model.operations import OPERATIONS, causal_mask

_SHORT: Final = 64  # positions; the fused attention takes 2.1 times as long at 8 of them, 1.1 times at 64


def drop(x: Tensor, p: float, training: bool) -> Tensor:
    """Apply dropout (Srivastava et al. 2014)."""
    if not training or p == 0.0:
        return x
    return x * keep_noise(x, p) if _is_eager_on_cpu(x) else F.dropout(x, p)


def add_dropped(x: Tensor, y: Tensor, p: float, training: bool) -> Tensor:
    """Add `y`, after dropout, to `x`."""
    if training and p and _is_eager_on_cpu(x):
        return torch.addcmul(x, y, keep_noise(y, p))  # both in one pass
    return x + drop(y, p, training)


def keep_noise(x: Tensor, p: float) -> Tensor:
    """Return what dropout multiplies `x` by: 0 with probability `p`, else 1 / (1 - p).

    Four elements share one 64-bit draw, which is eight times as fast as `bernoulli_`, otherwise a tenth of a
    training step. The rate differs from `p` by at most 2^-17.
    """
    words = torch.empty((x.numel() + 3) // 4, dtype=torch.int64, device=x.device).random_(-(2**63), None)
    bits = words.view(torch.int16)[: x.numel()].view(x.shape)
    dropped = bits < min(round(p * 2**16), 2**16 - 1) - 2**15
    return torch.where(dropped, x.new_zeros(()), x.new_full((), 1 / (1 - p)))


def activate(x: Tensor, name: str) -> Tensor:
    """Apply the activation function called `name`: relu, gelu or silu."""
    if name == "relu" and x.requires_grad and _is_eager_on_cpu(x):
        active: Tensor = Relu.apply(x)  # type: ignore[no-untyped-call]
        return active
    return OPERATIONS[name](x)


class Relu(torch.autograd.Function):
    """ReLU with a backward pass three times as fast as torch's: the hidden layer is the widest tensor."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        """Set negative numbers to 0."""
        active = x.relu()
        ctx.save_for_backward(active)
        return active

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        """Pass the gradient on where the output is positive."""
        (active,) = ctx.saved_tensors
        slope: Tensor = active.sign()
        return slope.mul_(gradient)


def attend(
    query: Tensor,
    keys: Tensor,
    values: Tensor,
    allowed: Tensor | None = None,
    *,
    causal: bool = False,
    factor: float,
    dropout: float = 0.0,
) -> Tensor:
    """Read `values` (B, H, S, K) with `query` (B, H, T, K) by its scores with `keys`, where `allowed` is True.

    `causal`: the last query sees every key, each query before it one key less.
    """
    n_queries, n_keys = query.size(2), keys.size(2)
    is_short = query.requires_grad and _is_eager_on_cpu(query) and max(n_queries, n_keys) <= _SHORT
    if n_queries == 1:  # branches, so that under torch.compile `causal` stays a bool when lengths are symbols
        causal = False
    if causal and (is_short or n_queries != n_keys):
        allowed, causal = causal_mask(n_queries, n_keys, query.device), False
    if is_short:
        return attend_short(query, keys, values, allowed, factor, dropout)
    return F.scaled_dot_product_attention(query, keys, values, allowed, dropout, is_causal=causal, scale=factor)


def attend_short(
    query: Tensor, keys: Tensor, values: Tensor, allowed: Tensor | None, factor: float, dropout: float
) -> Tensor:
    """Attend by plain matrix products, forward and backward faster than the fused kernel over short sequences."""
    scores = query @ keys.mT  # (B, H, T, S)
    if allowed is None:
        scores = scores * factor
    else:
        barrier = torch.zeros(allowed.shape, dtype=scores.dtype).masked_fill_(~allowed, -math.inf)
        scores = torch.add(barrier, scores, alpha=factor)  # scale and mask in one pass
    return F.dropout(scores.softmax(dim=-1), dropout) @ values


def _is_eager_on_cpu(x: Tensor) -> bool:
    return x.is_cpu and not torch.compiler.is_compiling()
