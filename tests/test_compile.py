"""`torch.compile` takes the model whole: no break in the graph, the same numbers."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor

from glassformer.model.state import Memory
from glassformer.model.transformer import Transformer
from glassformer.training.loss import cross_entropy
from tests import models
from tests.models import ids, padding, same

CHOICES: list[tuple[dict[str, Any], bool]] = [  # settings, and whether the source is padded
    ({}, False),
    ({}, True),
    ({"norm": "pre", "final_norm": True, "activation": "gelu", "tie": "none", "output_bias": True}, False),
    ({"norm": "none", "positions": "learned", "d_ff": 0}, True),
    ({"positions": "rotary", "norm": "pre"}, True),
    ({"positions": "none", "scaled_attention": False, "attention_bias": False}, True),
]
INDUCTOR = [pytest.mark.slow, pytest.mark.skipif(shutil.which("c++") is None, reason="needs a C++ compiler")]
EACH = pytest.mark.parametrize(
    ("changes", "padded", "backend"),
    [(*choice, "eager") for choice in CHOICES]
    + [pytest.param(*choice, "inductor", marks=INDUCTOR) for choice in CHOICES[1:3]],
    ids=str,
)


def build(**changes: Any) -> Transformer:
    """Make a model of one layer a side: compiling takes its time layer by layer."""
    return models.build(n_encoder_layers=1, n_decoder_layers=1, **changes)


@pytest.fixture(autouse=True)
def _forget() -> Iterator[None]:
    """Let each test compile anew."""
    torch.compiler.reset()
    yield
    torch.compiler.reset()


def compiled(function: Any, backend: str) -> Any:
    return torch.compile(function, fullgraph=True, backend=backend)


@EACH
def test_the_training_pass_and_its_gradients(changes: dict[str, Any], padded: bool, backend: str) -> None:
    model = build(dropout=0.0, **changes).train()
    mask = padding([5, 3]) if padded else None
    src, tgt, right = ids(0, 2, 5), ids(1, 2, 4), ids(2, 8)
    weights = list(model.parameters())

    def gradients(run: Any) -> tuple[Tensor, ...]:
        hidden = run(src, tgt, mask).flatten(0, 1)  # (B * T, D)
        loss = cross_entropy(hidden, model.output.weight, model.output.bias, right, 0.1)
        return hidden, *torch.autograd.grad(loss, weights)

    within = 1e-12 if backend == "eager" else 1e-9
    same(gradients(compiled(model.hidden, backend)), gradients(model.hidden), within)


@pytest.mark.parametrize("backend", ["eager", pytest.param("inductor", marks=INDUCTOR)])
def test_a_training_pass_with_dropout(backend: str) -> None:
    model = build(dropout=0.1, attention_dropout=0.1, ff_dropout=0.1).train()
    run = compiled(model, backend)
    src, tgt, mask = ids(0, 2, 5), ids(1, 2, 4), padding([5, 3])
    draws = [run(src, tgt, mask) for _ in range(2)]
    assert not torch.equal(*draws)
    draws[0].sum().backward()
    assert all(parameter.grad is not None and parameter.grad.isfinite().all() for parameter in model.parameters())
    mean = torch.stack([run(src, tgt, mask) for _ in range(200)]).mean(dim=0)
    assert (mean - model.eval()(src, tgt, mask)).abs().mean() < 0.2


def test_batches_of_many_shapes() -> None:
    """Other lengths must not break the graph, change a number, or each be compiled anew: torch gives up after eight."""
    model = build(dropout=0.0).train()
    run = compiled(model, "eager")
    shapes = [(2, 5, 4), (3, 6, 6), (1, 7, 2), (2, 70, 66), *((2 + i % 3, 4 + i, 15 - i) for i in range(12))]
    for batch, n_src, n_tgt in shapes:
        src, tgt = ids(n_src, batch, n_src), ids(n_tgt, batch, n_tgt)
        mask = torch.ones(batch, n_src, dtype=torch.bool)
        mask[-1, n_src // 2 + 1 :] = False
        same(run(src, tgt, mask), model(src, tgt, mask))


def in_steps(model: Transformer, step: Any, memory: Memory, tgt: Tensor) -> Tensor:
    state, logits = model.start(memory), []
    for t in range(tgt.size(1)):
        new, state = step(tgt[:, t : t + 1], state)
        logits.append(new)
    return torch.cat(logits, dim=1)


@EACH
def test_steps_of_a_decoder(changes: dict[str, Any], padded: bool, backend: str) -> None:
    """The first token, the second, and then any: with one source for two beams."""
    model = build(**changes)
    tgt = ids(1, 4, 12)  # more than torch would compile anew for each
    with torch.no_grad():
        memory = model.encode(ids(0, 2, 5), padding([5, 3]) if padded else None)
        ours = in_steps(model, compiled(model.step, backend), memory, tgt)
        same(ours, in_steps(model, model.step, memory, tgt), 1e-12 if backend == "eager" else 1e-9)


def test_encode_and_start() -> None:
    model, src, mask = build(), ids(0, 2, 5), padding([5, 3])
    with torch.no_grad():
        memory = compiled(model.encode, "eager")(src, mask)
        same(memory.states, model.encode(src, mask).states)
        state = compiled(model.start, "eager")(memory)
        same([tuple(layer) for layer in state.source], [tuple(layer) for layer in model.start(memory).source])
