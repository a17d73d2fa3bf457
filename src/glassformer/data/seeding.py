"""Random numbers that depend on a key (purpose, seed, epoch, position) and nothing else.

There is no generator state to save: the same key gives the same numbers on every machine and with every version of
numpy, which guarantees its bit streams but not the distributions it derives from them.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray


def draw(key: Sequence[int], *shape: int) -> NDArray[np.float64]:
    """Return uniform numbers in [0, 1)."""
    raw = np.random.PCG64(_sequence(key)).random_raw(int(np.prod(shape)))
    return ((raw >> np.uint64(11)).astype(np.float64) * 2.0**-53).reshape(shape)


def draw_order(key: Sequence[int], count: int) -> NDArray[np.int64]:
    """Return a random permutation of 0 to `count` - 1."""
    return np.argsort(draw(key, count), kind="stable")


def draw_seeds(key: Sequence[int], count: int) -> list[int]:
    """Return seeds for other generators."""
    seeds: list[int] = _sequence(key).generate_state(count).tolist()
    return seeds


def _sequence(key: Sequence[int]) -> np.random.SeedSequence:
    # numpy treats [1] and [1, 0] alike; with the length in front all keys differ.
    return np.random.SeedSequence((len(key), *key))
