"""A training run from beginning to end: go on where it stopped, update, look at dev, finish."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from types import FrameType
from typing import Any, Final, NamedTuple

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from glassformer.config import SearchConfig
from glassformer.data.batches import Batch, Batches
from glassformer.errors import RunError, Stopped
from glassformer.model.transformer import Transformer
from glassformer.report.board import Board
from glassformer.report.card import write_card
from glassformer.report.run import write_report
from glassformer.store.checkpoint import Checkpoint, load_latest, newest_checkpoints, prune, save_checkpoint
from glassformer.store.folder import EXAMPLES, WEIGHTS, About, save_model
from glassformer.training.average import average_checkpoints
from glassformer.training.distributed import World
from glassformer.training.learner import Learner, NotFinite, Update
from glassformer.training.progress import Reporter
from glassformer.training.recipe import Recipe
from glassformer.training.run import BEST, CHECKPOINTS, Metrics, write_whole
from glassformer.training.schedule import learning_rate
from glassformer.training.validation import Judge, Verdict
from glassformer.translate.alignment import choose_head

_MAX_ROLLBACKS: Final = 3
_EXAMPLES: Final = 64  # sentences of dev that the model folder keeps
_BEAM: Final = 5  # hypotheses that are tried in the end, where a run looked at dev greedily


@dataclass
class Course:
    """How far a run has come: all that a checkpoint keeps besides tensors."""

    step: int = 0  # updates made
    epoch: int = 0
    batch: int = 0  # the next global batch of the epoch
    tokens: int = 0  # source and target tokens read
    seconds: float = 0.0  # spent in training
    best: float | None = None  # the best look at dev, higher is better
    best_step: int = 0
    waited: int = 0  # looks at dev since the best
    rate_cut: float = 1.0  # what the learning rate is multiplied by since the last roll-back
    rollbacks: int = 0
    line_loss: float = 0.0  # what the next line of metrics.jsonl will be made of
    line_targets: int = 0


class _Work(NamedTuple):
    """The batches of one update."""

    batches: list[Batch]
    n_tokens: int  # target tokens, over all processes
    n_read: int  # source and target tokens
    epoch: int
    batch: int  # where the data stand afterwards


class _Clock:
    """Tokens and seconds since the last line of metrics.jsonl, looks at dev not counted."""

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
    """One run: its learner, its data, its judge, and how far it has come."""

    def __init__(
        self,
        recipe: Recipe,
        out: Path,
        learner: Learner,
        batches: Batches,
        judge: Judge,
        world: World,
        report: Reporter,
    ) -> None:
        self.recipe, self.config, self.out = recipe, recipe.training, out
        self.learner, self.batches, self.judge = learner, batches, judge
        self.world, self.report = world, report
        self.width = learner.model.config.d_model
        self.metrics, self.board = Metrics(out), Board(out)
        self.course = Course()
        self.stop_signal: int | None = None

    def run(self) -> None:
        """Train to the end, or until somebody asks to stop."""
        try:
            with closing(self.board):
                self._resume()
                self._train()
                self._finish()
        except (OSError, SafetensorError) as error:
            raise RunError(
                f"{self.out} could not be written: {error}; mend it and give the same command again"
            ) from None

    def _train(self) -> None:
        with self._listening(), ThreadPoolExecutor(1) as reader:
            coming = reader.submit(self._read, self.course.epoch, self.course.batch)
            clock = _Clock()
            while self.course.step < self.config.max_updates and not self._is_out_of_patience():
                work = coming.result()
                coming = reader.submit(self._read, work.epoch, work.batch)
                try:
                    update = self._update(work)
                except NotFinite as event:
                    if not coming.cancel():
                        coming.exception()  # the reader and `place` share one open epoch, so one at a time
                    self._roll_back(event, work)
                    coming = reader.submit(self._read, self.course.epoch, self.course.batch)
                    clock = _Clock()
                    continue
                self._account(update, work, clock)
                with clock.pause():
                    self._look_and_save()
                if self.stop_signal is not None:
                    coming.cancel()
                    self._save()
                    name = signal.Signals(self.stop_signal).name
                    raise Stopped(
                        f"stopped by {name} after update {self.course.step}, which is saved; "
                        "the same command goes on from there",
                        self.stop_signal,
                    )
            coming.cancel()

    def _resume(self) -> None:
        folder = self.out / CHECKPOINTS
        found: Checkpoint | None = None
        if self.world.is_first:  # which alone decides where the run stands: the others may look while it writes
            found, complaints = load_latest(folder)
            for complaint in complaints:
                self.report.say(f"passed over: {complaint}")
        if not self.world.sum(found is not None):
            self._save()  # step 0: there is always something to go back to
        else:
            self._return_to(found or self._newest())
            self._forget()
        if self.course.step:
            self.report.say(f"going on from update {self.course.step}")
        if self.world.is_first:  # which prepares the epoch; the others find it done
            for line in self.batches.report(self.course.epoch):
                self.report.say(line)
        self.world.wait()

    def _newest(self) -> Checkpoint:
        found, _ = load_latest(self.out / CHECKPOINTS)
        assert found is not None, "a run saves its beginning"
        return found

    def _return_to(self, checkpoint: Checkpoint) -> None:
        self.course = Course(**checkpoint.state)
        self.learner.restore(checkpoint.tensors)

    def _read(self, epoch: int, batch: int) -> _Work:
        """Read the batches of one update, from there on."""
        count = self.batches.count(epoch)
        numbers = range(batch, min(batch + self.config.accumulate, count))
        parts = [self.batches.read(epoch, number) for number in numbers]
        sizes = [self.batches.tokens(epoch, number) for number in numbers]
        end = numbers[-1] + 1
        where = (epoch + 1, 0) if end == count else (epoch, end)
        return _Work(parts, sum(tgt for _, tgt in sizes), sum(map(sum, sizes)), *where)

    def _update(self, work: _Work) -> Update:
        step = self.course.step + 1
        rate = learning_rate(step, self.config, self.width) * self.course.rate_cut
        try:
            return self.learner.update(step, rate, work.batches, work.n_tokens)
        except (torch.OutOfMemoryError, RuntimeError) as error:
            if not isinstance(error, torch.OutOfMemoryError) and "memory" not in str(error):
                raise
            shapes = ", ".join(f"{len(b.src)} x {b.src.size(1)}+{b.tgt_in.size(1)}" for b in work.batches)
            raise RunError(
                f"out of memory at update {step}, on a batch of {shapes} positions; choose max_tokens below "
                f"{self.recipe.batch.max_tokens} and accumulate above {self.config.accumulate} to train alike in less"
            ) from None

    def _account(self, update: Update, work: _Work, clock: _Clock) -> None:
        course = self.course
        course.step += 1
        course.epoch, course.batch = work.epoch, work.batch
        course.tokens += work.n_read
        course.line_loss += update.loss
        course.line_targets += work.n_tokens
        clock.tokens += work.n_read
        figures = {
            "loss": course.line_loss / course.line_targets,
            "lr": learning_rate(course.step, self.config, self.width) * course.rate_cut,
            "tokens_per_s": clock.tokens / clock.seconds,
        }
        self.report.advance(course.step, figures)
        if course.step % self.config.log_every and course.step < self.config.max_updates:
            return
        course.seconds += clock.seconds
        entry = {
            "step": course.step,
            "epoch": course.epoch,
            "tokens": course.tokens,
            **figures,
            "norm": update.norm,
            "seconds": course.seconds,
        }
        self._record("train", entry)
        course.line_loss, course.line_targets = 0.0, 0
        clock.restart()

    def _look_and_save(self) -> None:
        step, config = self.course.step, self.config
        at_end = step == config.max_updates
        if step % config.validate_every == 0 or at_end:
            self._look()
        if step % config.checkpoint_every == 0 or at_end or self._is_out_of_patience():
            self._save()

    def _look(self) -> None:
        """Look at dev, and remember whether it is the best so far."""
        weights = self.learner.weights()
        course = self.course
        score = 0.0
        if self.world.is_first:
            verdict = self.judge(weights)
            score = self._score(verdict)
            self._record("dev", verdict.entry(course.step))
            self._tell(verdict)
            write_report(self.out)
        score = self.world.sum(score)  # the first process knows, the others add nothing
        if course.best is None or score > course.best:
            course.best, course.best_step, course.waited = score, course.step, 0
            if self.world.is_first:
                self._write_weights(self.out / BEST, weights)
        else:
            course.waited += 1

    def _score(self, verdict: Verdict) -> float:
        return verdict.bleu if self.config.metric == "bleu" else -verdict.loss

    def _tell(self, verdict: Verdict) -> None:
        self.report.say(
            f"dev after update {self.course.step}: perplexity {verdict.perplexity:.2f}, BLEU {verdict.bleu:.2f}"
        )
        for sample in verdict.samples:
            self.report.say(f"  {sample.src}\n  → {sample.hypothesis}\n  = {sample.reference}")

    def _is_out_of_patience(self) -> bool:
        return 0 < self.config.patience <= self.course.waited

    def _save(self) -> None:
        tensors = self.learner.tensors()
        if self.world.is_first:
            folder = self.out / CHECKPOINTS
            save_checkpoint(folder, self.course.step, tensors, asdict(self.course))
            prune(folder, max(self.config.keep_checkpoints, self.config.average_last))
        self.world.wait()

    def _roll_back(self, event: NotFinite, work: _Work) -> None:
        """Go back to the last good state and take smaller steps from there, three times at most."""
        course, bad_step = self.course, self.course.step + 1
        pairs = [self.batches.place(course.epoch, pair) for batch in work.batches for pair in batch.pairs.tolist()]
        what = f"update {bad_step} is no number ({event}); its pairs: {', '.join(pairs[:5])}, {len(pairs)} in all"
        rollbacks, cut = course.rollbacks + 1, course.rate_cut / 2
        self._return_to(self._newest())
        if rollbacks > _MAX_ROLLBACKS:
            raise RunError(
                f"{what}; it went back {_MAX_ROLLBACKS} times in vain, and is saved as of update {self.course.step}; "
                "try a lower lr, a longer warmup or a clip_norm, and give --accept-changes"
            )
        self.course.rollbacks, self.course.rate_cut = rollbacks, cut
        self._forget()
        entry = {"step": self.course.step, "bad_step": bad_step, "parameter": event.parameter, "rate_cut": cut}
        self._record("rollback", entry)
        self.report.say(f"{what}; back to update {self.course.step} with {cut:g} times the learning rate")

    def _finish(self) -> None:
        """Choose the weights that the run ends with and write them as a model folder."""
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
        verdicts = dict[str, Verdict]()
        for name, weights in candidates.items():
            twin = next((other for other in verdicts if _are_equal(candidates[other], weights)), None)
            verdicts[name] = self.judge(weights) if twin is None else verdicts[twin]
        chosen = max(verdicts, key=lambda name: self._score(verdicts[name]))
        for name, verdict in verdicts.items():
            self._record("end", {"weights": name, "chosen": name == chosen, **verdict.entry(self.course.step)})
            self.report.say(f"{name}: dev perplexity {verdict.perplexity:.2f}, BLEU {verdict.bleu:.2f}")
        search, verdict = self._choose_search(candidates[chosen], verdicts[chosen])
        model = Transformer(self.learner.model.config).eval()
        with torch.no_grad():
            for name, parameter in model.named_parameters():
                parameter.copy_(candidates[chosen][name])
        save_model(model, self.out, self._about(model, search, verdict))
        self.judge.tokenizers.save(self.out)
        write_whole(self.out / EXAMPLES, "".join(f"{text}\n" for text in self.judge.examples(_EXAMPLES)))
        write_report(self.out)
        write_card(self.out)
        self.report.say(f"the {chosen} weights are now {self.out / WEIGHTS}")
        self.world.wait()

    def _choose_search(self, weights: Mapping[str, Tensor], verdict: Verdict) -> tuple[SearchConfig, Verdict]:
        """Try whether a beam translates dev better than the greedy search of the run; it need not."""
        search = self.recipe.search
        if search.width > 1 or search.method != "beam":
            return search, verdict
        wide = search.model_copy(update={"width": _BEAM})
        self.report.say(f"trying a beam of {_BEAM} on dev")
        other = self.judge(weights, wide)
        self.report.say(f"a beam of {_BEAM}: BLEU {other.bleu:.2f}")
        return (wide, other) if other.bleu > verdict.bleu else (search, verdict)

    def _about(self, model: Transformer, search: SearchConfig, verdict: Verdict) -> About:
        """Say what the model folder will say of the run."""
        return About(
            src_lang=self.recipe.src_lang,
            tgt_lang=self.recipe.tgt_lang,
            lower_capitals=self.recipe.lower_capitals,
            search=search,
            alignment=choose_head(model, list(zip(self.judge.sources, self.judge.targets, strict=True))),
            tokenizer_sha256=tuple(tokenizer.sha256 for tokenizer in self.judge.tokenizers),
            training={
                "updates": self.course.step,
                "tokens": self.course.tokens,
                "seconds": round(self.course.seconds),
                "dev_perplexity": round(verdict.perplexity, 3),
                "dev_bleu": round(verdict.bleu, 2),
                "dev_bleu_signature": verdict.signature,
            },
        )

    def _forget(self) -> None:
        if self.world.is_first:
            self.metrics.cut(self.course.step)

    def _record(self, kind: str, entry: Mapping[str, Any]) -> None:
        if self.world.is_first:
            self.metrics.append(kind, entry)
            self.board.record(kind, entry)
            self.report.record(kind, entry)

    def _write_weights(self, path: Path, weights: Mapping[str, Tensor]) -> None:
        draft = path.with_name(f".{path.name}")
        draft.touch()
        mode = draft.stat().st_mode
        save_file({name: tensor.contiguous().cpu() for name, tensor in weights.items()}, draft)
        draft.chmod(mode)  # safetensors lets nobody but the owner read
        draft.replace(path)

    @contextmanager
    def _listening(self) -> Iterator[None]:
        """Finish the update in hand when asked to stop; a second request stops at once."""
        if self.world.size > 1:  # torchrun ends its workers by signal and starts them again
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
