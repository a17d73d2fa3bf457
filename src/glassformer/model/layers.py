"""The parts between the attentions: embedding, layer norm, residual connection, feed-forward network.

B batch, T positions, D model width, F hidden width, V vocabulary.
"""

from __future__ import annotations

import math
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from glassformer.config import ModelConfig
from glassformer.model.operations import (
    OPERATIONS,
    add,
    affine,
    gather,
    given,
    linear,
    mean,
    normalise,
    scale,
    variance,
)
from glassformer.model.positions import Positions
from glassformer.model.scope import BLIND, Scope


def keep_noise(x: Tensor, p: float) -> Tensor:
    """Draw what dropout multiplies `x` by: 0 with probability `p`, else 1 / (1 - p).

    Sixteen random bits an element, four elements a draw: on a CPU eight times as fast as
    `bernoulli_`, which takes a tenth of a training step. p is met to within 2^-17.
    """
    words = torch.empty((x.numel() + 3) // 4, dtype=torch.int64, device=x.device).random_(-(2**63), None)
    bits = words.view(torch.int16)[: x.numel()].view(x.shape)
    dropped = bits < min(round(p * 2**16), 2**16 - 1) - 2**15
    return torch.where(dropped, x.new_zeros(()), x.new_full((), 1 / (1 - p)))


def drop(x: Tensor, p: float, training: bool) -> Tensor:
    """Dropout (Srivastava et al. 2014)."""
    if not training or p == 0.0:
        return x
    if x.is_cpu and not torch.compiler.is_compiling():
        return x * keep_noise(x, p)
    return F.dropout(x, p)


class Embedding(nn.Module):
    """Ids to vectors: a row of the table times sqrt(D), plus the position (paper, sections 3.4 and 3.5)."""

    def __init__(self, config: ModelConfig, table: nn.Parameter) -> None:
        super().__init__()
        self.table = table  # (V, D)
        self.factor = math.sqrt(config.d_model) if config.scale_embeddings else 1.0
        self.positions = None if config.positions == "none" else Positions(config)
        self.dropout = config.dropout

    def forward(self, ids: Tensor, start: int = 0, scope: Scope = BLIND) -> Tensor:
        """Embed `ids` (B, T), the first of which stands at place `start`, as (B, T, D)."""
        if scope.looking:
            return self._look(ids, start, scope)
        x = F.embedding(ids, self.table)  # (B, T, D)
        if self.positions is not None:
            x = torch.add(self.positions(start, ids.size(1)), x, alpha=self.factor)
        elif self.factor != 1.0:
            x = x * self.factor
        return drop(x, self.dropout, self.training)

    def _look(self, ids: Tensor, start: int, scope: Scope) -> Tensor:
        axes = (scope.rows, "channel")
        ids = scope("ids", given, axes=(scope.rows,), value=ids)
        x = scope("row", gather, ids, axes=axes, table=self.table)
        x = scope("embedding", scale, x, axes=axes, factor=self.factor)
        if self.positions is None:
            return x
        return scope("sum", add, x, self.positions(start, ids.size(1), scope), axes=axes)


class Output(nn.Module):
    """Vectors to logits, one for each word of the vocabulary; often with the target embedding's own table."""

    def __init__(self, config: ModelConfig, weight: nn.Parameter) -> None:
        super().__init__()
        self.weight = weight  # (V, D)
        self.bias = nn.Parameter(torch.zeros(config.tgt_vocab)) if config.output_bias else None

    def forward(self, hidden: Tensor, scope: Scope = BLIND) -> Tensor:
        """Turn the decoder's last layer (..., D) into logits (..., V)."""
        if not scope.looking:
            return F.linear(hidden, self.weight, self.bias)
        return scope("logits", linear, hidden, axes=(scope.rows, "vocab"), weight=self.weight, bias=self.bias)


class LayerNorm(nn.Module):
    """Mean 0 and variance 1 over the channels of each token, then a learned scale and shift (Ba et al. 2016)."""

    def __init__(self, width: int, eps: float) -> None:
        super().__init__()
        self.gamma = nn.Parameter(torch.ones(width))
        self.beta = nn.Parameter(torch.zeros(width))
        self.eps = eps

    def forward(self, x: Tensor, scope: Scope = BLIND) -> Tensor:
        """Normalise each position of `x` (B, T, D)."""
        if not scope.looking:
            return F.layer_norm(x, self.gamma.shape, self.gamma, self.beta, self.eps)
        single, axes = (scope.rows, "one"), (scope.rows, "channel")
        mu = scope("mean", mean, x, axes=single)
        sigma2 = scope("variance", variance, x, mu, axes=single)
        unit = scope("normalised", normalise, x, mu, sigma2, axes=axes, eps=self.eps)
        return scope("output", affine, unit, axes=axes, gamma=self.gamma, beta=self.beta)


class AddNorm(nn.Module):
    """The residual connection around a sublayer, with dropout, and the norm after it, before it, or nowhere.

    Post-norm is the paper's: norm(x + sublayer(x)). Pre-norm is x + sublayer(norm(x)).
    """

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.pre = config.norm == "pre"
        self.norm = None if config.norm == "none" else LayerNorm(config.d_model, config.norm_eps)
        self.dropout = config.dropout

    def enter(self, x: Tensor, number: int, scope: Scope = BLIND) -> Tensor:
        """Give the sublayer what it reads."""
        return self.norm(x, scope / f"norm{number}") if self.pre and self.norm is not None else x

    def leave(self, x: Tensor, y: Tensor, number: int, scope: Scope = BLIND) -> Tensor:
        """Add what the sublayer made, `y`, to what came in, `x`, both (B, T, D)."""
        if scope.looking:
            x = (scope / f"add{number}")("sum", add, x, y, axes=(scope.rows, "channel"))
        elif self.training and self.dropout and x.is_cpu and not torch.compiler.is_compiling():
            x = torch.addcmul(x, y, keep_noise(y, self.dropout))  # one pass for dropout and sum
        else:
            x = x + drop(y, self.dropout, self.training)
        return x if self.pre or self.norm is None else self.norm(x, scope / f"norm{number}")


class FeedForward(nn.Module):
    """The same two-layer network at each position (paper, section 3.3)."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.hidden = nn.Linear(config.d_model, config.d_ff)
        self.output = nn.Linear(config.d_ff, config.d_model)
        self.activation = config.activation
        self.dropout = config.ff_dropout

    def forward(self, x: Tensor, scope: Scope = BLIND) -> Tensor:
        """Map each position of `x` (B, T, D) on its own."""
        if scope.looking:
            return self._look(x, scope)
        hidden = self.hidden(x)  # (B, T, F)
        hidden = _relu(hidden) if self.activation == "relu" else OPERATIONS[self.activation](hidden)
        output: Tensor = self.output(drop(hidden, self.dropout, self.training))
        return output

    def _look(self, x: Tensor, scope: Scope) -> Tensor:
        wide = (scope.rows, "hidden")
        hidden = scope("hidden", linear, x, axes=wide, weight=self.hidden.weight, bias=self.hidden.bias)
        active = scope("active", OPERATIONS[self.activation], hidden, axes=wide)
        return scope(
            "output", linear, active, axes=(scope.rows, "channel"), weight=self.output.weight, bias=self.output.bias
        )


def _relu(x: Tensor) -> Tensor:
    if not (x.is_cpu and x.requires_grad) or torch.compiler.is_compiling():
        return x.relu()
    active: Tensor = _CpuRelu.apply(x)  # type: ignore[no-untyped-call]
    return active


class _CpuRelu(torch.autograd.Function):
    """Rectifies with a backward pass three times as fast as torch's on a CPU: the hidden layer is the widest tensor."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        active = x.relu()
        ctx.save_for_backward(active)
        return active

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        (active,) = ctx.saved_tensors
        slope: Tensor = active.sign()
        return slope.mul_(gradient)
