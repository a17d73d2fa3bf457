"""Attention: the notes' numbers and matrix forms, and every path of the module = one plain formula.

B batch, T queries, S keys, W beams, D width, H heads, K head width.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import hypothesis.strategies as st
import pytest
import torch
from hypothesis import given
from torch import Tensor

from glassformer.model.attention import KeyValue, MultiHeadAttention
from glassformer.model.scope import BLIND, Call, Scope
from tests.models import padding, same, settings


@dataclass
class Notebook:
    """Writes down every tensor that attention names."""

    seen: dict[str, Tensor] = field(default_factory=dict)

    def __call__(self, call: Call) -> Tensor:
        self.seen[call.address] = call.compute()
        return self.seen[call.address]


def build(seed: int = 0, **changes: Any) -> MultiHeadAttention:
    torch.manual_seed(seed)
    attention = MultiHeadAttention(settings(**changes)).double()
    for parameter in attention.parameters():
        torch.nn.init.normal_(parameter, std=0.4)
    return attention


def draw(*shape: int) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64)


def identity(width: int) -> MultiHeadAttention:
    """Make one head whose queries, keys, values and output are the words themselves."""
    attention = build(d_model=width, n_heads=1)
    with torch.no_grad():
        attention.projection.weight.copy_(torch.eye(width).repeat(3, 1))
        attention.output.weight.copy_(torch.eye(width))
        for layer in (attention.projection, attention.output):
            layer.bias.zero_()
    return attention


def self_attention(attention: MultiHeadAttention, x: Tensor, scope: Scope = BLIND) -> Tensor:
    query, memory = attention.query_and_memory(x, scope)
    result: Tensor = attention(query, memory, scope=scope)
    return result


def plain(
    attention: MultiHeadAttention,
    query: Tensor,
    memory: KeyValue,
    allowed: Tensor | None = None,
    causal: bool = False,
    scaled: bool = True,
) -> Tensor:
    """Attend by the formula, one query at a time."""
    width = query.size(0) // memory.keys.size(0)
    keys, values = (part.repeat_interleave(width, dim=0) for part in memory)  # (N, H, S, K)
    n_queries, n_keys = query.size(2), keys.size(2)
    rows = []
    for t in range(n_queries):
        scores = (query[:, :, t, None] * keys).sum(dim=-1)  # (N, H, S)
        if scaled:
            scores = scores / math.sqrt(query.size(3))
        if allowed is not None:
            scores = scores.where(allowed[:, :, 0].repeat_interleave(width, dim=0), -math.inf)
        if causal:
            scores = scores[:, :, : n_keys - n_queries + t + 1]
        shares = scores.exp() / scores.exp().sum(dim=-1, keepdim=True)
        rows.append((shares.unsqueeze(-1) * values[:, :, : shares.size(2)]).sum(dim=2).flatten(1))  # (N, D)
    mapped: Tensor = attention.output(torch.stack(rows, dim=1))
    return mapped


def projected(attention: MultiHeadAttention, batch: int, n_queries: int, n_keys: int, width: int = 1) -> list[Tensor]:
    size = attention.output.weight.size(0) // attention.n_heads
    shapes = [(batch * width, n_queries), (batch, n_keys), (batch, n_keys)]
    return [draw(b, attention.n_heads, length, size).requires_grad_() for b, length in shapes]


def test_the_worked_scores_of_the_notes() -> None:
    """q1.k1 = 112 and q1.k2 = 96, divided by sqrt(64) = 8: 14 and 12, softmax: 0.88 and 0.12."""
    attention = identity(64)
    words = torch.zeros(1, 2, 64, dtype=torch.float64)
    words[0, 0, 0] = math.sqrt(112)
    words[0, 1, :2] = torch.tensor([96 / math.sqrt(112), 1.0], dtype=torch.float64)
    notebook = Notebook()
    explicit = self_attention(attention, words, Scope(notebook))
    first = {name: tensor[0, 0, 0] for name, tensor in notebook.seen.items() if name in ("scores", "scaled", "weights")}
    same(first["scores"], torch.tensor([112.0, 96.0], dtype=torch.float64))
    same(first["scaled"], torch.tensor([14.0, 12.0], dtype=torch.float64))
    assert [round(weight, 2) for weight in first["weights"].tolist()] == [0.88, 0.12]
    with torch.no_grad():
        fused = self_attention(attention, words)
    same(fused, explicit)
    assert round(fused[0, 0, 1].item(), 2) == 0.12  # only the second word has this channel


@pytest.mark.parametrize("seed", range(3))
def test_the_loop_over_words_and_three_matrix_forms_are_one(seed: int) -> None:
    attention = build(seed, n_heads=1)
    with torch.no_grad():
        attention.output.weight.copy_(torch.eye(8))
        attention.output.bias.zero_()
    words = draw(5, 8)
    q, k, v = (
        words @ weight.T + bias
        for weight, bias in zip(attention.projection.weight.chunk(3), attention.projection.bias.chunk(3), strict=True)
    )
    root = math.sqrt(8)
    loop = []
    for n in range(5):
        powers = [math.exp(sum(q[n, i].item() * k[m, i].item() for i in range(8)) / root) for m in range(5)]
        loop.append([sum(powers[m] / sum(powers) * v[m, i].item() for m in range(5)) for i in range(8)])
    rows = torch.softmax(q @ k.T / root, dim=1) @ v  # 004: words are rows
    big_q, big_k, big_v = q.T, k.T, v.T  # words are columns
    columns = big_v @ torch.softmax(big_k.T @ big_q / root, dim=0)  # 000
    mixed = torch.softmax(big_q.T @ big_k / root, dim=1) @ big_v.T  # 003
    ours = self_attention(attention, words.unsqueeze(0))[0]
    for form in (torch.tensor(loop, dtype=torch.float64), rows, columns.T, mixed):
        same(ours, form)


def test_unscaled_attention_is_the_plain_dot_product() -> None:
    attention = build(scaled_attention=False, n_heads=1)
    query, keys, values = projected(attention, 1, 3, 4)
    weights = torch.softmax(query @ keys.mT, dim=-1)
    ours = attention(query, KeyValue(keys, values))
    same(ours, attention.output((weights @ values)[:, 0]))


@pytest.mark.parametrize("n_heads", [1, 2, 4, 8])
def test_contributions_of_the_heads_sum_to_the_output(n_heads: int) -> None:
    attention, notebook = build(n_heads=n_heads), Notebook()
    output = self_attention(attention, draw(1, 5, 8), Scope(notebook))
    context, size = notebook.seen["context"], 8 // n_heads
    parts = [context[:, h] @ attention.output.weight[:, h * size : (h + 1) * size].T for h in range(n_heads)]
    same(output, torch.stack(parts).sum(dim=0) + attention.output.bias)


@pytest.mark.parametrize("bias", [True, False])
def test_projecting_together_is_projecting_apart(bias: bool) -> None:
    attention, x = build(attention_bias=bias), draw(2, 5, 8)
    query, memory = attention.query_and_memory(x)
    same(query, attention.query(x))
    same(memory, attention.memory(x))
    for number, ours in enumerate((query, *memory)):  # W_Q, W_K and W_V lie one above the other
        for head in range(2):  # and each head has rows of its own in them
            rows = slice(number * 8 + head * 4, number * 8 + head * 4 + 4)
            offset = attention.projection.bias[rows] if bias else 0.0
            same(ours[:, head], x @ attention.projection.weight[rows].T + offset)


LENGTHS = [(1, 1), (1, 7), (5, 7), (7, 5), (63, 64), (64, 64), (65, 64), (64, 65), (66, 66), (70, 3)]
MASKS = [(*pair, mask) for pair in LENGTHS for mask in ("nothing", "padding")]
MASKS += [(*pair, "future") for pair in LENGTHS if pair[0] <= pair[1]]


@pytest.mark.parametrize("scaled", [True, False])
@pytest.mark.parametrize(("n_queries", "n_keys", "masked"), MASKS)
def test_every_path_is_the_formula_forward_and_backward(n_queries: int, n_keys: int, masked: str, scaled: bool) -> None:
    """With and without gradients, and on both sides of the length up to which plain multiplications are faster."""
    attention = build(scaled_attention=scaled)
    query, keys, values = inputs = projected(attention, 2, n_queries, n_keys)
    allowed = padding([n_keys, max(1, n_keys - 2)])[:, None, None] if masked == "padding" else None
    arguments = (query, KeyValue(keys, values), allowed, masked == "future")
    pull = draw(2, n_queries, 8)
    expected = plain(attention, *arguments, scaled)
    expected_gradients = torch.autograd.grad((expected * pull).sum(), [*inputs, *attention.output.parameters()])

    ours = attention(*arguments)
    gradients = torch.autograd.grad((ours * pull).sum(), [*inputs, *attention.output.parameters()])
    same(ours, expected)
    same(gradients, expected_gradients, 1e-11)
    with torch.no_grad():
        same(attention(*arguments), expected)
        explicit = attention(*arguments, scope=Scope(Notebook()))
    same(explicit, expected)


@given(st.data())
def test_any_shape_any_heads_any_beams(data: st.DataObject) -> None:
    width = data.draw(st.sampled_from([4, 6, 8, 12]), "D")
    n_heads = data.draw(st.sampled_from([h for h in range(1, width + 1) if width % h == 0]), "H")
    batch, n_keys, n_queries, beams = (data.draw(st.integers(1, 4), name) for name in "BSTW")
    with_gradient = data.draw(st.booleans(), "gradient")
    attention = build(d_model=width, n_heads=n_heads)
    query, keys, values = projected(attention, batch, n_queries, n_keys, beams)
    lengths = data.draw(st.lists(st.integers(1, n_keys), min_size=batch, max_size=batch), "lengths")
    mask = (torch.arange(n_keys) < torch.tensor(lengths).unsqueeze(1))[:, None, None]
    allowed = data.draw(st.sampled_from([None, mask]), "mask")
    memory = KeyValue(keys, values)
    with torch.set_grad_enabled(with_gradient):
        ours = attention(query, memory, allowed)
    same(ours, plain(attention, query, memory, allowed))
    with torch.no_grad():
        explicit = attention(query, memory, allowed, scope=Scope(Notebook()))
    same(ours, explicit)
    copied = KeyValue(*(part.repeat_interleave(beams, dim=0) for part in memory))
    for_each = None if allowed is None else allowed.repeat_interleave(beams, dim=0)
    same(ours, attention(query, copied, for_each))


@pytest.mark.parametrize("gradient", [True, False])
def test_what_is_masked_is_not_read(gradient: bool) -> None:
    attention = build()
    query, keys, values = projected(attention, 2, 3, 5)
    allowed = padding([5, 3])[:, None, None]
    elsewhere = keys.detach().clone(), values.detach().clone()
    for part in elsewhere:
        part[1, :, 3:] = 100.0
    with torch.set_grad_enabled(gradient):
        one = attention(query, KeyValue(keys, values), allowed)
        other = attention(query, KeyValue(*elsewhere), allowed)
    same(one, other)
    assert not torch.allclose(one, attention(query, KeyValue(*elsewhere)))


def test_a_memory_grows_and_is_reordered() -> None:
    whole = KeyValue(draw(3, 2, 5, 4), draw(3, 2, 5, 4))
    first, rest = (KeyValue(*(part[:, :, cut] for part in whole)) for cut in (slice(2), slice(2, None)))
    for ours, theirs in zip(first.append(rest), whole, strict=True):
        assert torch.equal(ours, theirs)
    rows = torch.tensor([2, 0, 0, 1])
    for ours, theirs in zip(whole.select(rows), whole, strict=True):
        assert torch.equal(ours, theirs[rows])


@pytest.mark.parametrize("gradient", [True, False])
@pytest.mark.parametrize("length", [8, 72])
def test_dropout_falls_on_the_weights_and_only_in_training(length: int, gradient: bool) -> None:
    """Values that are unit vectors and an output that is the identity let the weights come out as they are."""
    p, rows = 0.3, 800
    attention = build(d_model=length, n_heads=1, attention_dropout=p)
    with torch.no_grad():
        attention.output.weight.copy_(torch.eye(length))
        attention.output.bias.zero_()
    query, keys = draw(1, 1, rows, length).requires_grad_(gradient), draw(1, 1, length, length)
    if length <= 64:  # as many queries as a short sentence has, a batch of them
        query, keys = query.view(100, 1, 8, length), keys.expand(100, 1, -1, -1)
    memory = KeyValue(keys, torch.eye(length, dtype=torch.float64).expand_as(keys))
    weights = attention.eval()(query, memory)
    same(weights.sum(dim=-1), torch.ones_like(weights[..., 0]))
    assert torch.equal(weights, attention(query, memory))

    dropped = attention.train()(query, memory)
    kept = dropped != 0
    same(dropped[kept], weights[kept] / (1 - p))
    share = 1 - kept.double().mean().item()
    assert abs(share - p) < 5 * math.sqrt(p * (1 - p) / weights.numel())
    assert not torch.equal(dropped, attention(query, memory))
