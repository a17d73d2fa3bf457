"""A forecast of time, memory and disk space of a run, measured on this machine with the recipe's own data."""

from __future__ import annotations

import logging
import math
import os
import tempfile
import time
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Final, NamedTuple

import torch

from glassformer.config import CorpusConfig, TokenizerConfig
from glassformer.data.batches import Batches
from glassformer.data.formats import Faults, corpus_size, open_corpora, open_corpus
from glassformer.data.pair import Pair
from glassformer.data.prepared import Prepared
from glassformer.data.workers import Worker, WorkerLostError
from glassformer.errors import ConfigError, RunError
from glassformer.evaluation.scores import check_tokenize
from glassformer.text.tokenizer import Tokenizers, train_tokenizers
from glassformer.training.distributed import world
from glassformer.training.probe import Measurement, Task, probe
from glassformer.training.recipe import Recipe
from glassformer.training.start import read_dev, vocabulary_of

_READ: Final = 400_000  # pairs read of each corpus; the rest is assumed to be similar
_SAMPLE: Final = 50_000  # pairs that are prepared
_RANDOM_SAMPLE: Final = 20_000  # if every epoch is randomized, which takes longer
_POLITE: Final = 0.1  # share of a busy processor that the preparation of the next epoch gets (nice)
_ROUND: Final = 256  # tokens; the largest batch is a multiple of it
_LEAST_WORDS: Final = 600  # of a substitute vocabulary: twice the bytes and special ids
_SPARE: Final = 0.9  # share of the free memory that may be used
_BYTES: Final = 4  # of a float32 number, as in weights and moments

_log = logging.getLogger(__name__)


class Forecast(NamedTuple):
    """What a run will need; times in seconds, memory and disk space in bytes."""

    parameters: dict[str, int]  # by part
    n_pairs: int  # per epoch, after corpus weights
    tokens_per_epoch: int  # source and target
    updates_per_epoch: int
    epochs: float
    tokens_per_s: float
    seconds_per_update: float
    seconds_per_epoch: float
    seconds_preparing: float
    seconds_training: float
    validation_seconds: float
    seconds_saving: float
    seconds: float  # in all
    memory: dict[str, int]  # by purpose
    memory_peak: int
    memory_free: int
    max_tokens: int  # the recipe's
    largest_max_tokens: int | None  # the largest that fits; None if memory did not grow with the batch
    disk: dict[str, int]
    device: str
    threads: int
    notes: tuple[str, ...]


class _Sample(NamedTuple):
    """The corpora, or a sample of them that is large enough to measure."""

    corpora: tuple[CorpusConfig, ...]
    n_pairs: int
    share: float  # of the whole


class EpochFigures(NamedTuple):
    """An epoch of all corpora, extrapolated from the sample."""

    n_pairs: int
    n_tokens: int  # source and target
    n_updates: int
    seconds: float  # to prepare it, the vocabulary included
    background: float  # seconds of work to prepare the next one, if epochs are randomized
    n_bytes: int  # on the disk


def forecast(recipe: Recipe, seconds: float) -> Forecast:
    """Train for some seconds and return what the whole run will need; the run folder is only read."""
    notes: list[str] = []
    check_tokenize(recipe.bleu_tokenize)
    with world(recipe.training.device) as here:  # a missing device is an error at once
        free = torch.cuda.mem_get_info(here.device)[0] if here.device.type == "cuda" else _free_memory()
    n_processes = os.cpu_count() or 1
    with tempfile.TemporaryDirectory(prefix="glassformer-plan-") as name:
        folder = Path(name)
        _log.info("reading the corpora")
        dev = read_dev(recipe)
        sample = _sample(recipe, folder)
        if sample.share < 1:
            notes.append(f"measured on {sample.n_pairs:,} pairs, {sample.share:.1%} of the corpora")
        start = time.perf_counter()
        tokenizers, sizes = _tokenizers(recipe, sample, notes)
        learning = (time.perf_counter() - start) / (sample.share if sizes is not None else 1)
        src_vocab, tgt_vocab = sizes or (tokenizers.src.vocab_size, tokenizers.tgt.vocab_size)
        recipe.model_settings(src_vocab, tgt_vocab)  # a vocabulary that does not fit the model is an error, as in train
        _log.info("preparing the corpus")
        data = folder / "data"
        with Prepared(sample.corpora, recipe.reader, tokenizers, data, recipe.seed, n_processes) as prepared:
            start = time.perf_counter()
            shard = prepared.epoch(0)
            preparing = (time.perf_counter() - start) / sample.share
            data_bytes = sum(path.stat().st_size for path in data.rglob("*") if path.is_file()) / sample.share
            if prepared.is_random:
                prepared.epoch(1)  # not while the clock runs
            n_batches = Batches(prepared, recipe.batch, recipe.seed).count(0)
        _log.info("training for %g seconds", seconds)
        found = _probe(
            Task(recipe, sample.corpora, data, folder, tokenizers, src_vocab, tgt_vocab, dev, seconds, time.time())
        )
        n_tokens = sum(shard.meta.n_tokens) + 2 * shard.n_pairs  # end marks
        whole = EpochFigures(
            n_pairs=round(shard.n_pairs / sample.share),
            n_tokens=round(n_tokens / sample.share),
            n_updates=math.ceil(n_batches / sample.share / recipe.training.accumulate),
            seconds=learning + preparing,
            background=preparing * n_processes if prepared.is_random else 0.0,
            n_bytes=round(data_bytes) * (2 if prepared.is_random else 1),
        )
    return extrapolate(recipe, found, whole, free, notes)


def extrapolate(
    recipe: Recipe, found: Measurement, whole: EpochFigures, free: int, notes: Sequence[str] = ()
) -> Forecast:
    """Extrapolate from what was measured to the whole run."""
    config = recipe.training
    tokens_per_s = found.n_tokens / found.seconds
    epoch = whole.n_tokens / tokens_per_s
    epochs = config.max_updates / whole.n_updates
    # The next epoch is prepared during the training at low priority: it costs its work, but at most its share.
    training = epoch * epochs + min(whole.background, _POLITE * epoch) * max(epochs - 1, 0)
    n_validations = math.ceil(config.max_updates / config.validate_every)
    n_saves = math.ceil(config.max_updates / config.checkpoint_every) + 1  # including the initial state
    candidates = (3 + bool(config.ema)) if config.choose == "auto" else 1
    preparing = found.start_seconds + whole.seconds
    validating = found.validation_seconds * (n_validations + candidates)
    saving = found.save_seconds * (n_saves + min(config.average_last, n_saves - 1))  # averaging reads them again
    sooner = [f"patience={config.patience} may end it earlier"] if config.patience else []
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
        validation_seconds=validating,
        seconds_saving=saving,
        seconds=preparing + training + validating + saving,
        memory=_memory(found, weights, bool(config.ema)),
        memory_peak=found.memory.validation,
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


def _memory(found: Measurement, weights: int, has_average: bool) -> dict[str, int]:
    """Split the peak memory into what can be counted and the rest."""
    known = {
        "python, torch and data": found.memory.empty,
        "weights": weights,
        "gradients": weights,
        "optimizer": 2 * weights,
        **({"moving average": weights} if has_average else {}),
    }
    activations = max(found.memory.whole - sum(known.values()), 0)
    return {**known, "activations": activations, "validation": found.memory.validation - found.memory.whole}


def largest_batch(found: Measurement, max_tokens: int, free: int) -> int | None:
    """Return the largest `max_tokens` that fits, if memory grows on as from the smaller batches to the usual ones."""
    memory = found.memory
    slope = (memory.whole - memory.part) / max(max_tokens - found.part_tokens, 1)
    if slope <= 0:
        return None
    more = (_SPARE * free - memory.validation) / slope
    return max(int((max_tokens + more) // _ROUND) * _ROUND, 0)


def _sample(recipe: Recipe, folder: Path) -> _Sample:
    """Return the corpora themselves if they are small, else an even sample of each."""
    read = [_read(corpus, recipe) for corpus in recipe.train]
    n_all = sum(n_pairs for _, n_pairs in read)
    is_random = recipe.reader.is_random or any(corpus.weight % 1 for corpus in recipe.train)
    share = min((_RANDOM_SAMPLE if is_random else _SAMPLE) / max(n_all, 1), 1.0)
    if share == 1:
        return _Sample(recipe.train, n_all, 1.0)
    corpora, n_taken = [], 0
    for number, (corpus, (pairs, n_pairs)) in enumerate(zip(recipe.train, read, strict=True)):
        count = min(math.ceil(share * n_pairs), len(pairs))
        chosen = [pairs[i * len(pairs) // count] for i in range(count)]
        path = folder / f"{number}.tsv"
        path.write_text("".join(f"{pair.src}\t{pair.tgt}\n" for pair in chosen), encoding="utf-8")
        corpora.append(CorpusConfig(path=path, weight=corpus.weight))
        n_taken += count
    return _Sample(tuple(corpora), n_taken, n_taken / n_all)


def _read(corpus: CorpusConfig, recipe: Recipe) -> tuple[list[Pair], int]:
    """Read a corpus or its beginning, and return its number of pairs, estimated by its size."""
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


def _tokenizers(recipe: Recipe, sample: _Sample, notes: list[str]) -> tuple[Tokenizers, tuple[int, int] | None]:
    """Return the vocabulary that the run would use, or train one and return the sizes that the model will have."""
    has_begun = recipe.out is not None and Tokenizers.found_in(recipe.out)
    given = recipe.out if has_begun else vocabulary_of(recipe)
    if given is not None:
        return Tokenizers.load(given), None
    config = recipe.tokenizer
    _log.info("training a vocabulary of %s pieces", f"{config.vocab_size:,}")
    pairs = [(pair.src, pair.tgt) for pair in open_corpora(sample.corpora, Faults(), recipe.reader.on_fault)]
    if sample.share < 1:
        notes.append("the vocabulary was trained on that sample; the run's own will differ a little")
    return _learn(pairs, config, sample.share == 1, notes), (config.vocab_size, config.vocab_size)


def _learn(pairs: list[tuple[str, str]], config: TokenizerConfig, is_all: bool, notes: list[str]) -> Tokenizers:
    """Train a vocabulary, or a smaller one if the sample has too little text."""
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
                notes.append(f"the sample is too small for {config.vocab_size:,} pieces; measured with {size:,}")
            return found


def _probe(task: Task) -> Measurement:
    try:
        with closing(Worker(probe)) as worker:
            worker.ask(task)
            found = worker.answer()
    except WorkerLostError:
        raise RunError(
            f"the measurement was killed, probably out of memory: lower max_tokens ({task.recipe.batch.max_tokens}) "
            f"and raise accumulate ({task.recipe.training.accumulate}) to train the same"
        ) from None
    assert isinstance(found, Measurement)
    return found


def _free_memory() -> int:
    """Return the memory available to a new process, on this machine or in this container."""
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
