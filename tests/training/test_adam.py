"""Our Adam is torch's, to the bit, without what torch.optim brings along."""

from __future__ import annotations

import subprocess
import sys

import pytest
import torch
from torch import nn

from glassformer.config import TrainingConfig
from glassformer.errors import ConfigError
from glassformer.training.adam import Adam


@pytest.mark.parametrize("kind", ["adam", "adamw"])
def test_it_is_torchs(kind: str) -> None:
    decay = 0.1 if kind == "adamw" else 0.0
    config = TrainingConfig(optimizer=kind, weight_decay=decay, lr=0.01)
    torch.manual_seed(0)
    ours = [nn.Parameter(torch.randn(4, 3)), nn.Parameter(torch.randn(5)), nn.Parameter(torch.randn(2, 2))]
    theirs = [nn.Parameter(p.detach().clone()) for p in ours]
    optimizer = Adam(ours, config)
    groups = [{"params": [theirs[0], theirs[2]], "weight_decay": decay}, {"params": [theirs[1]], "weight_decay": 0.0}]
    reference = (torch.optim.Adam if kind == "adam" else torch.optim.AdamW)(
        groups, betas=(config.beta1, config.beta2), eps=config.adam_eps, fused=True
    )
    for step in range(6):
        optimizer.lr = 0.01 / (step + 1)
        for group in reference.param_groups:
            group["lr"] = 0.01 / (step + 1)
        for one, other in zip(ours, theirs, strict=True):
            if step != 2 or one.dim() == 2:  # once, a parameter has no gradient
                one.grad = torch.randn_like(one)
                other.grad = one.grad.clone()
        optimizer.step()
        reference.step()
        optimizer.zero_grad()
        reference.zero_grad()
        assert all(torch.equal(one, other) for one, other in zip(ours, theirs, strict=True))
    assert all(p.grad is None for p in ours)


def test_decay_needs_adamw() -> None:
    with pytest.raises(ConfigError, match="adamw"):
        TrainingConfig.parse({"weight_decay": 0.1}, "a recipe")


def test_a_training_step_does_not_import_the_compiler() -> None:
    """It is 70 MB, of less than 1,200."""
    code = """
import sys, torch
from glassformer.config import TrainingConfig, preset
from glassformer.data.batches import Batch
from glassformer.model.transformer import Transformer
from glassformer.training.distributed import World
from glassformer.training.learner import Learner
model = Transformer(preset("pocket"))
learner = Learner(model, TrainingConfig(), World(0, 1, torch.device("cpu"), False), 1)
ids = torch.ones(2, 3, dtype=torch.long)
learner.update(1, 0.1, [Batch(ids, None, ids, ids, torch.arange(2), 6, 6)], 6)
sys.exit("torch._dynamo" in sys.modules)
"""
    subprocess.run([sys.executable, "-c", code], check=True)
