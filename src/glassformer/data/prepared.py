"""The prepared corpus: one shard of token ids per epoch, made once and reused while nothing changes.

A shard is a function of the text, the tokenizers, the settings, the seed and the epoch, however many processes made it:
the corpus is cut into chunks of a fixed size, and the random choices for a pair depend only on (seed, epoch, corpus,
turn, chunk) and its row. If nothing is random, all epochs share one shard.

A folder of shards has one lock: one process prepares while the rest wait for the result. The system releases the lock
of a process that is killed, and the next holder deletes its unfinished shard.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import math
import os
import shutil
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from itertools import islice
from pathlib import Path
from typing import Final, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from glassformer.config import CorpusConfig, ReaderConfig
from glassformer.data.augment import N_DRAWS, add_noise, join_texts, mask, rename, runs
from glassformer.data.formats import Faults, corpus_size, open_corpus
from glassformer.data.lines import explain_unreadable
from glassformer.data.pair import Pair
from glassformer.data.seeding import draw, draw_seeds
from glassformer.data.shard import LINES, PART, Block, Counts, Shard, ShardWriter, flatten, id_type, open_shard
from glassformer.data.workers import Worker, map_in_order
from glassformer.errors import DataError
from glassformer.text.tokenizer import Tokenizer, Tokenizers

CHUNK: Final = 2048  # pairs; part of what a seed means

_FORMAT: Final = 1  # increase when the same settings give other ids
_LOCK: Final = "lock"
_NAME: Final = 20  # characters of the key in the folder name; the full key is in meta.json
_POLITENESS: Final = 10  # niceness of a process that prepares ahead, so that training goes first
_ALMOST: Final = 0.99  # 1.0 is reported once everything is on disk
_PHASES, _CHOICES, _NAMES = 0, 1, 2  # first part of a key, so that no two draws are alike

# Called with the number of pairs done and their share; at the end once with 1.0.
Progress = Callable[[int, float], None]


def no_progress(n_pairs: int, share: float) -> None:
    """Ignore progress."""


class Chunk(NamedTuple):
    """Neighbouring pairs of one corpus, and the key of their random choices."""

    corpus: int
    turn: int  # a corpus of weight 2 is read twice
    number: int
    src: list[str]
    tgt: list[str]
    places: NDArray[np.int64]
    share: float  # of all bytes that were read up to this chunk


class EncodedPair(NamedTuple):
    """A pair as ids, made from one or more neighbouring rows of a chunk."""

    rows: range
    src: list[int]
    tgt: list[int]


class PairEncoder(NamedTuple):
    """Encodes the pairs of one epoch."""

    tokenizers: Tokenizers
    reader: ReaderConfig
    weights: tuple[float, ...]
    seed: int
    epoch: int

    def encode(self, chunk: Chunk) -> tuple[Block, float]:
        """Select, join, add noise and encode; return the block with the chunk's share."""
        chosen = self._chosen(chunk)
        src, tgt = [chunk.src[row] for row in chosen], [chunk.tgt[row] for row in chosen]
        key = self._key(_CHOICES, chunk)
        draws, noise = draw(key, CHUNK, 1 + N_DRAWS)[chosen], self.reader.noise
        names = draw(self._key(_NAMES, chunk), CHUNK)[chosen]
        seeds = draw_seeds(key, 2 * CHUNK) if self.reader.sample_alpha else []
        tgt_seeds = seeds[CHUNK:] if self.reader.sample_sides == "both" else []

        def entries_of(pieces: list[range]) -> list[EncodedPair]:
            sources = [join_texts(src[piece.start : piece.stop]) for piece in pieces]
            targets = [join_texts(tgt[piece.start : piece.stop]) for piece in pieces]
            starts = [piece.start for piece in pieces]
            for number, i in enumerate(starts):
                change = rename if names[i] < self.reader.rename else mask if names[i] >= 1 - self.reader.mask else None
                if change is not None:
                    sources[number], targets[number] = change(sources[number], targets[number], float(names[i]))
            if noise.is_on:
                sources = [add_noise(text, draws[i, 1:], noise) for text, i in zip(sources, starts, strict=True)]
            rows = [int(chosen[piece.start]) for piece in pieces]
            src_ids = self._cut(self.tokenizers.src, sources, seeds[:CHUNK], rows)
            tgt_ids = self._cut(self.tokenizers.tgt, targets, tgt_seeds, rows)
            return [EncodedPair(*entry) for entry in zip(pieces, src_ids, tgt_ids, strict=True)]

        entries = entries_of(runs(draws[:, 0] < self.reader.join))
        parted = [range(row, row + 1) for entry in entries if self._parts(entry) for row in entry.rows]
        if parted:  # joined pairs that are too long are separated again
            entries = [entry for entry in entries if not self._parts(entry)] + entries_of(parted)
            entries.sort(key=lambda entry: entry.rows.start)
        kept = [entry for entry in entries if self._fits(entry)]
        empty = sum(not (entry.src and entry.tgt) for entry in entries)
        counts = Counts(
            taken=len(chosen),
            kept=len(kept),
            joined=len(chosen) - len(entries),
            empty=empty,
            too_long=len(entries) - len(kept) - empty,
        )
        places = chunk.places[chosen][[entry.rows.start for entry in kept]]
        sources = flatten([entry.src for entry in kept], id_type(self.tokenizers.src.vocab_size))
        targets = flatten([entry.tgt for entry in kept], id_type(self.tokenizers.tgt.vocab_size))
        return Block(*sources, *targets, places, counts), chunk.share

    def _key(self, kind: int, chunk: Chunk) -> tuple[int, ...]:
        return kind, self.seed, self.epoch, chunk.corpus, chunk.turn, chunk.number

    def _chosen(self, chunk: Chunk) -> NDArray[np.int64]:
        """Return the rows of this turn: all, or some if the weight has a fraction.

        Each pair has a random phase, and is selected when weight * epoch + phase passes an integer: a corpus of weight
        0.25 gives about a quarter of its pairs each epoch, and each pair once in four epochs.
        """
        rows = np.arange(len(chunk.src))
        fraction = self.weights[chunk.corpus] % 1
        if not fraction or chunk.turn < int(self.weights[chunk.corpus]):
            return rows
        phases = draw((_PHASES, self.seed, 0, chunk.corpus, 0, chunk.number), CHUNK)[rows]
        passed = np.floor((self.epoch + 1) * fraction + phases) - np.floor(self.epoch * fraction + phases)
        return rows[passed > 0]

    def _cut(self, tokenizer: Tokenizer, texts: list[str], seeds: list[int], rows: list[int]) -> list[list[int]]:
        if not seeds:
            return tokenizer.encode_batch(texts)
        alpha = self.reader.sample_alpha
        return [tokenizer.sample(text, alpha, seeds[row]) for text, row in zip(texts, rows, strict=True)]

    def _fits(self, entry: EncodedPair) -> bool:
        return 0 < len(entry.src) < self.reader.max_length and 0 < len(entry.tgt) < self.reader.max_length

    def _parts(self, entry: EncodedPair) -> bool:
        return len(entry.rows) > 1 and not self._fits(entry)


def _stamp(path: Path) -> tuple[int, int]:
    """Return the size and modification time, which show cheaply that a file has changed."""
    state = path.stat()
    return state.st_size, state.st_mtime_ns


class _Preparation(NamedTuple):
    """Everything a process needs to make the shard of an epoch."""

    corpora: tuple[CorpusConfig, ...]
    reader: ReaderConfig
    tokenizers: Tokenizers
    seed: int
    folder: Path
    key: str
    stamps: dict[Path, tuple[int, int]]

    @property
    def is_random(self) -> bool:
        return self.reader.is_random or any(corpus.weight % 1 for corpus in self.corpora)

    def path(self, epoch: int) -> Path:
        return self.folder / (f"{self.key[:_NAME]}-{epoch}" if self.is_random else self.key[:_NAME])

    def open(self, epoch: int) -> Shard | None:
        return open_shard(self.path(epoch), self.key, epoch if self.is_random else None)

    def make_politely(self, epoch: int) -> None:
        os.nice(_POLITENESS)
        self.make(epoch, 1, no_progress)

    def make(self, epoch: int, n_processes: int, progress: Progress) -> None:
        try:
            with _locked(self.folder):
                if self.open(epoch) is not None:
                    return  # another process made it while we waited
                _discard(self.path(epoch))
                for leftover in self.folder.glob(f"*{PART}"):
                    shutil.rmtree(leftover, ignore_errors=True)
                self._write(epoch, n_processes, progress)
        except OSError as error:  # errors of the corpus are DataErrors already
            raise DataError(f"cannot write the prepared corpus to {self.folder}: {error.strerror or error}") from None

    def _write(self, epoch: int, n_processes: int, progress: Progress) -> None:
        sizes = self.tokenizers.src.vocab_size, self.tokenizers.tgt.vocab_size
        weights = tuple(corpus.weight for corpus in self.corpora)
        encoder = PairEncoder(self.tokenizers, self.reader, weights, self.seed, epoch if self.is_random else 0)
        files: dict[str, int] = {}
        faults = Faults()
        blocks: Generator[tuple[Block, float]] = map_in_order(encoder.encode, self._chunks(files, faults), n_processes)
        with ShardWriter.open(self.path(epoch), (id_type(sizes[0]), id_type(sizes[1]))) as writer, closing(blocks):
            self._check_stamps()
            for block, share in blocks:
                writer.write(block)
                progress(writer.counts.taken, min(share, _ALMOST))
            self._check_stamps()
            writer.finish(
                key=self.key,
                epoch=epoch if self.is_random else None,
                max_length=self.reader.max_length,
                files=tuple(files),
                reading=tuple(faults.report()),
            )
        progress(writer.counts.taken, 1.0)

    def _chunks(self, files: dict[str, int], faults: Faults) -> Iterator[Chunk]:
        """Yield the chunks of the corpora by their weights; `files` and `faults` are filled on the way."""
        turns = [math.ceil(corpus.weight) for corpus in self.corpora]
        n_bytes = max(sum(n * corpus_size(corpus) for n, corpus in zip(turns, self.corpora, strict=True)), 1)
        read = 0

        def watch(more: int) -> None:
            nonlocal read
            read += more

        for number, corpus in enumerate(self.corpora):
            for turn in range(turns[number]):
                seen = Faults() if turn else faults  # a fault is counted once, however often it is read
                pairs = open_corpus(corpus, seen, self.reader.on_fault, watch)
                for position, some in enumerate(iter(lambda: list(islice(pairs, CHUNK)), list[Pair]())):  # noqa: B023
                    src, tgt, names, lines = map(list, zip(*some, strict=True))
                    starts = [files.setdefault(name, len(files)) * LINES for name in names]
                    places = np.array(starts, np.int64) + np.array(lines, np.int64)
                    yield Chunk(number, turn, position, src, tgt, places, read / n_bytes)

    def _check_stamps(self) -> None:
        for path, stamp in self.stamps.items():
            if not path.exists() or _stamp(path) != stamp:
                raise DataError(f"{path} was changed since the run began; restart the run")


class Prepared:
    """A corpus as shards of token ids, one per epoch or one for all; corpora may share a folder."""

    def __init__(
        self,
        corpora: Sequence[CorpusConfig],
        reader: ReaderConfig,
        tokenizers: Tokenizers,
        folder: Path,
        seed: int = 1,
        n_processes: int = 1,
        progress: Progress = no_progress,
    ) -> None:
        """Hash the files; nothing is written before a shard is requested."""
        stamps, hashes = {}, []
        for path in (path for corpus in corpora for path in corpus.paths):
            try:
                stamps[path] = _stamp(path)
                with path.open("rb") as file:
                    hashes.append(hashlib.file_digest(file, "sha256").hexdigest())
            except OSError as error:
                raise DataError(explain_unreadable(error, path, 0)) from None
        recipe = {
            "format": _FORMAT,
            "text": hashes,
            "corpora": [
                {"kind": corpus.kind, **corpus.model_dump(mode="json", exclude={"path", "target_path", "format"})}
                for corpus in corpora
            ],
            "tokenizers": [tokenizer.sha256 for tokenizer in tokenizers],
            "reader": reader.model_dump(mode="json"),
        }
        preparation = _Preparation(tuple(corpora), reader, tokenizers, seed, Path(folder), "", stamps)
        if preparation.is_random:
            recipe["seed"] = seed
        key = hashlib.sha256(json.dumps(recipe, sort_keys=True).encode()).hexdigest()
        self._preparation = preparation._replace(key=key)
        self._n_processes, self._progress = n_processes, progress
        self._worker: tuple[int, Worker] | None = None  # the epoch that is being prepared ahead, and its process

    @property
    def is_random(self) -> bool:
        """Whether each epoch has a shard of its own."""
        return self._preparation.is_random

    def epoch(self, number: int) -> Shard:
        """Open the shard of an epoch, and make it first if needed."""
        shard = self._preparation.open(number)
        if shard is None:
            self._wait_for(number)
            self._preparation.make(number, self._n_processes, self._progress)
            shard = self._preparation.open(number)
            assert shard is not None, "a shard that was made can be opened"
        if not shard.n_pairs:
            raise DataError(f"no pairs left to train on: {'; '.join(map(str.strip, shard.meta.report()))}")
        return shard

    def keep_only(self, *epochs: int) -> None:
        """Delete the shards of all other epochs, if each epoch has its own."""
        if self.is_random:
            kept = {self._preparation.path(epoch) for epoch in epochs}
            for path in self._preparation.folder.glob(f"{self._preparation.key[:_NAME]}-*"):
                if path not in kept and path.suffix != PART:
                    _discard(path)

    def ahead(self, number: int) -> None:
        """Start to make the shard of a coming epoch, in the background."""
        if not self.is_random or (self._worker is not None and self._worker[0] == number):
            return
        self.close()
        if self._preparation.open(number) is None:
            self._worker = number, Worker(self._preparation.make_politely)
            self._worker[1].ask(number, last=True)

    def close(self) -> None:
        """Stop the process that prepares ahead, if there is one."""
        if self._worker is not None:
            self._worker[1].close()
            self._worker = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _wait_for(self, number: int) -> None:
        if self._worker is not None and self._worker[0] == number:
            with suppress(DataError):  # the same error is raised again when this process does the work
                self._worker[1].answer()
        self.close()


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / _LOCK).open("wb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _discard(shard: Path) -> None:
    """Delete a shard; it is renamed first, so that it never exists in part."""
    doomed = shard.with_name(f"{shard.name}.old{PART}")
    try:
        shard.rename(doomed)
    except FileNotFoundError:
        return
    shutil.rmtree(doomed, ignore_errors=True)
