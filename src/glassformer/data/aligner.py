"""A statistical word aligner: IBM model 1 near the diagonal, in both directions, intersected.

S source tokens, T target tokens of a pair. Every possible link of some pairs is an entry of flat arrays, so that a
round of expectation maximisation is a few passes of numpy.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from glassformer.files import atomic_file

Tokens = Sequence[int] | NDArray[Any]
TokenPair = tuple[Tokens, Tokens]
Links = set[tuple[int, int]]  # positions, (source, target)

_ROUNDS: Final = 5  # of expectation maximisation
_DIAGONAL: Final = 2.0  # how much likelier links near the diagonal are (Dyer et al. 2013); 4 misaligns a reversed order
_NULL: Final = 0.08  # how likely a token is to come from nothing
_UNSEEN: Final = 1e-9  # probability of a target token that was never seen
_SHIFT: Final = 2**32  # a key is source * _SHIFT + target


class Table(NamedTuple):
    """p(target token | source token) of the tokens that come together; the source token of nothing is 0."""

    keys: NDArray[np.int64]  # ascending
    values: NDArray[np.float64]

    def look_up(self, keys: NDArray[np.int64]) -> NDArray[np.float64]:
        """Return the probabilities of some keys."""
        places = np.minimum(np.searchsorted(self.keys, keys), len(self.keys) - 1)
        unseen = np.where(keys < _SHIFT, _UNSEEN, 0.0)  # a token that was never seen comes from nothing
        return np.where(self.keys[places] == keys, self.values[places], unseen)


class Aligner(NamedTuple):
    """What was learned from some pairs, in both directions."""

    there: Table
    back: Table

    @classmethod
    def load(cls, path: Path) -> Self:
        """Read what `save` wrote."""
        with np.load(path) as arrays:
            return cls(*(Table(arrays[f"{name}_keys"], arrays[f"{name}_values"]) for name in cls._fields))

    def save(self, path: Path) -> None:
        """Write the tables into a file, atomically."""
        named = zip(self._fields, self, strict=True)
        with atomic_file(path) as file:
            np.savez(
                file, **{f"{name}_{part}": array for name, table in named for part, array in table._asdict().items()}
            )

    @classmethod
    def learn(cls, pairs: Sequence[TokenPair]) -> Self:
        """Learn from pairs of token ids, better from thousands than from hundreds."""
        return cls(_learn(pairs), _learn(_turned(pairs)))

    def links(self, pairs: Sequence[TokenPair]) -> list[Links]:
        """Return the links of each pair: those that both directions agree on."""
        there, back = _best_sources(pairs, self.there), _best_sources(_turned(pairs), self.back)
        return [
            {(s, t) for t, s in enumerate(sources) if s >= 0 and targets[s] == t}
            for sources, targets in zip(there, back, strict=True)
        ]


class _Candidates(NamedTuple):
    """Every possible link of some pairs."""

    keys: NDArray[np.int64]
    group: NDArray[np.int64]  # the target token that it belongs to, counted over all pairs
    place: NDArray[np.int64]  # the position of the source token; -1 for nothing
    prior: NDArray[np.float64]


def _turned(pairs: Sequence[TokenPair]) -> list[TokenPair]:
    return [(target, source) for source, target in pairs]


def _candidates(pairs: Sequence[TokenPair]) -> _Candidates | None:
    """Return the possible links, or None if there are none."""
    parts: list[tuple[NDArray[Any], ...]] = []
    first = 0
    for source, target in pairs:
        n_src, n_tgt = len(source), len(target)
        if not n_src or not n_tgt:
            continue
        rows = np.arange(n_tgt)[:, None]  # (T, 1)
        distance = np.abs((rows + 0.5) / n_tgt - (np.arange(n_src) + 0.5) / n_src)  # (T, S)
        near = np.exp(-_DIAGONAL * distance)
        near *= (1 - _NULL) / near.sum(axis=1, keepdims=True)
        src = np.append(np.asarray(source, np.int64) + 1, 0)  # the last one is nothing
        keys = src * _SHIFT + np.asarray(target, np.int64)[:, None]  # (T, S + 1)
        place = np.tile([*range(n_src), -1], n_tgt)
        prior = np.hstack([near, np.full((n_tgt, 1), _NULL)])
        parts.append((keys.ravel(), np.repeat(first + rows[:, 0], n_src + 1), place, prior.ravel()))
        first += n_tgt
    return _Candidates(*map(np.concatenate, zip(*parts, strict=True))) if parts else None


def _learn(pairs: Sequence[TokenPair]) -> Table:
    found = _candidates(pairs)
    if found is None:
        return Table(np.zeros(1, np.int64), np.zeros(1))
    keys, kind = np.unique(found.keys, return_inverse=True)
    src_of_kind = np.unique(keys // _SHIFT, return_inverse=True)[1]
    values = np.ones(len(keys))
    for _ in range(_ROUNDS):
        weight = found.prior * values[kind]
        weight /= np.bincount(found.group, weight)[found.group]
        counts = np.bincount(kind, weight)
        values = counts / np.bincount(src_of_kind, counts)[src_of_kind]
    return Table(keys, values)


def _best_sources(pairs: Sequence[TokenPair], table: Table) -> list[list[int]]:
    """Return for each target token the position of the source token it most likely comes from, -1 for none."""
    found = _candidates(pairs)
    if found is None:
        return [[-1] * len(target) for _, target in pairs]
    weight = found.prior * table.look_up(found.keys)
    order = np.lexsort((weight, found.group))  # the last of each group is its heaviest
    heaviest = order[np.append(np.flatnonzero(np.diff(found.group[order])), len(order) - 1)]
    best = iter(found.place[heaviest].tolist())
    return [[next(best) if len(source) else -1 for _ in target] for source, target in pairs]
