"""Positions: the formula of the paper, and what they are for."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor

from glassformer.model.positions import Positions
from tests.models import build, ids, same, settings


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


@pytest.mark.parametrize("layout", ["interleaved", "halves", "learned"])
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
