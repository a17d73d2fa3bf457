"""The parts between the attentions, each by its formula; dropout by its statistics."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from glassformer.model.layers import AddNorm, Embedding, FeedForward, LayerNorm, Output
from tests.models import same, settings

SIGMAS = 5  # how far from its mean a frequency may lie


def draw(*shape: int) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64)


def filled(module: Any) -> Any:
    """Give every weight a value that no fresh module has."""
    torch.manual_seed(1)
    module = module.double()
    for parameter in module.parameters():
        nn.init.normal_(parameter)
    return module


def within_chance(frequency: float, p: float, draws: int) -> bool:
    return abs(frequency - p) <= SIGMAS * math.sqrt(p * (1 - p) / draws) + 2**-17


def test_layer_norm_of_the_notes() -> None:
    """The slide's means are right, its sigmas are not: by its own formula they are 4.8132 and 2.4495."""
    words = torch.tensor([[[0.5, -3.0, 8.5], [-2.0, 4.0, 1.0]]], dtype=torch.float64)
    norm = LayerNorm(3, eps=1e-9).double()
    expected = [[-0.3116, -1.0388, 1.3505], [-1.2247, 1.2247, 0.0]]
    assert [[round(x, 4) for x in row] for row in norm(words)[0].tolist()] == expected
    assert words.mean(dim=-1).tolist() == [[2.0, 1.0]]
    assert [round(sigma, 4) for sigma in words.std(dim=-1, correction=0)[0].tolist()] == [4.8132, 2.4495]


@pytest.mark.parametrize("eps", [1e-6, 1e-5, 0.3])
def test_layer_norm_is_that_of_torch(eps: float) -> None:
    ours, x = filled(LayerNorm(6, eps)), draw(2, 3, 6) * 4 + 1
    theirs = nn.LayerNorm(6, eps).double()
    with torch.no_grad():
        theirs.weight.copy_(ours.gamma)
        theirs.bias.copy_(ours.beta)
    same(ours(x), theirs(x))
    by_hand = (x - x.mean(-1, keepdim=True)) / (x.var(-1, keepdim=True, correction=0) + eps).sqrt()
    same(ours(x), by_hand * ours.gamma + ours.beta)


def test_layer_norm_looks_at_one_token_only() -> None:
    """Batch norm would mix the tokens and the sentences; layer norm mixes the channels of one token."""
    norm, x = filled(LayerNorm(6, 1e-5)), draw(2, 3, 6)
    changed = x.clone()
    changed[0, 1] += draw(6)
    is_same = (norm(x) == norm(changed)).all(dim=-1)
    assert is_same.tolist() == [[True, False, True], [True, True, True]]


@pytest.mark.parametrize("norm", ["post", "pre", "none"])
def test_residual_connection_and_norm(norm: str) -> None:
    around, x, y = filled(AddNorm(settings(norm=norm, dropout=0.4))), draw(2, 3, 8), draw(2, 3, 8)
    for training in (False, True):
        around.train(training)
        same(around.before(x, 1), around.norm(x) if norm == "pre" else x)
    around.eval()
    same(around.after(x, y, 1), around.norm(x + y) if norm == "post" else x + y)


def test_dropout_falls_on_what_the_sublayer_made() -> None:
    torch.manual_seed(0)
    p = 0.4
    around, x, y = AddNorm(settings(norm="none", dropout=p)).double(), draw(100, 50, 8), draw(100, 50, 8)
    made = around.train().after(x, y, 1) - x
    dropped = made.abs() < 1e-12
    same(made[~dropped], y[~dropped] / (1 - p), 1e-11)
    assert within_chance(dropped.double().mean().item(), p, y.numel())
    same(AddNorm(settings(norm="none", dropout=0.0)).train().after(x, y, 1), x + y)


def test_gradient_of_dropout_is_its_own_noise() -> None:
    torch.manual_seed(0)
    around, x, y = (
        AddNorm(settings(norm="none", dropout=0.5)),
        draw(4, 5, 8).requires_grad_(),
        draw(4, 5, 8).requires_grad_(),
    )
    out = around.train().after(x, y, 1)
    d_x, d_y = torch.autograd.grad(out.sum(), [x, y])
    assert torch.equal(d_x, torch.ones_like(x))
    same(out, x + y * d_y)


@pytest.mark.parametrize(("name", "function"), [("relu", F.relu), ("gelu", F.gelu), ("silu", F.silu)])
def test_feed_forward_is_two_maps_at_each_position(name: str, function: Any) -> None:
    network, x = filled(FeedForward(settings(activation=name))), draw(2, 3, 8).requires_grad_()
    by_hand = (
        function(x @ network.hidden.weight.T + network.hidden.bias) @ network.output.weight.T + network.output.bias
    )
    same(network(x), by_hand)
    weights = [x, *network.parameters()]
    pull = draw(2, 3, 8)
    gradients = torch.autograd.grad((network(x) * pull).sum(), weights)
    same(gradients, torch.autograd.grad((by_hand * pull).sum(), weights), 1e-11)
    same(network(x)[:, 1:2], network(x[:, 1:2]))


def test_relu_has_the_gradient_of_torch_at_zero_too() -> None:
    network = FeedForward(settings(d_model=2, d_ff=2, n_heads=1)).double()
    with torch.no_grad():
        for layer in (network.hidden, network.output):
            layer.weight.copy_(torch.eye(2))
            layer.bias.zero_()
    x = torch.tensor([[[0.0, -0.0], [1.0, -1.0], [1e-300, -1e-300]]], dtype=torch.float64, requires_grad=True)
    (ours,) = torch.autograd.grad(network(x).sum(), x)
    (theirs,) = torch.autograd.grad(F.relu(x).sum(), x)
    assert torch.equal(ours, theirs)


def test_feed_forward_dropout_falls_on_the_hidden_layer() -> None:
    torch.manual_seed(0)
    p = 0.3
    network, x = filled(FeedForward(settings(ff_dropout=p, activation="silu"))), draw(500, 3, 8)
    with torch.no_grad():
        network.output.weight.copy_(torch.eye(12)[:8])  # the first hidden channels come out as they are
        network.output.bias.zero_()
    quiet = network.eval()(x)
    assert torch.equal(quiet, network(x))
    noisy = network.train()(x)
    dropped = noisy == 0
    same(noisy[~dropped], quiet[~dropped] / (1 - p), 1e-11)
    assert within_chance(dropped.double().mean().item(), p, noisy.numel())


@pytest.mark.parametrize("scaled", [True, False])
@pytest.mark.parametrize("positions", ["interleaved", "learned", "rotary", "none"])
def test_embedding_is_a_row_times_the_root_plus_its_place(positions: str, scaled: bool) -> None:
    table = nn.Parameter(draw(11, 8))
    embedding = Embedding(settings(positions=positions, scale_embeddings=scaled, dropout=0.2), table).double().eval()
    if positions == "learned":
        nn.init.normal_(embedding.positions.table)  # type: ignore[union-attr]
    ids = torch.tensor([[3, 3, 10], [0, 1, 2]])
    places = 0.0 if embedding.positions is None else embedding.positions(4, 3)
    same(embedding(ids, 4), table[ids] * (math.sqrt(8) if scaled else 1.0) + places)
    noisy = embedding.train()(ids.repeat(50, 1), 4)
    dropped = noisy == 0
    same(noisy[~dropped], embedding.eval()(ids.repeat(50, 1), 4)[~dropped] / 0.8)
    assert within_chance(dropped.double().mean().item(), 0.2, noisy.numel())


@pytest.mark.parametrize("bias", [True, False])
def test_output_is_one_dot_product_for_each_word(bias: bool) -> None:
    output = filled(Output(settings(output_bias=bias), nn.Parameter(draw(11, 8))))
    hidden = draw(2, 3, 8)
    logits = output(hidden)
    for word in range(11):
        same(logits[..., word], hidden @ output.weight[word] + (output.bias[word] if bias else 0.0))
    same(output(hidden.flatten(0, 1)), logits.flatten(0, 1))
