"""More than one process: torchrun starts them, torch connects them, this says who is who.

Without torchrun the world has one process, and nothing here is felt.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from datetime import timedelta
from typing import Final, Literal, NamedTuple
from uuid import uuid4

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.distributed_c10d import PrefixStore, Store, _set_pg_timeout
from torch.distributed.rendezvous import rendezvous
from torch.nn.parallel import DistributedDataParallel

from glassformer.errors import RunError
from glassformer.model.fast.device import find_device
from glassformer.model.transformer import Transformer

_GREETING: Final = timedelta(minutes=5)  # who has not come by then will not: torchrun starts all of them again
_PATIENCE: Final = timedelta(hours=4)  # the others wait while the first prepares a large corpus or looks at dev


class World(NamedTuple):
    """The processes of a run, as one of them sees it."""

    rank: int
    size: int
    device: torch.device
    is_restarted: bool  # torchrun started these processes anew after one of them had died

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
    kind = find_device(device)
    size = int(os.environ.get("WORLD_SIZE", "1"))
    if size == 1:
        yield World(0, 1, kind, is_restarted=False)
        return
    if kind.type == "cuda":
        kind = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
        torch.cuda.set_device(kind)
    store, rank, size = next(rendezvous("env://", timeout=_GREETING))
    is_restarted = store.check([f"met/{rank}"])  # torchrun's own count knows only the deaths on this machine
    corner = meet(store, rank, size)
    backend = "nccl" if kind.type == "cuda" else "gloo"
    dist.init_process_group(backend, store=corner, rank=rank, world_size=size, timeout=_GREETING)
    try:
        dist.barrier()  # all are there
        _set_pg_timeout(_PATIENCE)
        store.set(f"met/{rank}", "")
        yield World(rank, size, kind, is_restarted)
    finally:
        dist.destroy_process_group()


def meet(store: Store, rank: int, size: int) -> Store:
    """Find a corner of the store that only the processes alive now write in.

    torchrun keeps its store when it starts processes again, and gloo would look for the dead ones at the addresses
    that they left there. A count of starts would not do as a name: machines count only their own.
    """
    name = uuid4().hex
    if rank > 0:
        store.set(f"hello/{rank}", name)
        corner = store.get(f"welcome/{name}").decode()
        store.set(f"{corner}/{rank}", "here")
        return PrefixStore(corner, store)
    missing, deadline = list(range(1, size)), time.monotonic() + _GREETING.total_seconds()
    while missing:
        if time.monotonic() > deadline:
            raise RunError(f"processes {missing} of {size} did not come within {_GREETING}; torchrun starts all again")
        for other in missing:  # may be the hello of a dead one, so again until a living one answers
            store.set(f"welcome/{store.get(f'hello/{other}').decode()}", name)
        time.sleep(0.05)
        missing = [other for other in missing if not store.check([f"{name}/{other}"])]
    return PrefixStore(name, store)


def spread(lesson: nn.Module, model: Transformer, world: World, sharding: Literal["ddp", "fsdp"]) -> nn.Module:
    """Let all processes share the gradients of a lesson on `model` (DDP), or its weights as well (FSDP2)."""
    if world.size == 1:
        return lesson
    if sharding == "ddp":
        return DistributedDataParallel(lesson)
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard, register_fsdp_forward_method

    mesh = init_device_mesh(world.device.type, (world.size,))
    for part in (*model.encoder.layers, model.decoder, lesson):
        fully_shard(part, mesh=mesh)
    # The decoder projects the source before it reads the target: that, too, needs its weights together.
    register_fsdp_forward_method(model.decoder, "start")
    return lesson


def exchange(module: nn.Module, is_on: bool) -> AbstractContextManager[None]:
    """Say whether the backward pass to come exchanges gradients: once an update is enough."""
    if isinstance(module, DistributedDataParallel):
        return nullcontext() if is_on else module.no_sync()
    getattr(module, "set_requires_gradient_sync", lambda _: None)(is_on)  # FSDP2's
    return nullcontext()


def whole(tensor: Tensor) -> Tensor:
    """Give all of a tensor of which each process may hold a share; all processes must ask."""
    return _ask(tensor, "full_tensor")


def share_like(tensor: Tensor, like: Tensor) -> Tensor:
    """Copy a whole tensor to where `like` is, and take this process's share of it if `like` is one."""
    if not hasattr(like, "placements"):
        return tensor.to(like, copy=True)
    from torch.distributed.tensor import DTensor, distribute_tensor

    assert isinstance(like, DTensor)
    return distribute_tensor(tensor.to(like.device, like.dtype), like.device_mesh, like.placements)


def own(tensor: Tensor) -> Tensor:
    """Give the share that this process holds, in which it may write."""
    return _ask(tensor, "to_local")


def _ask(tensor: Tensor, method: str) -> Tensor:
    """Ask a DTensor, known by what it can do as importing its class takes 45 MB; others are their own answer."""
    answer: Tensor = getattr(tensor, method, lambda: tensor)()
    return answer
