"""Each named operation = the same formula in numpy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from glassformer.model import operations
from glassformer.model.operations import OPERATIONS, SKIPPABLE
from tests.arithmetic import ARITHMETIC, as_array

B, H, T, S, K, V = 2, 3, 4, 5, 6, 7
D = H * K


def draw(*shape: int) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64)


CASES: dict[str, tuple[tuple[int, ...], ...]] = {  # the shapes of the recorded inputs
    "add": ((B, T, D), (B, T, D)),
    "affine": ((B, T, D),),
    "concat": ((B, H, T, K),),
    "gather": (),
    "gelu": ((B, T, D),),
    "given": (),
    "heads": ((B, T, D),),
    "linear": ((B, T, D),),
    "log_softmax": ((B, T, V),),
    "mask": ((B, H, T, S),),
    "matmul_t": ((B, H, T, K), (B, H, S, K)),
    "mean": ((B, T, D),),
    "normalise": ((B, T, D), (B, T, 1), (B, T, 1)),
    "relu": ((B, T, D),),
    "rotate": ((B, H, T, K),),
    "rows": (),
    "scale": ((B, T, D),),
    "silu": ((B, T, D),),
    "sinusoid": (),
    "softmax": ((B, H, T, S),),
    "variance": ((B, T, D), (B, T, 1)),
    "weighted_sum": ((B, H, T, S), (B, H, S, K)),
}


def constants(name: str) -> dict[str, Any]:
    known: dict[str, dict[str, Any]] = {
        "affine": {"gamma": draw(D), "beta": draw(D)},
        "gather": {"table": draw(V, D)},
        "given": {"value": torch.arange(5)},
        "heads": {"weight": draw(D, D), "bias": draw(D), "n_heads": H},
        "linear": {"weight": draw(V, D), "bias": draw(V)},
        "mask": {"allowed": torch.ones(T, S, dtype=torch.bool).tril()},
        "normalise": {"eps": 0.1},
        "rotate": {"start": 3},
        "rows": {"table": draw(V, D), "start": 2, "length": 3},
        "scale": {"factor": -0.7},
        "sinusoid": {"start": 3, "length": T, "width": D, "layout": "halves", "dtype": torch.float64},
    }
    return known.get(name, {})


def same(name: str, inputs: tuple[Tensor, ...], settings: dict[str, Any]) -> None:
    ours = OPERATIONS[name](*inputs, **settings)
    theirs = ARITHMETIC[name](*map(as_array, inputs), **{k: as_array(v) for k, v in settings.items()})
    np.testing.assert_allclose(ours.numpy(), theirs, atol=1e-13, rtol=1e-13)


def test_every_operation_is_covered() -> None:
    assert OPERATIONS.keys() == ARITHMETIC.keys() == CASES.keys()


@pytest.mark.parametrize("name", OPERATIONS)
def test_operation_is_its_formula(name: str) -> None:
    torch.manual_seed(0)
    inputs = (torch.tensor([[0, 6], [3, 3]]),) if name == "gather" else tuple(draw(*shape) for shape in CASES[name])
    if name == "normalise":
        inputs = (*inputs[:2], inputs[2].square())
    same(name, inputs, constants(name))


def test_an_operation_is_listed_under_the_name_of_its_function() -> None:
    for name, operation in OPERATIONS.items():
        assert operation.__name__ == name
        assert operations.__dict__[name] is operation


def test_skippable_operations_keep_the_shape_of_their_first_input() -> None:
    for name in SKIPPABLE:
        inputs = tuple(draw(*shape).square() for shape in CASES[name])
        assert OPERATIONS[name](*inputs, **constants(name)).shape == inputs[0].shape


def test_biases_and_layouts_are_optional() -> None:
    same("linear", (draw(B, T, D),), {"weight": draw(V, D)})
    same("linear", (draw(B, T, D),), {"weight": draw(V, D), "bias": None})
    same("heads", (draw(B, T, D),), {"weight": draw(D, D), "bias": None, "n_heads": H})
    same("sinusoid", (), constants("sinusoid") | {"layout": "interleaved"})


@pytest.mark.parametrize("size", [1.0, 1e3, 1e300])
def test_softmax_does_not_overflow(size: float) -> None:
    x = draw(1, 1, T, S) * size
    assert OPERATIONS["softmax"](x).sum(dim=-1).sub(1).abs().max() < 1e-12
    assert OPERATIONS["log_softmax"](x).isfinite().all()
