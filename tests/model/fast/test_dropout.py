"""The noise of dropout by its statistics, and dropout as its plain formula with the same noise."""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from glassformer.model.fast.kernels import add_dropped, drop, keep_noise
from tests.models import same

SIGMAS = 5  # how far from its mean a frequency may lie


def draw(*shape: int) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64)


def within_chance(frequency: float, p: float, draws: int) -> bool:
    return abs(frequency - p) <= SIGMAS * math.sqrt(p * (1 - p) / draws) + 2**-17


@pytest.mark.parametrize("p", [0.0, 0.001, 0.1, 0.25, 1 / 3, 0.5, 0.9, 0.999])
def test_noise_drops_at_its_rate(p: float) -> None:
    torch.manual_seed(0)
    noise = keep_noise(torch.empty(1001, 401), p)
    dropped = noise == 0
    assert torch.equal(noise[~dropped], torch.full_like(noise[~dropped], 1 / (1 - p)))
    assert within_chance(dropped.double().mean().item(), p, noise.numel())
    for lane in range(4):  # four elements come from one random word
        share = dropped.flatten()[lane::4].double().mean().item()
        assert within_chance(share, p, noise.numel() // 4)
    for distance in (1, 2, 3, 4, 401):  # neighbours know nothing of each other
        both = (dropped.flatten()[distance:] & dropped.flatten()[:-distance]).double().mean().item()
        assert within_chance(both, p * p, noise.numel())


def test_noise_at_the_edges() -> None:
    assert torch.equal(keep_noise(torch.empty(5, 7), 0.0), torch.ones(5, 7))
    torch.manual_seed(0)
    assert (keep_noise(torch.empty(10_000), 1 - 1e-9) == 0).double().mean() > 0.99
    assert keep_noise(torch.empty(3, 0), 0.5).shape == (3, 0)
    for dtype in (torch.float64, torch.float32, torch.bfloat16):
        noise = keep_noise(torch.empty(4096, dtype=dtype), 0.5)
        assert noise.dtype == dtype
        assert set(noise.tolist()) == {0.0, 2.0}


@pytest.mark.parametrize("size", [1, 2, 3, 4, 5, 6, 7, 8, 9])
def test_noise_has_any_size_and_follows_the_seed(size: int) -> None:
    torch.manual_seed(0)
    one = keep_noise(torch.empty(size), 0.5)
    torch.manual_seed(0)
    assert torch.equal(keep_noise(torch.empty(size), 0.5), one)
    assert any(not torch.equal(keep_noise(torch.empty(size), 0.5), one) for _ in range(20))


@pytest.mark.parametrize("p", [0.1, 0.5])
def test_dropout_has_the_distribution_of_torchs(p: float) -> None:
    torch.manual_seed(0)
    x = draw(300, 400)
    for ours in (drop(x, p, True), add_dropped(torch.zeros_like(x), x, p, True)):
        theirs = F.dropout(x, p)
        for dropped in (ours, theirs):
            kept = dropped != 0
            same(dropped[kept], x[kept] / (1 - p))
            assert within_chance(1 - kept.double().mean().item(), p, x.numel())


def test_with_the_same_noise_it_is_the_formula_forward_and_backward() -> None:
    x, y, pull = draw(4, 5, 8).requires_grad_(), draw(4, 5, 8).requires_grad_(), draw(4, 5, 8)
    torch.manual_seed(3)
    noise = keep_noise(y, 0.3)
    torch.manual_seed(3)
    dropped = drop(y, 0.3, training=True)
    assert torch.equal(dropped, y * noise)
    assert torch.equal(torch.autograd.grad((dropped * pull).sum(), y)[0], pull * noise)
    torch.manual_seed(3)
    sums = add_dropped(x, y, 0.3, training=True)
    same(sums, x + y * noise)
    for ours, theirs in zip(torch.autograd.grad((sums * pull).sum(), [x, y]), (pull, pull * noise), strict=True):
        assert torch.equal(ours, theirs)


def test_dropout_keeps_the_mean() -> None:
    torch.manual_seed(0)
    x = draw(1, 50).expand(20_000, -1)
    error = (drop(x, 0.3, training=True).mean(dim=0) - x[0]).abs()
    assert (error <= SIGMAS * x[0].abs() * math.sqrt(0.3 / 0.7 / len(x)) + 1e-4).all()
