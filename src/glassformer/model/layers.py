"""The parts between the attentions: embedding, layer norm, residual connection, feed-forward network.

B batch, T positions, D model width, F hidden width, V vocabulary.
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from glassformer.config import ModelConfig
from glassformer.model.fast.kernels import activate, add_dropped, drop
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


class Embedding(nn.Module):
    """Ids to vectors: a row of the table times sqrt(D), plus the position (paper, sections 3.4 and 3.5)."""

    def __init__(self, config: ModelConfig, table: nn.Parameter) -> None:
        super().__init__()
        self.table = table  # (V, D)
        self.factor = math.sqrt(config.d_model) if config.scale_embeddings else 1.0
        self.positions = None if config.positions in ("rotary", "none") else Positions(config)
        self.dropout = config.dropout

    def forward(self, ids: Tensor, start: int = 0, scope: Scope = BLIND) -> Tensor:
        """Embed `ids` (B, T), which begin at position `start`, as (B, T, D)."""
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
    """Vectors to logits, one per word of the vocabulary; often with the table of the target embedding."""

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

    def before(self, x: Tensor, number: int, scope: Scope = BLIND) -> Tensor:
        """Return what the sublayer reads."""
        return self.norm(x, scope / f"norm{number}") if self.pre and self.norm is not None else x

    def after(self, x: Tensor, y: Tensor, number: int, scope: Scope = BLIND) -> Tensor:
        """Add the output of the sublayer, `y`, to its input, `x`, both (B, T, D)."""
        if scope.looking:
            x = (scope / f"add{number}")("sum", add, x, y, axes=(scope.rows, "channel"))
        else:
            x = add_dropped(x, y, self.dropout, self.training)
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
        hidden = activate(self.hidden(x), self.activation)  # (B, T, F)
        output: Tensor = self.output(drop(hidden, self.dropout, self.training))
        return output

    def _look(self, x: Tensor, scope: Scope) -> Tensor:
        wide = (scope.rows, "hidden")
        hidden = scope("hidden", linear, x, axes=wide, weight=self.hidden.weight, bias=self.hidden.bias)
        active = scope("active", OPERATIONS[self.activation], hidden, axes=wide)
        return scope(
            "output", linear, active, axes=(scope.rows, "channel"), weight=self.output.weight, bias=self.output.bias
        )
