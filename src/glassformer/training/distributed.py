"""More than one process: torchrun starts them, torch connects them, this says who is who.

Without torchrun the world has one process, and nothing here is felt.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from glassformer.errors import RunError
from glassformer.model.transformer import Transformer

__all__ = ["World", "spread", "world"]


class World(NamedTuple):
    """The processes of a run, as one of them sees it."""

    rank: int
    size: int
    device: torch.device

    @property
    def is_first(self) -> bool:
        """Whether this process is the one that writes and speaks."""
        return self.rank == 0

    def wait(self) -> None:
        """Wait until all processes have come here."""
        if self.size > 1:
            dist.barrier()

    def sum(self, value: float) -> float:
        """Add up a number over all processes."""
        if self.size == 1:
            return value
        total = torch.tensor(value, dtype=torch.float64, device=self.device)
        dist.all_reduce(total)
        return float(total)


@contextmanager
def world(device: str) -> Iterator[World]:
    """Join the processes that torchrun started, for as long as the block lasts; alone, be the whole world."""
    kind = _device(device)
    size = int(os.environ.get("WORLD_SIZE", "1"))
    if size == 1:
        yield World(0, 1, kind)
        return
    if kind.type == "cuda":
        kind = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
        torch.cuda.set_device(kind)
    dist.init_process_group("nccl" if kind.type == "cuda" else "gloo")
    try:
        yield World(dist.get_rank(), size, kind)
    finally:
        dist.destroy_process_group()


def spread(model: Transformer, world: World) -> nn.Module:
    """Give the module whose gradients all processes share (DDP)."""
    return model if world.size == 1 else DistributedDataParallel(model)


def _device(name: str) -> torch.device:
    if name == "auto":
        if torch.cuda.is_available():
            return torch.device("cuda")
        return torch.device("mps" if torch.backends.mps.is_available() else "cpu")
    try:
        device = torch.device(name)
    except RuntimeError:
        raise RunError(f"device={name}: no such device; known: auto, cpu, cuda, mps") from None
    missing = {"cuda": not torch.cuda.is_available(), "mps": not torch.backends.mps.is_available()}
    if missing.get(device.type, False):
        raise RunError(f"device={name}: this machine or this build of torch has none; device=auto takes what there is")
    return device
