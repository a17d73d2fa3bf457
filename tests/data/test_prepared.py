"""The prepared corpus: whole or not there, made once, the same however it was made."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Final

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from glassformer.config import CorpusConfig, NoiseConfig, ReaderConfig, TokenizerConfig
from glassformer.data.augment import join_texts
from glassformer.data.prepared import CHUNK, Chunk, PairEncoder, Prepared
from glassformer.data.shard import Block, Counts, Shard, ShardWriter, Side, id_type, open_shard
from glassformer.errors import ConfigError, DataError
from glassformer.text.tokenizer import Tokenizer, Tokenizers

WORDS = ["le", "la", "chat", "chien", "mange", "boit", "l'eau", "été", "très", "vite", "demain", "où", "pourquoi"]
Pairs = list[tuple[str, str]]

EVERYTHING = ReaderConfig(
    sample_alpha=0.3,
    join=0.3,
    noise=NoiseConfig(no_stop=0.3, lower=0.2, upper=0.2, apostrophes=0.3, spaces=0.3, no_accents=0.3),
)
RANDOM = [
    ReaderConfig(sample_alpha=0.3),
    ReaderConfig(join=0.3),
    ReaderConfig(noise=NoiseConfig(no_accents=0.5)),
    EVERYTHING,
]


def sentences(count: int, seed: int = 0) -> Pairs:
    draw = np.random.default_rng(seed)
    words = draw.choice(WORDS, (2 * count, 6)).tolist()
    lengths, ends = draw.integers(1, 7, 2 * count).tolist(), draw.choice([".", " ?"], 2 * count).tolist()
    texts = [" ".join(row[:n]).capitalize() + end for row, n, end in zip(words, lengths, ends, strict=True)]
    return list(zip(texts[::2], texts[1::2], strict=True))


def write(path: Path, pairs: Pairs) -> CorpusConfig:
    path.write_text("".join(f"{src}\t{tgt}\n" for src, tgt in pairs), encoding="utf-8")
    return CorpusConfig(path=path)


@pytest.fixture(scope="module")
def tokenizers() -> Tokenizers:
    joint = Tokenizer.train((text for pair in sentences(300) for text in pair), TokenizerConfig(vocab_size=310))
    return Tokenizers(joint, joint)


def ids(side: Side, pair: int) -> list[int]:
    found: list[int] = side.ids[side.offsets[pair] : side.offsets[pair + 1]].tolist()
    return found


def texts(shard: Shard, tokenizers: Tokenizers) -> Pairs:
    return [
        (tokenizers.src.decode(ids(shard.src, pair)), tokenizers.tgt.decode(ids(shard.tgt, pair)))
        for pair in range(shard.n_pairs)
    ]


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir())}


def shards(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir() if path.name != "lock")


class Heard:
    """A progress that remembers."""

    def __init__(self) -> None:
        self.calls: list[tuple[int, float]] = []

    def __call__(self, n_pairs: int, share: float) -> None:
        self.calls.append((n_pairs, share))


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("on_fault", "mend"),
        ("max_length", 1),
        ("max_length", 10**9),
        ("sample_alpha", -0.1),
        ("sample_alpha", 1.5),
        ("join", 1.0),
        ("join", -0.5),
        ("noise.lower", 2),
    ],
)
def test_settings_have_limits(name: str, value: object) -> None:
    outer, _, inner = name.partition(".")
    with pytest.raises(ConfigError, match=f"^here: {name}="):
        ReaderConfig.parse({outer: {inner: value} if inner else value}, "here")


def test_nothing_is_random_by_default() -> None:
    assert not ReaderConfig().is_random
    assert all(reader.is_random for reader in RANDOM)


def test_ids_are_those_of_the_text(tmp_path: Path, tokenizers: Tokenizers) -> None:
    pairs = sentences(CHUNK + 10)
    corpus = write(tmp_path / "a.tsv", pairs)
    heard = Heard()
    shard = Prepared([corpus], ReaderConfig(), tokenizers, tmp_path / "data", progress=heard).epoch(0)
    assert texts(shard, tokenizers) == pairs
    assert [ids(shard.src, 5), ids(shard.tgt, 7)] == [
        tokenizers.src.encode(pairs[5][0]),
        tokenizers.tgt.encode(pairs[7][1]),
    ]
    assert (shard.place(0), shard.place(CHUNK)) == (f"{corpus.path}:1", f"{corpus.path}:{CHUNK + 1}")
    assert shard.meta.n_tokens == (len(shard.src.ids), len(shard.tgt.ids))
    assert shard.meta.longest == tuple(int(np.diff(side.offsets).max()) + 1 for side in (shard.src, shard.tgt))
    assert shard.src.ids.dtype == np.uint16
    assert not shard.src.ids.flags.writeable
    assert [n for n, _ in heard.calls] == [CHUNK, CHUNK + 10, CHUNK + 10]
    assert all(share < 1 for _, share in heard.calls[:-1])
    assert heard.calls[-1][1] == 1


@pytest.mark.parametrize("reader", [ReaderConfig(), EVERYTHING], ids=["plain", "everything"])
def test_the_number_of_processes_changes_nothing(reader: ReaderConfig, tmp_path: Path, tokenizers: Tokenizers) -> None:
    corpora = [write(tmp_path / "a.tsv", sentences(4 * CHUNK)), write(tmp_path / "b.tsv", sentences(500, 1))]
    if reader.is_random:
        corpora[1] = corpora[1].model_copy(update={"weight": 1.5})
    for n_processes in (1, 2):
        Prepared(corpora, reader, tokenizers, tmp_path / str(n_processes), n_processes=n_processes).epoch(0)
    (one,), (two,) = shards(tmp_path / "1"), shards(tmp_path / "2")
    assert one == two
    assert contents(tmp_path / "1" / one) == contents(tmp_path / "2" / two)


def test_what_did_not_change_is_not_made_again(tmp_path: Path, tokenizers: Tokenizers) -> None:
    pairs = sentences(50)
    corpus, heard = write(tmp_path / "a.tsv", pairs), Heard()

    def prepare(corpus: CorpusConfig, seed: int = 1) -> Shard:
        return Prepared([corpus], ReaderConfig(), tokenizers, tmp_path / "data", seed, progress=heard).epoch(0)

    prepare(corpus)
    calls = len(heard.calls)
    os.utime(corpus.path, (0, 0))
    moved = write(tmp_path / "elsewhere.tsv", pairs)
    for same in (corpus, moved):
        assert texts(prepare(same, seed=2), tokenizers) == pairs  # a seed means nothing where nothing is random
    assert len(heard.calls) == calls
    assert len(shards(tmp_path / "data")) == 1


def test_what_changed_is_made_again(tmp_path: Path, tokenizers: Tokenizers) -> None:
    pairs = sentences(50)
    corpus = write(tmp_path / "a.tsv", pairs)
    other = Tokenizer.train((text for pair in sentences(200, 5) for text in pair), TokenizerConfig(vocab_size=300))
    changes: list[tuple[CorpusConfig, ReaderConfig, Tokenizers, int]] = [
        (corpus, ReaderConfig(), tokenizers, 1),
        (write(tmp_path / "b.tsv", pairs[1:]), ReaderConfig(), tokenizers, 1),
        (corpus.model_copy(update={"swap": True}), ReaderConfig(), tokenizers, 1),
        (corpus.model_copy(update={"weight": 2.0}), ReaderConfig(), tokenizers, 1),
        (corpus, ReaderConfig(), tokenizers._replace(src=other), 1),
        (corpus, ReaderConfig(), tokenizers._replace(tgt=other), 1),
        (corpus, ReaderConfig(max_length=9), tokenizers, 1),
        (corpus, ReaderConfig(on_fault="fail"), tokenizers, 1),
        *[(corpus, reader, tokenizers, 1) for reader in RANDOM],
        (corpus, RANDOM[0], tokenizers, 2),
    ]
    for n_shards, (text, reader, tokenizer, seed) in enumerate(changes, 1):
        Prepared([text], reader, tokenizer, tmp_path / "data", seed).epoch(0)
        assert len(shards(tmp_path / "data")) == n_shards


def test_epochs_share_a_shard_if_nothing_is_random(tmp_path: Path, tokenizers: Tokenizers) -> None:
    prepared = Prepared([write(tmp_path / "a.tsv", sentences(20))], ReaderConfig(), tokenizers, tmp_path / "data")
    assert not prepared.is_random
    prepared.epoch(0)
    prepared.ahead(1)
    assert texts(prepared.epoch(7), tokenizers) == sentences(20)
    assert len(shards(tmp_path / "data")) == 1


@pytest.mark.parametrize("reader", RANDOM, ids=["sampling", "joining", "noise", "everything"])
def test_epochs_differ_and_come_back(reader: ReaderConfig, tmp_path: Path, tokenizers: Tokenizers) -> None:
    corpus = write(tmp_path / "a.tsv", sentences(200))
    found = []
    for folder, seed in (("one", 1), ("two", 1), ("three", 2)):
        prepared = Prepared([corpus], reader, tokenizers, tmp_path / folder, seed)
        assert prepared.is_random
        found.append([[ids(s.src, pair) for pair in range(s.n_pairs)] for s in map(prepared.epoch, (1, 0))])
    assert found[0] == found[1]
    assert found[0][0] != found[0][1]
    assert found[0] != found[2]


def test_sampling_cuts_the_same_text(tmp_path: Path, tokenizers: Tokenizers) -> None:
    pairs = sentences(100)
    prepared = Prepared(
        [write(tmp_path / "a.tsv", pairs)], ReaderConfig(sample_alpha=0.1), tokenizers, tmp_path / "data"
    )
    for epoch in range(2):
        shard = prepared.epoch(epoch)
        assert texts(shard, tokenizers) == pairs
        assert sum(ids(shard.src, pair) != tokenizers.src.encode(pairs[pair][0]) for pair in range(100)) > 5
        assert sum(ids(shard.tgt, pair) != tokenizers.tgt.encode(pairs[pair][1]) for pair in range(100)) > 5


def test_sampling_may_leave_the_target_alone(tmp_path: Path, tokenizers: Tokenizers) -> None:
    pairs, both = sentences(100), ReaderConfig(sample_alpha=0.1)
    block = encode(pairs, tokenizers, both.model_copy(update={"sample_sides": "source"}))
    assert block.tgt.tolist() == encode(pairs, tokenizers, ReaderConfig()).tgt.tolist()
    assert block.src.tolist() == encode(pairs, tokenizers, both).src.tolist()


def test_noise_is_on_the_source_only(tmp_path: Path, tokenizers: Tokenizers) -> None:
    pairs = sentences(100)
    reader = ReaderConfig(noise=NoiseConfig(upper=1))
    shard = Prepared([write(tmp_path / "a.tsv", pairs)], reader, tokenizers, tmp_path / "data").epoch(0)
    assert texts(shard, tokenizers) == [(src.upper(), tgt) for src, tgt in pairs]


def encode(pairs: Pairs, tokenizers: Tokenizers, reader: ReaderConfig, epoch: int = 0, weight: float = 1.0) -> Block:
    src, tgt = [src for src, _ in pairs], [tgt for _, tgt in pairs]
    chunk = Chunk(0, 0, 0, src, tgt, np.arange(len(pairs)), 0.0)
    return PairEncoder(tokenizers, reader, (weight,), 1, epoch).encode(chunk)[0]


@given(count=st.integers(1, 60), join=st.floats(0, 0.9), max_length=st.integers(8, 40), epoch=st.integers(0, 5))
def test_joining_loses_nothing_and_keeps_to_the_limit(
    tokenizers: Tokenizers, count: int, join: float, max_length: int, epoch: int
) -> None:
    pairs = sentences(count, epoch)
    block = encode(pairs, tokenizers, ReaderConfig(join=join, max_length=max_length), epoch)
    alone = encode(pairs, tokenizers, ReaderConfig(max_length=max_length), epoch)
    counts = block.counts
    assert counts.taken == count == counts.kept + counts.joined + counts.empty + counts.too_long
    assert counts.too_long == alone.counts.too_long  # none for being joined
    assert max([*block.src_lengths, *block.tgt_lengths], default=0) < max_length
    starts = block.places.tolist()
    assert starts == sorted(set(starts))
    if not counts.too_long:
        for start, end, src, tgt in zip(starts, [*starts[1:], count], *_sentences(block), strict=True):
            assert src == tokenizers.src.encode(join_texts([src for src, _ in pairs[start:end]]))
            assert tgt == tokenizers.tgt.encode(join_texts([tgt for _, tgt in pairs[start:end]]))


def _sentences(block: Block) -> list[list[list[int]]]:
    sides = (block.src, block.src_lengths), (block.tgt, block.tgt_lengths)
    return [[part.tolist() for part in np.split(ids, lengths.cumsum()[:-1])] for ids, lengths in sides]


def test_joining_is_as_often_as_asked(tokenizers: Tokenizers) -> None:
    counts = encode(sentences(CHUNK), tokenizers, ReaderConfig(join=0.25)).counts
    assert counts.joined / counts.taken == pytest.approx(0.25, abs=0.03)


@given(weight=st.sampled_from([0.1, 0.25, 0.5, 1.0, 1.5, 2.0, 2.75]), epochs=st.integers(1, 12))
def test_a_weight_is_how_often_each_pair_comes(tokenizers: Tokenizers, weight: float, epochs: int) -> None:
    """In n epochs every pair comes n * weight times, rounded up or down."""
    seen = Counter(range(40))
    for epoch in range(epochs):
        for turn in range(int(np.ceil(weight))):
            chunk = Chunk(0, turn, 0, ["a"] * 40, ["b"] * 40, np.arange(40), 0.0)
            block, _ = PairEncoder(tokenizers, ReaderConfig(), (weight,), 1, epoch).encode(chunk)
            seen.update(block.places.tolist())
    exactly = epochs * weight
    assert {n - 1 for n in seen.values()} <= {int(np.floor(exactly)), int(np.ceil(exactly))}


def test_weights_repeat_and_draw(tmp_path: Path, tokenizers: Tokenizers) -> None:
    one, two = sentences(100), sentences(300, 1)
    corpora = [write(tmp_path / "a.tsv", one), write(tmp_path / "b.tsv", two)]
    corpora = [corpora[0].model_copy(update={"weight": 2.0}), corpora[1].model_copy(update={"weight": 0.5})]
    prepared = Prepared(corpora, ReaderConfig(), tokenizers, tmp_path / "data")
    assert prepared.is_random
    first, second = (texts(prepared.epoch(epoch), tokenizers) for epoch in (0, 1))
    assert first[:200] == second[:200] == one + one
    assert sorted(first[200:] + second[200:]) == sorted(two)
    assert 100 < len(first[200:]) < 200
    assert prepared.epoch(0).place(200).startswith(f"{corpora[1].path}:")


def test_what_is_left_out_is_counted(tmp_path: Path, tokenizers: Tokenizers) -> None:
    long = " ".join(WORDS)
    path = tmp_path / "a.tsv"
    path.write_text(f"{long}\tchat\nchien\t{long}\nle chat\tla\nno tab\nle\tla\n", encoding="utf-8")
    limit = len(tokenizers.src.encode("le chat")) + 1
    shard = Prepared([CorpusConfig(path=path)], ReaderConfig(max_length=limit), tokenizers, tmp_path / "data").epoch(0)
    assert texts(shard, tokenizers) == [("le chat", "la"), ("le", "la")]
    assert [shard.place(0), shard.place(1)] == [f"{path}:3", f"{path}:5"]
    assert shard.meta.counts == Counts(taken=4, kept=2, too_long=2)
    report = shard.meta.report()
    assert report[0] == "5 lines, 4 pairs, 1 skipped"
    assert report[-2:] == ["2 pairs of 4 prepared", f"  2 × a side longer than max_length={limit} tokens, left out"]


def test_a_side_without_tokens_is_counted(tokenizers: Tokenizers) -> None:
    class Silent(Tokenizer):
        def encode_batch(self, texts: Sequence[str]) -> list[list[int]]:
            return [[] if text == "le" else ids for text, ids in zip(texts, super().encode_batch(texts), strict=True)]

    silent = tokenizers._replace(tgt=Silent(tokenizers.tgt.model_bytes))
    counts = encode([("a", "le"), ("b", "la"), ("c", "le")], silent, ReaderConfig()).counts
    assert counts == Counts(taken=3, kept=1, empty=2)


def test_nothing_left_is_an_error(tmp_path: Path, tokenizers: Tokenizers) -> None:
    corpus = write(tmp_path / "a.tsv", [("le chat mange", "la"), ("le chien", "la")])
    with pytest.raises(DataError, match=r"^no pairs left to train on: .* 2 × a side longer than max_length=2"):
        Prepared([corpus], ReaderConfig(max_length=2), tokenizers, tmp_path / "data").epoch(0)


@pytest.mark.parametrize(("size", "dtype"), [(5, "<u2"), (65_536, "<u2"), (65_537, "<u4")])
def test_ids_take_as_little_as_they_need(size: int, dtype: str) -> None:
    assert id_type(size) == dtype
    assert np.iinfo(dtype).max >= size - 1


def test_ids_of_a_large_vocabulary(tmp_path: Path) -> None:
    block = Block(np.array([70_000, 5]), np.array([2]), np.array([65_535]), np.array([1]), np.array([1]), Counts(1, 1))
    with ShardWriter.open(tmp_path / "shard", ("<u4", "<u2")) as writer:
        writer.write(block)
        writer.finish(key="k", epoch=None, max_length=9, files=("a",), reading=())
    shard = open_shard(tmp_path / "shard", "k", None)
    assert shard is not None
    assert (ids(shard.src, 0), ids(shard.tgt, 0)) == ([70_000, 5], [65_535])
    assert open_shard(tmp_path / "shard", "another", None) is None
    assert open_shard(tmp_path / "shard", "k", 0) is None


@given(lengths=st.lists(st.integers(0, 5), min_size=1), data=st.data())
def test_gathering_reads_what_was_asked_for(lengths: list[int], data: st.DataObject) -> None:
    offsets = np.cumsum([0, *lengths])
    side = Side(np.arange(offsets[-1], dtype=np.uint16), offsets)
    pairs = data.draw(st.lists(st.integers(0, len(lengths) - 1)))
    found, sizes = side.gather(np.array(pairs, np.int64))
    assert sizes.tolist() == [lengths[pair] for pair in pairs]
    assert found.tolist() == [n for pair in pairs for n in range(offsets[pair], offsets[pair + 1])]


@pytest.mark.parametrize("n_processes", [1, 2])
def test_who_interrupts_leaves_nothing(n_processes: int, tmp_path: Path, tokenizers: Tokenizers) -> None:
    corpus = write(tmp_path / "a.tsv", sentences(5 * CHUNK))

    def interrupt(n_pairs: int, share: float) -> None:
        assert len(shards(tmp_path / "data")) == 1
        raise KeyboardInterrupt

    prepared = Prepared([corpus], ReaderConfig(), tokenizers, tmp_path / "data", 1, n_processes, interrupt)
    with pytest.raises(KeyboardInterrupt):
        prepared.epoch(0)
    assert shards(tmp_path / "data") == []


def test_what_was_left_half_made_is_cleared_away(tmp_path: Path, tokenizers: Tokenizers) -> None:
    prepared = Prepared([write(tmp_path / "a.tsv", sentences(20))], ReaderConfig(), tokenizers, tmp_path / "data")
    (tmp_path / "data" / "0123-4.part").mkdir(parents=True)
    (tmp_path / "data" / "0123-4.part" / "src.ids").write_bytes(b"half")
    prepared.epoch(0)
    assert len(shards(tmp_path / "data")) == 1


@pytest.mark.parametrize("name", ["src.ids", "tgt.ids", "src.offsets", "tgt.offsets", "places", "meta.json"])
@pytest.mark.parametrize("damage", ["cut", "gone"])
def test_a_damaged_shard_is_made_again(name: str, damage: str, tmp_path: Path, tokenizers: Tokenizers) -> None:
    prepared = Prepared([write(tmp_path / "a.tsv", sentences(20))], ReaderConfig(), tokenizers, tmp_path / "data")
    prepared.epoch(0)
    (shard,) = shards(tmp_path / "data")
    path = tmp_path / "data" / shard / name
    if damage == "cut":
        os.truncate(path, path.stat().st_size - 2)
    else:
        path.unlink()
    assert texts(prepared.epoch(0), tokenizers) == sentences(20)
    assert shards(tmp_path / "data") == [shard]


def test_a_corpus_that_changes_under_a_run_is_an_error(tmp_path: Path, tokenizers: Tokenizers) -> None:
    corpus = write(tmp_path / "a.tsv", sentences(20))
    prepared = Prepared([corpus], EVERYTHING, tokenizers, tmp_path / "data")
    prepared.epoch(0)
    write(corpus.path, sentences(21))
    prepared.ahead(1)
    with pytest.raises(DataError, match=r"a\.tsv was changed since the run began"):
        prepared.epoch(1)
    corpus.path.unlink()
    with pytest.raises(DataError, match=r"a\.tsv was changed since the run began"):
        prepared.epoch(2)
    assert [name[-2:] for name in shards(tmp_path / "data")] == ["-0"]


def test_places_that_cannot_be_read_or_written(tmp_path: Path, tokenizers: Tokenizers) -> None:
    with pytest.raises(DataError, match=r"nowhere\.tsv: no such file"):
        Prepared([CorpusConfig(path=tmp_path / "nowhere.tsv")], ReaderConfig(), tokenizers, tmp_path / "data")
    corpus = write(tmp_path / "a.tsv", sentences(20))
    with pytest.raises(DataError, match=r"cannot write the prepared corpus to .*a\.tsv/data: Not a directory"):
        Prepared([corpus], ReaderConfig(), tokenizers, corpus.path / "data").epoch(0)


def test_those_who_ask_at_once_get_one_shard(tmp_path: Path, tokenizers: Tokenizers) -> None:
    corpus, heard = write(tmp_path / "a.tsv", sentences(2 * CHUNK)), Heard()
    every = [Prepared([corpus], ReaderConfig(), tokenizers, tmp_path / "data", progress=heard) for _ in range(4)]
    with ThreadPoolExecutor(4) as threads:
        found = list(threads.map(lambda prepared: prepared.epoch(0), every))
    assert {shard.n_pairs for shard in found} == {2 * CHUNK}
    assert [share for _, share in heard.calls].count(1.0) == 1


def test_the_next_epoch_is_made_meanwhile(tmp_path: Path, tokenizers: Tokenizers) -> None:
    corpus = write(tmp_path / "a.tsv", sentences(100))
    heard = Heard()
    with Prepared([corpus], EVERYTHING, tokenizers, tmp_path / "data", progress=heard) as prepared:
        prepared.epoch(0)
        n_calls = len(heard.calls)
        for epoch in (1, 2, 3):
            prepared.keep_only(epoch - 1, epoch)
            prepared.ahead(epoch)
            prepared.ahead(epoch)  # asking twice is asking once
            prepared.epoch(epoch)
            names = [name.rpartition("-")[2] for name in shards(tmp_path / "data")]
            assert names == [str(epoch - 1), str(epoch)]  # older ones are gone
        assert len(heard.calls) == n_calls  # nothing of it was made here
    here = Prepared([corpus], EVERYTHING, tokenizers, tmp_path / "here")
    here.epoch(3)
    (name,) = shards(tmp_path / "here")
    assert contents(tmp_path / "here" / name) == contents(tmp_path / "data" / name)


def test_closing_stops_what_is_made_ahead(tmp_path: Path, tokenizers: Tokenizers) -> None:
    corpus = write(tmp_path / "a.tsv", sentences(20 * CHUNK))
    with Prepared([corpus], EVERYTHING, tokenizers, tmp_path / "data") as prepared:
        prepared.ahead(1)
        for _ in range(1000):
            if (tmp_path / "data").exists() and shards(tmp_path / "data"):
                break
            time.sleep(0.01)
    assert all(not name.endswith(".part") for name in shards(tmp_path / "data"))


# Run in a process of its own, which forks one child after the other and has each killed a little later than the last.
_KILLED: Final = """
import os, signal, sys
from pathlib import Path
from glassformer.config import CorpusConfig, ReaderConfig
from glassformer.data.prepared import Prepared
from glassformer.text.tokenizer import Tokenizers

corpus, tokenizers, folder = CorpusConfig(path=sys.argv[1]), Tokenizers.load(sys.argv[2]), Path(sys.argv[3])
INSTANTS = {"open", "os.mkdir", "os.rename", "os.rmdir", "os.remove", "fcntl.flock", "shutil.rmtree", "progress"}

def prepare():
    hear = lambda n_pairs, share: sys.audit("progress")
    return Prepared([corpus], ReaderConfig(join=0.2), tokenizers, folder, progress=hear).epoch(0)

def is_killed(instant):
    child = os.fork()
    if child:
        return os.WIFSIGNALED(os.waitpid(child, 0)[1])
    passed = 0
    def hook(name, arguments):
        nonlocal passed
        passed += name in INSTANTS
        if name in INSTANTS and passed == instant:
            os.kill(os.getpid(), signal.SIGKILL)
    sys.addaudithook(hook)
    prepare()
    os._exit(0)

instant = 1
while is_killed(instant):
    whole = [path for path in folder.glob("*-0") if path.is_dir()] if folder.exists() else []
    print(instant, *(f"{path.name}:{'/'.join(sorted(file.name for file in path.iterdir()))}" for path in whole))
    instant += 1
assert not list(folder.glob("*.part"))
"""


def test_killed_at_any_instant_it_is_whole_or_not_there(tmp_path: Path, tokenizers: Tokenizers) -> None:
    corpus = write(tmp_path / "a.tsv", sentences(2 * CHUNK))
    tokenizers.save(tmp_path / "model")
    arguments = [sys.executable, "-c", _KILLED, str(corpus.path), str(tmp_path / "model"), str(tmp_path / "data")]
    answer = subprocess.run(arguments, capture_output=True, text=True, check=False)
    assert answer.returncode == 0, answer.stderr
    instants = answer.stdout.splitlines()
    assert len(instants) > 15
    files = "meta.json/places/src.ids/src.offsets/tgt.ids/tgt.offsets"
    assert all(line.endswith(files) for line in instants if ":" in line)
    prepared = Prepared([corpus], ReaderConfig(join=0.2), tokenizers, tmp_path / "again")
    prepared.epoch(0)
    (name,) = shards(tmp_path / "again")
    assert shards(tmp_path / "data") == [name]
    assert contents(tmp_path / "data" / name) == contents(tmp_path / "again" / name)


_SLOWLY: Final = """
import sys
from pathlib import Path
from glassformer.config import CorpusConfig, ReaderConfig
from glassformer.data.prepared import Prepared
from glassformer.text.tokenizer import Tokenizers

prepared = Prepared([CorpusConfig(path=sys.argv[1])], ReaderConfig(sample_alpha=0.3), Tokenizers.load(sys.argv[2]),
                    Path(sys.argv[3]), n_processes=2, progress=lambda *_: print(flush=True))
print(flush=True)
prepared.epoch(0)
"""


@pytest.mark.parametrize("trial", range(3))
def test_killed_with_its_workers_at_work(trial: int, tmp_path: Path, tokenizers: Tokenizers) -> None:
    corpus = write(tmp_path / "a.tsv", sentences(6 * CHUNK))
    tokenizers.save(tmp_path / "model")
    arguments = [sys.executable, "-c", _SLOWLY, str(corpus.path), str(tmp_path / "model"), str(tmp_path / "data")]
    mark = {"GLASSFORMER_TEST": str(tmp_path)}
    with subprocess.Popen(arguments, stdout=subprocess.PIPE, env={**os.environ, **mark}) as process:
        assert process.stdout is not None
        for _ in range(1 + trial // 2):  # as it begins, or after a chunk, and a random while later
            process.stdout.readline()
        time.sleep(random.Random(trial).uniform(0, 0.3))
        process.send_signal(signal.SIGKILL)
    reader = ReaderConfig(sample_alpha=0.3)
    for path in (tmp_path / "data").glob("*/"):
        assert path.suffix == ".part" or (path / "meta.json").exists()
    for _ in range(500):  # who works for a caller that is gone goes too
        if not _processes(f"GLASSFORMER_TEST={tmp_path}"):
            break
        time.sleep(0.02)
    else:
        pytest.fail("workers outlive their caller")
    assert Prepared([corpus], reader, tokenizers, tmp_path / "data").epoch(0).n_pairs == 6 * CHUNK
    assert len(shards(tmp_path / "data")) == 1


def test_ctrl_c_is_one_complaint_and_no_litter(tmp_path: Path, tokenizers: Tokenizers) -> None:
    """A terminal sends it to everybody; the workers leave it to the main process."""
    corpus = write(tmp_path / "a.tsv", sentences(20 * CHUNK))
    tokenizers.save(tmp_path / "model")
    arguments = [sys.executable, "-c", _SLOWLY, str(corpus.path), str(tmp_path / "model"), str(tmp_path / "data")]
    pipe = subprocess.PIPE
    with subprocess.Popen(arguments, stdout=pipe, stderr=pipe, text=True, start_new_session=True) as process:
        assert process.stdout is not None
        for _ in range(2):  # it begins, and after a chunk
            process.stdout.readline()
        os.killpg(process.pid, signal.SIGINT)
        _, complaint = process.communicate()
    assert complaint.count("KeyboardInterrupt") == complaint.count("Traceback") == 1
    assert shards(tmp_path / "data") == []


def _processes(mark: str) -> list[str]:
    """List the processes that have `mark` in their environment."""
    found = []
    for path in Path("/proc").glob("[0-9]*/environ"):
        with suppress(OSError):
            if mark.encode() in path.read_bytes().split(b"\0"):
                found.append(path.parent.name)
    return found
