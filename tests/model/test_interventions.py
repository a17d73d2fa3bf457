"""Reaching in: what a change does = what the same change to the model does."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import Tensor

from glassformer.config import SearchConfig
from glassformer.errors import AddressError
from glassformer.model.attention import MultiHeadAttention
from glassformer.model.state import DecoderState
from glassformer.model.trace import Intervention, Trace, altering, look, replace, scale, skip, zero
from glassformer.model.transformer import Transformer
from glassformer.search.beam import beam_search
from glassformer.search.hypotheses import Hypotheses
from glassformer.text.vocab import PAD
from tests.models import build, ids, padding, same

SRC, TGT = [4, 5, 6, 4, 8], [2, 7, 3, 9, 5, 4]  # as many as no other axis has
D, H, K = 8, 2, 4
PARTS = [("enc", "self"), ("dec", "self"), ("dec", "cross")]


def logits(model: Transformer, *interventions: Intervention) -> Tensor:
    found = look(model, SRC, TGT, interventions)["out.logits"]
    assert isinstance(found, Tensor)
    return found


def tensor(trace: Trace, address: str) -> Tensor:
    found = trace[address]
    assert isinstance(found, Tensor)
    return found


def with_weights_of(model: Transformer, **changes: Any) -> Transformer:
    other = Transformer(model.config.model_copy(update=changes)).double().eval()
    other.load_state_dict(model.state_dict())
    return other


@pytest.mark.parametrize("head", range(H))
@pytest.mark.parametrize(
    ("address", "find"),
    [
        ("enc.1.self", lambda model: model.encoder.layers[1].self_attention),
        ("dec.0.self", lambda model: model.decoder.layers[0].self_attention),
        ("dec.1.cross", lambda model: model.decoder.layers[1].cross_attention),
    ],
)
def test_a_head_switched_off_is_a_head_without_its_part_of_the_output_matrix(
    address: str, find: Any, head: int
) -> None:
    model = build()
    without = copy.deepcopy(model)
    attention: MultiHeadAttention = find(without)
    with torch.no_grad():
        attention.output.weight[:, head * K : (head + 1) * K] = 0.0
        fused = without.decode(torch.tensor([TGT]), without.encode(torch.tensor([SRC])))[0]
    ablated = logits(model, zero(f"{address}.h{head}.context"))
    same(ablated, fused)
    same(ablated, logits(model, scale(f"{address}.h{head}.context", 0.0)))
    assert (ablated - logits(model)).abs().max() > 1e-3


def test_scores_without_their_scaling_are_the_unscaled_model() -> None:
    model = build()
    skipped = logits(model, skip("*.scaled"))
    same(skipped, logits(with_weights_of(model, scaled_attention=False)))
    same(skipped, logits(model, scale("*.scaled", K**0.5)))
    assert (skipped - logits(model)).abs().max() > 1e-3


def test_positions_at_zero_are_no_positions() -> None:
    model = build()
    zeroed = logits(model, zero("*.position"))
    same(zeroed, logits(with_weights_of(model, positions="none")))
    same(zeroed, logits(model, skip("enc.sum"), skip("dec.sum")))
    assert (zeroed - logits(model)).abs().max() > 1e-3


@pytest.mark.parametrize(
    ("sum_address", "sublayer"),
    [
        ("enc.0.add1", "enc.0.self"),
        ("enc.1.add2", "enc.1.ff"),
        ("dec.0.add1", "dec.0.self"),
        ("dec.1.add2", "dec.1.cross"),
    ],
)
def test_a_sum_that_is_skipped_leaves_its_sublayer_out(sum_address: str, sublayer: str) -> None:
    """What stands in is the residual connection, not what the sublayer made."""
    model = build()
    skipped = logits(model, skip(f"{sum_address}.sum"))
    same(skipped, logits(model, zero(f"{sublayer}.output")))
    assert (skipped - logits(model)).abs().max() > 1e-3


@pytest.mark.parametrize(
    ("change", "leaks"),
    [
        ([], False),
        ([skip("dec.*.self.masked")], True),
        ([skip("dec.1.self.h0.masked")], True),
        ([skip("enc.*.self.masked")], False),
        ([skip("dec.*.cross.masked")], False),
        ([skip("*.scaled")], False),
        ([zero("dec.*.self.weights")], False),
    ],
    ids=str,
)
def test_only_without_the_mask_the_future_leaks(change: list[Intervention], leaks: bool) -> None:
    model = build()
    other = [*TGT[:-1], TGT[-1] + 1]
    one, two = (look(model, SRC, tgt, change)["out.logits"] for tgt in (TGT, other))
    assert isinstance(one, Tensor)
    assert ((one - two)[:-1].abs().max().item() > 1e-6) == leaks


def test_each_verb_on_a_tensor_a_head_a_row_and_a_number() -> None:
    model = build()
    plain = look(model, SRC, TGT)
    before = tensor(plain, "dec.0.cross.weights")

    def after(change: Intervention) -> Tensor:
        return tensor(look(model, SRC, TGT, [change]), "dec.0.cross.weights")

    parts: dict[str, tuple[int, ...]] = {
        "": (),
        ".h1": (1,),
        ".h1[2]": (1, 2),
        ".h1[2,3]": (1, 2, 3),
        "[0,-1,-2]": (0, -1, -2),
    }
    for where, part in parts.items():
        head, bracket, index = where.partition("[")
        pattern = f"dec.0.cross{head}.weights{bracket}{index}"
        changes = {
            zero(pattern): torch.zeros_like(before),
            scale(pattern, -2.0): before * -2.0,
            replace(pattern, 0.3): torch.full_like(before, 0.3),
            skip(pattern): tensor(plain, "dec.0.cross.masked"),
        }
        for change, value in changes.items():
            right = before.clone()
            right[part] = value[part]
            assert torch.equal(after(change), right), change


def test_a_tensor_can_be_replaced_by_another_runs() -> None:
    """Patching: with the last layer of another sentence, the model says what it says about that sentence."""
    model = build()
    other = look(model, [7, 8, 9, 10, 4], TGT)
    patched = logits(model, replace("enc.1.norm2.output", tensor(other, "enc.1.norm2.output")))
    same(patched, tensor(other, "out.logits"))
    head = tensor(other, "enc.1.self.h1.context")
    trace = look(model, SRC, TGT, [replace("enc.1.self.h1.context", head)])
    assert torch.equal(tensor(trace, "enc.1.self.h1.context"), head)
    assert torch.equal(tensor(trace, "enc.1.self.h0.context"), tensor(look(model, SRC, TGT), "enc.1.self.h0.context"))


def test_changes_come_one_after_another() -> None:
    model = build()
    trace = look(model, SRC, TGT, [replace("enc.sum", 2.0), scale("enc.sum", 3.0), zero("enc.sum[1]")])
    expected = torch.full((len(SRC), D), 6.0, dtype=torch.float64)
    expected[1] = 0.0
    assert torch.equal(tensor(trace, "enc.sum"), expected)
    assert len(trace.entry("enc.sum").interventions) == 3


@pytest.mark.parametrize(
    ("pattern", "matched"),
    [
        ("enc.1.self.weights", {"enc.1.self.weights"}),
        ("enc.*.self.weights", {"enc.0.self.weights", "enc.1.self.weights"}),
        ("*.cross.weights", {"dec.0.cross.weights", "dec.1.cross.weights"}),
        ("dec.?.cross.weights", {"dec.0.cross.weights", "dec.1.cross.weights"}),
        ("*.h1.weights", {f"{side}.{layer}.{part}.weights" for side, part in PARTS for layer in (0, 1)}),
    ],
)
def test_patterns(pattern: str, matched: set[str]) -> None:
    trace = look(build(), SRC, TGT, [scale(pattern, 2.0)])
    assert {address for address, entry in trace.entries.items() if entry.interventions} == matched


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (zero("enc.9.self.weights"), "enc.9.self.weights matches no tensor; did you mean enc."),
        (zero("enc.*.wieghts"), "matches no tensor"),
        (zero("zzz"), "zzz matches no tensor; iterate over a Trace for its addresses"),
        (zero("enc.0.self.h2.weights"), "has size 2 along head (0 to 1); 2 is out of range"),
        (zero("enc.0.self.weights[0,0,5]"), "has size 5 along src_k (0 to 4); 5 is out of range"),
        (zero("enc.sum["), "is not an address"),
        (scale("enc.0.self.h0.output", 2.0), "has no heads"),
        (replace("enc.sum", torch.zeros(3, 3)), "enc.sum has shape (5, 8), its replacement (3, 3)"),
        (
            replace("enc.0.self.h1.q", torch.zeros(2, 5, 4)),
            "enc.0.self.h1.q has shape (5, 4), its replacement (2, 5, 4)",
        ),
        (
            skip("enc.position"),
            "enc.position cannot be skipped: sinusoid changes what its input means; zero it instead",
        ),
        (skip("enc.ids"), "cannot be skipped"),
        (skip("enc.0.self.context"), "cannot be skipped"),
        (skip("enc.0.self.q"), "cannot be skipped"),
        (skip("enc.0.norm1.mean"), "cannot be skipped"),
    ],
    ids=str,
)
def test_a_change_that_cannot_be_made(change: Intervention, said: str) -> None:
    with pytest.raises(AddressError) as caught:
        look(build(), SRC, TGT, [change])
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


CHANGES: dict[str, list[Intervention]] = {
    "nothing": [],
    "a head": [zero("dec.1.cross.h0.context")],
    "unscaled": [skip("*.scaled")],
    "no positions": [zero("*.position")],
    "several": [skip("enc.0.norm1.normalised"), scale("dec.0.ff.active", 0.5), replace("dec.*.self.h1.v", 0.1)],
}
SEARCH = SearchConfig(width=3, max_length=6)


def search(model: Transformer, src: Tensor, lengths: list[int], *changes: Intervention) -> Hypotheses:
    """Search with `encode`, `start` and each cached `step` under the same changes."""
    scope = altering(*changes)

    def step(tokens: Tensor, state: DecoderState) -> tuple[Tensor, DecoderState]:
        return model.step(tokens, state, scope)

    state = model.start(model.encode(src, padding(lengths), scope), scope)
    return beam_search(step, state, torch.full((len(src),), model.start_id), SEARCH)


@pytest.mark.parametrize("name", CHANGES)
def test_a_search_under_a_change_is_whole_passes_under_it(name: str) -> None:
    model, changes, lengths, src = build(), CHANGES[name], [4, 2], ids(0, 2, 4)
    found = search(model, src, lengths, *changes)
    for row, length in enumerate(lengths):
        for tokens, log_prob in zip(found.tokens[row], found.log_probs[row], strict=True):
            sentence = tokens[tokens != PAD].tolist()
            trace = look(model, src[row, :length].tolist(), [model.start_id, *sentence[:-1]], changes)
            same(log_prob, tensor(trace, "out.log_probs")[range(len(sentence)), sentence].sum())


def test_a_search_that_changes_nothing_is_a_search() -> None:
    """Nor does it matter to a search that no mask hides the future: there is none yet."""
    model, lengths, src = build(), [4, 2], ids(0, 2, 4)
    state = model.start(model.encode(src, padding(lengths)))
    plain = beam_search(model.step, state, torch.full((2,), model.start_id), SEARCH)
    for changes in ([], [skip("dec.*.self.masked")]):
        found = search(model, src, lengths, *changes)
        assert torch.equal(found.tokens, plain.tokens)
        same(found.scores, plain.scores)
    other = search(model, src, lengths, zero("dec.*.cross.weights"))
    assert not torch.equal(other.scores, plain.scores)
