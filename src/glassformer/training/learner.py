"""A model in training: its weights, optimizer and moving average, and the update that changes them.

Everything random in an update is a function of (seed, step, rank): no random state has to be saved, and a
run that was interrupted resumes bit by bit.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from glassformer.config import TrainingConfig
from glassformer.data.batches import Batch
from glassformer.model.attention import MultiHeadAttention
from glassformer.model.decoder import DecoderLayer
from glassformer.model.transformer import Transformer
from glassformer.text.vocab import PAD
from glassformer.training.adam import MOMENTS, Adam
from glassformer.training.distributed import World, distribute, full_tensor, local_shard, shard_like, sync_gradients
from glassformer.training.loss import alignment_loss, cross_entropy


class Update(NamedTuple):
    """The figures of one update."""

    loss: float  # sum over the target tokens of all processes
    norm: float  # of the gradient, before clipping


class NotFinite(Exception):  # noqa: N818 - an event, not a mistake of the user's
    """A loss or gradient that is NaN or infinite; names the first parameter affected."""

    def __init__(self, parameter: str, loss: float, norm: float) -> None:
        super().__init__(f"loss {loss:g}, gradient norm {norm:g}, first in {parameter}")
        self.parameter = parameter


class LossModule(nn.Module):
    """A model and its loss: the module that is distributed, because it uses all weights."""

    def __init__(self, model: Transformer, config: TrainingConfig, device: torch.device) -> None:
        super().__init__()
        self.model, self.smoothing, self.guidance = model, config.label_smoothing, config.guided_alignment
        self.hidden = torch.compile(model.hidden, dynamic=True) if config.compile else model.hidden
        self.device_type = device.type
        self.precision = {"bf16": torch.bfloat16, "fp16": torch.float16}.get(config.precision)

    def forward(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """Sum the loss over the target tokens of a batch, without and with the loss of guided alignment."""
        with ExitStack() as stack:
            if self.precision:
                stack.enter_context(torch.autocast(self.device_type, self.precision))
            seen = [] if batch.links is None else stack.enter_context(_seeing_inputs(self._guided))
            hidden = self.hidden(batch.src, batch.tgt_in, batch.src_mask)  # (B, T, D)
        right = batch.tgt_out.flatten()
        where = (right != PAD).nonzero().squeeze(1)  # padding has no loss
        flat = hidden.flatten(0, 1)
        if len(where) < len(right):
            flat, right = flat.index_select(0, where), right.index_select(0, where)
        output = self.model.output
        loss = cross_entropy(flat.to(output.weight.dtype), output.weight, output.bias, right, self.smoothing)
        if batch.links is None:
            return loss, loss
        (query, memory, allowed), *_ = seen
        return loss, loss + self.guidance * alignment_loss(self._guided.factor, query, memory, allowed, batch.links)

    @property
    def _guided(self) -> MultiHeadAttention:
        """The attention that has the head which learns to align."""
        last = self.model.decoder.layers[-1]
        assert isinstance(last, DecoderLayer)
        return last.cross_attention


@contextmanager
def _seeing_inputs(attention: MultiHeadAttention) -> Iterator[list[tuple[Any, ...]]]:
    """Yield a list that receives the inputs (query, memory, allowed) of an attention, whenever it is called."""
    seen = list[tuple[Any, ...]]()
    handle = attention.register_forward_pre_hook(lambda _, inputs: seen.append(inputs))
    try:
        yield seen
    finally:
        handle.remove()


class Learner:
    """Weights, optimizer and moving average of a model in training, on one device or spread over a world."""

    def __init__(self, model: Transformer, config: TrainingConfig, world: World, seed: int) -> None:
        self.config, self.world, self.seed = config, world, seed
        self.model = model.to(world.device)
        self.loss = distribute(LossModule(self.model, config, world.device), self.model, world, config.sharding)
        self.parameters = dict(self.model.named_parameters())
        self.optimizer = Adam(self.parameters.values(), config)
        self._scaled: Any = self.optimizer  # it has all that GradScaler uses of torch's
        self.average = {name: p.detach().clone() for name, p in self.parameters.items()} if config.ema else {}
        scaled = config.precision == "fp16" and world.device.type == "cuda"
        self.scaler = torch.amp.GradScaler(world.device.type, enabled=scaled)

    def update(self, step: int, lr: float, batches: Sequence[Batch], n_tokens: int) -> Update:
        """Make update `step` from this process's share of batches with `n_tokens` target tokens in all."""
        torch.manual_seed((self.seed * 1_000_003 + step) * 8191 + self.world.rank)
        self.model.train()
        total = 0.0
        for number, batch in enumerate(batches, 1):
            with sync_gradients(self.loss, is_on=number == len(batches)):
                loss, whole = self.loss(batch.to(self.world.device))
                # Processes take the mean of their gradients; the update wants the mean over all tokens.
                scaled = self.scaler.scale(whole * (self.world.size / n_tokens))
                scaled.backward()
                total += loss.item()
        return self._apply(lr, self.world.sum(total))

    def weights(self) -> dict[str, Tensor]:
        """Return all weights; all processes must call it."""
        return {name: full_tensor(p.detach()) for name, p in self.parameters.items()}

    def tensors(self) -> dict[str, dict[str, Tensor]]:
        """Return everything that a checkpoint must keep; all processes must call it."""
        moments = {
            f"{moment}.{name}": full_tensor(self.optimizer.state[p][moment])
            for name, p in self.parameters.items()
            if p in self.optimizer.state
            for moment in MOMENTS
        }
        average = {name: full_tensor(tensor) for name, tensor in self.average.items()}
        return {"model": self.weights(), "optimizer": moments, **({"ema": average} if average else {})}

    def restore(self, tensors: Mapping[str, Mapping[str, Tensor]]) -> None:
        """Load what `tensors` returned."""
        with torch.no_grad():
            for name, parameter in self.parameters.items():
                parameter.copy_(shard_like(tensors["model"][name], parameter))
                if name in self.average:
                    self.average[name].copy_(shard_like(tensors.get("ema", tensors["model"])[name], parameter))
                self.optimizer.state.pop(parameter, None)
                if f"step.{name}" in tensors["optimizer"]:
                    saved = {moment: tensors["optimizer"][f"{moment}.{name}"] for moment in MOMENTS}
                    self.optimizer.state[parameter] = {
                        moment: tensor.to(parameter.device, copy=True)
                        if moment == "step"
                        else shard_like(tensor, parameter)
                        for moment, tensor in saved.items()
                    }
        self.optimizer.zero_grad()

    def _apply(self, lr: float, loss: float) -> Update:
        config = self.config
        self.scaler.unscale_(self._scaled)
        gradients = [p.grad for p in self.parameters.values() if p.grad is not None]
        norm = float(full_tensor(nn.utils.get_total_norm(gradients)))
        if self.scaler.is_enabled():
            pass  # the scaler skips an update whose gradient overflowed, and lowers its scale
        elif not (math.isfinite(norm) and math.isfinite(loss)):
            raise NotFinite(self._first_bad(), loss, norm)
        if config.clip_norm and norm > config.clip_norm:
            torch._foreach_mul_(list(map(local_shard, gradients)), config.clip_norm / norm)
        self.optimizer.lr = lr
        self.scaler.step(self._scaled)
        self.scaler.update()
        self.optimizer.zero_grad()
        if self.average:
            parameters = [local_shard(p.detach()) for p in self.parameters.values()]
            torch._foreach_lerp_(list(map(local_shard, self.average.values())), parameters, 1 - config.ema)
        return Update(loss, norm)

    def _first_bad(self) -> str:
        for name, p in self.parameters.items():
            if not full_tensor(p.detach()).isfinite().all():
                return f"{name} itself"
        for name, p in self.parameters.items():
            if p.grad is not None and not full_tensor(p.grad).isfinite().all():
                return f"the gradient of {name}"
        return "the loss; all gradients are finite"
