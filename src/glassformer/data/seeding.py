"""Numbers that are drawn from an address (a purpose, a seed, an epoch, a place), and from nothing else.

There is no generator whose state would have to be saved: who comes back to an address draws what was drawn there, on
every machine and with every version of numpy (which keeps its bit streams, but not what it makes of them).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray


def draw(address: Sequence[int], *shape: int) -> NDArray[np.float64]:
    """Draw numbers in [0, 1)."""
    raw = np.random.PCG64(_sequence(address)).random_raw(int(np.prod(shape)))
    return ((raw >> np.uint64(11)).astype(np.float64) * 2.0**-53).reshape(shape)


def draw_order(address: Sequence[int], count: int) -> NDArray[np.int64]:
    """Put the numbers from 0 to `count` - 1 into a random order."""
    return np.argsort(draw(address, count), kind="stable")


def draw_seeds(address: Sequence[int], count: int) -> list[int]:
    """Draw seeds for somebody else's generators."""
    seeds: list[int] = _sequence(address).generate_state(count).tolist()
    return seeds


def _sequence(address: Sequence[int]) -> np.random.SeedSequence:
    # numpy takes [1] and [1, 0] for the same; with its length in front no address is like another.
    return np.random.SeedSequence((len(address), *address))
