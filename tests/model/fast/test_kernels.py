"""The functions that `model` calls: the faster version where it serves, torch's own elsewhere."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from glassformer.model.fast import kernels
from glassformer.model.fast.kernels import activate, add_dropped, attend, drop
from tests.models import same


def draw(*shape: int) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64)


def test_drop_is_nothing_without_rate_or_training() -> None:
    x = draw(3, 4)
    assert drop(x, 0.0, training=True) is x
    assert drop(x, 0.7, training=False) is x
    assert torch.equal(add_dropped(x, x, 0.0, training=True), x + x)
    assert torch.equal(add_dropped(x, x, 0.7, training=False), x + x)


@pytest.fixture
def called(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """List the fast functions that run."""
    names: list[str] = []

    def spy(owner: Any, name: str) -> None:
        function = getattr(owner, name)

        def run(*args: Any, **options: Any) -> Any:
            names.append(name)
            return function(*args, **options)

        monkeypatch.setattr(owner, name, run)

    for owner, name in ((kernels, "keep_noise"), (kernels.Relu, "apply"), (kernels, "attend_short")):
        spy(owner, name)
    return names


def compute(length: int, gradient: bool) -> None:
    x = draw(1, 2, length, 4).requires_grad_(gradient)
    drop(x, 0.1, training=True)
    add_dropped(x, x, 0.1, training=True)
    activate(x, "relu")
    attend(x, x, x, factor=0.5)


def test_training_on_a_cpu_takes_the_fast_versions(called: list[str]) -> None:
    compute(64, gradient=True)
    assert called == ["keep_noise", "keep_noise", "apply", "attend_short"]


def test_without_gradients_and_on_long_sequences_torch_is_faster(called: list[str]) -> None:
    compute(64, gradient=False)
    assert called == ["keep_noise", "keep_noise"]
    called.clear()
    compute(65, gradient=True)
    assert called == ["keep_noise", "keep_noise", "apply"]


def test_elsewhere_everything_is_torchs_own(called: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernels, "_is_eager_on_cpu", lambda x: False)
    compute(8, gradient=True)
    assert called == []
    x, y = draw(3, 4), draw(3, 4)
    torch.manual_seed(1)
    ours = drop(x, 0.3, training=True), add_dropped(x, y, 0.3, training=True)
    torch.manual_seed(1)
    assert torch.equal(ours[0], F.dropout(x, 0.3))
    assert torch.equal(ours[1], x + F.dropout(y, 0.3))


@pytest.mark.parametrize("gradient", [True, False])
@pytest.mark.parametrize(("n_queries", "n_keys"), [(1, 1), (1, 5), (3, 5), (5, 5), (66, 70)])
def test_the_last_query_sees_every_key(n_queries: int, n_keys: int, gradient: bool) -> None:
    query, keys, values = (draw(2, 3, n, 4).requires_grad_(gradient) for n in (n_queries, n_keys, n_keys))
    ours = attend(query, keys, values, causal=True, factor=0.5)
    for i in range(n_queries):
        end = n_keys - n_queries + i + 1
        alone = attend(query[:, :, i : i + 1], keys[:, :, :end], values[:, :, :end], factor=0.5)
        same(ours[:, :, i : i + 1], alone)


@pytest.mark.parametrize(("name", "function"), [("relu", F.relu), ("gelu", F.gelu), ("silu", F.silu)])
def test_activations(name: str, function: Any) -> None:
    x = draw(3, 4)
    assert torch.equal(activate(x, name), function(x))
