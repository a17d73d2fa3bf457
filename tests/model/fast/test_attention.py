"""Short attention is torch's fused attention, forward and backward.

B batch, T queries, S keys, H heads, K head width.
"""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from glassformer.model.fast.kernels import attend, attend_short
from tests.models import padding, same

LENGTHS = [(1, 1), (1, 7), (5, 7), (7, 5), (9, 9), (64, 64)]


def draw(*shape: int) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64)


@pytest.mark.parametrize("factor", [1.0, 0.5])
@pytest.mark.parametrize(
    ("n_queries", "n_keys", "masked"),
    [(*pair, mask) for pair in LENGTHS for mask in ("nothing", "padding")]
    + [(*pair, "future") for pair in LENGTHS if pair[0] == pair[1]],
)
def test_values_and_gradients_are_those_of_torch(n_queries: int, n_keys: int, masked: str, factor: float) -> None:
    torch.manual_seed(0)
    query, keys, values = inputs = [draw(2, 3, n, 4).requires_grad_() for n in (n_queries, n_keys, n_keys)]
    allowed = padding([n_keys, max(1, n_keys - 2)])[:, None, None] if masked == "padding" else None
    is_causal, pull = masked == "future", draw(2, 3, n_queries, 4)
    ours = attend(query, keys, values, allowed, causal=is_causal, factor=factor)
    theirs = F.scaled_dot_product_attention(query, keys, values, allowed, is_causal=is_causal, scale=factor)
    same(ours, theirs)
    same(torch.autograd.grad((ours * pull).sum(), inputs), torch.autograd.grad((theirs * pull).sum(), inputs))


def test_dropout_with_the_same_noise_is_the_formula() -> None:
    query, keys, values = (draw(2, 3, 5, 4) for _ in range(3))
    torch.manual_seed(1)
    ours = attend_short(query, keys, values, None, factor=0.5, dropout=0.3)
    torch.manual_seed(1)
    weights = F.dropout((0.5 * query @ keys.mT).softmax(dim=-1), 0.3)
    same(ours, weights @ values)
