"""A set of 64-bit fingerprints, eight bytes each, to find duplicates in corpora far larger than memory."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray


def fingerprint(texts: Iterable[str]) -> NDArray[np.int64]:
    """Return a 64-bit hash of each text, the same within one process only.

    Among a hundred million texts, two different ones share a fingerprint once in about four thousand runs.
    """
    return np.fromiter(map(hash, texts), np.int64)


class Fingerprints:
    """A growing set, stored as a few sorted arrays, each at least twice as long as the next."""

    def __init__(self) -> None:
        self._runs: list[NDArray[np.int64]] = []

    def __len__(self) -> int:
        return sum(map(len, self._runs))

    @property
    def n_bytes(self) -> int:
        """Memory of the set."""
        return sum(run.nbytes for run in self._runs)

    def contains(self, prints: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Return for each fingerprint whether it is in the set."""
        found = np.zeros(len(prints), np.bool_)
        for run in self._runs:
            place = np.minimum(np.searchsorted(run, prints), len(run) - 1)
            found |= run[place] == prints
        return found

    def add(self, prints: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Add fingerprints, and return for each whether it was there before, or earlier in the same call."""
        unique, first = np.unique(prints, return_index=True)
        was_there = self.contains(unique)
        seen = np.ones(len(prints), np.bool_)
        seen[first] = was_there
        if not was_there.all():
            self._runs.append(unique[~was_there])
        while len(self._runs) > 1 and len(self._runs[-2]) < 2 * len(self._runs[-1]):
            merged = np.concatenate((self._runs.pop(), self._runs.pop()))
            merged.sort(kind="stable")  # finds the two sorted halves and merges them
            self._runs.append(merged)
        return seen
