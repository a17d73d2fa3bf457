"""One epoch of token ids on disk, memory-mapped, so that it may exceed memory and be shared by processes.

    src.ids      tgt.ids        uint16 or uint32, all sentences concatenated, without BOS and EOS
    src.offsets  tgt.offsets    int64, n_pairs + 1: the start of each sentence, and the end
    places                      int64, n_pairs: file number * 2^40 + line
    meta.json                   the origin of the shard, and the counts of its pairs

A shard is written under a name that ends in `.part`, synced and renamed. The name is fixed, unlike that of a temporary
folder, so that the next preparation finds and deletes what a killed process left behind.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from itertools import chain
from pathlib import Path
from typing import Any, BinaryIO, Final, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from glassformer.config import Settings
from glassformer.files import sync, sync_folder

LINES: Final = 2**40  # exceeds the number of lines of any file
PART: Final = ".part"

_META: Final = "meta.json"
_NUMBER: Final = "<i8"
_SIDES: Final = ("src", "tgt")

Ids = NDArray[np.uint16] | NDArray[np.uint32]
Numbers = NDArray[np.int64]


def flatten(sentences: Sequence[Sequence[int]], dtype: Any = np.int64) -> tuple[NDArray[Any], Numbers]:
    """Return the concatenated ids of some sentences, and their lengths."""
    lengths = np.fromiter(map(len, sentences), np.int64, len(sentences))
    return np.fromiter(chain.from_iterable(sentences), dtype, int(lengths.sum())), lengths


def id_type(vocab_size: int) -> str:
    """Return the smallest type that holds every id."""
    return "<u2" if vocab_size <= 2**16 else "<u4"


class Counts(NamedTuple):
    """Counts of pairs; `taken` is the sum of the other fields."""

    taken: int = 0  # read, and selected by the weight of their corpus
    kept: int = 0  # the pairs of the shard
    joined: int = 0  # appended to the pair before
    empty: int = 0  # without a token on one side
    too_long: int = 0

    def add(self, other: Counts) -> Counts:
        """Return the sum of both."""
        return Counts(*(ours + theirs for ours, theirs in zip(self, other, strict=True)))


class Block(NamedTuple):
    """Some pairs as ids, ready to be written to a shard."""

    src: Ids
    src_lengths: Numbers
    tgt: Ids
    tgt_lengths: Numbers
    places: Numbers
    counts: Counts


class Meta(Settings):
    """The origin and content of a shard."""

    key: str
    epoch: int | None  # None if all epochs share the shard
    id_types: tuple[str, str]
    n_tokens: tuple[int, int]
    longest: tuple[int, int]  # tokens of a side, EOS included
    counts: Counts
    max_length: int
    files: tuple[str, ...]
    reading: tuple[str, ...]  # the report on faulty lines

    def report(self) -> list[str]:
        """Return a report on the pairs as lines of text; every pair that was left out is counted."""
        counts = self.counts
        joined = f", {counts.joined:,} joined to the pair before" if counts.joined else ""
        lines = [*self.reading, f"{counts.kept:,} pairs of {counts.taken:,} prepared{joined}"]
        if counts.too_long:
            lines.append(f"  {counts.too_long:,} × a side longer than max_length={self.max_length} tokens, left out")
        if counts.empty:
            lines.append(f"  {counts.empty:,} × a side without any token, left out")
        return lines


class Side(NamedTuple):
    """The sentences of one language."""

    ids: Ids
    offsets: Numbers

    def lengths(self, pairs: Numbers) -> Numbers:
        """Return the number of tokens of some sentences, without EOS."""
        lengths: Numbers = self.offsets[pairs + 1] - self.offsets[pairs]
        return lengths

    def gather(self, pairs: Numbers) -> tuple[Ids, Numbers]:
        """Return the concatenated ids of some sentences, and their lengths."""
        starts, lengths = self.offsets[pairs], self.lengths(pairs)
        ends = lengths.cumsum()
        total = int(ends[-1]) if len(ends) else 0
        return self.ids[np.repeat(starts - ends + lengths, lengths) + np.arange(total)], lengths


class Shard(NamedTuple):
    """A complete shard, opened for reading."""

    meta: Meta
    src: Side
    tgt: Side
    places: Numbers

    @property
    def n_pairs(self) -> int:
        """Number of pairs."""
        return len(self.places)

    def place(self, pair: int) -> str:
        """Return the place of a pair in the corpus as `file:line`."""
        file, line = divmod(int(self.places[pair]), LINES)
        return f"{self.meta.files[file]}:{line}"


def open_shard(folder: Path, key: str, epoch: int | None) -> Shard | None:
    """Open a shard if it exists, is complete and has this key; otherwise return None."""
    try:
        meta = Meta(**json.loads((folder / _META).read_bytes()))
        if (meta.key, meta.epoch) != (key, epoch):
            return None
        n_pairs = meta.counts.kept
        sides = [
            Side(_map(folder / f"{name}.ids", dtype, n_tokens), _map(folder / f"{name}.offsets", _NUMBER, n_pairs + 1))
            for name, dtype, n_tokens in zip(_SIDES, meta.id_types, meta.n_tokens, strict=True)
        ]
        return Shard(meta, sides[0], sides[1], _map(folder / "places", _NUMBER, n_pairs))
    except (OSError, ValueError, TypeError):  # JSON and settings raise ValueError, too
        return None


def _map(path: Path, dtype: str, count: int) -> NDArray[Any]:
    if path.stat().st_size != count * np.dtype(dtype).itemsize:
        raise ValueError(f"{path} does not hold {count} numbers")
    if not count:  # an empty file cannot be mapped
        return np.empty(0, dtype)
    return np.asarray(np.memmap(path, dtype, "r"))


def _part(folder: Path) -> Path:
    return folder.with_name(folder.name + PART)


class ShardWriter:
    """Writes a shard, which appears atomically with `finish`."""

    def __init__(self, folder: Path, id_types: tuple[str, str], files: Mapping[str, BinaryIO]) -> None:
        """Begin with the open files of an empty shard."""
        self._folder, self._id_types, self._files = folder, id_types, files
        self.counts = Counts()
        self._n_tokens = [0, 0]
        self._longest = [0, 0]
        for side in _SIDES:
            self._write(f"{side}.offsets", np.zeros(1, _NUMBER))

    @classmethod
    @contextmanager
    def open(cls, folder: Path, id_types: tuple[str, str]) -> Iterator[Self]:
        """Write a shard within the block; without `finish` nothing is left behind."""
        part, names = _part(folder), [f"{side}.{what}" for side in _SIDES for what in ("ids", "offsets")]
        with ExitStack() as stack:
            stack.callback(shutil.rmtree, part, ignore_errors=True)
            part.mkdir(parents=True)
            files = {name: stack.enter_context((part / name).open("wb")) for name in (*names, "places")}
            yield cls(folder, id_types, files)

    def write(self, block: Block) -> None:
        """Append some pairs."""
        sides = (block.src, block.src_lengths), (block.tgt, block.tgt_lengths)
        for number, (ids, lengths) in enumerate(sides):
            assert len(lengths) == len(block.places)
            self._write(f"{_SIDES[number]}.ids", ids.astype(self._id_types[number], copy=False))
            self._write(f"{_SIDES[number]}.offsets", self._n_tokens[number] + lengths.cumsum(dtype=_NUMBER))
            self._n_tokens[number] += len(ids)
            self._longest[number] = max(self._longest[number], int(lengths.max(initial=-1)) + 1)
        self._write("places", block.places.astype(_NUMBER, copy=False))
        self.counts = self.counts.add(block.counts)

    def finish(self, **origin: Any) -> None:
        """Complete the shard, with the remaining fields of `Meta`."""
        meta = Meta(
            id_types=self._id_types,
            n_tokens=(self._n_tokens[0], self._n_tokens[1]),
            longest=(self._longest[0], self._longest[1]),
            counts=self.counts,
            **origin,
        )
        part = _part(self._folder)
        for file in self._files.values():
            sync(file)
        with (part / _META).open("wb") as file:
            file.write(meta.model_dump_json(indent=1).encode())
            sync(file)
        sync_folder(part)
        part.rename(self._folder)
        sync_folder(self._folder.parent)

    def _write(self, name: str, numbers: NDArray[Any]) -> None:
        self._files[name].write(np.ascontiguousarray(numbers).data)
