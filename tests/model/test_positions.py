"""Positions: the formula of the paper, and what they are for."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor

from glassformer.config import SearchConfig
from glassformer.model.fast.packed import PackedTransformer
from glassformer.model.operations import rotate
from glassformer.model.positions import Positions, Rotary
from glassformer.model.trace import look, skip
from glassformer.model.transformer import Transformer
from glassformer.search.beam import beam_search
from glassformer.text.vocab import PAD
from tests.models import build, ids, padding, same, settings


def formula(place: int, width: int, layout: str) -> list[float]:
    """PE(pos, 2i) = sin(pos / 10000^(2i/d)), PE(pos, 2i+1) = cos of the same angle; or all sines, then all cosines."""
    angles = [place / 10000 ** (2 * i / width) for i in range(width // 2)]
    if layout == "halves":
        return [math.sin(a) for a in angles] + [math.cos(a) for a in angles]
    return [f(a) for a in angles for f in (math.sin, math.cos)]


def table(**changes: Any) -> Tensor:
    rows: Tensor = Positions(settings(max_positions=50, **changes)).double()(0, 50)  # (1, 50, D)
    return rows[0]


@pytest.mark.parametrize("width", [2, 6, 16, 512])
@pytest.mark.parametrize("layout", ["interleaved", "halves"])
def test_sines_and_cosines_of_the_paper(layout: str, width: int) -> None:
    expected = torch.tensor([formula(place, width, layout) for place in range(50)], dtype=torch.float64)
    same(table(positions=layout, d_model=width), expected, 1e-13)


def test_the_two_layouts_are_one_set_of_channels() -> None:
    halves, interleaved = table(positions="halves"), table(positions="interleaved")
    assert torch.equal(halves, torch.cat([interleaved[:, 0::2], interleaved[:, 1::2]], dim=1))


def test_a_step_to_the_right_is_a_rotation() -> None:
    """Why both channels of a pair have the same angle: PE(p + k) is PE(p), turned by an angle that only k knows."""
    for i, (sin, cos) in enumerate(table(d_model=16).T.reshape(8, 2, 50)):
        angle = torch.tensor(3 / 10000 ** (2 * i / 16), dtype=torch.float64)
        same(sin[3:], sin[:-3] * angle.cos() + cos[:-3] * angle.sin(), 1e-13)
        same(cos[3:], cos[:-3] * angle.cos() - sin[:-3] * angle.sin(), 1e-13)


@pytest.mark.parametrize("layout", ["interleaved", "halves", "learned"])
def test_places_from_any_start_are_rows_of_one_table(layout: str) -> None:
    torch.manual_seed(0)
    positions = Positions(settings(positions=layout, max_positions=9))
    torch.nn.init.normal_(positions.table)
    whole = positions(0, 9)
    for start in range(9):
        for length in range(1, 10 - start):
            assert torch.equal(positions(start, length), whole[:, start : start + length])
    with pytest.raises(ValueError, match="position 10 is past the model's limit: max_positions=9"):
        positions(7, 3)


def test_sines_are_exact_in_every_number_format() -> None:
    """A model made double must not keep the sines of a float: the explicit path would show other numbers."""
    positions = Positions(settings(d_model=64))
    exact = torch.tensor([formula(place, 64, "interleaved") for place in range(80)], dtype=torch.float64)
    for dtype in (torch.float64, torch.float32, torch.bfloat16, torch.float64):
        positions = positions.to(dtype)
        same(positions.table, exact.to(dtype), 1e-13 if dtype == torch.float64 else 1e-6)
    with torch.device("meta"):
        empty = Positions(settings(d_model=64))
    same(empty.to_empty(device="cpu").table, exact.float(), 1e-6)


def test_only_learned_positions_are_weights() -> None:
    assert dict(Positions(settings(positions="learned")).named_parameters()).keys() == {"table"}
    assert not dict(Positions(settings(positions="halves")).named_parameters())
    assert not Positions(settings(positions="halves")).state_dict()


THE, WOMAN, ATE, RACCOON = 4, 5, 6, 7


def encoded(sentence: list[int], **changes: Any) -> Tensor:
    return build(**changes).encode(torch.tensor([sentence])).states[0]


@pytest.mark.parametrize("norm", ["post", "pre", "none"])
def test_without_positions_who_ate_whom_is_lost(norm: str) -> None:
    """Each word's vector goes with the word: as sets, both sentences are the same."""
    one = encoded([THE, WOMAN, ATE, THE, RACCOON], norm=norm, positions="none")
    other = encoded([THE, RACCOON, ATE, THE, WOMAN], norm=norm, positions="none")
    same(one, other[[0, 4, 2, 3, 1]])


@pytest.mark.parametrize("layout", ["interleaved", "halves", "learned", "rotary"])
def test_with_positions_who_ate_whom_is_known(layout: str) -> None:
    one = encoded([THE, WOMAN, ATE, THE, RACCOON], positions=layout)
    other = encoded([THE, RACCOON, ATE, THE, WOMAN], positions=layout)
    for word in one:
        assert (other - word).abs().amax(dim=1).min() > 1e-3


@pytest.mark.parametrize("seed", range(3))
def test_without_positions_the_encoder_is_permutation_equivariant(seed: int) -> None:
    model, src = build(seed, positions="none"), ids(seed, 1, 9)
    order = torch.randperm(9, generator=torch.Generator().manual_seed(seed))
    same(model.encode(src[:, order]).states, model.encode(src).states[:, order])
    placed = build(seed)
    assert (placed.encode(src[:, order]).states - placed.encode(src).states[:, order]).abs().max() > 1e-2


def rotary(length: int = 50, **changes: Any) -> Rotary:
    return Rotary(settings(positions="rotary", max_positions=length, **changes)).double()


def heads_of(*lengths: int, width: int = 4) -> list[Tensor]:
    """Draw queries, keys and the like (1, 2, T, K)."""
    torch.manual_seed(0)
    return [torch.randn(1, 2, length, width, dtype=torch.float64) for length in lengths]


@pytest.mark.parametrize("width", [2, 4, 16])
def test_a_rotation_turns_each_pair_of_channels(width: int) -> None:
    """As complex numbers: channel pair i of position p is multiplied by e^(i p / 10000^(2i/K))."""
    (x,) = heads_of(6, width=width)
    turned = torch.view_as_complex(rotary(d_model=2 * width)(x, 3).unflatten(-1, (-1, 2)))
    for place in range(6):
        for i in range(width // 2):
            angle = (3 + place) / 10000 ** (2 * i / width)
            before = torch.complex(x[..., place, 2 * i], x[..., place, 2 * i + 1])
            same(turned[..., place, i], before * complex(math.cos(angle), math.sin(angle)))


def test_rotary_scores_depend_only_on_distance() -> None:
    turn, (query, keys) = rotary(), heads_of(5, 7)
    scores = turn(query, 0) @ turn(keys, 0).mT
    for shift in (1, 9, 40):
        same(turn(query, shift) @ turn(keys, shift).mT, scores)
    assert (turn(query, 1) @ turn(keys, 0).mT - scores).abs().max() > 1e-2
    same(turn(query, 12).norm(dim=-1), query.norm(dim=-1))  # a rotation changes no length
    assert torch.equal(turn(query, 0)[:, :, 0], query[:, :, 0])  # position 0 is not rotated


def test_rotary_from_any_start_is_a_part_of_the_whole_and_the_operation() -> None:
    turn, (x,) = rotary(9), heads_of(9)
    for start in range(9):
        for end in range(start + 1, 10):
            part = turn(x[:, :, start:end], start)
            assert torch.equal(part, turn(x, 0)[:, :, start:end])
            assert torch.equal(part, rotate(x[:, :, start:end], start=start))
    with pytest.raises(ValueError, match="position 10 is past the model's limit: max_positions=9"):
        turn(x[:, :, :3], 7)


def test_rotary_models_learn_no_positions_and_add_none() -> None:
    model = build(positions="rotary")
    assert model.src_embedding.positions is None
    assert model.state_dict().keys() == build(positions="none").state_dict().keys()
    assert isinstance(model.encoder.layers[0].self_attention.rotary, Rotary)  # type: ignore[union-attr]
    decoder = model.decoder.layers[0]
    assert isinstance(decoder.self_attention.rotary, Rotary)  # type: ignore[union-attr]
    assert decoder.cross_attention.rotary is None  # type: ignore[union-attr]


def test_a_rotary_trace_names_what_was_rotated() -> None:
    model = build(positions="rotary")
    trace = look(model, [4, 5, 6], [2, 7])
    for layer in ("enc.0", "enc.1", "dec.0", "dec.1"):
        for name in "qk":
            entry = trace.entry(f"{layer}.self.rotated_{name}")
            assert (entry.operation, entry.inputs) == ("rotate", (f"{layer}.self.{name}",))
            assert entry.constants == {"start": 0}
            assert torch.equal(trace.recompute(entry.address), entry.value)
        assert trace.entry(f"{layer}.self.scores").inputs == (f"{layer}.self.rotated_q", f"{layer}.self.rotated_k")
    assert not any("rotated" in address for address in trace if ".cross." in address)
    assert trace.entry("dec.0.cross.scores").inputs == ("dec.0.cross.q", "dec.0.cross.k")
    unrotated = look(model, [4, 5, 6], [2, 7], [skip("*.rotated_?")])
    same(unrotated["out.logits"], look(build(positions="none"), [4, 5, 6], [2, 7])["out.logits"])


def test_rotary_positions_are_limited() -> None:
    model = build(positions="rotary", max_positions=6)
    state = model.start(model.encode(ids(0, 1, 6)))
    _, state = model.step(ids(0, 1, 6), state)
    with pytest.raises(ValueError, match="position 7 is past the model's limit: max_positions=6"):
        model.step(ids(0, 1, 1), state)
    with pytest.raises(ValueError, match="max_positions=6"):
        model.encode(ids(0, 1, 7))


def test_a_rotary_model_translates_packed_as_unpacked() -> None:
    """And the score of each translation is the model's own, asked again without cache, beam, batch or padding."""
    model = build(2, torch.float32, positions="rotary", output_bias=True)
    lengths, src = [5, 3], ids(0, 2, 5)
    search = SearchConfig(width=3, max_length=9)
    found = []
    for stepper in (model, PackedTransformer(model)):
        with torch.inference_mode():
            state: Any = stepper.start(stepper.encode(src, padding(lengths)))
            found.append(beam_search(stepper.step, state, torch.full((2,), stepper.start_id), search))
    assert torch.equal(found[0].tokens, found[1].tokens)
    for row, length in enumerate(lengths):
        for tokens, log_prob in zip(found[1].tokens[row], found[1].log_probs[row], strict=True):
            same(log_prob, log_prob_of(model, src[row : row + 1, :length], tokens[tokens != PAD]), 1e-4)


@torch.no_grad()
def log_prob_of(model: Transformer, src: Tensor, tokens: Tensor) -> Tensor:
    read = torch.cat([torch.tensor([model.start_id]), tokens[:-1]])
    log_probs: Tensor = model(src, read.unsqueeze(0))[0].log_softmax(dim=-1)
    return log_probs[range(len(tokens)), tokens].sum()
