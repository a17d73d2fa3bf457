"""Batches: every pair exactly once per epoch, whatever the world and wherever one resumes.

B sentences, S source positions, T target positions.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from unittest.mock import patch

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from glassformer.config import BatchConfig, CorpusConfig, ReaderConfig, TokenizerConfig
from glassformer.data import batches as module
from glassformer.data.batches import Batch, Batches, Plan, collate, length_batches
from glassformer.data.formats import Faults, open_corpus
from glassformer.data.prepared import Prepared
from glassformer.data.shard import Counts, Meta, Shard, Side
from glassformer.errors import ConfigError
from glassformer.text.tokenizer import Tokenizers, train_tokenizers
from glassformer.text.vocab import BOS, EOS, PAD
from glassformer.training.loss import cross_entropy
from tests.models import VOCAB, build

DATA = os.environ.get("GLASSFORMER_DATA")
Sentences = list[tuple[list[int], list[int]]]
CONFIGS = st.builds(BatchConfig, max_tokens=st.integers(1, 80), window=st.integers(1, 150))
SEEDS = st.integers(0, 3)


def lengths_of(count: int, seed: int) -> list[tuple[int, int]]:
    lengths = np.random.default_rng(seed).integers(1, 13, (count, 2)).tolist()
    return [(n_src, n_tgt) for n_src, n_tgt in lengths]


LENGTHS = st.builds(lengths_of, st.integers(1, 120), st.integers(0, 99))


def shard_of(sentences: Sentences) -> Shard:
    """Put sentences into a shard that was never on a disk."""
    sides = []
    for side in ([src for src, _ in sentences], [tgt for _, tgt in sentences]):
        ids = np.array([token for sentence in side for token in sentence], np.uint16)
        sides.append(Side(ids, np.cumsum([0, *map(len, side)])))
    meta = Meta(
        key="",
        epoch=None,
        id_types=("<u2", "<u2"),
        n_tokens=(0, 0),
        longest=(0, 0),
        counts=Counts(),
        max_length=256,
        files=("corpus.tsv",),
        reading=(),
    )
    return Shard(meta, sides[0], sides[1], np.arange(1, len(sentences) + 1))


def sentences_of(lengths: list[tuple[int, int]], seed: int = 0) -> Sentences:
    draw = np.random.default_rng(seed)
    return [(draw.integers(4, VOCAB, s).tolist(), draw.integers(4, VOCAB, t).tolist()) for s, t in lengths]


class InMemory(Prepared):
    """A prepared corpus whose every epoch is the same shard; it remembers what was asked to be made ahead."""

    def __init__(self, shard: Shard) -> None:
        self.shard = shard
        self.asked: list[int] = []
        self.kept: tuple[int, ...] = ()

    def epoch(self, number: int) -> Shard:
        return self.shard

    def keep_only(self, *epochs: int) -> None:
        self.kept = epochs

    def ahead(self, number: int) -> None:
        self.asked.append(number)


def waste(shard: Shard, plan: Plan) -> float:
    """The share of positions that are padding."""
    real = padded = 0
    for number in range(len(plan)):
        pairs = plan[number]
        for side in (shard.src, shard.tgt):
            lengths = side.lengths(pairs) + 1
            real, padded = real + int(lengths.sum()), padded + len(pairs) * int(lengths.max())
    return 1 - real / padded


@pytest.fixture(autouse=True, scope="module")
def small_blocks() -> Iterator[None]:
    """Blocks so small that a few sentences fill several windows."""
    with patch.object(module, "_BLOCK", 4):
        yield


@pytest.mark.parametrize("name", ["max_tokens", "window"])
def test_settings_have_limits(name: str) -> None:
    with pytest.raises(ConfigError, match=f"^here: {name}=0: "):
        BatchConfig.parse({name: 0}, "here")


@settings(max_examples=60)
@given(LENGTHS, CONFIGS, SEEDS, st.integers(0, 3), st.integers(1, 7), st.data())
def test_every_pair_exactly_once_for_any_world_and_resume_point(
    lengths: list[tuple[int, int]], config: BatchConfig, seed: int, epoch: int, world: int, data: st.DataObject
) -> None:
    shard = shard_of(sentences_of(lengths))
    ranks = [Batches(InMemory(shard), config, seed, rank=rank, world=world) for rank in range(world)]
    count = ranks[0].count(epoch)
    assert {rank.count(epoch) for rank in ranks} == {count}
    stop = data.draw(st.integers(0, count))
    seen = [pair for rank in ranks for n in range(stop) for pair in rank.read(epoch, n).pairs.tolist()]
    # Another process, another world size: it begins where the first one stopped.
    other = data.draw(st.integers(1, 7))
    resumed = [Batches(InMemory(shard), config, seed, rank=rank, world=other) for rank in range(other)]
    for number in reversed(range(stop, count)):  # in any order: nothing depends on what was read before
        seen += [pair for rank in resumed for pair in rank.read(epoch, number).pairs.tolist()]
    assert sorted(seen) == list(range(len(lengths)))


@given(LENGTHS, CONFIGS, SEEDS, st.integers(2, 5))
def test_a_global_batch_is_the_same_whatever_the_world(
    lengths: list[tuple[int, int]], config: BatchConfig, seed: int, world: int
) -> None:
    shard = shard_of(sentences_of(lengths))
    alone = Batches(InMemory(shard), config, seed)
    ranks = [Batches(InMemory(shard), config, seed, rank=rank, world=world) for rank in range(world)]
    for number in range(alone.count(0)):
        whole, shares = alone.read(0, number), [rank.read(0, number) for rank in ranks]
        assert sorted(whole.pairs.tolist()) == sorted(pair for share in shares for pair in share.pairs.tolist())
        sizes = [len(share.pairs) for share in shares]
        assert max(sizes) - min(sizes) <= 1
        tokens = sum(s.n_src_tokens for s in shares), sum(s.n_tokens for s in shares)
        assert alone.tokens(0, number) == ranks[-1].tokens(0, number) == tokens
        assert tokens == (whole.n_src_tokens, whole.n_tokens)


@given(LENGTHS, CONFIGS, SEEDS)
def test_a_batch_is_as_large_as_it_may_be(lengths: list[tuple[int, int]], config: BatchConfig, seed: int) -> None:
    plan = Plan(shard_of(sentences_of(lengths)), config, seed, 0)
    for number in range(len(plan)):
        pairs = plan[number]
        longest = max(max(lengths[pair]) for pair in pairs) + 1
        assert len(pairs) == 1 or len(pairs) * longest <= config.max_tokens
    with pytest.raises(IndexError):
        plan[len(plan)]


def test_epochs_and_seeds_differ() -> None:
    shard = shard_of(sentences_of([(n % 5 + 1, n % 7 + 1) for n in range(300)]))
    for config in (BatchConfig(max_tokens=50), BatchConfig(max_tokens=50, window=100)):
        plans = [Plan(shard, config, seed, epoch) for seed in (1, 2) for epoch in (0, 1)]
        orders = {tuple(pair for n in range(len(plan)) for pair in plan[n].tolist()) for plan in plans}
        assert len(orders) == 4
        company = {frozenset(frozenset(plan[n].tolist()) for n in range(len(plan))) for plan in plans}
        assert len(company) == 4  # not only the order of batches, but who is in them


def test_neighbours_of_a_window_come_from_everywhere() -> None:
    """With more pairs than a window takes, windows are dealt out block by block at random."""
    shard = shard_of(sentences_of([(5, 5)] * 400))
    plan = Plan(shard, BatchConfig(max_tokens=60, window=100), 1, 0)
    first = np.concatenate([plan[n] for n in range(len(plan) // 4)])
    assert first.min() < 50
    assert first.max() > 350


def test_padding_is_little() -> None:
    draw = np.random.default_rng(0)
    n_tgt = np.maximum(2, draw.lognormal(2.5, 0.4, 30_000).round()).astype(int)
    n_src = np.maximum(2, n_tgt * draw.normal(1.1, 0.15, len(n_tgt))).astype(int)
    sides = [Side(np.zeros(int(n.sum()), np.uint16), np.concatenate([[0], n.cumsum()])) for n in (n_src, n_tgt)]
    shard = shard_of([])._replace(src=sides[0], tgt=sides[1], places=np.zeros(len(n_tgt), np.int64))
    with patch.object(module, "_BLOCK", 1024):
        assert waste(shard, Plan(shard, BatchConfig(), 1, 0)) < 0.036
        assert waste(shard, Plan(shard, BatchConfig(max_tokens=2048, window=15_000), 1, 0)) < 0.036


@pytest.mark.skipif(DATA is None, reason="GLASSFORMER_DATA names no folder with corpora")
@pytest.mark.parametrize("name", ["multi30k.train.fr-en", "tatoeba.train.fr-en"])
def test_padding_is_little_on_real_text(name: str, tmp_path: Path) -> None:
    corpus = CorpusConfig(path=Path(DATA or "") / f"{name}.tsv.gz")
    tokenizers = _tokenizers(corpus)
    shard = Prepared([corpus], ReaderConfig(), tokenizers, tmp_path).epoch(0)
    with patch.object(module, "_BLOCK", 1024):
        assert waste(shard, Plan(shard, BatchConfig(), 1, 0)) < 0.05


def _tokenizers(corpus: CorpusConfig) -> Tokenizers:
    pairs = islice(open_corpus(corpus, Faults()), 5000)
    return train_tokenizers(((pair.src, pair.tgt) for pair in pairs), TokenizerConfig(vocab_size=4000))


def by_hand(sentences: Sentences, start: int) -> Batch:
    """Build a batch row by row, as one would on paper."""
    n_src, n_tgt = (max(len(pair[side]) for pair in sentences) + 1 for side in (0, 1))
    src = [[*s, EOS] + [PAD] * (n_src - len(s) - 1) for s, _ in sentences]
    mask = [[True] * (len(s) + 1) + [False] * (n_src - len(s) - 1) for s, _ in sentences]
    before = [[start, *t] + [PAD] * (n_tgt - len(t) - 1) for _, t in sentences]
    after = [[*t, EOS] + [PAD] * (n_tgt - len(t) - 1) for _, t in sentences]
    return Batch(
        src=torch.tensor(src),
        src_mask=None if all(map(all, mask)) else torch.tensor(mask),
        tgt_in=torch.tensor(before),
        tgt_out=torch.tensor(after),
        pairs=torch.arange(len(sentences)),
        n_tokens=sum(len(t) + 1 for _, t in sentences),
        n_src_tokens=sum(len(s) + 1 for s, _ in sentences),
    )


def assert_same(one: Batch, other: Batch) -> None:
    for name, ours, theirs in zip(Batch._fields, one, other, strict=True):
        if isinstance(ours, torch.Tensor):
            assert isinstance(theirs, torch.Tensor)
            assert torch.equal(ours, theirs), name
        else:
            assert ours == theirs, name


@given(LENGTHS, SEEDS, st.sampled_from([BOS, EOS, PAD]))
def test_a_batch_is_what_one_writes_by_hand(lengths: list[tuple[int, int]], seed: int, start: int) -> None:
    sentences = sentences_of(lengths, seed)
    assert_same(collate([s for s, _ in sentences], [t for _, t in sentences], start), by_hand(sentences, start))
    batches = Batches(InMemory(shard_of(sentences)), BatchConfig(max_tokens=40), seed, start)
    for number in range(batches.count(0)):
        batch = batches.read(0, number)
        chosen = [sentences[pair] for pair in batch.pairs.tolist()]
        assert_same(batch, by_hand(chosen, start)._replace(pairs=batch.pairs))


def test_a_batch_moves() -> None:
    batch = collate([[5], [5, 6]], [[7], [8]])
    moved = batch.to("meta")
    assert {x.device.type for x in (moved.src, moved.src_mask, moved.tgt_in, moved.tgt_out) if x is not None} == {
        "meta"
    }
    assert collate([[5]], [[7]]).to("meta").src_mask is None


@pytest.mark.parametrize("world", [2, 3, 9])
def test_shares_of_a_batch_add_up_to_its_loss_and_gradient(world: int) -> None:
    """Two processes compute what one does, also where one of them has nothing to do."""
    sentences = sentences_of([(3, 4), (5, 2), (4, 4), (6, 6), (2, 3)])
    shard = shard_of(sentences)
    model = build(0, dropout=0.0)
    found = []
    for size in (1, world):
        model.zero_grad()
        total = 0.0
        for rank in range(size):
            batch = Batches(InMemory(shard), BatchConfig(max_tokens=100), rank=rank, world=size).read(0, 0)
            assert len(batch.src) > 0
            hidden = model.hidden(batch.src, batch.tgt_in, batch.src_mask)
            is_token = batch.tgt_out != PAD
            loss = cross_entropy(hidden[is_token], model.output.weight, model.output.bias, batch.tgt_out[is_token])
            loss.backward()  # type: ignore[no-untyped-call]
            assert loss.item() == 0 if not len(batch.pairs) else loss.item() > 0
            assert int(is_token.sum()) == batch.n_tokens
            assert all(parameter.grad is not None for parameter in model.parameters())
            total += loss.item()
        gradients = [parameter.grad.clone() for parameter in model.parameters() if parameter.grad is not None]
        found.append((total, gradients))
    (one, ones), (many, manys) = found
    assert one == pytest.approx(many)
    for ours, theirs in zip(ones, manys, strict=True):
        torch.testing.assert_close(ours, theirs)


def test_the_first_rank_deletes_past_epochs_and_has_the_next_one_made() -> None:
    first, second = (InMemory(shard_of([([5], [6])])) for _ in range(2))
    for rank, prepared in enumerate((first, second)):
        batches = Batches(prepared, BatchConfig(), rank=rank, world=2)
        assert (batches.count(3), batches.tokens(3, 0), batches.shard(3).place(0)) == (1, (2, 2), "corpus.tsv:1")
        batches.read(4, 0)
        assert prepared.asked == [], "reading deletes and prepares nothing"
        batches.delete_past_and_prepare_next(4)
    assert (first.asked, first.kept, second.asked, second.kept) == ([5], (4, 5), [], ())


@given(st.lists(st.integers(0, 30)), st.integers(1, 60), st.none() | st.integers(1, 5))
def test_batches_of_similar_length(lengths: list[int], max_tokens: int, max_rows: int | None) -> None:
    batches = list(length_batches(lengths, max_tokens=max_tokens, max_rows=max_rows))
    assert [i for batch in batches for i in batch] == sorted(range(len(lengths)), key=lambda i: -lengths[i])
    for number, batch in enumerate(batches):
        longest = lengths[batch[0]]
        assert 0 < len(batch) <= (max_rows or len(batch))
        assert len(batch) == 1 or len(batch) * longest <= max_tokens
        is_full = (len(batch) + 1) * max(longest, 1) > max_tokens or len(batch) == max_rows
        assert is_full or number == len(batches) - 1
