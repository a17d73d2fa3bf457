"""The chunked loss = torch's own cross-entropy of all logits at once, in value and in every gradient.

M positions, D model width, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from glassformer.training.loss import cross_entropy
from tests.models import same

D, V = 6, 9
LENGTHS = [1, 2, 511, 512, 513, 1300]


def draw(
    length: int, bias: bool = True, dtype: torch.dtype = torch.float64, size: float = 1.0
) -> tuple[Any, Any, Any, Any]:
    torch.manual_seed(length)
    hidden = (torch.randn(length, D, dtype=dtype) * size).requires_grad_()
    weight = torch.randn(V, D, dtype=dtype).requires_grad_()
    offset = torch.randn(V, dtype=dtype).requires_grad_() if bias else None
    return hidden, weight, offset, torch.randint(0, V, (length,))


def plain(hidden: Tensor, weight: Tensor, bias: Tensor | None, targets: Tensor, smoothing: float = 0.0) -> Tensor:
    return F.cross_entropy(F.linear(hidden, weight, bias), targets, reduction="sum", label_smoothing=smoothing)


@pytest.mark.parametrize("smoothing", [0.0, 0.1, 0.7])
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("length", LENGTHS)
def test_it_is_torchs_loss(length: int, bias: bool, smoothing: float) -> None:
    arguments = draw(length, bias)
    weights = [a for a in arguments[:3] if a is not None]
    ours, theirs = cross_entropy(*arguments, smoothing), plain(*arguments, smoothing)
    same(ours, theirs, 1e-10 * length)
    same(torch.autograd.grad(ours, weights), torch.autograd.grad(theirs, weights), 1e-10)


def test_without_smoothing_it_is_minus_the_log_probability_of_the_right_token() -> None:
    hidden, weight, bias, targets = draw(700)
    log_probs = F.linear(hidden, weight, bias).log_softmax(dim=-1)
    same(cross_entropy(hidden, weight, bias, targets), -log_probs[range(700), targets].sum(), 1e-10)


def test_smoothing_shares_out_a_part_of_the_target() -> None:
    hidden, weight, bias, targets = draw(50)
    log_probs = F.linear(hidden, weight, bias).log_softmax(dim=-1)
    share = 0.2 / V + 0.8 * F.one_hot(targets, V).double()
    same(cross_entropy(hidden, weight, bias, targets, 0.2), -(share * log_probs).sum(), 1e-10)


@pytest.mark.parametrize("factor", [0.25, -3.0])
def test_the_gradient_that_comes_from_above_counts(factor: float) -> None:
    """A loss divided by its tokens, or accumulated over batches."""
    arguments = draw(600)
    ours = torch.autograd.grad(cross_entropy(*arguments, 0.1) * factor, arguments[:3])
    same(ours, torch.autograd.grad(plain(*arguments, 0.1) * factor, arguments[:3]), 1e-10)


def test_gradients_of_two_losses_add_up() -> None:
    one, other = draw(600), draw(30)
    weight = one[1]
    total = cross_entropy(*one) * 2 + cross_entropy(other[0], weight, None, other[3])
    theirs = plain(*one) * 2 + plain(other[0], weight, None, other[3])
    same(
        torch.autograd.grad(total, [weight, one[0], other[0]]),
        torch.autograd.grad(theirs, [weight, one[0], other[0]]),
        1e-10,
    )


@pytest.mark.parametrize("wanted", [(0,), (1,), (2,), (0, 2), (1, 2)])
def test_only_some_gradients_are_wanted(wanted: tuple[int, ...]) -> None:
    arguments = tuple(a.detach().requires_grad_(i in wanted) if i < 3 else a for i, a in enumerate(draw(520)))
    weights = [arguments[i] for i in wanted]
    same(
        torch.autograd.grad(cross_entropy(*arguments), weights), torch.autograd.grad(plain(*arguments), weights), 1e-10
    )


def test_the_output_layer_may_be_the_embedding_too() -> None:
    """A tied table gets gradients from both its uses."""
    _, weight, bias, targets = draw(20)
    ids = torch.arange(20) % V

    def gradient(loss: Callable[..., Tensor]) -> Tensor:
        found: Tensor = torch.autograd.grad(loss(F.embedding(ids, weight), weight, bias, targets), weight)[0]
        return found

    same(gradient(cross_entropy), gradient(plain), 1e-10)


def test_without_gradients() -> None:
    arguments = draw(1300)
    with torch.no_grad():
        ours = cross_entropy(*arguments, 0.1)
        assert not ours.requires_grad
        same(ours, plain(*arguments, 0.1), 1e-9)
    with torch.inference_mode():
        same(cross_entropy(*arguments, 0.1).item(), ours.item(), 1e-9)


def test_arguments_are_left_as_they_were() -> None:
    arguments = draw(600)
    before = [a.detach().clone() for a in arguments]
    cross_entropy(*arguments, 0.1).backward()  # type: ignore[no-untyped-call]
    assert all(torch.equal(a, b) for a, b in zip(arguments, before, strict=True))


@pytest.mark.parametrize("size", [1e3, 1e5, 1e30])
def test_very_large_logits_do_not_overflow(size: float) -> None:
    arguments = draw(600, dtype=torch.float32, size=size)
    for smoothing in (0.0, 0.1):
        loss = cross_entropy(*arguments, smoothing)
        assert loss.isfinite()
        assert loss.item() == pytest.approx(plain(*arguments, smoothing).item(), rel=1e-3)
        for gradient in torch.autograd.grad(loss, arguments[:3]):
            assert gradient.isfinite().all()


def test_no_positions_no_loss() -> None:
    hidden, weight, bias, targets = draw(3)
    loss = cross_entropy(hidden[:0], weight, bias, targets[:0])
    assert loss.item() == 0.0
    assert not any(g.any() for g in torch.autograd.grad(loss, [weight, bias]))


def test_float32_is_close() -> None:
    arguments = draw(1300, dtype=torch.float32)
    ours, theirs = cross_entropy(*arguments, 0.1), plain(*arguments, 0.1)
    assert ours.item() == pytest.approx(theirs.item(), rel=1e-5)
    for one, other in zip(
        torch.autograd.grad(ours, arguments[:3]), torch.autograd.grad(theirs, arguments[:3]), strict=True
    ):
        torch.testing.assert_close(one, other, atol=1e-3, rtol=1e-3)
