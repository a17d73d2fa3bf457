"""The decoder's state is a value: reading makes a new one, and choosing rows chooses what the decoder remembers.

B sentences, W prefixes of each, N = B * W.
"""

from __future__ import annotations

import hypothesis.strategies as st
import torch
from hypothesis import given

from glassformer.model.fast.packed import PackedState, PackedTransformer
from glassformer.model.state import DecoderState, Stepper
from glassformer.model.transformer import Transformer
from tests.models import build, ids, padding, same

B, W = 3, 2


def started(lengths: list[int], width: int) -> tuple[DecoderState, DecoderState]:
    """Start decoding a padded batch and read two tokens of each of its prefixes."""
    model = build()
    state = model.start(model.encode(ids(0, len(lengths), max(lengths)), padding(lengths)))
    return state, model.step(ids(1, len(lengths) * width, 2), state)[1]


def equal(one: DecoderState, other: DecoderState) -> bool:
    tensors = [
        [*(t for layer in (*s.source, *s.prefix) for t in layer), *([] if s.allowed is None else [s.allowed])]
        for s in (one, other)
    ]
    return len(tensors[0]) == len(tensors[1]) and all(torch.equal(a, b) for a, b in zip(*tensors, strict=True))


def test_length_counts_the_tokens_read() -> None:
    model = build()
    state = model.start(model.encode(ids(0, 1, 4)))
    assert state.length == 0
    for tokens, length in ((1, 1), (3, 4), (2, 6)):
        _, state = model.step(ids(length, 1, tokens), state)
        assert state.length == length


def test_reading_does_not_change_the_state_that_went_in() -> None:
    model = build()
    fresh, read = started([4, 2, 3], W)
    for state in (fresh, read):
        copy = state._replace(
            source=tuple(type(layer)(*(t.clone() for t in layer)) for layer in state.source),
            prefix=tuple(type(layer)(*(t.clone() for t in layer)) for layer in state.prefix),
        )
        one, _ = model.step(ids(5, B * W, 1), state)
        other, _ = model.step(ids(5, B * W, 1), state)
        assert torch.equal(one, other)
        assert equal(state, copy)


@given(st.data())
def test_selected_prefixes_go_on_as_themselves(data: st.DataObject) -> None:
    """Prefixes may be kept, repeated and reordered within their sentences, also to another width."""
    width = data.draw(st.integers(1, 3), "W")
    new_width = data.draw(st.integers(1, 4), "new W")
    lengths = data.draw(st.lists(st.integers(1, 4), min_size=1, max_size=3), "lengths")
    chosen = [
        data.draw(st.lists(st.integers(0, width - 1), min_size=new_width, max_size=new_width), "parents")
        for _ in lengths
    ]
    rows = torch.tensor([b * width + parent for b, parents in enumerate(chosen) for parent in parents])
    model, (_, state) = build(), started(lengths, width)
    token = ids(2, len(lengths) * width, 1)
    before, _ = model.step(token, state)
    after, _ = model.step(token[rows], state.select(rows))
    same(after, before[rows])


@given(st.data())
def test_kept_sentences_go_on_as_themselves(data: st.DataObject) -> None:
    """Sources, their padding and all their prefixes go along."""
    width = data.draw(st.integers(1, 3), "W")
    lengths = data.draw(st.lists(st.integers(1, 4), min_size=1, max_size=4), "lengths")
    kept = data.draw(st.lists(st.sampled_from(range(len(lengths))), min_size=1, max_size=4, unique=True), "kept")
    model, (fresh, state) = build(), started(lengths, width)
    rows = torch.tensor([b * width + w for b in kept for w in range(width)])
    token = ids(2, len(lengths) * width, 1)
    for one in (fresh, state):
        before, _ = model.step(token, one)
        after, _ = model.step(token[rows], one.keep(torch.tensor(kept)))
        same(after, before[rows])


def test_a_state_without_padding_can_be_kept() -> None:
    model = build()
    state = model.start(model.encode(ids(0, 2, 3)))
    assert state.allowed is None
    kept = state.keep(torch.tensor([1]))
    assert kept.allowed is None
    assert torch.equal(kept.source[0].keys, state.source[0].keys[1:])


def test_the_source_is_projected_once_and_shared_by_its_beams() -> None:
    fresh, read = started([4, 2, 3], W)
    assert fresh.source is read.source
    assert read.select(torch.arange(B * W)).source is read.source
    assert read.source[0].keys.size(0) == B
    assert read.prefix[0].keys.size(0) == B * W


def test_models_that_a_search_can_drive_are_steppers() -> None:
    """The annotations are for mypy."""
    model = build(dtype=torch.float32)
    plain: Stepper[DecoderState] = model
    packed: Stepper[PackedState] = PackedTransformer(model)
    for stepper in (plain, packed):
        assert isinstance(stepper, Stepper)
        assert stepper.config is model.config
        assert stepper.start_id == model.start_id
    assert not isinstance(torch.nn.Linear(1, 1), Stepper)
    assert isinstance(plain, Transformer)
