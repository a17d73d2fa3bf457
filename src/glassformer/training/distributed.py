"""Training with several processes, which torchrun starts and torch.distributed connects.

Without torchrun the world has one process, and nothing here has an effect.
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

_START_TIMEOUT: Final = timedelta(minutes=5)  # for all processes to start; then torchrun restarts them
_TIMEOUT: Final = timedelta(hours=4)  # while the first process prepares a large corpus or validates


class World(NamedTuple):
    """The processes of a run, seen from one of them."""

    rank: int
    size: int
    device: torch.device
    is_restarted: bool  # torchrun restarted these processes after one of them had died

    @property
    def is_first(self) -> bool:
        """Whether this process is the one that writes and logs."""
        return self.rank == 0

    def wait(self) -> None:
        """Wait for all processes."""
        if self.size > 1:
            dist.barrier()

    def sum(self, value: float) -> float:
        """Return the sum of a number over all processes."""
        if self.size == 1:
            return value
        total = torch.tensor(value, dtype=torch.float64, device=self.device)
        dist.all_reduce(total)
        return float(total)


@contextmanager
def world(device: str) -> Iterator[World]:
    """Connect the processes that torchrun started, for as long as the block lasts; without it, there is only one."""
    kind = find_device(device)
    size = int(os.environ.get("WORLD_SIZE", "1"))
    if size == 1:
        yield World(0, 1, kind, is_restarted=False)
        return
    if kind.type == "cuda":
        kind = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
        torch.cuda.set_device(kind)
    store, rank, size = next(rendezvous("env://", timeout=_START_TIMEOUT))
    is_restarted = store.check([f"met/{rank}"])  # torchrun's own count covers only the restarts on this machine
    fresh = rendezvous_store(store, rank, size)
    backend = "nccl" if kind.type == "cuda" else "gloo"
    dist.init_process_group(backend, store=fresh, rank=rank, world_size=size, timeout=_START_TIMEOUT)
    try:
        dist.barrier()  # all processes have started
        _set_pg_timeout(_TIMEOUT)
        store.set(f"met/{rank}", "")
        yield World(rank, size, kind, is_restarted)
    finally:
        dist.destroy_process_group()


def rendezvous_store(store: Store, rank: int, size: int) -> Store:
    """Return a part of the store that only the processes alive now write to.

    torchrun keeps its store when it restarts processes, and gloo would connect to the addresses that dead ones left
    there. The number of restarts cannot name the part, because machines count only their own.
    """
    name = uuid4().hex
    if rank > 0:
        store.set(f"hello/{rank}", name)
        corner = store.get(f"welcome/{name}").decode()
        store.set(f"{corner}/{rank}", "here")
        return PrefixStore(corner, store)
    missing, deadline = list(range(1, size)), time.monotonic() + _START_TIMEOUT.total_seconds()
    while missing:
        if time.monotonic() > deadline:
            raise RunError(
                f"processes {missing} of {size} did not start within {_START_TIMEOUT}; torchrun restarts all"
            )
        for other in missing:  # the greeting may be from a dead process: repeat until a live one answers
            store.set(f"welcome/{store.get(f'hello/{other}').decode()}", name)
        time.sleep(0.05)
        missing = [other for other in missing if not store.check([f"{name}/{other}"])]
    return PrefixStore(name, store)


def distribute(loss: nn.Module, model: Transformer, world: World, sharding: Literal["ddp", "fsdp"]) -> nn.Module:
    """Share the gradients of `loss` between all processes (DDP), or the weights of `model` as well (FSDP2)."""
    if world.size == 1:
        return loss
    if sharding == "ddp":
        return DistributedDataParallel(loss)
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard, register_fsdp_forward_method

    mesh = init_device_mesh(world.device.type, (world.size,))
    for part in (*model.encoder.layers, model.decoder, loss):
        fully_shard(part, mesh=mesh)
    # The decoder projects the source before it reads the target, which needs its weights as well.
    register_fsdp_forward_method(model.decoder, "start")
    return loss


def sync_gradients(module: nn.Module, is_on: bool) -> AbstractContextManager[None]:
    """Set whether the next backward pass exchanges gradients: once per update is enough."""
    if isinstance(module, DistributedDataParallel):
        return nullcontext() if is_on else module.no_sync()
    getattr(module, "set_requires_gradient_sync", lambda _: None)(is_on)  # FSDP2's
    return nullcontext()


def full_tensor(tensor: Tensor) -> Tensor:
    """Return all of a tensor of which each process may hold a shard; all processes must call it."""
    return _call(tensor, "full_tensor")


def shard_like(tensor: Tensor, like: Tensor) -> Tensor:
    """Copy a tensor to the device of `like`, and return this process's shard of it if `like` is sharded."""
    if not hasattr(like, "placements"):
        return tensor.to(like, copy=True)
    from torch.distributed.tensor import DTensor, distribute_tensor

    assert isinstance(like, DTensor)
    return distribute_tensor(tensor.to(like.device, like.dtype), like.device_mesh, like.placements)


def local_shard(tensor: Tensor) -> Tensor:
    """Return the shard that this process holds, which it may write to."""
    return _call(tensor, "to_local")


def _call(tensor: Tensor, method: str) -> Tensor:
    """Call a method of a DTensor, or return any other tensor as it is; importing DTensor would take 45 MB."""
    answer: Tensor = getattr(tensor, method, lambda: tensor)()
    return answer
