"""It learns: to copy strings of digits, and at the paper's depth."""

from __future__ import annotations

import random
from collections.abc import Iterator

import torch
from torch import Tensor

from glassformer.config import ModelConfig, SearchConfig
from glassformer.model.transformer import Transformer
from glassformer.search.beam import beam_search
from glassformer.text.vocab import EOS, PAD, SPECIAL
from glassformer.training.loss import cross_entropy

FIRST_DIGIT = len(SPECIAL)
VOCAB = FIRST_DIGIT + 10


def strings(count: int, seed: int, longest: int) -> list[list[int]]:
    """Draw strings of 1 to `longest` digits, each with its end mark."""
    dice = random.Random(seed)
    return [[*(FIRST_DIGIT + dice.randrange(10) for _ in range(dice.randint(1, longest))), EOS] for _ in range(count)]


def padded(rows: list[list[int]]) -> Tensor:
    longest = max(map(len, rows))
    return torch.tensor([row + [PAD] * (longest - len(row)) for row in rows])


def loss_of(model: Transformer, rows: list[list[int]]) -> Tensor:
    """Read each string and write it again: the loss a token."""
    src = padded(rows)
    start = torch.full((len(rows), 1), model.start_id)
    hidden = model.hidden(src, torch.cat([start, src[:, :-1]], dim=1), src != PAD)[src != PAD]
    return cross_entropy(hidden, model.output.weight, model.output.bias, src[src != PAD]) / (src != PAD).sum()


def copied(model: Transformer, rows: list[list[int]]) -> float:
    """Say which share of the strings greedy search reproduces to the letter."""
    src = padded(rows)
    start = torch.full((len(rows),), model.start_id)
    with torch.inference_mode():
        state = model.start(model.encode(src, src != PAD))
        found = beam_search(model.step, state, start, SearchConfig(max_length=12))
    right = [bool(t[t != PAD].tolist() == row) for t, row in zip(found.tokens[:, 0], rows, strict=True)]
    return sum(right) / len(rows)


def small(**changes: object) -> Transformer:
    torch.manual_seed(0)
    sizes = {"d_model": 32, "n_heads": 4, "d_ff": 64, "n_encoder_layers": 1, "n_decoder_layers": 1, "dropout": 0.0}
    return Transformer(ModelConfig.parse({"src_vocab": VOCAB, "tgt_vocab": VOCAB, **sizes, **changes}, "test"))


def train(model: Transformer, optimizer: torch.optim.Optimizer, updates: int, longest: int) -> Iterator[float]:
    """Update the weights, giving the loss before each time."""
    for update in range(updates):
        loss = loss_of(model.train(), strings(48, seed=100 + update, longest=longest))
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        yield loss.item()


def test_it_learns_to_copy() -> None:
    """With plain Adam and one rate; strings that it has not seen."""
    model = small()
    held_out = [row for row in strings(400, seed=1, longest=6) if len(row) > 5]  # of shorter ones training meets most
    assert copied(model.eval(), held_out) < 0.05
    losses = list(train(model, torch.optim.Adam(model.parameters(), lr=3e-3), updates=320, longest=6))
    assert losses[-1] < 0.1
    assert copied(model.eval(), held_out) >= 0.95


def test_it_trains_at_the_papers_depth() -> None:
    """Post-norm, six and six layers: from our initialisation, with the paper's warm-up and nothing else."""
    width, warmup, updates = 64, 1000, 100
    model = small(d_model=width, d_ff=128, n_encoder_layers=6, n_decoder_layers=6, dropout=0.1)
    optimizer = torch.optim.Adam(model.parameters(), lr=1.0, betas=(0.9, 0.98), eps=1e-9)
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda n: width**-0.5 * min((n + 1) ** -0.5, (n + 1) * warmup**-1.5)
    )
    losses = []
    for loss in train(model, optimizer, updates, longest=4):
        losses.append(loss)
        schedule.step()
    assert max(losses) < 1.5 * losses[0]
    assert sum(losses[-20:]) / 20 < losses[0] / 2
