"""The whole model: what must be equal however it is asked.

B batch, S source length, T target length, W beams of a sentence, N = B * W.
"""

from __future__ import annotations

import math
from typing import Any

import hypothesis
import hypothesis.strategies as st
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from torch import Tensor, nn

from glassformer.config import PRESETS, ModelConfig, preset
from glassformer.model.attention import MultiHeadAttention
from glassformer.model.state import Memory
from glassformer.model.trace import altering, look
from glassformer.model.transformer import Transformer
from glassformer.text.vocab import BOS, EOS, PAD
from glassformer.training.loss import cross_entropy
from tests.models import EACH_CHOICE, EXTRAS, GRID, build, ids, padding, same, settings

SEEDS = range(2)
LENGTHS = [5, 3, 1]  # of the sources of a padded batch
T = 5


def sources(model: Transformer, seed: int, *shape: int) -> Tensor:
    return ids(seed, *shape, vocab=model.config.src_vocab)


def repeat(memory: Memory, width: int) -> Memory:
    """Give each beam a source of its own."""
    allowed = None if memory.allowed is None else memory.allowed.repeat_interleave(width, dim=0)
    return Memory(memory.states.repeat_interleave(width, dim=0), allowed)


def in_parts(model: Transformer, tgt: Tensor, memory: Memory, parts: list[int]) -> Tensor:
    """Read targets a few tokens at a time."""
    assert sum(parts) == tgt.size(1)
    state, logits = model.start(memory), []
    for part in torch.split(tgt, parts, dim=1):
        new, state = model.step(part, state)
        logits.append(new)
    return torch.cat(logits, dim=1)


@EACH_CHOICE
@torch.no_grad()
def test_a_cached_step_is_a_full_pass(changes: dict[str, Any]) -> None:
    width = 2
    for seed in SEEDS:
        model = build(seed, **changes)
        memory = model.encode(sources(model, seed, len(LENGTHS), 5), padding(LENGTHS))
        tgt = ids(seed + 1, len(LENGTHS) * width, T)
        whole = model.decode(tgt, repeat(memory, width))
        for parts in ([1] * T, [2, 3]):  # more of them below
            same(in_parts(model, tgt, memory, parts), whole)


@hypothesis.settings(max_examples=120)
@given(st.data())
def test_any_shape_any_heads_any_split(data: st.DataObject) -> None:
    changes = data.draw(st.sampled_from(GRID + EXTRAS), "changes")
    if "n_heads" not in changes:
        width = data.draw(st.sampled_from([2, 6, 8, 12]), "D")
        is_rotary = changes.get("positions") == "rotary"  # rotates pairs of channels
        fitting = [h for h in range(1, width + 1) if width % (2 * h if is_rotary else h) == 0]
        heads = data.draw(st.sampled_from(fitting), "H")
        changes = {**changes, "d_model": width, "n_heads": heads}
    model = build(data.draw(st.integers(0, 9), "seed"), **changes)
    batch, beams = data.draw(st.integers(1, 3), "B"), data.draw(st.integers(1, 3), "W")
    lengths = data.draw(st.lists(st.integers(1, 5), min_size=batch, max_size=batch), "lengths")
    parts = data.draw(st.lists(st.integers(1, 4), min_size=1, max_size=4), "parts")
    mask = data.draw(st.sampled_from([None, padding(lengths)]), "mask")
    with torch.set_grad_enabled(data.draw(st.booleans(), "gradient")):
        memory = model.encode(sources(model, 1, batch, max(lengths)), mask)
        tgt = ids(2, batch * beams, sum(parts))
        same(in_parts(model, tgt, memory, parts), model.decode(tgt, repeat(memory, beams)))


@EACH_CHOICE
@torch.no_grad()
def test_a_row_of_a_padded_batch_is_that_row_alone(changes: dict[str, Any]) -> None:
    """What stands in the padding does not matter either."""
    for seed in SEEDS:
        model = build(seed, **changes)
        src, tgt = sources(model, seed, len(LENGTHS), 5), ids(seed + 1, len(LENGTHS), T)
        together = model.decode(tgt, model.encode(src, padding(LENGTHS)))
        padded = model.decode(tgt, model.encode(src.masked_fill(~padding(LENGTHS), PAD), padding(LENGTHS)))
        same(together, padded)
        for row, (length, tgt_length) in enumerate(zip(LENGTHS, (T, 2, 4), strict=True)):
            alone = model.decode(tgt[row : row + 1, :tgt_length], model.encode(src[row : row + 1, :length]))
            same(together[row, :tgt_length], alone[0])


@EACH_CHOICE
@torch.no_grad()
def test_a_future_token_changes_no_earlier_logit(changes: dict[str, Any]) -> None:
    model = build(**changes)
    memory, tgt = model.encode(sources(model, 0, 1, 4)), ids(1, 1, T)
    before = model.decode(tgt, memory)
    for place in range(T):
        other = tgt.clone()
        other[0, place] = 1 + other[0, place] % 10
        after = model.decode(other, memory)
        same(after[:, :place], before[:, :place])
        assert (after[:, place:] - before[:, place:]).abs().amax(dim=-1).min() > 1e-6  # and it does change the rest


@EACH_CHOICE
def test_looking_changes_nothing(changes: dict[str, Any]) -> None:
    """The explicit path = the fused one, for a sentence pair, for a padded batch with beams, and in steps."""
    for seed in SEEDS:
        model = build(seed, **changes)
        src, tgt = sources(model, seed, len(LENGTHS), 5), ids(seed + 1, len(LENGTHS) * 2, T)
        with torch.no_grad():
            logits = model.decode(tgt[:1], model.encode(src[:1]))
            same(look(model, src[0].tolist(), tgt[0].tolist())["out.logits"], logits[0])

            memory = model.encode(src, padding(LENGTHS))
            fused = model.decode(tgt, repeat(memory, 2))
            seen = altering()
            state = model.start(model.encode(src, padding(LENGTHS), seen), seen)
            first, state = model.step(tgt[:, :2], state, seen)
            rest, state = model.step(tgt[:, 2:], state, seen)
        same(torch.cat([first, rest], dim=1), fused)


@EACH_CHOICE
def test_training_computes_the_same_and_its_gradients_are_those_of_the_formulas(changes: dict[str, Any]) -> None:
    """Every shortcut of the training pass, against the explicit path, for every weight."""
    model = build(dropout=0.0, **changes).train()
    src, tgt, mask = sources(model, 0, len(LENGTHS), 5), ids(1, len(LENGTHS), T), padding(LENGTHS)
    names, weights = zip(*model.named_parameters(), strict=True)
    pull = torch.randn(len(LENGTHS), T, 11, dtype=torch.float64)
    ours = model(src, tgt, mask)
    same(model.output(model.hidden(src, tgt, mask)), ours)
    gradients = torch.autograd.grad((ours * pull).sum(), weights)

    seen = altering()
    explicit = model.decode(tgt, model.encode(src, mask, seen), seen)
    same(ours, explicit)
    expected = torch.autograd.grad((explicit * pull).sum(), weights)
    for name, gradient, right in zip(names, gradients, expected, strict=True):
        same(gradient, right, 1e-10)
        # A bias of the keys alone moves all scores of a query alike, so it has no gradient: softmax takes it away.
        assert gradient.abs().max() > 1e-9, f"{name} is not used"
    with torch.no_grad():
        same(model.eval().decode(tgt, model.encode(src, mask)), ours)


@pytest.mark.parametrize("kind", ["dropout", "attention_dropout", "ff_dropout"])
def test_each_dropout_works_in_training_only(kind: str) -> None:
    torch.manual_seed(0)
    off: dict[str, Any] = {"dropout": 0.0, "attention_dropout": 0.0, "ff_dropout": 0.0}
    model, quiet = build(**{**off, kind: 0.3}), build(**off)
    src, tgt = ids(0, 2, 5), ids(1, 2, T)
    same(model(src, tgt), quiet(src, tgt))
    same(quiet.train()(src, tgt), quiet.eval()(src, tgt))
    model.train()
    draws = [model(src, tgt) for _ in range(2)]
    assert (draws[0] - draws[1]).abs().max() > 1e-3
    with torch.no_grad():
        assert (model(src, tgt) - model(src, tgt)).abs().max() > 1e-3
    torch.manual_seed(3)
    one = model(src, tgt)
    torch.manual_seed(3)
    assert torch.equal(one, model(src, tgt))
    model.eval()
    assert torch.equal(model(src, tgt), model(src, tgt))


def test_probabilities_sum_to_one() -> None:
    model = build()
    logits = model.decode(ids(0, 2, T), model.encode(ids(1, 2, 4)))
    same(logits.softmax(dim=-1).sum(dim=-1), torch.ones(2, T, dtype=torch.float64))
    same(look(model, [4, 5], [2, 6, 7])["out.probabilities"].sum(dim=-1), torch.ones(3, dtype=torch.float64))  # type: ignore[union-attr]


@EACH_CHOICE
@torch.no_grad()
def test_the_loss_of_one_pass_is_the_sum_over_the_steps(changes: dict[str, Any]) -> None:
    """Teacher forcing: all positions at once, where a decoder goes word by word."""
    model = build(**changes)
    src, sentence = sources(model, 0, 1, 4), [*ids(1, T).tolist(), EOS]
    read = torch.tensor([[model.start_id, *sentence[:-1]]])
    at_once = cross_entropy(model.hidden(src, read)[0], model.output.weight, model.output.bias, torch.tensor(sentence))
    state, steps = model.start(model.encode(src)), torch.zeros((), dtype=torch.float64)
    for token, right in zip(read[0], sentence, strict=True):
        logits, state = model.step(token.view(1, 1), state)
        steps -= logits[0, 0].log_softmax(dim=0)[right]
    same(at_once, steps)


def count(config: ModelConfig) -> int:
    """Count the weights by the paper's formulas."""
    d, ff = config.d_model, config.d_ff
    attention = 4 * d * d + (4 * d if config.attention_bias else 0)
    feed_forward = 2 * d * ff + ff + d if ff else 0
    norm = 2 * d if config.norm != "none" else 0
    encoder = attention + feed_forward + norm * (2 if ff else 1)
    decoder = 2 * attention + feed_forward + norm * (3 if ff else 2)
    tables = {
        "all": config.tgt_vocab,
        "target": config.src_vocab + config.tgt_vocab,
        "embeddings": 2 * config.tgt_vocab,
        "none": config.src_vocab + 2 * config.tgt_vocab,
    }[config.tie]
    places = 2 * config.max_positions if config.positions == "learned" else 0
    last = (4 * d if config.final_norm else 0) + (config.tgt_vocab if config.output_bias else 0)
    layers = config.n_encoder_layers * encoder + config.n_decoder_layers * decoder
    return layers + d * (tables + places) + last


def size(config: ModelConfig) -> int:
    with torch.device("meta"):
        return sum(parameter.numel() for parameter in Transformer(config).parameters())


@EACH_CHOICE
def test_as_many_weights_as_the_formula_says(changes: dict[str, Any]) -> None:
    assert size(settings(**changes)) == count(settings(**changes))


@pytest.mark.parametrize("name", PRESETS)
def test_presets_have_as_many_weights_as_the_formula_says(name: str) -> None:
    for vocab in (100, 37_000):
        assert size(preset(name, vocab)) == count(preset(name, vocab))


@pytest.mark.parametrize(("name", "weights"), [("base", 63_082_496), ("big", 214_245_376)])
def test_the_papers_models_have_their_exact_size(name: str, weights: int) -> None:
    """With the shared vocabulary of 37,000; the paper prints 65 and 213 million."""
    assert size(preset(name)) == size(preset(name, 37_000)) == weights


@pytest.mark.parametrize(
    ("tie", "source_is_target", "target_is_output"),
    [("all", True, True), ("target", False, True), ("embeddings", True, False), ("none", False, False)],
)
def test_tied_tables_are_one(tie: str, source_is_target: bool, target_is_output: bool) -> None:
    model = build(tie=tie)
    assert (model.src_embedding.table is model.tgt_embedding.table) == source_is_target
    assert (model.tgt_embedding.table is model.output.weight) == target_is_output
    assert model.src_embedding.table is not model.output.weight or tie == "all"


def test_encoder_layers_have_weights_of_their_own() -> None:
    model = build(tie="none", positions="learned")
    pointers = [parameter.data_ptr() for parameter in model.parameters()]
    assert len(set(pointers)) == len(pointers) == len(model.state_dict())


@pytest.mark.parametrize(("start", "token"), [("bos", BOS), ("eos", EOS), ("pad", PAD)])
def test_the_start_token_is_a_setting(start: str, token: int) -> None:
    assert build(start_token=start).start_id == token


def test_positions_are_limited() -> None:
    model = build(max_positions=6)
    state = model.start(model.encode(ids(0, 1, 6)))
    _, state = model.step(ids(0, 1, 5), state)
    _, state = model.step(ids(0, 1, 1), state)
    with pytest.raises(ValueError, match="position 7 is past the model's limit: max_positions=6"):
        model.step(ids(0, 1, 1), state)
    with pytest.raises(ValueError, match="max_positions=6"):
        model.encode(ids(0, 1, 7))


@EACH_CHOICE
def test_initialise_draws_every_weight_anew(changes: dict[str, Any]) -> None:
    used, fresh = build(dtype=torch.float32, **changes), Transformer(settings(**changes))
    for model in (used, fresh):
        torch.manual_seed(2)
        model.initialise()
    for (name, ours), theirs in zip(used.named_parameters(), fresh.parameters(), strict=True):
        assert torch.equal(ours, theirs), name


def test_initial_weights_have_the_sizes_that_the_docstring_says() -> None:
    torch.manual_seed(0)
    model = Transformer(settings(d_model=64, d_ff=128, src_vocab=500, tgt_vocab=500, tie="none", positions="learned"))
    for table in (model.src_embedding.table, model.tgt_embedding.table, model.output.weight):
        assert (table * 8).std().item() == pytest.approx(1, rel=0.05)
    for module in model.modules():
        if isinstance(module, MultiHeadAttention):
            bound = math.sqrt(6 / 128) / math.sqrt(2)
            assert 0.95 * bound < module.projection.weight.abs().max() <= bound
            assert 0.95 * bound * math.sqrt(2) < module.output.weight.abs().max() <= bound * math.sqrt(2)
        if isinstance(module, nn.Linear) and module.bias is not None:
            assert not module.bias.any()


@pytest.mark.parametrize("norm", ["post", "pre"])
def test_gradients_of_a_fresh_deep_model_neither_vanish_nor_explode(norm: str) -> None:
    """From the first to the last layer of the paper's depth: why post-norm trains from here."""
    torch.manual_seed(0)
    depth = {"n_encoder_layers": 6, "n_decoder_layers": 6, "d_model": 64, "n_heads": 4, "d_ff": 256}
    model = Transformer(settings(norm=norm, dropout=0.0, **depth)).double()
    F.cross_entropy(model(ids(0, 8, 12), ids(1, 8, 12)).flatten(0, 1), ids(2, 8 * 12)).backward()  # type: ignore[no-untyped-call]
    for stack in (model.encoder, model.decoder):
        norms = [
            sum(p.grad.square().sum().item() for p in layer.parameters() if p.grad is not None)
            for layer in stack.layers
        ]
        assert max(norms) / min(norms) < 1e3
        assert all(math.isfinite(n) and n > 0 for n in norms)
