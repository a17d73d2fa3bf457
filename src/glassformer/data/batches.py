"""Batches of similar length, planned ahead, so that any batch of any epoch can be read directly.

B sentences, S source positions, T target positions; both sides include EOS.

A plan lists the *global* batches of an epoch. It depends on the lengths, the settings, the seed and the epoch, but not
on the number of processes: each global batch is distributed over the ranks, sentence by sentence. So every rank takes
the same number of steps, every pair occurs exactly once per epoch, and the sum of the ranks' losses is that of one
process.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any, Final, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from glassformer.config import BatchConfig
from glassformer.data.aligner import Aligner
from glassformer.data.prepared import Prepared
from glassformer.data.seeding import draw, draw_order
from glassformer.data.shard import Numbers, Shard, flatten
from glassformer.text.vocab import BOS, EOS, PAD

# Pairs of a block stay in one window: long enough for sequential reads from disk, and a window of the default size
# still mixes a thousand places of the corpus.
_BLOCK: Final = 1024
_BLOCKS, _TIES, _ORDER = 0, 1, 2  # first part of a key, so that no two draws are alike


class Batch(NamedTuple):
    """Sentence pairs as the model reads them, padded on the right.

    A rank whose share of a batch is empty gets one row without loss (a source of one EOS, a target of padding only),
    because all ranks must run the model to sync gradients; `pairs` is empty then.
    """

    src: Tensor  # (B, S) ids and EOS
    src_mask: Tensor | None  # (B, S) True at tokens; None without padding
    tgt_in: Tensor  # (B, T) the start id and ids
    tgt_out: Tensor  # (B, T) ids and EOS
    pairs: Tensor  # (B,) indices in the shard
    n_tokens: int  # of the target, EOS included
    n_src_tokens: int
    links: Tensor | None = None  # (3, n) row, target and source position of tokens that translate each other

    def to(self, device: torch.device | str) -> Batch:
        """Copy the tensors to the device of the model."""
        mask = None if self.src_mask is None else self.src_mask.to(device, non_blocking=True)
        links = None if self.links is None else self.links.to(device, non_blocking=True)
        src, tgt_in, tgt_out = (x.to(device, non_blocking=True) for x in (self.src, self.tgt_in, self.tgt_out))
        return self._replace(src=src, src_mask=mask, tgt_in=tgt_in, tgt_out=tgt_out, links=links)


def collate(sources: Sequence[Sequence[int]], targets: Sequence[Sequence[int]], start: int = BOS) -> Batch:
    """Return a batch of sentences given as ids without EOS; `pairs` numbers them from 0."""
    assert len(sources) == len(targets)
    return _batch(flatten(sources), flatten(targets), start, np.arange(len(sources)))


def _batch(src: tuple[NDArray[Any], Numbers], tgt: tuple[NDArray[Any], Numbers], start: int, pairs: Numbers) -> Batch:
    """Pad concatenated ids, given with the lengths of their sentences."""
    if not len(pairs):
        row = torch.full((1, 1), EOS)
        return Batch(row, None, torch.full_like(row, start), torch.full_like(row, PAD), torch.from_numpy(pairs), 0, 0)
    src_ids, n_src = src
    tgt_ids, n_tgt = tgt
    is_src, is_tgt = _is_token(n_src), _is_token(n_tgt)  # (B, S), (B, T), without EOS
    rows = np.arange(len(pairs))
    padded = np.full(is_src.shape, PAD, np.int64)
    padded[is_src] = src_ids
    padded[rows, n_src] = EOS
    before, after = np.full((2, *is_tgt.shape), PAD, np.int64)
    before[:, 0] = start
    before[:, 1:][is_tgt[:, :-1]] = tgt_ids
    after[is_tgt] = tgt_ids
    after[rows, n_tgt] = EOS
    is_src[rows, n_src] = True
    return Batch(
        src=torch.from_numpy(padded),
        src_mask=None if is_src.all() else torch.from_numpy(is_src),
        tgt_in=torch.from_numpy(before),
        tgt_out=torch.from_numpy(after),
        pairs=torch.from_numpy(pairs),
        n_tokens=len(tgt_ids) + len(pairs),
        n_src_tokens=len(src_ids) + len(pairs),
    )


def _links(aligner: Aligner, src: tuple[NDArray[Any], Numbers], tgt: tuple[NDArray[Any], Numbers]) -> Tensor:
    """Align the tokens of concatenated sentences, given with their lengths."""
    sources, targets = (np.split(ids, lengths.cumsum()[:-1]) for ids, lengths in (src, tgt))
    found = aligner.links(list(zip(sources, targets, strict=True))) if len(src[1]) else []
    rows = [(row, target, source) for row, links in enumerate(found) for source, target in sorted(links)]
    return torch.tensor(rows, dtype=torch.int64).view(-1, 3).t()


def _is_token(lengths: Numbers) -> NDArray[np.bool_]:
    """Return which positions hold a token, with one more position than the longest row needs."""
    return np.arange(int(lengths.max()) + 1) < lengths[:, None]


def length_batches(lengths: Sequence[int], *, max_tokens: int, max_rows: int | None = None) -> Iterator[list[int]]:
    """Yield the positions of `lengths` in batches of similar length, the longest first and equal ones in order.

    A batch, padded to its longest row, holds at most `max_tokens` positions, but at least one row.
    """
    order = sorted(range(len(lengths)), key=lambda i: -lengths[i])
    start = 0
    while start < len(order):
        n_rows = max(max_tokens // max(lengths[order[start]], 1), 1)
        n_rows = min(n_rows, max_rows or n_rows)
        yield order[start : start + n_rows]
        start += n_rows


class Plan:
    """The global batches of one epoch, as arrays of pair indices.

    Pairs are sorted by the length of their longer side, then by how much longer the target is than the source, in
    alternating direction, so that neighbours are similar on both sides; ties are broken at random. The sequence is cut
    where a batch would exceed `max_tokens`, and the batches are shuffled. A pair that exceeds `max_tokens` by itself is
    a batch of its own.

    A corpus of more pairs than `window` is first distributed at random, block by block, over windows that are planned
    one at a time, so that planning takes constant memory and disks are read sequentially.
    """

    def __init__(self, shard: Shard, config: BatchConfig, seed: int, epoch: int) -> None:
        self._shard, self._config, self._seed, self._epoch = shard, config, seed, epoch
        n_blocks = -(-shard.n_pairs // _BLOCK)
        n_windows = min(-(-shard.n_pairs // config.window), n_blocks)
        order = draw_order(self._key(_BLOCKS), n_blocks) if n_windows > 1 else np.arange(n_blocks)
        self._windows = np.array_split(order, max(n_windows, 1))  # blocks per window
        self._planned: tuple[int, list[Numbers]] = (-1, [])  # the current window
        sizes = [len(self._window(number)) for number in range(len(self._windows))]
        self._ends = np.cumsum(sizes)  # end of each window, in batches

    def __len__(self) -> int:
        return int(self._ends[-1])

    def __getitem__(self, number: int) -> Numbers:
        """Return the pairs of a batch, the longest last."""
        if not 0 <= number < len(self):
            raise IndexError(f"batch {number} of {len(self)}")
        window = int(np.searchsorted(self._ends, number, side="right"))
        batches = self._window(window)
        return batches[number - int(self._ends[window])]  # a negative index, from the window's end

    def _window(self, number: int) -> list[Numbers]:
        if self._planned[0] != number:
            self._planned = number, self._plan(number)
        return self._planned[1]

    def _plan(self, number: int) -> list[Numbers]:
        starts = np.sort(self._windows[number]) * _BLOCK
        pairs = (starts[:, None] + np.arange(_BLOCK)).ravel()
        pairs = pairs[pairs < self._shard.n_pairs]
        n_src, n_tgt = self._shard.src.lengths(pairs) + 1, self._shard.tgt.lengths(pairs) + 1
        longer, slope = np.maximum(n_src, n_tgt), n_tgt - n_src
        ties = draw(self._key(_TIES, number), len(pairs))
        order = np.lexsort((ties, np.where(longer % 2, slope, -slope), longer))
        pairs, longer = pairs[order], longer[order]
        cuts = _cut(longer, self._config.max_tokens)
        batches = [pairs[start:end] for start, end in pairwise(cuts)]
        return [batches[i] for i in draw_order(self._key(_ORDER, number), len(batches))]

    def _key(self, kind: int, window: int = 0) -> tuple[int, ...]:
        return kind, self._seed, self._epoch, window


def _cut(lengths: Numbers, max_tokens: int) -> list[int]:
    """Cut ascending lengths into batches of at most `max_tokens` positions, padding included."""
    cuts = [0]
    while cuts[-1] < len(lengths):
        start = cuts[-1]
        most = max(max_tokens // int(lengths[start]), 1)
        ahead = lengths[start : start + most]
        fitting = int(np.searchsorted(ahead * np.arange(1, len(ahead) + 1), max_tokens, side="right"))
        cuts.append(start + max(fitting, 1))
    return cuts


class Batches:
    """This rank's share of the batches of a prepared corpus, by epoch and number."""

    def __init__(
        self, prepared: Prepared, config: BatchConfig, seed: int = 1, start: int = BOS, rank: int = 0, world: int = 1
    ) -> None:
        """Open nothing yet; `start` is the first id of the decoder input."""
        assert 0 <= rank < world
        self._prepared, self._config, self._seed = prepared, config, seed
        self._start, self._rank, self._world = start, rank, world
        self._opened: tuple[int, Shard, Plan] | None = None
        self.aligner: Aligner | None = None  # if there is one, batches have links

    def count(self, epoch: int) -> int:
        """Return the number of global batches of an epoch, which every rank steps through."""
        return len(self._open(epoch)[1])

    def read(self, epoch: int, number: int) -> Batch:
        """Return this rank's share of a global batch; shares differ by one sentence at most."""
        shard, plan = self._open(epoch)
        pairs = plan[number][self._rank :: self._world]  # sorted by length, so that shares are similar
        src, tgt = shard.src.gather(pairs), shard.tgt.gather(pairs)
        batch = _batch(src, tgt, self._start, pairs)
        return batch if self.aligner is None else batch._replace(links=_links(self.aligner, src, tgt))

    def tokens(self, epoch: int, number: int) -> tuple[int, int]:
        """Return the numbers of source and target tokens of a global batch, EOS included."""
        shard, plan = self._open(epoch)
        pairs = plan[number]
        n_src, n_tgt = shard.src.lengths(pairs).sum(), shard.tgt.lengths(pairs).sum()
        return int(n_src) + len(pairs), int(n_tgt) + len(pairs)

    def shard(self, epoch: int) -> Shard:
        """Return the shard of an epoch, which knows its origin."""
        return self._open(epoch)[0]

    def delete_past_and_prepare_next(self, epoch: int) -> None:
        """Delete the shards that `epoch` no longer needs and prepare the next in the background (first rank only)."""
        if self._rank == 0:
            self._prepared.keep_only(epoch, epoch + 1)
            self._prepared.ahead(epoch + 1)

    def _open(self, epoch: int) -> tuple[Shard, Plan | list[Numbers]]:
        if self._opened is None or self._opened[0] != epoch:
            shard = self._prepared.epoch(epoch)
            self._opened = epoch, shard, Plan(shard, self._config, self._seed, epoch)
        return self._opened[1:]
