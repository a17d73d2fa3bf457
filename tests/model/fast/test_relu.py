"""The fast ReLU is torch's, forward and backward, at zero too."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from glassformer.model.fast.kernels import activate


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
def test_values_and_gradients_are_those_of_torch(dtype: torch.dtype) -> None:
    edges = torch.tensor([0.0, -0.0, 1.0, -1.0, 1e-30, -1e-30, torch.inf, -torch.inf], dtype=dtype)
    x = torch.cat([edges, torch.randn(200).to(dtype)]).requires_grad_()
    pull = torch.randn(len(x)).to(dtype)
    ours, theirs = activate(x, "relu"), F.relu(x)
    assert torch.equal(ours, theirs)
    assert torch.equal(*(torch.autograd.grad(y, x, pull)[0] for y in (ours, theirs)))
