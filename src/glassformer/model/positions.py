"""Positions: what tells "the woman ate the raccoon" from "the raccoon ate the woman".

T positions, D model width, H heads, K = D / H head width.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Self

import torch
from torch import Tensor, nn

from glassformer.config import ModelConfig
from glassformer.model.operations import rotate, rows, sinusoid, turn_pairs
from glassformer.model.scope import BLIND, Scope


class _Table(nn.Module):
    """One row per position, up to max_positions: sines and cosines, or learned."""

    table: Tensor  # (max_positions, width)

    def __init__(self, length: int, width: int, layout: str) -> None:
        super().__init__()
        self.layout = layout
        if layout == "learned":
            self.table = nn.Parameter(torch.empty(length, width))
        else:
            self.register_buffer("table", self._sines(length, width, torch.get_default_dtype()), persistent=False)

    def rows(self, start: int, length: int) -> Tensor:
        """Return the rows (T, width) of the positions from `start`; raise if the last is past the limit."""
        if start + length > self.table.size(0):
            raise ValueError(f"position {start + length} is past the model's limit: max_positions={self.table.size(0)}")
        return self.table[start : start + length]

    def _sines(self, length: int, width: int, dtype: torch.dtype) -> Tensor:
        return sinusoid(start=0, length=length, width=width, layout=self.layout, dtype=dtype)[0]

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        """Move or convert like any module, but recompute sines: float32 sines converted to float64 are not exact."""
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        if self.layout != "learned":
            length, width = self.table.shape
            self.table = self._sines(length, width, self.table.dtype).to(self.table.device)
        return self


class Positions(_Table):
    """One vector per position, added to embeddings: fixed sines and cosines (paper, section 3.5) or learned."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__(config.max_positions, config.d_model, config.positions)

    def forward(self, start: int, length: int, scope: Scope = BLIND) -> Tensor:
        """Return the vectors (1, T, D) of the positions from `start`."""
        found = self.rows(start, length)
        if not scope.looking:
            return found.unsqueeze(0)
        axes = (scope.rows, "channel")
        if self.layout == "learned":
            return scope("position", rows, axes=axes, table=self.table, start=start, length=length)
        form = {"width": self.table.size(1), "layout": self.layout, "dtype": self.table.dtype}
        return scope("position", sinusoid, axes=axes, start=start, length=length, **form)


class Rotary(_Table):
    """Rotates queries and keys by angles that grow with their position (RoFormer, Su et al. 2021, section 3.2).

    The score of a query and a key then depends on their distance only.
    """

    def __init__(self, config: ModelConfig) -> None:
        super().__init__(config.max_positions, config.d_model // config.n_heads, "halves")

    def forward(self, x: Tensor, start: int, name: str = "rotated", scope: Scope = BLIND) -> Tensor:
        """Rotate `x` (B, H, T, K), which begins at position `start`."""
        turns = self.rows(start, x.size(2))  # (T, K): K / 2 sines, K / 2 cosines
        if not scope.looking:
            return turn_pairs(x, turns)
        return scope(name, rotate, x, axes=("head", scope.rows, "head_channel"), start=start)
