"""A training run from beginning to end: resume, update, validate, save, and choose the final weights."""

from __future__ import annotations

import logging
import math
import signal
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from types import FrameType
from typing import Any, Final, NamedTuple

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from glassformer.config import SearchConfig
from glassformer.data.batches import Batch, Batches
from glassformer.errors import RunError, Stopped
from glassformer.files import write_text
from glassformer.model.transformer import Transformer
from glassformer.store.checkpoint import Checkpoint, load_latest, newest_checkpoints, prune, save_checkpoint
from glassformer.store.folder import EXAMPLES, WEIGHTS, About, save_model, write_weights
from glassformer.training.adam import learning_rate
from glassformer.training.average import average_checkpoints
from glassformer.training.learner import Learner, NotFinite, Update
from glassformer.training.observer import Observer
from glassformer.training.recipe import INHERITED, Recipe
from glassformer.training.run import BEST, CHECKPOINTS, Metrics
from glassformer.training.validation import Validation, Validator, goodness, score_of
from glassformer.translate.alignment import choose_head

_MAX_ROLLBACKS: Final = 3
_EXAMPLES: Final = 64  # validation sentences that the model folder keeps
_BEAM: Final = 5  # beam size that is tried in the end, where a run validated with greedy search

_log = logging.getLogger(__name__)


@dataclass
class TrainState:
    """The progress of a run: all that a checkpoint keeps besides tensors."""

    step: int = 0  # updates made
    epoch: int = 0
    batch: int = 0  # the next global batch of the epoch
    tokens: int = 0  # source and target tokens read
    seconds: float = 0.0  # spent in training
    best: float | None = None  # the best validation so far, higher is better
    best_step: int = 0
    waited: int = 0  # validations since the best
    rate_cut: float = 1.0  # factor on the learning rate since the last rollback
    rollbacks: int = 0
    line_loss: float = 0.0  # what the next line of metrics.jsonl will be made of
    line_targets: int = 0
    metric: str = ""  # what `best` is measured by; older checkpoints do not say


class _Work(NamedTuple):
    """The batches of one update."""

    batches: list[Batch]
    n_tokens: int  # target tokens, over all processes
    n_read: int  # source and target tokens
    epoch: int  # the position in the data afterwards
    batch: int


class _Clock:
    """Tokens and seconds since the last line of metrics.jsonl, excluding validation and checkpoints."""

    def __init__(self) -> None:
        self.restart()

    def restart(self) -> None:
        self.tokens, self.start, self.paused = 0, time.perf_counter(), 0.0

    @property
    def seconds(self) -> float:
        return time.perf_counter() - self.start - self.paused

    @contextmanager
    def pause(self) -> Iterator[None]:
        start = time.perf_counter()
        yield
        self.paused += time.perf_counter() - start


class Trainer:
    """One run: its learner, its data, its validator and its state."""

    def __init__(
        self,
        recipe: Recipe,
        out: Path,
        *,
        learner: Learner,
        batches: Batches,
        validator: Validator,
        observers: Sequence[Observer] = (),
    ) -> None:
        self.recipe, self.config, self.out = recipe, recipe.training, out
        self.learner, self.batches, self.validator, self.world = learner, batches, validator, learner.world
        self.observers = observers if self.world.is_first else ()
        self.width = learner.model.config.d_model
        self.metrics = Metrics(out)
        self.state = TrainState()
        self.opened_epoch: int | None = None
        self.stop_signal: int | None = None

    def run(self) -> None:
        """Train to the end, or until a signal asks to stop."""
        try:
            self.resume()
            with self._listening():
                self.train()
            self._finish()
        except (OSError, SafetensorError) as error:
            raise RunError(f"{self.out} cannot be written: {error}; fix it and resume with the same command") from None

    def resume(self) -> None:
        """Load the newest checkpoint, or save the initial state, so that there is always one to return to."""
        found: Checkpoint | None = None
        if self.world.is_first:  # the only process that writes decides, so that all resume from the same checkpoint
            found, complaints = load_latest(self.out / CHECKPOINTS)
            for complaint in complaints:
                _log.warning("skipped a damaged checkpoint: %s", complaint)
        if not self.world.sum(found is not None):
            self.save()
        else:
            self._return_to(found or self._newest())
            self._forget()
        if self.state.step:
            _log.info("resuming from update %d", self.state.step)
        if self.world.is_first:  # which prepares the epoch; the other processes wait for it
            for line in self.batches.shard(self.state.epoch).meta.report():
                _log.info("%s", line)
        self.world.wait()

    def train(self, updates: int | None = None, seconds: float = math.inf) -> None:
        """Train to the end of the run; stop early after `updates`, or after the update that `seconds` end in."""
        last = self.config.max_updates if updates is None else min(self.state.step + updates, self.config.max_updates)
        deadline, clock = time.perf_counter() + seconds, _Clock()
        with ThreadPoolExecutor(1) as reader:
            coming = reader.submit(self._read, self.state.epoch, self.state.batch)
            while self.state.step < last and not self._is_out_of_patience():
                work = coming.result()
                coming = reader.submit(self._read, work.epoch, work.batch)
                try:
                    update = self._update(work)
                except NotFinite as event:
                    if not coming.cancel():
                        coming.exception()  # the reader and the report share one open epoch, so one at a time
                    self._roll_back(event, work)
                    coming = reader.submit(self._read, self.state.epoch, self.state.batch)
                    clock.restart()
                    continue
                self._account(update, work, clock)
                with clock.pause():
                    self._validate_and_save()
                if self.stop_signal is not None:
                    coming.cancel()
                    self.save()
                    name = signal.Signals(self.stop_signal).name
                    raise Stopped(
                        f"stopped by {name} after update {self.state.step}, which is saved; "
                        "resume with the same command",
                        self.stop_signal,
                    )
                if time.perf_counter() > deadline:
                    break
            coming.cancel()

    def save(self) -> None:
        """Write a checkpoint and delete the oldest ones; all processes must call it."""
        tensors = self.learner.tensors()
        if self.world.is_first:
            folder = self.out / CHECKPOINTS
            save_checkpoint(folder, self.state.step, tensors, asdict(self.state))
            prune(folder, max(self.config.keep_checkpoints, self.config.average_last))
        self.world.wait()

    def _newest(self) -> Checkpoint:
        found, _ = load_latest(self.out / CHECKPOINTS)
        assert found is not None, "a run saves its initial state"
        return found

    def _return_to(self, checkpoint: Checkpoint) -> None:
        self.state = TrainState(**checkpoint.state)
        if self.state.metric not in ("", self.config.metric):  # the recipe has changed, and `best` means nothing now
            self.state.best, self.state.waited = None, 0
        self.learner.restore(checkpoint.tensors)

    def _read(self, epoch: int, batch: int) -> _Work:
        """Read the batches of one update, from there on."""
        count = self.batches.count(epoch)
        if epoch != self.opened_epoch:
            self.batches.delete_past_and_prepare_next(epoch)
            self.opened_epoch = epoch
        numbers = range(batch, min(batch + self.config.accumulate, count))
        parts = [self.batches.read(epoch, number) for number in numbers]
        sizes = [self.batches.tokens(epoch, number) for number in numbers]
        end = numbers[-1] + 1
        where = (epoch + 1, 0) if end == count else (epoch, end)
        return _Work(parts, sum(tgt for _, tgt in sizes), sum(map(sum, sizes)), *where)

    def _update(self, work: _Work) -> Update:
        step = self.state.step + 1
        try:
            return self.learner.update(step, self._rate(step), work.batches, work.n_tokens)
        except (torch.OutOfMemoryError, RuntimeError) as error:
            if not isinstance(error, torch.OutOfMemoryError) and "memory" not in str(error):
                raise
            shapes = ", ".join(f"{len(b.src)} x {b.src.size(1)}+{b.tgt_in.size(1)}" for b in work.batches)
            raise RunError(
                f"out of memory at update {step}, on a batch of {shapes} positions; lower max_tokens "
                f"({self.recipe.batch.max_tokens}) and raise accumulate ({self.config.accumulate}) to train the same"
            ) from None

    def _rate(self, step: int) -> float:
        return learning_rate(step, self.config, self.width) * self.state.rate_cut

    def _account(self, update: Update, work: _Work, clock: _Clock) -> None:
        state = self.state
        state.step += 1
        state.epoch, state.batch = work.epoch, work.batch
        state.tokens += work.n_read
        state.line_loss += update.loss
        state.line_targets += work.n_tokens
        clock.tokens += work.n_read
        figures = {
            "loss": state.line_loss / state.line_targets,
            "lr": self._rate(state.step),
            "tokens_per_s": clock.tokens / clock.seconds,
        }
        for observer in self.observers:
            observer.advance(state.step, figures)
        if state.step % self.config.log_every and state.step < self.config.max_updates:
            return
        state.seconds += clock.seconds
        entry = {"step": state.step, "epoch": state.epoch, "tokens": state.tokens, **figures}
        self._record("train", {**entry, "norm": update.norm, "seconds": state.seconds})
        state.line_loss, state.line_targets = 0.0, 0
        clock.restart()

    def _validate_and_save(self) -> None:
        step, config = self.state.step, self.config
        at_end = step == config.max_updates
        if step % config.validate_every == 0 or at_end:
            self._validate()
        if step % config.checkpoint_every == 0 or at_end or self._is_out_of_patience():
            self.save()

    def _validate(self) -> None:
        """Validate, and keep the weights if they are the best so far."""
        weights = self.learner.weights()
        state = self.state
        score = 0.0
        if self.world.is_first:
            validation = self.validator.validate(weights)
            score = goodness(self.config.metric, validation.figures)
            self._record("dev", validation.entry(state.step))
            _log.info("validation after update %d: %s", state.step, validation)
            for sample in validation.samples:
                _log.info("%s\n  → %s\n  = %s", *sample)
            for observer in self.observers:
                observer.validated(self.out)
        score = self.world.sum(score)  # the first process knows, the others add nothing
        state.metric = self.config.metric
        if state.best is None or score > state.best:
            state.best, state.best_step, state.waited = score, state.step, 0
            if self.world.is_first:
                write_weights(self.out / BEST, weights, error=RunError)
        else:
            state.waited += 1

    def _is_out_of_patience(self) -> bool:
        return 0 < self.config.patience <= self.state.waited

    def _roll_back(self, event: NotFinite, work: _Work) -> None:
        """Return to the last checkpoint and continue with half the learning rate, at most three times."""
        state, bad_step = self.state, self.state.step + 1
        shard = self.batches.shard(state.epoch)
        pairs = [shard.place(pair) for batch in work.batches for pair in batch.pairs.tolist()]
        shown = f"{', '.join(pairs[:5])}{f' and {len(pairs) - 5} more' if len(pairs) > 5 else ''}"
        what = f"loss or gradient is not finite at update {bad_step} ({event}); pairs in the batch: {shown}"
        rollbacks, cut = state.rollbacks + 1, state.rate_cut / 2
        self._return_to(self._newest())
        if rollbacks > _MAX_ROLLBACKS:
            raise RunError(
                f"{what}; gave up after {_MAX_ROLLBACKS} rollbacks; the state of update {self.state.step} is saved; "
                "try a lower lr, a longer warmup or a smaller clip_norm (accept_changes=True)"
            )
        self.state.rollbacks, self.state.rate_cut = rollbacks, cut
        self._forget()
        entry = {"step": self.state.step, "bad_step": bad_step, "parameter": event.parameter, "rate_cut": cut}
        self._record("rollback", entry)
        _log.warning("%s; back to update %d with %g times the learning rate", what, self.state.step, cut)

    def _finish(self) -> None:
        """Choose the final weights and write them as a model folder."""
        average = average_checkpoints(newest_checkpoints(self.out / CHECKPOINTS, self.config.average_last))
        last = self.learner.weights()
        ema = self.learner.tensors().get("ema")
        if not self.world.is_first:
            self.world.wait()
            return
        candidates: dict[str, Mapping[str, Tensor]] = {"last": last, "average": average}
        if (self.out / BEST).exists():
            candidates["best"] = load_file(self.out / BEST)
        if ema is not None:
            candidates["ema"] = ema
        if self.config.choose != "auto":
            candidates = {self.config.choose: candidates[self.config.choose]}
        found = dict[str, Validation]()
        for name, weights in candidates.items():
            twin = next((other for other in found if _are_equal(candidates[other], weights)), None)
            found[name] = self.validator.validate(weights) if twin is None else found[twin]
        chosen = max(found, key=lambda name: goodness(self.config.metric, found[name].figures))
        for name, validation in found.items():
            self._record("end", {"weights": name, "chosen": name == chosen, **validation.entry(self.state.step)})
            _log.info("%s weights: validation %s", name, validation)
        search, validation = self._choose_search(candidates[chosen], found[chosen])
        model = Transformer(self.learner.model.config).eval()
        with torch.no_grad():
            for name, parameter in model.named_parameters():
                parameter.copy_(candidates[chosen][name])
        save_model(model, self.out, self._about(model, search, validation))
        self.validator.tokenizers.save(self.out)
        examples = "".join(f"{text}\n" for text in self.validator.examples(_EXAMPLES))
        write_text(self.out / EXAMPLES, examples, error=RunError)
        for observer in self.observers:
            observer.finished(self.out)
        _log.info("wrote the %s weights to %s", chosen, self.out / WEIGHTS)
        self.world.wait()

    def _choose_search(self, weights: Mapping[str, Tensor], greedy: Validation) -> tuple[SearchConfig, Validation]:
        """Try whether beam search translates better than the greedy search of the run, which is not certain."""
        search = self.recipe.search
        if search.width > 1 or search.method != "beam":
            return search, greedy
        beam = search.model_copy(update={"width": _BEAM})
        _log.info("trying beam size %d on the validation set", _BEAM)
        other = self.validator.validate(weights, beam)
        _log.info("beam size %d: %s", _BEAM, other)
        metric = score_of(self.config.metric)
        return (beam, other) if goodness(metric, other.figures) > goodness(metric, greedy.figures) else (search, greedy)

    def _about(self, model: Transformer, search: SearchConfig, validation: Validation) -> About:
        """Return what the model folder says about the run."""
        scores = {f"dev_{name}": round(score.value, 2) for name, score in validation.scores.items()}
        return About(
            **self.recipe.model_dump(include=INHERITED),
            search=search,
            alignment=choose_head(model, list(zip(self.validator.sources, self.validator.targets, strict=True))),
            tokenizer_sha256=tuple(tokenizer.sha256 for tokenizer in self.validator.tokenizers),
            training={
                "updates": self.state.step,
                "tokens": self.state.tokens,
                "seconds": round(self.state.seconds),
                "dev_perplexity": round(validation.perplexity, 3),
                **scores,
                "dev_bleu_signature": validation.scores["bleu"].signature,
            },
        )

    def _forget(self) -> None:
        if self.world.is_first:
            self.metrics.cut(self.state.step)

    def _record(self, kind: str, entry: Mapping[str, Any]) -> None:
        if self.world.is_first:
            self.metrics.append(kind, entry)
        for observer in self.observers:
            observer.record(kind, entry)

    @contextmanager
    def _listening(self) -> Iterator[None]:
        """Finish the current update when a signal asks to stop; a second signal stops at once."""
        is_main = threading.current_thread() is threading.main_thread()  # no other may handle signals
        if self.world.size > 1 or not is_main:  # torchrun ends its workers by signal and restarts them
            yield
            return

        def ask(number: int, _: FrameType | None) -> None:
            if self.stop_signal is not None:
                raise KeyboardInterrupt
            self.stop_signal = number

        before = {number: signal.signal(number, ask) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)


def _are_equal(one: Mapping[str, Tensor], other: Mapping[str, Tensor]) -> bool:
    return all(torch.equal(tensor.cpu(), other[name].cpu()) for name, tensor in one.items())
