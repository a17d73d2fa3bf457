"""The steps of a training pass that have a faster version on a CPU: `model` calls these, and they choose.

On other devices, and under `torch.compile`, which fuses operations itself, each of them is torch's own function.
B batch, T query length, S memory length, H heads, K head width.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from glassformer.model.fast import attention, dropout, relu
from glassformer.model.operations import OPERATIONS, causal_mask


def drop(x: Tensor, p: float, training: bool) -> Tensor:
    """Apply dropout (Srivastava et al. 2014)."""
    if not training or p == 0.0:
        return x
    return dropout.drop(x, p) if _is_eager_on_cpu(x) else F.dropout(x, p)


def add_dropped(x: Tensor, y: Tensor, p: float, training: bool) -> Tensor:
    """Add `y`, after dropout, to `x`."""
    if training and p and _is_eager_on_cpu(x):
        return dropout.add_dropped(x, y, p)
    return x + drop(y, p, training)


def activate(x: Tensor, name: str) -> Tensor:
    """Apply the activation function called `name`: relu, gelu or silu."""
    if name == "relu" and x.requires_grad and _is_eager_on_cpu(x):
        return relu.relu(x)
    return OPERATIONS[name](x)


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
    if n_queries == 1:  # branches, so that under torch.compile `causal` stays a bool when lengths are symbols
        causal = False
    if causal and n_queries != n_keys:
        allowed, causal = causal_mask(n_queries, n_keys, query.device), False
    if query.requires_grad and max(n_queries, n_keys) <= attention.SHORT and _is_eager_on_cpu(query):
        return attention.attend_short(query, keys, values, allowed, causal=causal, factor=factor, dropout=dropout)
    return F.scaled_dot_product_attention(query, keys, values, allowed, dropout, is_causal=causal, scale=factor)


def _is_eager_on_cpu(x: Tensor) -> bool:
    return x.is_cpu and not torch.compiler.is_compiling()
