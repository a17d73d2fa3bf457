"""The largest numbers of rows, by way of groups."""

from __future__ import annotations

import pytest
import torch

from glassformer.search.top import top


@pytest.mark.parametrize("shape", [(1, 8000), (64, 8000), (64, 40000), (30, 10007), (2, 5), (100, 640)])
@pytest.mark.parametrize("k", [1, 2, 5])
def test_the_largest_are_found(shape: tuple[int, int], k: int) -> None:
    torch.manual_seed(0)
    values = torch.randn(shape)
    values[0, 1:] = -torch.inf  # as where nearly everything is forbidden
    best, where = top(values, k)
    assert torch.equal(best, values.topk(k).values)
    assert torch.equal(values.gather(1, where), best)
    assert all(len(set(row)) == k for row in where.tolist())
