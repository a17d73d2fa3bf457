"""The arithmetic of the paper a second time, in numpy: what a trace says it did is held against this."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
from torch import Tensor

__all__ = ["ARITHMETIC", "Array", "as_array"]

Array = npt.NDArray[np.float64]


def as_array(value: object) -> Any:
    """Turn tensors into arrays and leave everything else."""
    return value.detach().numpy() if isinstance(value, Tensor) else value


def _exponentials(x: Array) -> Array:
    # A row of nothing but -inf cannot occur: every position may attend to something.
    powers: Array = np.exp(x - x.max(axis=-1, keepdims=True))
    return powers


def _softmax(x: Array) -> Array:
    powers = _exponentials(x)
    shares: Array = powers / powers.sum(axis=-1, keepdims=True)
    return shares


def _log_softmax(x: Array) -> Array:
    log_shares: Array = x - x.max(axis=-1, keepdims=True) - np.log(_exponentials(x).sum(axis=-1, keepdims=True))
    return log_shares


def _linear(x: Array, weight: Array, bias: Array | None = None) -> Array:
    mapped: Array = np.einsum("bti,oi->bto", x, weight)
    return mapped if bias is None else mapped + bias


def _heads(x: Array, weight: Array, bias: Array | None, n_heads: int) -> Array:
    """Map with each head's own rows of the matrix, as the paper writes it."""
    size = weight.shape[0] // n_heads
    rows = [slice(h * size, (h + 1) * size) for h in range(n_heads)]
    return np.stack([_linear(x, weight[r], None if bias is None else bias[r]) for r in rows], axis=1)


def _concat(context: Array) -> Array:
    return np.concatenate([context[:, h] for h in range(context.shape[1])], axis=-1)


def _sinusoid(start: int, length: int, width: int, layout: str, dtype: object) -> Array:
    table = np.zeros((1, length, width))
    for place in range(length):
        for i in range(width // 2):
            angle = (start + place) / 10000 ** (2 * i / width)
            sin, cos = (2 * i, 2 * i + 1) if layout == "interleaved" else (i, width // 2 + i)
            table[0, place, [sin, cos]] = math.sin(angle), math.cos(angle)
    return table


def _rotate(x: Array, start: int) -> Array:
    """Multiply each pair of channels, as a complex number, by e to the power of i times the angle."""
    width = x.shape[-1]
    places = start + np.arange(x.shape[-2])
    angles = places[:, None] / 10000 ** (2 * np.arange(width // 2) / width)
    turned = (x[..., 0::2] + 1j * x[..., 1::2]) * np.exp(1j * angles)
    rotated = np.empty_like(x)
    rotated[..., 0::2], rotated[..., 1::2] = turned.real, turned.imag
    return rotated


def _gelu(x: Array) -> Array:
    weighed: Array = 0.5 * x * (1 + np.vectorize(math.erf)(x / math.sqrt(2)))
    return weighed


ARITHMETIC: dict[str, Callable[..., Array]] = {
    "add": lambda a, b: a + b,
    "affine": lambda x, gamma, beta: x * gamma + beta,
    "concat": _concat,
    "gather": lambda ids, table: table[ids],
    "gelu": _gelu,
    "given": lambda value: value,
    "heads": _heads,
    "linear": _linear,
    "log_softmax": _log_softmax,
    "mask": lambda scores, allowed: np.where(allowed, scores, -np.inf),
    "matmul_t": lambda a, b: np.einsum("bhtk,bhsk->bhts", a, b),
    "mean": lambda x: x.sum(axis=-1, keepdims=True) / x.shape[-1],
    "normalise": lambda x, mean, variance, eps: (x - mean) / np.sqrt(variance + eps),
    "relu": lambda x: np.maximum(x, 0.0),
    "rotate": _rotate,
    "rows": lambda table, start, length: table[None, start : start + length],
    "scale": lambda x, factor: x * factor,
    "silu": lambda x: x / (1 + np.exp(-x)),
    "sinusoid": _sinusoid,
    "softmax": _softmax,
    "variance": lambda x, mean: ((x - mean) ** 2).sum(axis=-1, keepdims=True) / x.shape[-1],
    "weighted_sum": lambda weights, values: np.einsum("bhts,bhsk->bhtk", weights, values),
}
