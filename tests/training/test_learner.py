"""One update: what is random in it comes from the seed, the update's number and the process, and from nothing else."""

from __future__ import annotations

import torch

from glassformer.config import TrainingConfig
from glassformer.data.batches import collate
from glassformer.training.distributed import World, world
from glassformer.training.learner import Learner
from tests.models import build


def loss_of(here: World, seed: int, step: int) -> float:
    """Give the loss of one update of a model with much dropout, always from the same weights."""
    torch.manual_seed(0)
    learner = Learner(build(dtype=torch.float32, dropout=0.5), TrainingConfig(), here, seed)
    batch = collate([[4, 5, 6], [7, 8]], [[5, 4], [6, 7, 8]])
    return learner.update(step, 0.0, [batch], 7).loss


def test_dropout_follows_seed_step_and_process() -> None:
    with world("cpu") as here:
        first = loss_of(here, seed=1, step=1)
        assert loss_of(here, seed=1, step=1) == first
        others = [loss_of(here, 1, 2), loss_of(here, 2, 1), loss_of(here._replace(rank=1), 1, 1)]
    assert len({first, *others}) == 4
