"""Histograms of the sentence lengths of a corpus."""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

_LONGEST: Final = 10_000  # characters; longer texts are counted as this long
_MAX_BARS: Final = 20
_WIDTHS: Final = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000)
_NEARLY_ALL: Final = 0.99  # share of texts in the bars before the last one

_STEPS: Final = 4  # ratio bars per factor of two
_FACTORS: Final = 2  # factors of two on each side of 1
_CELLS: Final = 2  # cells of the joint histogram per factor of two
_N_CELLS: Final = 24  # up to 2^12 = 4096 characters


class Bars(NamedTuple):
    """A histogram: the start and count of each bar; the last bar is open-ended."""

    starts: tuple[float, ...]
    counts: tuple[int, ...]


class Shape:
    """Histograms of the lengths of both sides in characters, their ratio, and both jointly."""

    def __init__(self) -> None:
        self._lengths = np.zeros((2, _LONGEST + 1), np.int64)
        self._ratios = np.zeros(2 * _FACTORS * _STEPS + 2, np.int64)
        self._joint = np.zeros((_N_CELLS, _N_CELLS), np.int64)
        self._longest = [0, 0]

    def add(self, lengths: NDArray[np.int64]) -> None:
        """Count pairs, given as a row of source lengths and a row of target lengths, all of them above 0."""
        for side in (0, 1):
            self._lengths[side] += np.bincount(lengths[side].clip(max=_LONGEST), minlength=_LONGEST + 1)
            self._longest[side] = max(self._longest[side], int(lengths[side].max(initial=0)))
        log_ratio = np.log2(lengths[0] / lengths[1])
        bars = np.floor((log_ratio + _FACTORS) * _STEPS).astype(np.int64) + 1
        self._ratios += np.bincount(bars.clip(0, len(self._ratios) - 1), minlength=len(self._ratios))
        cells = np.floor(np.log2(lengths) * _CELLS).astype(np.int64).clip(max=_N_CELLS - 1)
        np.add.at(self._joint, (cells[0], cells[1]), 1)

    def lengths(self) -> tuple[Bars, Bars]:
        """Return the histograms of source and target lengths, with bars of equal width."""
        reach = max(self.quantile(side, _NEARLY_ALL) for side in (0, 1))
        width = next((width for width in _WIDTHS if reach <= width * (_MAX_BARS - 2)), _WIDTHS[-1])
        starts = range(0, min((reach // width + 2) * width, _LONGEST + 1), width)
        source, target = (
            Bars(tuple(starts), tuple(int(n) for n in np.add.reduceat(counts, list(starts))))
            for counts in self._lengths
        )
        return source, target

    def ratios(self) -> Bars:
        """Return the histogram of source length over target length, in bars of equal factors."""
        starts = [2 ** (step / _STEPS - _FACTORS) for step in range(2 * _FACTORS * _STEPS + 1)]
        return Bars((0.0, *starts), tuple(int(n) for n in self._ratios))

    def joint(self) -> list[list[int]]:
        """Return counts by source length (rows) and target length (columns), two cells per factor of two."""
        rows: list[list[int]] = self._joint.tolist()
        return rows

    def longest(self, side: int) -> int:
        """Return the greatest length of a side."""
        return self._longest[side]

    def quantile(self, side: int, share: float) -> int:
        """Return the length that `share` of a side's texts do not exceed."""
        reached = np.cumsum(self._lengths[side])
        return int(np.searchsorted(reached, share * reached[-1]))
