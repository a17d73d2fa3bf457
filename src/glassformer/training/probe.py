"""A few seconds of the real thing, in a process of its own, so that its peak of memory is nobody else's."""

from __future__ import annotations

import resource
import sys
import time
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final, NamedTuple

import torch

from glassformer.config import CorpusConfig
from glassformer.data.batches import Batch, Batches
from glassformer.data.pair import Pair
from glassformer.data.prepared import Prepared
from glassformer.errors import RunError
from glassformer.model.transformer import Transformer
from glassformer.store.checkpoint import save_checkpoint
from glassformer.text.tokenizer import Tokenizers
from glassformer.training.distributed import world
from glassformer.training.learner import Learner, NotFinite
from glassformer.training.recipe import Recipe
from glassformer.training.schedule import learning_rate
from glassformer.training.start import make_model, tune
from glassformer.training.validation import Judge

_PART: Final = 4  # the first batches are so much smaller, to see how memory grows with them
_FEW: Final = 6  # updates of each size before the clock starts, if they do not take too long:
_WARM_UP: Final = 0.15  # of the time
_LOOKS: Final = 3  # groups of dev sentences that are translated
_GROUP: Final = 4096  # source tokens of such a group: a batch of the translation


class Task(NamedTuple):
    """What is to be measured, and for how long."""

    recipe: Recipe
    corpora: tuple[CorpusConfig, ...]  # those of the recipe, or a sample of them
    data: Path  # the prepared shards
    scratch: Path
    tokenizers: Tokenizers
    src_vocab: int  # what the model has, whatever the tokenizers have
    tgt_vocab: int
    dev: list[Pair]
    seconds: float
    asked: float  # when, by time.time()


class Memory(NamedTuple):
    """Peaks in bytes, each since the process began."""

    empty: int  # python, torch and the data, before there is a model
    part: int  # training with batches of a part of max_tokens
    whole: int  # training with batches of max_tokens
    look: int  # a look at dev besides


class Found(NamedTuple):
    """What was measured."""

    parameters: dict[str, int]  # by part of the model
    memory: Memory
    part_tokens: int  # max_tokens of the smaller batches
    start_seconds: float  # until there is a process that has read its programs
    n_tokens: int  # source and target tokens, while the clock ran
    seconds: float
    look_seconds: float
    save_seconds: float
    checkpoint_bytes: int
    device: str
    threads: int


def probe(task: Task) -> Found:
    """Train, look at dev and save for some seconds, in the same way as a run, and write only into `scratch`."""
    started = time.time() - task.asked
    recipe, config = task.recipe, task.recipe.training
    with world(config.device) as here:
        tune(here, config.threads)
        with Prepared(task.corpora, recipe.reader, task.tokenizers, task.data, recipe.seed) as prepared:
            part_tokens = max(recipe.batch.max_tokens // _PART, 1)
            small = Batches(prepared, recipe.batch.model_copy(update={"max_tokens": part_tokens}), recipe.seed)
            usual = Batches(prepared, recipe.batch, recipe.seed)
            orders = [_order(batches) for batches in (small, usual)]
            empty = _peak(here.device)
            model = make_model(recipe, task.src_vocab, task.tgt_vocab)
            pace = _Pace(Learner(model, config, here, recipe.seed), model, config.accumulate)
            pace.go(small, orders[0][: _FEW * config.accumulate], _WARM_UP * task.seconds)
            part = _peak(here.device)
            pace.go(usual, orders[1][: _FEW * config.accumulate], _WARM_UP * task.seconds)
            n_tokens, seconds = pace.go(usual, orders[1][1:] or orders[1], task.seconds, again=True)
            whole = _peak(here.device)
        look = _look(task, pace.learner, here.device)
        start = time.perf_counter()
        saved = save_checkpoint(task.scratch, 1, pace.learner.tensors(), {})
        save = time.perf_counter() - start
        parameters: Counter[str] = Counter()
        for name, parameter in model.named_parameters():
            parameters[name.split(".")[0]] += parameter.numel()
        return Found(
            parameters=dict(parameters),
            memory=Memory(empty, part, whole, _peak(here.device)),
            part_tokens=part_tokens,
            start_seconds=started,
            n_tokens=n_tokens,
            seconds=seconds,
            look_seconds=look,
            save_seconds=save,
            checkpoint_bytes=sum(path.stat().st_size for path in saved.iterdir()),
            device=str(here.device),
            threads=torch.get_num_threads(),
        )


def _order(batches: Batches) -> list[int]:
    """Put the batch of the longest sentences first, because it may take the most memory; the others are shuffled."""
    numbers = range(batches.count(0))
    read = (batches.read(0, number) for number in numbers)
    lengths = [max(batch.src.size(1), batch.tgt_in.size(1)) for batch in read]
    longest = lengths.index(max(lengths))
    return [longest, *(number for number in numbers if number != longest)]


class _Pace:
    """A learner, and updates one after the other as the trainer makes them: the next is read meanwhile."""

    def __init__(self, learner: Learner, model: Transformer, accumulate: int) -> None:
        self.learner, self.width, self.accumulate, self.step = learner, model.config.d_model, accumulate, 0

    def go(self, batches: Batches, numbers: Sequence[int], seconds: float, again: bool = False) -> tuple[int, float]:
        """Go through batches, if asked again and again, until time is up; gives tokens and seconds."""
        size = self.accumulate
        works = [numbers[at : at + size] for at in range(0, len(numbers), size)]
        n_updates = n_tokens = 0
        start = time.perf_counter()
        with ThreadPoolExecutor(1) as reader:
            coming = reader.submit(_read, batches, works[0])
            while n_updates == 0 or (time.perf_counter() - start < seconds and (again or n_updates < len(works))):
                parts, n_read, n_targets = coming.result()
                coming = reader.submit(_read, batches, works[(n_updates + 1) % len(works)])
                self._update(parts, n_targets)
                n_updates, n_tokens = n_updates + 1, n_tokens + n_read
        return n_tokens, time.perf_counter() - start

    def _update(self, parts: list[Batch], n_targets: int) -> None:
        self.step += 1
        rate = learning_rate(self.step, self.learner.config, self.width)
        try:
            self.learner.update(self.step, rate, parts, n_targets)
        except NotFinite as event:
            raise RunError(f"update {self.step} of the probe is no number ({event}); try a lower lr") from None


def _read(batches: Batches, numbers: Sequence[int]) -> tuple[list[Batch], int, int]:
    parts = [batches.read(0, number) for number in numbers]
    n_targets = sum(part.n_tokens for part in parts)
    return parts, n_targets + sum(part.n_src_tokens for part in parts), n_targets


def _look(task: Task, learner: Learner, device: torch.device) -> float:
    """Time a look at dev on some of it: all of dev gets a loss, and up to `validate_on` sentences are translated."""
    lengths = [len(ids) + 1 for ids in task.tokenizers.src.encode_batch([pair.src for pair in task.dev])]
    order = sorted(range(len(task.dev)), key=lambda i: lengths[i])
    groups: list[list[Pair]] = []  # of similar length, the longest first, as they are translated
    while order:
        size = max(_GROUP // lengths[order[-1]], 1)
        groups.append([task.dev[i] for i in order[-size:]])
        del order[-size:]
    chosen = [groups[i * len(groups) // min(_LOOKS, len(groups))] for i in range(min(_LOOKS, len(groups)))]
    translated = min(task.recipe.training.validate_on / len(task.dev), 1.0)
    seconds = 0.0
    for pairs in chosen:
        # A model that has learned nothing does not end its sentences, so they are ended where the references end.
        longest = max(map(len, task.tokenizers.tgt.encode_batch([pair.tgt for pair in pairs]))) + 1
        loss = _time_look(task, learner, device, pairs, 1, 1)
        both = _time_look(task, learner, device, pairs, len(pairs), longest)
        seconds += loss + translated * max(both - loss, 0.0)
    return seconds / len(chosen) * len(groups)


def _time_look(
    task: Task, learner: Learner, device: torch.device, pairs: list[Pair], translated: int, longest: int
) -> float:
    search = task.recipe.search
    most = max(min(longest, search.max_length), search.min_length + 1)
    search = search.model_copy(update={"max_length": most})
    config, tokenize = learner.model.config, task.recipe.bleu_tokenize
    judge = Judge(config, pairs, task.tokenizers, search, device, translated, tokenize)
    start = time.perf_counter()
    judge(learner.weights())
    return time.perf_counter() - start


def _peak(device: torch.device) -> int:
    """Give the most memory that this process, or the device for it, has held so far."""
    if device.type == "cuda":
        return torch.cuda.max_memory_reserved(device)
    status = Path("/proc/self/status")
    if status.exists():  # ru_maxrss is inherited from whoever started the process
        lines = dict(line.split(":", 1) for line in status.read_text().splitlines())
        return int(lines["VmHWM"].split()[0]) * 1024
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return most if sys.platform == "darwin" else most * 1024
