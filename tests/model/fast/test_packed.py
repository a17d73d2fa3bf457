"""A packed model gives the model's own numbers, for every kind of model, and its states stay values."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from glassformer.config import ModelConfig
from glassformer.model.fast.packed import PackedTransformer, can_pack
from glassformer.model.transformer import Transformer

TOLERANCE = 1e-5
VARIANTS: dict[str, dict[str, Any]] = {
    "post": {},
    "pre": {"norm": "pre", "final_norm": True},
    "no norm": {"norm": "none"},
    "gelu": {"activation": "gelu"},
    "no feed-forward network": {"d_ff": 0},
    "no bias": {"attention_bias": False},
    "output bias": {"output_bias": True, "tie": "none"},
    "learned": {"positions": "learned"},
    "rotary": {"positions": "rotary"},
    "rotary, pre, unscaled": {"positions": "rotary", "norm": "pre", "scaled_attention": False},
    "no positions": {"positions": "none", "scale_embeddings": False},
    "plain scores": {"scaled_attention": False, "positions": "halves"},
}


def make(**changes: Any) -> Transformer:
    torch.manual_seed(3)
    values: dict[str, Any] = {"d_model": 16, "n_heads": 2, "d_ff": 32, "n_encoder_layers": 2, "n_decoder_layers": 2}
    config = ModelConfig(**(values | {"src_vocab": 50, "tgt_vocab": 50} | changes))
    model = Transformer(config).eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():  # biases and norms are not zero and one in a trained model
            if parameter.dim() == 1:
                parameter.add_(0.1 * torch.randn_like(parameter), alpha=1.0 if "gamma" not in name else 0.5)
    return model


@pytest.mark.parametrize("batch", [1, 3, 12])  # with few rows, and with more
@pytest.mark.parametrize("kind", VARIANTS)
def test_a_packed_model_gives_the_same_logits(kind: str, batch: int) -> None:
    model = make(**VARIANTS[kind])
    assert can_pack(model)
    packed = PackedTransformer(model)
    src = torch.randint(4, 50, (batch, 7))
    mask = torch.ones(batch, 7, dtype=torch.bool)
    mask[batch // 2 :, 5:] = batch == 1
    with torch.inference_mode():
        ours, theirs = packed.encode(src, mask), model.encode(src, mask)
        torch.testing.assert_close(ours.states[mask], theirs.states[mask], atol=TOLERANCE, rtol=0)
        state, expected = packed.start(ours), model.start(theirs)
        for length in range(20):  # beyond the first room
            tokens = torch.randint(4, 50, (state.source.batch * (3 if length > 2 else 1), 1))
            logits, state = packed.step(tokens, state)
            true, expected = model.step(tokens, expected)
            torch.testing.assert_close(logits, true, atol=TOLERANCE, rtol=0)
            if length == 2:  # a beam begins, later it is sorted, and sentences end
                rows = torch.arange(batch).repeat_interleave(3)
                state, expected = state.select(rows), expected.select(rows)
            if length == 5:
                rows = torch.arange(batch * 3).view(batch, 3)[:, [2, 0, 0]].flatten()
                state, expected = state.select(rows), expected.select(rows)
            if length == 9 and batch > 1:
                stay = torch.tensor([0, 2])
                state, expected = state.keep(stay), expected.keep(stay)


@pytest.mark.parametrize("tgt_vocab", [51, 52])  # which threads can share, and cannot
@pytest.mark.parametrize("threads", [1, 2, 3, 4])
def test_threads_share_the_work_of_a_single_row(threads: int, tgt_vocab: int) -> None:
    model = make(tie="none", tgt_vocab=tgt_vocab)
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        packed, src = PackedTransformer(model), torch.randint(4, 50, (1, 7))
        assert packed.output.parts == (1 if tgt_vocab == 51 else min(threads, 4) // 2 * 2 or 1)
        with torch.inference_mode():
            state, expected = packed.start(packed.encode(src)), model.start(model.encode(src))
            for token in range(4, 24):
                logits, state = packed.step(torch.tensor([[token]]), state)
                true, expected = model.step(torch.tensor([[token]]), expected)
                torch.testing.assert_close(logits, true, atol=TOLERANCE, rtol=0)
    finally:
        torch.set_num_threads(before)


def test_states_are_values() -> None:
    """Two continuations of one state do not write over each other."""
    packed = PackedTransformer(make())
    state = packed.start(packed.encode(torch.tensor([[5, 6, 7]])))
    _, state = packed.step(torch.tensor([[2]]), state)
    _, one = packed.step(torch.tensor([[8]]), state)
    _, other = packed.step(torch.tensor([[9]]), state)
    after = packed.step(torch.tensor([[10]]), one)[0]
    packed.step(torch.tensor([[11]]), other)
    again = packed.step(torch.tensor([[10]]), one)[0]
    assert torch.equal(after, again)
    assert not torch.equal(after, packed.step(torch.tensor([[10]]), other)[0])


def test_a_sentence_alone_is_kept_as_it_is() -> None:
    packed = PackedTransformer(make())
    with torch.inference_mode():
        _, state = packed.step(torch.tensor([[4]]), packed.start(packed.encode(torch.tensor([[5, 6, 7]]))))
        ours, theirs = (packed.step(torch.tensor([[8]]), one)[0] for one in (state, state.keep(torch.tensor([0]))))
    assert torch.equal(ours, theirs)


@pytest.mark.parametrize("positions", ["interleaved", "learned", "rotary"])
def test_sequences_past_the_positions_are_refused(positions: str) -> None:
    packed = PackedTransformer(make(max_positions=4, positions=positions))
    with pytest.raises(ValueError, match="max_positions=4"):
        packed.encode(torch.full((1, 5), 6))
    state = packed.start(packed.encode(torch.full((1, 4), 6)))
    for _ in range(4):
        _, state = packed.step(torch.tensor([[5]]), state)
    with pytest.raises(ValueError, match="max_positions=4"):
        packed.step(torch.tensor([[5]]), state)


def test_other_kinds_of_numbers_are_not_packed() -> None:
    assert not can_pack(make().double())
