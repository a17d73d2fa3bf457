"""A model in training: its weights, optimizer and moving average, and the one verb that changes them.

Everything random in an update is a function of (seed, step, rank): no random state has to be saved, and a
run that was stopped goes on exactly as one that never was.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from glassformer.config import TrainingConfig
from glassformer.data.batches import Batch
from glassformer.model.transformer import Transformer
from glassformer.text.vocab import PAD
from glassformer.training.adam import MOMENTS, Adam
from glassformer.training.distributed import World, exchange, own, share_like, spread, whole
from glassformer.training.loss import cross_entropy


class Update(NamedTuple):
    """What one update came to."""

    loss: float  # sum over the target tokens of all processes
    norm: float  # length of the gradient, before clipping


class NotFinite(Exception):  # noqa: N818 - an event, not a mistake of the user's
    """A loss or gradient that is no number: names the first parameter that went bad."""

    def __init__(self, parameter: str, loss: float, norm: float) -> None:
        super().__init__(f"loss {loss:g}, gradient {norm:g}; first bad: {parameter}")
        self.parameter = parameter


class _Lesson(nn.Module):
    """A model and its loss: what is spread over processes, so that all weights are used inside it."""

    def __init__(self, model: Transformer, config: TrainingConfig, device: torch.device) -> None:
        super().__init__()
        self.model, self.smoothing = model, config.label_smoothing
        self.hidden = torch.compile(model.hidden, dynamic=True) if config.compile else model.hidden
        self.device_type = device.type
        self.precision = {"bf16": torch.bfloat16, "fp16": torch.float16}.get(config.precision)

    def forward(self, batch: Batch) -> Tensor:
        """Sum the loss over the target tokens of a batch."""
        with torch.autocast(self.device_type, self.precision) if self.precision else nullcontext():
            hidden = self.hidden(batch.src, batch.tgt_in, batch.src_mask)  # (B, T, D)
        right = batch.tgt_out.flatten()
        where = (right != PAD).nonzero().squeeze(1)  # only where there is a token
        flat = hidden.flatten(0, 1)
        if len(where) < len(right):
            flat, right = flat.index_select(0, where), right.index_select(0, where)
        output = self.model.output
        return cross_entropy(flat.to(output.weight.dtype), output.weight, output.bias, right, self.smoothing)


class Learner:
    """Weights, optimizer and moving average of a model in training, on one device or spread over a world."""

    def __init__(self, model: Transformer, config: TrainingConfig, world: World, seed: int) -> None:
        self.config, self.world, self.seed = config, world, seed
        self.model = model.to(world.device)
        self.lesson = spread(_Lesson(self.model, config, world.device), self.model, world, config.sharding)
        self.parameters = dict(self.model.named_parameters())
        self.optimizer = Adam(self.parameters.values(), config)
        self._scaled: Any = self.optimizer  # all that GradScaler asks of torch's
        self.average = {name: p.detach().clone() for name, p in self.parameters.items()} if config.ema else {}
        scaled = config.precision == "fp16" and world.device.type == "cuda"
        self.scaler = torch.amp.GradScaler(world.device.type, enabled=scaled)

    def update(self, step: int, lr: float, batches: Sequence[Batch], n_tokens: int) -> Update:
        """Make update `step` from this process's share of one or several batches of `n_tokens` target tokens."""
        torch.manual_seed((self.seed * 1_000_003 + step) * 8191 + self.world.rank)
        self.model.train()
        total = 0.0
        for number, batch in enumerate(batches, 1):
            with exchange(self.lesson, is_on=number == len(batches)):
                loss = self.lesson(batch.to(self.world.device))
                # Processes take the mean of their gradients; the update wants the mean over all tokens.
                scaled = self.scaler.scale(loss * (self.world.size / n_tokens))
                scaled.backward()
                total += loss.item()
        return self._apply(lr, self.world.sum(total))

    def weights(self) -> dict[str, Tensor]:
        """Give all weights; all processes must ask."""
        return {name: whole(p.detach()) for name, p in self.parameters.items()}

    def tensors(self) -> dict[str, dict[str, Tensor]]:
        """Give everything that a checkpoint must keep; all processes must ask."""
        moments = {
            f"{moment}.{name}": whole(self.optimizer.state[p][moment])
            for name, p in self.parameters.items()
            if p in self.optimizer.state
            for moment in MOMENTS
        }
        average = {name: whole(tensor) for name, tensor in self.average.items()}
        return {"model": self.weights(), "optimizer": moments, **({"ema": average} if average else {})}

    def restore(self, tensors: Mapping[str, Mapping[str, Tensor]]) -> None:
        """Take back what `tensors` gave."""
        with torch.no_grad():
            for name, parameter in self.parameters.items():
                parameter.copy_(share_like(tensors["model"][name], parameter))
                if name in self.average:
                    self.average[name].copy_(share_like(tensors.get("ema", tensors["model"])[name], parameter))
                self.optimizer.state.pop(parameter, None)
                if f"step.{name}" in tensors["optimizer"]:
                    saved = {moment: tensors["optimizer"][f"{moment}.{name}"] for moment in MOMENTS}
                    self.optimizer.state[parameter] = {
                        moment: tensor.to(parameter.device, copy=True)
                        if moment == "step"
                        else share_like(tensor, parameter)
                        for moment, tensor in saved.items()
                    }
        self.optimizer.zero_grad()

    def _apply(self, lr: float, loss: float) -> Update:
        config = self.config
        self.scaler.unscale_(self._scaled)
        gradients = [p.grad for p in self.parameters.values() if p.grad is not None]
        norm = float(whole(nn.utils.get_total_norm(gradients)))
        if self.scaler.is_enabled():
            pass  # the scaler skips an update whose gradient overflowed, and makes its scale smaller
        elif not (math.isfinite(norm) and math.isfinite(loss)):
            raise NotFinite(self._first_bad(), loss, norm)
        if config.clip_norm and norm > config.clip_norm:
            torch._foreach_mul_(list(map(own, gradients)), config.clip_norm / norm)
        self.optimizer.lr = lr
        self.scaler.step(self._scaled)
        self.scaler.update()
        self.optimizer.zero_grad()
        if self.average:
            parameters = [own(p.detach()) for p in self.parameters.values()]
            torch._foreach_lerp_(list(map(own, self.average.values())), parameters, 1 - config.ema)
        return Update(loss, norm)

    def _first_bad(self) -> str:
        for name, p in self.parameters.items():
            if not whole(p.detach()).isfinite().all():
                return f"{name} itself"
        for name, p in self.parameters.items():
            if p.grad is not None and not whole(p.grad).isfinite().all():
                return f"the gradient of {name}"
        return "the loss, all gradients being numbers"
