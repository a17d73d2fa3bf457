"""Positions: what tells "the woman ate the raccoon" from "the raccoon ate the woman"."""

from __future__ import annotations

from collections.abc import Callable
from typing import Self

import torch
from torch import Tensor, nn

from glassformer.config import ModelConfig
from glassformer.model.operations import rows, sinusoid
from glassformer.model.scope import BLIND, Scope


class Positions(nn.Module):
    """One vector for each place in a sequence: fixed sines and cosines (paper, section 3.5) or learned."""

    table: Tensor  # (max_positions, D)

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.layout = config.positions
        if self.layout == "learned":
            self.table = nn.Parameter(torch.empty(config.max_positions, config.d_model))
        else:
            table = self._sines(config.max_positions, config.d_model, torch.get_default_dtype())
            self.register_buffer("table", table, persistent=False)

    def forward(self, start: int, length: int, scope: Scope = BLIND) -> Tensor:
        """Give the vectors (1, T, D) of the places from `start` on."""
        if start + length > self.table.size(0):
            raise ValueError(f"position {start + length} is past the model's limit: max_positions={self.table.size(0)}")
        if not scope.looking:
            return self.table[None, start : start + length]
        axes = (scope.rows, "channel")
        if self.layout == "learned":
            return scope("position", rows, axes=axes, table=self.table, start=start, length=length)
        return scope(
            "position",
            sinusoid,
            axes=axes,
            start=start,
            length=length,
            width=self.table.size(1),
            layout=self.layout,
            dtype=self.table.dtype,
        )

    def _sines(self, length: int, width: int, dtype: torch.dtype) -> Tensor:
        return sinusoid(start=0, length=length, width=width, layout=self.layout, dtype=dtype)[0]

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        """Move or convert as every module does, but compute the sines anew: a float32 sine made double is no double."""
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        if self.layout != "learned":
            length, width = self.table.shape
            self.table = self._sines(length, width, self.table.dtype).to(self.table.device)
        return self
