"""A trace: every tensor under its address, and each one computed again from those that it names as its inputs.

S source length, T target length, D model width, H heads, K head width, V vocabulary.
"""

from __future__ import annotations

import ast
import functools
import importlib
import inspect
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from glassformer.errors import AddressError, ConfigError
from glassformer.model.operations import OPERATIONS
from glassformer.model.trace import Address, Entry, Trace, look, replace, scale, skip, zero
from glassformer.model.transformer import Transformer
from tests.arithmetic import ARITHMETIC, as_array
from tests.models import EACH_CHOICE, VOCAB, build, same

SRC, TGT = [4, 5, 6, 4, 1], [2, 7, 3]  # as many as no other axis has
S, T, D, H, K, F = len(SRC), len(TGT), 8, 2, 4, 12


def seen(model: Transformer, *interventions: Any) -> Trace:
    return look(model, SRC, TGT, interventions)


def tensor(trace: Trace, address: str) -> Tensor:
    found = trace[address]
    assert isinstance(found, Tensor)
    return found


def attention(rows: str, keys: str) -> dict[str, tuple[str, ...]]:
    matrix = ("head", f"{rows}_q", f"{keys}_k")
    return {
        "q": ("head", rows, "head_channel"),
        "k": ("head", keys, "head_channel"),
        "v": ("head", keys, "head_channel"),
        "scores": matrix,
        "scaled": matrix,
        "masked": matrix,
        "weights": matrix,
        "context": ("head", rows, "head_channel"),
        "concat": (rows, "channel"),
        "output": (rows, "channel"),
    }


def norm(rows: str) -> dict[str, tuple[str, ...]]:
    wide, single = (rows, "channel"), (rows, "one")
    return {"mean": single, "variance": single, "normalised": wide, "output": wide}


def expected(model: Transformer) -> dict[str, tuple[str, ...]]:
    """List every address that there must be, with its axes."""
    config, found = model.config, dict[str, tuple[str, ...]]()

    def put(prefix: str, part: dict[str, tuple[str, ...]]) -> None:
        found.update({f"{prefix}.{name}": axes for name, axes in part.items()})

    for side, rows, n_layers in (("enc", "src", config.n_encoder_layers), ("dec", "tgt", config.n_decoder_layers)):
        wide = (rows, "channel")
        put(side, {"ids": (rows,), "row": wide, "embedding": wide})
        if config.positions not in ("rotary", "none"):
            put(side, {"position": wide, "sum": wide})
        for layer in range(n_layers):
            here = f"{side}.{layer}"
            parts = [("self", attention(rows, rows))]
            if config.positions == "rotary":
                put(f"{here}.self", dict.fromkeys(("rotated_q", "rotated_k"), ("head", rows, "head_channel")))
            parts += [("cross", attention("tgt", "src"))] if side == "dec" else []
            parts += (
                [("ff", {"hidden": (rows, "hidden"), "active": (rows, "hidden"), "output": wide})]
                if config.d_ff
                else []
            )
            for number, (name, part) in enumerate(parts, start=1):
                put(f"{here}.{name}", part)
                put(f"{here}.add{number}", {"sum": wide})
                if config.norm != "none":
                    put(f"{here}.norm{number}", norm(rows))
        if config.final_norm:
            put(f"{side}.norm", norm(rows))
    put("out", dict.fromkeys(("logits", "log_probs", "probabilities"), ("tgt", "vocab")))
    return found


@EACH_CHOICE
def test_every_tensor_has_its_address_axes_and_shape(changes: dict[str, Any]) -> None:
    model = build(**changes)
    trace = seen(model)
    assert {address: entry.axes for address, entry in trace.entries.items()} == expected(model)
    heads = model.config.n_heads
    sizes = {"src": S, "src_q": S, "src_k": S, "tgt": T, "tgt_q": T, "tgt_k": T, "one": 1, "channel": D, "hidden": F}
    sizes |= {"head": heads, "head_channel": D // heads, "vocab": VOCAB}
    for address, entry in trace.entries.items():
        assert entry.address == address
        assert entry.shape == tuple(sizes[axis] for axis in entry.axes)
        assert entry.value.size(0) == 1


def recomputed(trace: Trace, entry: Entry) -> Any:
    inputs = [as_array(trace.entries[name].value) for name in entry.inputs]
    return ARITHMETIC[entry.operation](*inputs, **{name: as_array(value) for name, value in entry.constants.items()})


@EACH_CHOICE
def test_every_tensor_follows_from_its_inputs(changes: dict[str, Any]) -> None:
    """By an arithmetic of our own and by the trace's; inputs come earlier, and everything ends in the outputs."""
    trace = seen(build(**changes))
    earlier: set[str] = set()
    used: set[str] = set()
    for address, entry in trace.entries.items():
        assert set(entry.inputs) <= earlier, address
        np.testing.assert_allclose(as_array(entry.value), recomputed(trace, entry), atol=1e-12, rtol=0, err_msg=address)
        assert torch.equal(trace.recompute(address), entry.value)
        earlier.add(address)
        used.update(entry.inputs)
    assert earlier - used == {"out.log_probs", "out.probabilities"}


@pytest.mark.parametrize(
    "change",
    [
        zero("enc.1.self.h1.context"),
        zero("*.position"),
        skip("*.scaled"),
        skip("dec.*.self.masked"),
        scale("dec.0.cross.h0.scores", 3.0),
        replace("enc.0.ff.active[2,5]", 7.0),
        replace("enc.0.norm1.mean", torch.arange(5.0).view(5, 1)),
    ],
    ids=lambda change: f"{change.verb} {change.pattern}",
)
def test_after_an_intervention_the_graph_is_still_complete(change: Any) -> None:
    """Where nothing was changed the arithmetic holds; where something was, the trace says what and can repeat it."""
    trace = seen(build(), change)
    changed = {address for address, entry in trace.entries.items() if entry.interventions}
    assert changed == {address for address in trace if change.matches(address)} != set()
    for address, entry in trace.entries.items():
        assert torch.equal(trace.recompute(address), entry.value)
        if address in changed:
            assert entry.interventions == (change,)
        else:
            np.testing.assert_allclose(
                as_array(entry.value), recomputed(trace, entry), atol=1e-12, rtol=0, err_msg=address
            )


@functools.cache
def calls(module_name: str) -> list[ast.Call]:
    path = inspect.getsourcefile(importlib.import_module(module_name))
    assert path is not None
    return [node for node in ast.walk(ast.parse(Path(path).read_text(encoding="utf-8"))) if isinstance(node, ast.Call)]


@pytest.mark.parametrize(
    "changes",
    [{}, {"norm": "pre", "final_norm": True}, {"positions": "learned"}, {"positions": "rotary"}, {"output_bias": True}],
    ids=str,
)
def test_every_tensor_names_the_line_that_asked_for_it(changes: dict[str, Any]) -> None:
    """There a call begins that gives the tensor's name, or a name that it was given, and then its operation."""
    for address, entry in seen(build(**changes)).entries.items():
        module_name, line = entry.code.rsplit(":", 1)
        assert module_name.startswith("glassformer.model.")
        here = [call for call in calls(module_name) if call.lineno == int(line) and len(call.args) >= 2]
        names, operations = ([ast.unparse(call.args[i]) for call in here] for i in (0, 1))
        name = address.rsplit(".", 1)[-1]
        assert repr(name) in names or (name in ("q", "k", "v", "rotated_q", "rotated_k") and "name" in names), (
            f"{address} at {entry.code}"
        )
        assert entry.operation in operations or "OPERATIONS[self.activation]" in operations, (
            f"{address} at {entry.code}"
        )


def test_numbers_rows_heads_and_tensors() -> None:
    trace = seen(build())
    weights = tensor(trace, "enc.1.self.weights")
    assert weights.shape == (H, S, S)
    assert torch.equal(tensor(trace, "enc.1.self.h1.weights"), weights[1])
    assert torch.equal(tensor(trace, "enc.1.self.weights[1]"), weights[1])
    assert torch.equal(tensor(trace, "enc.1.self.h1.weights[2]"), weights[1, 2])
    number = trace["enc.1.self.h1.weights[2,3]"]
    assert isinstance(number, float)
    assert (
        number
        == weights[1, 2, 3].item()
        == trace["enc.1.self.weights[1,2,3]"]
        == trace[" enc.1.self.weights[ 1, 2,3 ] "]
    )
    assert trace["enc.1.self.h1.weights[-1,-1]"] == weights[1, -1, -1].item()
    assert trace["enc.ids[1]"] == SRC[1]
    assert torch.equal(tensor(trace, "dec.ids"), torch.tensor(TGT))
    assert isinstance(trace["enc.0.norm1.mean[2,0]"], float)


def test_a_trace_is_a_mapping_in_order() -> None:
    trace = seen(build())
    assert len(trace) == len(list(trace)) == len(trace.entries)
    assert next(iter(trace)) == "enc.ids"
    assert list(trace)[-1] == "out.probabilities"
    assert "enc.1.self.h1.weights[2,3]" in trace
    assert "enc.9.self.weights" not in trace
    assert "enc.1.self.h9.weights" not in trace
    assert trace.get("enc.1.self.wieghts") is None


@pytest.mark.parametrize(
    ("address", "said"),
    [
        ("enc.1.self.wieghts", "there is no tensor enc.1.self.wieghts; did you mean enc.1.self.weights?"),
        ("enc.7.self.weights", "did you mean enc."),
        ("out.logit", "did you mean out.logits?"),
        ("zzz", "there is no tensor zzz; iterate over a Trace for its addresses, such as enc.0.self.weights"),
        ("", "'' is not an address; expected something like enc.1.self.h3.weights[2,5]"),
        ("enc.1.self.weights[", "is not an address"),
        ("enc.1.self.weights[a]", "is not an address"),
        ("enc 1", "is not an address"),
        ("enc.1.self.weights[1,,2]", "the index in brackets must be integers separated by commas"),
        ("enc.1.self.weights[-]", "the index in brackets must be integers separated by commas"),
        ("enc.1.self.weights[ ]", "the index in brackets must be integers separated by commas"),
        ("enc.1.self.weights[0,5]", "enc.1.self.weights has size 5 along src_q (0 to 4); 5 is out of range"),
        ("enc.1.self.weights[0,0,-6]", "enc.1.self.weights has size 5 along src_k (0 to 4); -6 is out of range"),
        ("enc.1.self.h2.weights", "enc.1.self.weights has size 2 along head (0 to 1); 2 is out of range"),
        (
            "enc.1.self.weights[0,0,0,0]",
            "enc.1.self.weights has the axes head, src_q, src_k, so 4 indices are too many",
        ),
        ("enc.1.self.h0.weights[0,0,0]", "so 4 indices are too many"),
        ("enc.1.self.h0.output", "enc.1.self.output has no heads: its axes are src, channel"),
        ("enc.ids[0,0]", "enc.ids has the axes src, so 2 indices are too many"),
    ],
)
def test_a_wrong_address_is_told_what_is_right(address: str, said: str) -> None:
    with pytest.raises(AddressError) as caught:
        seen(build())[address]
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


def test_an_address_taken_apart() -> None:
    assert Address.parse("enc.1.self.h3.weights[2,5]") == Address("enc.1.self.weights", 3, (2, 5))
    assert Address.parse("out.logits[4]") == Address("out.logits", None, (4,))
    assert Address.parse("enc.0.norm1.mean") == Address("enc.0.norm1.mean", None, ())


def test_what_the_trace_shows_is_what_the_paper_says() -> None:
    trace = seen(build())
    same(tensor(trace, "enc.embedding"), tensor(trace, "enc.row") * D**0.5)
    same(tensor(trace, "enc.sum"), tensor(trace, "enc.embedding") + tensor(trace, "enc.position"))
    same(tensor(trace, "dec.0.cross.scaled"), tensor(trace, "dec.0.cross.scores") / K**0.5)
    future = torch.ones(T, T).triu(1).bool()
    assert (tensor(trace, "dec.1.self.weights")[:, future] == 0).all()
    assert (tensor(trace, "dec.1.self.masked")[:, future] == -torch.inf).all()
    assert tensor(trace, "enc.1.self.masked").isfinite().all()
    for address in ("enc.0.self.weights", "dec.0.self.weights", "dec.1.cross.weights", "out.probabilities"):
        rows = tensor(trace, address).sum(dim=-1)
        same(rows, torch.ones_like(rows))
    same(tensor(trace, "enc.0.add1.sum"), tensor(trace, "enc.sum") + tensor(trace, "enc.0.self.output"))
    same(tensor(trace, "out.log_probs").exp(), tensor(trace, "out.probabilities"))
    for layer in range(2):  # keys and values of the source come from the encoder's last layer
        assert trace.entry(f"dec.{layer}.cross.k").inputs == ("enc.1.norm2.output",)


def test_looking_leaves_nothing_behind() -> None:
    model = build()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    attributes = {name: sorted(vars(module)) for name, module in model.named_modules()}
    first, second = seen(model), seen(model)
    assert attributes == {name: sorted(vars(module)) for name, module in model.named_modules()}
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert all(torch.equal(first.entries[address].value, second.entries[address].value) for address in first)
    assert not any(entry.value.requires_grad for entry in first.entries.values())


def test_every_operation_is_used_by_some_model() -> None:
    models = [build(positions=positions) for positions in ("interleaved", "learned", "rotary")]
    models += [build(activation="gelu"), build(activation="silu")]
    assert {entry.operation for model in models for entry in seen(model).entries.values()} == OPERATIONS.keys()


@pytest.mark.parametrize(
    ("src", "complaint"),
    [
        ([5, 1000], r"src\[1\] is 1000; ids of this vocabulary are 0 to"),
        ([5, -1], r"src\[1\] is -1"),
        ([], "src must be one sequence of ids"),
        ("bonjour", "src must be one sequence of ids"),
        ([[5, 6]], "src must be one sequence of ids"),
        ([0.5], "src must be one sequence of ids"),
        ([5] * 2000, "the model reads at most"),
    ],
)
def test_ids_that_a_model_cannot_read(src: Any, complaint: str) -> None:
    with pytest.raises(ConfigError, match=complaint):
        look(build(), src, [2, 5])
    with pytest.raises(ConfigError, match="interventions must be a list"):
        look(build(), [5], [2, 5], zero("enc.sum"))  # type: ignore[arg-type]
    with pytest.raises(AddressError, match="0 is not an address"):
        look(build(), [5], [2, 5])[0]  # type: ignore[index]


def test_a_trace_says_in_a_line_what_it_is() -> None:
    assert len(repr(look(build(), [5], [2, 5]))) < 100


def test_a_model_in_training_is_looked_at_without_its_noise() -> None:
    model = build(dropout=0.5, attention_dropout=0.5, ff_dropout=0.5)
    quiet, noisy = seen(model), seen(model.train())
    same(tensor(noisy, "out.logits"), tensor(quiet, "out.logits"))
