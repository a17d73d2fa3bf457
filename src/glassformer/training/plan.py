"""What a run will take, before it is begun: measured on this machine with the recipe's own data, then multiplied."""

from __future__ import annotations

import math
import os
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final, NamedTuple

import torch

from glassformer.config import CorpusConfig, TokenizerConfig
from glassformer.data.batches import Batches
from glassformer.data.formats import Faults, corpus_size, open_corpora, open_corpus
from glassformer.data.pair import Pair
from glassformer.data.prepared import Prepared
from glassformer.data.workers import Worker, WorkerLostError
from glassformer.errors import ConfigError, DataError, RunError
from glassformer.evaluation.scores import check_tokenize
from glassformer.store.registry import find_model
from glassformer.text.tokenizer import JOINT_MODEL, SRC_MODEL, TGT_MODEL, Tokenizers, train_tokenizers
from glassformer.training.distributed import world
from glassformer.training.probe import Found, Task, probe
from glassformer.training.recipe import Recipe

_READ: Final = 400_000  # pairs of a corpus that are looked at; of a longer one, the rest is taken to be alike
_SAMPLE: Final = 50_000  # pairs that are prepared
_RANDOM_SAMPLE: Final = 20_000  # where each epoch is drawn anew, which takes longer
_POLITE: Final = 0.1  # share of a busy processor that the preparation of the next epoch gets, being nice
_ROUND: Final = 256  # the largest batch is given in steps of so many tokens
_LEAST_WORDS: Final = 600  # of a vocabulary that stands in, twice what bytes and special ids take
_SPARE: Final = 0.9  # of the free memory may be used
_BYTES: Final = 4  # of a number in fp32, which weights and moments are kept in

_Say = Callable[[str], None]


class Forecast(NamedTuple):
    """What a run will take; times in seconds, memory and disk in bytes."""

    parameters: dict[str, int]  # by part
    n_pairs: int  # of an epoch, weights and sampling counted
    tokens_per_epoch: int  # source and target
    updates_per_epoch: int
    epochs: float
    tokens_per_s: float
    seconds_per_update: float
    seconds_per_epoch: float
    seconds_preparing: float
    seconds_training: float
    seconds_looking: float  # at dev, all in all
    seconds_saving: float
    seconds: float  # from the command to the end
    memory: dict[str, int]  # by what takes it
    memory_peak: int
    memory_free: int
    max_tokens: int  # what the recipe says
    largest_max_tokens: int | None  # what would fit; None if memory did not grow with the batch
    disk: dict[str, int]
    device: str
    threads: int
    notes: tuple[str, ...]


class _Sample(NamedTuple):
    """The corpora, or as much of them as a probe needs."""

    corpora: tuple[CorpusConfig, ...]
    n_pairs: int
    share: float  # of the whole


class Whole(NamedTuple):
    """What is known of an epoch of the whole corpus."""

    n_pairs: int
    n_tokens: int  # source and target
    n_updates: int
    seconds: float  # to prepare it, the vocabulary included
    background: float  # seconds of work to prepare the next one, if each is drawn anew
    n_bytes: int  # on the disk


def forecast(recipe: Recipe, seconds: float, say: _Say) -> Forecast:
    """Measure for some seconds and say what the whole run will take; the folder of the run is only read."""
    notes: list[str] = []
    check_tokenize(recipe.bleu_tokenize)
    with world(recipe.training.device) as here:  # a device that is not there is an error at once
        free = torch.cuda.mem_get_info(here.device)[0] if here.device.type == "cuda" else _free_memory()
    n_processes = os.cpu_count() or 1
    with tempfile.TemporaryDirectory(prefix="glassformer-plan-") as name:
        folder = Path(name)
        say("reading the corpora")
        dev = list(open_corpora(recipe.dev, Faults(), recipe.reader.on_fault))
        if not dev:
            raise DataError(f"{recipe.dev[0].path}: no pair to look at")
        sample = _sample(recipe, folder)
        if sample.share < 1:
            notes.append(f"measured on {sample.n_pairs:,} pairs, {sample.share:.1%} of the corpora")
        start = time.perf_counter()
        tokenizers, sizes = _tokenizers(recipe, sample, notes, say)
        learning = (time.perf_counter() - start) / (sample.share if sizes is not None else 1)
        src_vocab, tgt_vocab = sizes or (tokenizers.src.vocab_size, tokenizers.tgt.vocab_size)
        recipe.model_settings(src_vocab, tgt_vocab)  # a vocabulary that does not fit the model is an error, as in train
        say("preparing the corpus")
        data = folder / "data"
        with Prepared(sample.corpora, recipe.reader, tokenizers, data, recipe.seed, n_processes) as prepared:
            start = time.perf_counter()
            shard = prepared.epoch(0)
            preparing = (time.perf_counter() - start) / sample.share
            data_bytes = sum(path.stat().st_size for path in data.rglob("*") if path.is_file()) / sample.share
            if prepared.is_random:
                prepared.epoch(1)  # nobody is to prepare it while the clock runs
            n_batches = Batches(prepared, recipe.batch, recipe.seed).count(0)
        say(f"training for {seconds:g} seconds")
        found = _probe(
            Task(recipe, sample.corpora, data, folder, tokenizers, src_vocab, tgt_vocab, dev, seconds, time.time())
        )
        n_tokens = sum(shard.meta.n_tokens) + 2 * shard.n_pairs  # end marks
        whole = Whole(
            n_pairs=round(shard.n_pairs / sample.share),
            n_tokens=round(n_tokens / sample.share),
            n_updates=math.ceil(n_batches / sample.share / recipe.training.accumulate),
            seconds=learning + preparing,
            background=preparing * n_processes if prepared.is_random else 0.0,
            n_bytes=round(data_bytes) * (2 if prepared.is_random else 1),
        )
    return extrapolate(recipe, found, whole, free, notes)


def extrapolate(recipe: Recipe, found: Found, whole: Whole, free: int, notes: Sequence[str] = ()) -> Forecast:
    """Go from what some seconds took to what the whole will take."""
    config = recipe.training
    tokens_per_s = found.n_tokens / found.seconds
    epoch = whole.n_tokens / tokens_per_s
    epochs = config.max_updates / whole.n_updates
    # The next epoch is prepared beside the training, politely: it takes its work, but never more than its share.
    training = epoch * epochs + min(whole.background, _POLITE * epoch) * max(epochs - 1, 0)
    n_looks = math.ceil(config.max_updates / config.validate_every)
    n_saves = math.ceil(config.max_updates / config.checkpoint_every) + 1  # the beginning is saved too
    candidates = (3 + bool(config.ema)) if config.choose == "auto" else 1
    preparing = found.start_seconds + whole.seconds
    looking = found.look_seconds * (n_looks + candidates)
    saving = found.save_seconds * (n_saves + min(config.average_last, n_saves - 1))  # reading takes as long
    sooner = [f"patience={config.patience} may end it sooner"] if config.patience else []
    n_parameters = sum(found.parameters.values())
    weights = n_parameters * _BYTES
    kept = min(max(config.keep_checkpoints, config.average_last), n_saves)
    return Forecast(
        parameters={**found.parameters, "all": n_parameters},
        n_pairs=whole.n_pairs,
        tokens_per_epoch=whole.n_tokens,
        updates_per_epoch=whole.n_updates,
        epochs=epochs,
        tokens_per_s=tokens_per_s,
        seconds_per_update=training / config.max_updates,
        seconds_per_epoch=epoch,
        seconds_preparing=preparing,
        seconds_training=training,
        seconds_looking=looking,
        seconds_saving=saving,
        seconds=preparing + training + looking + saving,
        memory=_memory(found, weights, bool(config.ema)),
        memory_peak=found.memory.look,
        memory_free=free,
        max_tokens=recipe.batch.max_tokens,
        largest_max_tokens=largest_batch(found, recipe.batch.max_tokens, free),
        disk={
            "checkpoints": kept * found.checkpoint_bytes,
            "best and chosen weights": 2 * weights,
            "prepared corpus": whole.n_bytes,
        },
        device=found.device,
        threads=found.threads,
        notes=(*notes, *sooner),
    )


def _memory(found: Found, weights: int, has_average: bool) -> dict[str, int]:
    """Say what takes memory: what is known by count, and the rest of the peak."""
    known = {
        "python, torch and data": found.memory.empty,
        "weights": weights,
        "gradients": weights,
        "optimizer": 2 * weights,
        **({"moving average": weights} if has_average else {}),
    }
    activations = max(found.memory.whole - sum(known.values()), 0)
    return {**known, "activations": activations, "a look at dev": found.memory.look - found.memory.whole}


def largest_batch(found: Found, max_tokens: int, free: int) -> int | None:
    """Say how large `max_tokens` could be, memory growing on as it grew from the smaller batches to the usual ones."""
    memory = found.memory
    slope = (memory.whole - memory.part) / max(max_tokens - found.part_tokens, 1)
    if slope <= 0:
        return None
    more = (_SPARE * free - memory.look) / slope
    return max(int((max_tokens + more) // _ROUND) * _ROUND, 0)


def _sample(recipe: Recipe, folder: Path) -> _Sample:
    """Take the corpora as they are if they are small, else an even sample of each."""
    read, sizes = [], []
    for corpus in recipe.train:
        pairs, n_pairs = _read(corpus, recipe)
        read.append(pairs)
        sizes.append(n_pairs)
    is_random = recipe.reader.is_random or any(corpus.weight % 1 for corpus in recipe.train)
    share = min((_RANDOM_SAMPLE if is_random else _SAMPLE) / max(sum(sizes), 1), 1.0)
    if share == 1:
        return _Sample(recipe.train, sum(sizes), 1.0)
    corpora, n_taken = [], 0
    for number, (corpus, pairs, n_pairs) in enumerate(zip(recipe.train, read, sizes, strict=True)):
        count = min(math.ceil(share * n_pairs), len(pairs))
        chosen = [pairs[i * len(pairs) // count] for i in range(count)]
        path = folder / f"{number}.tsv"
        path.write_text("".join(f"{pair.src}\t{pair.tgt}\n" for pair in chosen), encoding="utf-8")
        corpora.append(CorpusConfig(path=path, weight=corpus.weight))
        n_taken += count
    return _Sample(tuple(corpora), n_taken, n_taken / sum(sizes))


def _read(corpus: CorpusConfig, recipe: Recipe) -> tuple[list[Pair], int]:
    """Read a corpus, or its beginning, and say how many pairs it has or must have, by its size."""
    n_bytes = 0

    def watch(more: int) -> None:
        nonlocal n_bytes
        n_bytes += more

    pairs: list[Pair] = []
    for pair in open_corpus(corpus, Faults(), recipe.reader.on_fault, watch):
        if len(pairs) == _READ:
            return pairs, round(_READ * max(corpus_size(corpus) / max(n_bytes, 1), 1.0))
        pairs.append(pair)
    return pairs, len(pairs)


def _tokenizers(
    recipe: Recipe, sample: _Sample, notes: list[str], say: _Say
) -> tuple[Tokenizers, tuple[int, int] | None]:
    """Take the vocabulary that the run would take, or learn one; in that case say which sizes the model will have."""
    out = recipe.out
    if out is not None and any((out / name).exists() for name in (JOINT_MODEL, SRC_MODEL, TGT_MODEL)):
        return Tokenizers.load(out), None
    given = find_model(recipe.init) if recipe.init else recipe.vocabulary
    if given is not None:
        return Tokenizers.load(given), None
    config = recipe.tokenizer
    say(f"learning a vocabulary of {config.vocab_size:,} pieces")
    pairs = [(pair.src, pair.tgt) for pair in open_corpora(sample.corpora, Faults(), recipe.reader.on_fault)]
    if sample.share < 1:
        notes.append("the vocabulary was learned from that sample; the run's own cuts a little otherwise")
    return _learn(pairs, config, sample.share == 1, notes), (config.vocab_size, config.vocab_size)


def _learn(pairs: list[tuple[str, str]], config: TokenizerConfig, is_all: bool, notes: list[str]) -> Tokenizers:
    """Learn a vocabulary; where a sample has too little text for it, a smaller one stands in."""
    size = config.vocab_size
    while True:
        try:
            found = train_tokenizers(pairs, config.model_copy(update={"vocab_size": size}))
        except ConfigError:
            if is_all or size < _LEAST_WORDS:
                raise
            size //= 2
        else:
            if size < config.vocab_size:
                notes.append(f"the sample is too little for {config.vocab_size:,} pieces: it was cut into {size:,}")
            return found


def _probe(task: Task) -> Found:
    worker = Worker(probe)
    try:
        worker.ask(task, last=True)
        found = worker.answer()
    except WorkerLostError:
        raise RunError(
            f"the probe was killed, probably out of memory: choose max_tokens below {task.recipe.batch.max_tokens} and "
            f"accumulate above {task.recipe.training.accumulate} to train alike in less"
        ) from None
    finally:
        worker.end()
        worker.close()
    assert isinstance(found, Found)
    return found


def _free_memory() -> int:
    """Give the memory that a new process could have: the machine's, or this container's."""
    path = Path("/proc/meminfo")
    if not path.exists():
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    lines = dict(line.split(":", 1) for line in path.read_text().splitlines())
    free = int(lines["MemAvailable"].split()[0]) * 1024
    group = Path("/sys/fs/cgroup")
    try:
        most, used = ((group / f"memory.{name}").read_text().strip() for name in ("max", "current"))
    except OSError:
        return free
    return free if most == "max" else min(free, max(int(most) - int(used), 0))
