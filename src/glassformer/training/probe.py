"""Some seconds of a real training, in a process of its own, so that its peak memory can be measured."""

from __future__ import annotations

import resource
import sys
import time
from pathlib import Path
from typing import Final, NamedTuple

import torch

from glassformer.config import BatchConfig, CorpusConfig
from glassformer.data.batches import Batches, length_batches
from glassformer.data.pair import Pair
from glassformer.data.prepared import Prepared
from glassformer.data.shard import Numbers, Shard
from glassformer.store.checkpoint import newest_checkpoints
from glassformer.text.tokenizer import Tokenizers
from glassformer.training.distributed import world
from glassformer.training.learner import Learner
from glassformer.training.recipe import Recipe
from glassformer.training.run import CHECKPOINTS
from glassformer.training.start import configure_process, learn_aligner, make_model
from glassformer.training.trainer import Trainer
from glassformer.training.validation import Validator

_PART: Final = 4  # how many times smaller the first batches are, to see how memory grows with the batch
_FEW: Final = 6  # updates with each batch size before the clock starts, but no longer than
_WARM_UP: Final = 0.15  # of the time
_GROUPS: Final = 3  # groups of validation sentences that are translated
_GROUP: Final = 4096  # source tokens of a group: a batch of the translation
_NEVER: Final = 10**9  # updates


class Task(NamedTuple):
    """What to measure, and for how long."""

    recipe: Recipe
    corpora: tuple[CorpusConfig, ...]  # those of the recipe, or a sample of them
    data: Path  # the prepared shards
    scratch: Path
    tokenizers: Tokenizers
    src_vocab: int  # of the model, whatever the tokenizers have
    tgt_vocab: int
    dev: list[Pair]
    seconds: float
    asked: float  # when, by time.time()


class Memory(NamedTuple):
    """Peaks in bytes, each since the process started."""

    empty: int  # python, torch and the data, before there is a model
    part: int  # training with smaller batches
    whole: int  # training with batches of max_tokens
    validation: int


class Measurement(NamedTuple):
    """What was measured."""

    parameters: dict[str, int]  # by part of the model
    memory: Memory
    part_tokens: int  # max_tokens of the smaller batches
    start_seconds: float  # to start a process and its imports
    n_tokens: int  # source and target tokens while the clock ran
    seconds: float
    validation_seconds: float
    save_seconds: float
    checkpoint_bytes: int
    device: str
    threads: int


class _LongestFirst(Batches):
    """The batches of epoch 0 in every epoch, the longest sentences first, because these may need the most memory."""

    def __init__(self, prepared: Prepared, config: BatchConfig, seed: int) -> None:
        super().__init__(prepared, config, seed)
        shard, plan = super()._open(0)
        batches = [plan[number] for number in range(len(plan))]
        lengths = [max(side.lengths(pairs).max() for side in (shard.src, shard.tgt)) for pairs in batches]
        longest = lengths.index(max(lengths))
        batches[0], batches[longest] = batches[longest], batches[0]
        self._repeated = shard, batches

    def _open(self, epoch: int) -> tuple[Shard, list[Numbers]]:
        return self._repeated

    def delete_past_and_prepare_next(self, epoch: int) -> None:
        """Do nothing: the epoch repeats."""


def probe(task: Task) -> Measurement:
    """Train, validate and save as a run does, and write only into `scratch`."""
    started = time.time() - task.asked
    recipe = task.recipe
    part_tokens = max(recipe.batch.max_tokens // _PART, 1)
    with world(recipe.training.device) as here:
        configure_process(here, recipe.training.threads)
        with Prepared(task.corpora, recipe.reader, task.tokenizers, task.data, recipe.seed) as prepared:
            smaller = recipe.batch.model_copy(update={"max_tokens": part_tokens})
            small, usual = (_LongestFirst(prepared, config, recipe.seed) for config in (smaller, recipe.batch))
            if recipe.training.guided_alignment:
                small.aligner = usual.aligner = learn_aligner(prepared.epoch(0))
            empty = _peak(here.device)
            learner = Learner(make_model(recipe, task.src_vocab, task.tgt_vocab), recipe.training, here, recipe.seed)
            trainer = _trainer(task, learner, small)
            trainer.train(_FEW, _WARM_UP * task.seconds)
            part = _peak(here.device)
            trainer = _trainer(task, learner, usual)
            trainer.train(_FEW, _WARM_UP * task.seconds)
            start, n_before = time.perf_counter(), trainer.state.tokens
            trainer.train(seconds=task.seconds)
            seconds, n_tokens = time.perf_counter() - start, trainer.state.tokens - n_before
            whole = _peak(here.device)
        validation = _validation_seconds(task, learner)
        start = time.perf_counter()
        trainer.save()
        save = time.perf_counter() - start
        (saved,) = newest_checkpoints(task.scratch / CHECKPOINTS, 1)
        return Measurement(
            parameters=learner.model.count_parameters(),
            memory=Memory(empty, part, whole, _peak(here.device)),
            part_tokens=part_tokens,
            start_seconds=started,
            n_tokens=n_tokens,
            seconds=seconds,
            validation_seconds=validation,
            save_seconds=save,
            checkpoint_bytes=sum(path.stat().st_size for path in saved.iterdir()),
            device=str(here.device),
            threads=torch.get_num_threads(),
        )


def _trainer(task: Task, learner: Learner, batches: Batches) -> Trainer:
    """Return a trainer at the initial state, which validates and saves only when told to."""
    never = {"max_updates": _NEVER, "validate_every": _NEVER, "checkpoint_every": _NEVER}
    recipe = task.recipe.model_copy(update={"training": task.recipe.training.model_copy(update=never)})
    validator = Validator(recipe, learner.model.config, task.dev, task.tokenizers, learner.world.device)
    trainer = Trainer(recipe, task.scratch, learner=learner, batches=batches, validator=validator)
    trainer.resume()
    return trainer


def _validation_seconds(task: Task, learner: Learner) -> float:
    """Time validation on part of the set: all of it gets a loss, and up to `validate_on` sentences are translated."""
    lengths = [len(ids) + 1 for ids in task.tokenizers.src.encode_batch([pair.src for pair in task.dev])]
    groups = [[task.dev[i] for i in numbers] for numbers in length_batches(lengths, max_tokens=_GROUP)]
    count = min(_GROUPS, len(groups))
    chosen = [groups[i * len(groups) // count] for i in range(count)]
    translated = min(task.recipe.training.validate_on / len(task.dev), 1.0)
    seconds = 0.0
    for pairs in chosen:
        # An untrained model does not end its sentences, so they are cut off at the length of the references.
        longest = max(map(len, task.tokenizers.tgt.encode_batch([pair.tgt for pair in pairs]))) + 1
        loss = _time_validation(task, learner, pairs, 1, 1)
        both = _time_validation(task, learner, pairs, len(pairs), longest)
        seconds += loss + translated * max(both - loss, 0.0)
    return seconds / len(chosen) * len(groups)


def _time_validation(task: Task, learner: Learner, pairs: list[Pair], n_translated: int, longest: int) -> float:
    search, training = task.recipe.search, task.recipe.training.model_copy(update={"validate_on": n_translated})
    most = max(min(longest, search.max_length), search.min_length + 1)
    changes = {"search": search.model_copy(update={"max_length": most}), "training": training}
    recipe = task.recipe.model_copy(update=changes)
    validator = Validator(recipe, learner.model.config, pairs, task.tokenizers, learner.world.device)
    start = time.perf_counter()
    validator.validate(learner.weights())
    return time.perf_counter() - start


def _peak(device: torch.device) -> int:
    """Return the peak memory of this process, or of its device, so far."""
    if device.type == "cuda":
        return torch.cuda.max_memory_reserved(device)
    status = Path("/proc/self/status")
    if status.exists():  # ru_maxrss is inherited from the parent process
        lines = dict(line.split(":", 1) for line in status.read_text().splitlines())
        return int(lines["VmHWM"].split()[0]) * 1024
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return most if sys.platform == "darwin" else most * 1024
