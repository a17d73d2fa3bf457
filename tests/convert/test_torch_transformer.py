"""`torch.nn.Transformer` and our model with its weights: the same numbers.

B batch, S source length, T target length, D model width, V vocabulary.
"""

from __future__ import annotations

import itertools
import math
import warnings
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from glassformer.convert.torch_transformer import from_torch
from glassformer.errors import ModelFileError
from tests.models import ids, padding, same

D, V = 8, 11
SRC_LENGTHS, TGT_LENGTHS = [6, 4, 1], [5, 5, 2]


class Theirs(nn.Module):
    """What one builds around `torch.nn.Transformer`: embeddings, positions, masks and an output layer."""

    def __init__(
        self, tie: str = "none", output_bias: bool = False, positions: str = "interleaved", **settings: Any
    ) -> None:
        super().__init__()
        self.positions = positions
        torch.manual_seed(0)
        sizes = {
            "num_encoder_layers": 2,
            "num_decoder_layers": 3,
            "dim_feedforward": 12,
            "dropout": 0.0,
            "batch_first": True,
        }
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # torch says that pre-norm cannot take its nested-tensor path
            self.core = nn.Transformer(D, 2, **{**sizes, **settings})
        self.source, self.target, self.output = (
            nn.Embedding(V, D),
            nn.Embedding(V, D),
            nn.Linear(D, V, bias=output_bias),
        )
        if tie in ("all", "embeddings"):
            self.source.weight = self.target.weight
        if tie in ("all", "target"):
            self.output.weight = self.target.weight
        self.double().train()  # without dropout: in eval mode torch takes another path, which leaves out what is padded
        for parameter in self.parameters():
            if parameter.dim() == 1:  # fresh biases are 0 and fresh norms change nothing
                nn.init.normal_(parameter, 0.5, 0.3)

    def embed(self, table: nn.Embedding, tokens: Tensor) -> Tensor:
        places = torch.zeros(tokens.size(1), D, dtype=torch.float64)
        for place, i in itertools.product(range(len(places)), range(D // 2)):
            angle = place / 10000 ** (2 * i / D)
            sin, cos = (2 * i, 2 * i + 1) if self.positions == "interleaved" else (i, D // 2 + i)
            places[place, sin], places[place, cos] = math.sin(angle), math.cos(angle)
        embedded: Tensor = table(tokens) * math.sqrt(D)
        return embedded if self.positions == "none" else embedded + places

    def forward(self, src: Tensor, tgt: Tensor, src_mask: Tensor, tgt_mask: Tensor) -> Tensor:
        """Give logits (B, T, V); torch's masks are True where nothing may be read."""
        future = torch.ones(tgt.size(1), tgt.size(1), dtype=torch.bool).triu(1)
        both = self.embed(self.source, src), self.embed(self.target, tgt)
        if not self.core.batch_first:
            both = both[0].transpose(0, 1), both[1].transpose(0, 1)
        hidden = self.core(
            *both,
            tgt_mask=future,
            src_key_padding_mask=~src_mask,
            tgt_key_padding_mask=~tgt_mask,
            memory_key_padding_mask=~src_mask,
        )
        logits: Tensor = self.output(hidden if self.core.batch_first else hidden.transpose(0, 1))
        return logits


def check(theirs: Theirs) -> None:
    ours = from_torch(theirs.core, theirs.source, theirs.target, theirs.output, theirs.positions)  # type: ignore[arg-type]
    assert not ours.training
    src, tgt = ids(1, 3, max(SRC_LENGTHS)), ids(2, 3, max(TGT_LENGTHS))
    src_mask, tgt_mask = padding(SRC_LENGTHS), padding(TGT_LENGTHS)
    right = theirs(src, tgt, src_mask, tgt_mask)[tgt_mask]
    with torch.no_grad():
        fused = ours.decode(tgt, ours.encode(src, src_mask))
    same(fused[tgt_mask], right.detach(), 1e-10)
    same(ours.train()(src, tgt, src_mask)[tgt_mask], right, 1e-10)


@pytest.mark.parametrize("output_bias", [True, False])
@pytest.mark.parametrize("tie", ["all", "target", "embeddings", "none"])
@pytest.mark.parametrize("activation", ["relu", "gelu"])
@pytest.mark.parametrize("norm_first", [True, False])
def test_the_same_outputs(norm_first: bool, activation: str, tie: str, output_bias: bool) -> None:
    theirs = Theirs(tie, output_bias, norm_first=norm_first, activation=activation)
    check(theirs)
    ours = from_torch(theirs.core, theirs.source, theirs.target, theirs.output)
    assert ours.config.tie == tie
    assert sum(p.numel() for p in ours.parameters()) == sum(p.numel() for p in theirs.parameters())


@pytest.mark.parametrize("positions", ["interleaved", "halves", "none"])
def test_each_layout_of_positions(positions: str) -> None:
    check(Theirs(positions=positions))


@pytest.mark.parametrize("function", [F.relu, F.gelu, F.silu, nn.ReLU(), nn.GELU(), nn.SiLU()])
def test_each_way_to_name_an_activation(function: Any) -> None:
    theirs = Theirs()
    for layer in (*theirs.core.encoder.layers, *theirs.core.decoder.layers):
        layer.activation = function
    check(theirs)


def test_words_first_or_batch_first() -> None:
    check(Theirs(batch_first=False))


def test_another_epsilon_and_other_depths() -> None:
    check(Theirs(layer_norm_eps=0.1, num_encoder_layers=1, num_decoder_layers=1, dim_feedforward=5))


def test_stacks_without_their_last_norm() -> None:
    theirs = Theirs()
    theirs.core.encoder.norm = theirs.core.decoder.norm = None
    check(theirs)


def test_dropout_comes_along() -> None:
    theirs = Theirs(dropout=0.3)
    config = from_torch(theirs.core, theirs.source, theirs.target, theirs.output).config
    assert (config.dropout, config.attention_dropout, config.ff_dropout) == (0.3, 0.3, 0.3)


def test_the_weights_are_copies() -> None:
    theirs = Theirs()
    ours = from_torch(theirs.core, theirs.source, theirs.target, theirs.output)
    before = ours.src_embedding.table.clone()
    with torch.no_grad():
        theirs.source.weight.add_(1)
    assert torch.equal(ours.src_embedding.table, before)


def test_an_activation_that_torch_loses_on_the_way_is_noticed() -> None:
    """Given as a module it reaches the encoder, but torch 2.13 copies its decoder layers with ReLU instead."""
    theirs = Theirs(activation=nn.GELU())
    if type(theirs.core.decoder.layers[0].activation) is nn.GELU:
        check(theirs)
    else:
        with pytest.raises(ModelFileError, match=r"different layers is not supported: .* gelu and .* relu"):
            from_torch(theirs.core, theirs.source, theirs.target, theirs.output)


def one_norm(theirs: Theirs, stack: str) -> Theirs:
    getattr(theirs.core, stack).norm = None
    return theirs


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: Theirs(bias=False), "bias=False"),
        (lambda: Theirs(activation=nn.GELU(approximate="tanh")), "activation GELU\\(approximate='tanh'\\)"),
        (lambda: Theirs(activation=torch.tanh), "supported: relu, gelu, silu"),
        (lambda: one_norm(Theirs(), "encoder"), "after one stack only"),
        (lambda: one_norm(Theirs(), "decoder"), "after one stack only"),
    ],
)
def test_what_has_no_counterpart_is_refused(make: Any, said: str) -> None:
    theirs = make()
    with pytest.raises(ModelFileError, match=said):
        from_torch(theirs.core, theirs.source, theirs.target, theirs.output)
