"""The recording: the tree is the search's own, the pass is the steps' own, and the document holds all of it."""

from __future__ import annotations

import ast
import base64
import json
import math
import zlib
from collections import Counter
from importlib import import_module
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from torch import Tensor

from glassformer.config import SearchConfig, TokenizerConfig
from glassformer.errors import AddressError, ConfigError
from glassformer.explainer.document import Document, EngineText, make_document
from glassformer.explainer.explanation import explain
from glassformer.explainer.pieces import cut_words
from glassformer.explainer.recording import ROOT, Recording, record
from glassformer.explainer.source import operation_source, statement
from glassformer.model.operations import OPERATIONS
from glassformer.model.transformer import Transformer
from glassformer.search.beam import beam_search
from glassformer.store.folder import About
from glassformer.text.tokenizer import Tokenizer
from glassformer.text.vocab import EOS, PAD
from glassformer.translate.engines.torch import TorchEngine
from glassformer.translate.translator import Translator
from tests.explainer.golden import SENTENCE, golden_document, golden_explanation, golden_translator
from tests.models import EACH_CHOICE, build, ids, same
from tests.translate.fakes import tokenizers

HOSTILE = [
    "",
    " ",
    "<script>alert(1)</script>",
    "\"'&<>",
    "שלום עולם",
    "👩‍👩‍👧 ok",
    "\u2028a\u0000b\t",
    "x" * 60,
    "a\ud800b",
]


def talker(seed: int, **changes: Any) -> Transformer:
    """Make a model that ends its sentences sooner or later."""
    model = build(seed, **{"output_bias": True, "tie": "none", **changes})
    assert model.output.bias is not None
    with torch.no_grad():
        model.output.bias[EOS] += 1.0
    return model


def recorded(seed: int = 0, forced: dict[int, int] | None = None, node: int | None = None, **search: Any) -> Recording:
    config = SearchConfig(**{"width": 3, "max_length": 7, **search})
    return record(talker(seed), ids(seed, 4).tolist(), config, forced, node)


def log_probs(model: Transformer, src: list[int], tokens: list[int]) -> Tensor:
    """Ask the model again, without cache or beam, for the log-probabilities of each of the tokens."""
    tgt = torch.tensor([[model.start_id, *tokens]])
    logits = model.decode(tgt[:, :-1], model.encode(torch.tensor([src])))[0]
    return logits.log_softmax(dim=-1)[range(len(tokens)), tokens]


@given(
    st.integers(0, 50),
    st.integers(1, 4),
    st.sampled_from([0.0, 0.6, 1.0]),
    st.sampled_from(["power", "gnmt"]),
    st.sampled_from([0, 2]),
    st.sampled_from(["first", "exact"]),
)
@settings(max_examples=25, deadline=None)
def test_the_winner_is_what_the_search_finds(
    seed: int, width: int, penalty: float, form: str, min_length: int, stop: str
) -> None:
    found = recorded(
        seed, width=width, length_penalty=penalty, penalty_form=form, min_length=min_length, stop=stop, max_length=6
    )
    model = talker(seed)
    start = torch.tensor([model.start_id])
    answer = beam_search(model.step, model.start(model.encode(torch.tensor([found.src]))), start, found.search)
    expected = [token for token in answer.tokens[0, 0].tolist() if token != PAD]
    winner = found.tree.nodes[found.tree.winner]
    assert found.tokens == expected
    assert (winner.total, winner.score) == pytest.approx((answer.log_probs[0, 0].item(), answer.scores[0, 0].item()))
    assert winner.is_cut_off == (not answer.ended[0, 0].item())


@pytest.mark.parametrize("seed", range(4))
def test_totals_of_all_nodes_are_the_models_own(seed: int) -> None:
    found, model = recorded(seed), talker(seed)
    for node in found.tree.nodes[1:]:
        own = log_probs(model, found.src, found.tree.tokens(node.number))
        assert node.total == pytest.approx(own.sum().item(), abs=1e-10)
        assert node.log_prob == pytest.approx(own[-1].item(), abs=1e-10)
        assert node.parent is not None
        assert node.total == pytest.approx(found.tree.nodes[node.parent].total + node.log_prob, abs=1e-12)


@pytest.mark.parametrize("seed", range(6))
def test_each_step_takes_the_best_and_says_by_how_much_the_others_lost(seed: int) -> None:
    tree = recorded(seed, width=2).tree
    by_step = {step: [node for node in tree.nodes if node.step == step] for step in {n.step for n in tree.nodes[1:]}}
    for nodes in by_step.values():
        assert [node.rank for node in nodes] == list(range(len(nodes)))
        assert [node.total for node in nodes] == sorted((node.total for node in nodes), reverse=True)
        kept = [node for node in nodes if node.state == "kept"]
        assert len(kept) <= 2 < len(nodes) <= 4
        for node in nodes:
            assert node.parent is not None
            assert tree.nodes[node.parent].state == "kept"
            assert (node.token == EOS) or node.state != "finished" or node.is_cut_off
            if node.state == "pruned":
                assert node.lost_by is not None
                assert node.lost_by >= 0
            if node.state == "pruned" and node.token != EOS and kept:
                assert node.lost_by == pytest.approx(kept[-1].total - node.total)
    winner = tree.nodes[tree.winner]
    states = Counter(node.state for node in tree.nodes)
    assert states["winner"] == 1
    assert states["pruned"] > 0
    for node in tree.nodes:
        if node.state == "finished":
            assert node.lost_by == pytest.approx(winner.score - node.score)
            assert winner.score >= node.score


@pytest.mark.parametrize("seed", range(3))
def test_the_pass_over_the_winner_is_what_the_steps_computed(seed: int) -> None:
    found, model = recorded(seed), talker(seed)
    state = model.start(model.encode(torch.tensor([found.src])))
    logits = found.trace.entry("out.logits").value[0]
    assert len(logits) == len(found.tokens)
    for row, token in zip(logits, [model.start_id, *found.tokens[:-1]], strict=True):
        step, state = model.step(torch.tensor([[token]]), state)
        same(step[0, 0], row, within=1e-10)


def test_another_node_shows_its_own_tokens() -> None:
    found = recorded(1)
    number = next(n.number for n in found.tree.nodes if n.state == "pruned" and n.step > 1)
    other = recorded(1, node=number)
    assert other.tree == found.tree
    rows = other.trace.entry("out.log_probs").value[0]
    own = rows[range(len(other.tokens)), other.tokens]
    assert own.sum().item() == pytest.approx(found.tree.nodes[number].total, abs=1e-10)
    for wrong in (ROOT, len(found.tree.nodes), -1):
        with pytest.raises(AddressError):
            recorded(1, node=wrong)


@pytest.mark.parametrize("step", [0, 1, 3])
def test_a_forced_token_comes_and_the_others_are_free(step: int) -> None:
    free = recorded(2, min_length=5)
    token = next(t for t in range(4, 11) if t != free.tokens[step])
    forced = recorded(2, forced={step: token}, min_length=5)
    assert forced.tokens[step] == token
    assert all(node.token == token for node in forced.tree.nodes if node.step == step)
    assert len({node.token for node in forced.tree.nodes if node.step == step + 1}) > 1
    if step:
        assert len({node.token for node in forced.tree.nodes if node.step == 0}) > 1


@pytest.mark.parametrize("wrong", [{99: 5}, {-1: 5}, {0: PAD}, {0: 11}], ids=str)
def test_what_cannot_be_forced_is_said(wrong: dict[int, int]) -> None:
    with pytest.raises(ConfigError, match="cannot be forced"):
        recorded(forced=wrong)


@pytest.mark.parametrize("wrong", [{"method": "sample"}, {"groups": 3}, {"coverage_penalty": 0.2}], ids=str)
def test_a_search_that_cannot_be_drawn_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=next(iter(wrong))):
        recorded(**wrong)


def test_a_sentence_longer_than_the_model_reads_is_refused() -> None:
    with pytest.raises(ConfigError, match="81 tokens"):
        record(talker(0), [5] * 80, SearchConfig())


def test_words_are_forced_piece_by_piece() -> None:
    tokenizer = tokenizers().tgt
    pieces = tokenizer.encode("chat")
    assert len(pieces) > 1
    found = golden_translator().explain(SENTENCE, forced={2: "chat"}).subject.recording
    assert found.forced == dict(zip(range(2, 9), pieces, strict=False))
    assert found.tokens[2 : 2 + len(pieces)] == pieces
    by_id = golden_translator().explain(SENTENCE, forced={2: pieces[0]}).subject.recording
    assert by_id.forced == {2: pieces[0]}


def floats(document: Document) -> NDArray[np.float32]:
    assert document["blob"]["encoding"] == "base64+deflate-raw"
    numbers = np.frombuffer(zlib.decompress(base64.b64decode(document["blob"]["data"]), -15), "<f4")
    assert numbers.size == document["blob"]["n_floats"]
    return numbers


def stored(document: Document, tensor: Document) -> NDArray[np.float32]:
    size = math.prod(tensor["shape"])
    return floats(document)[tensor["off"] : tensor["off"] + size].reshape(tensor["shape"])


def test_every_tensor_travels_or_can_be_computed() -> None:
    trace, document = golden_explanation().trace, golden_document()
    assert [tensor["name"] for tensor in document["tensors"]] == list(trace)
    seen: set[str] = set()
    for tensor in document["tensors"]:
        assert set(tensor["in"]) <= seen
        seen.add(tensor["name"])
        entry = trace.entries[tensor["name"]]
        assert tuple(tensor["shape"]) == entry.shape
        if tensor["derived"]:
            assert tensor["name"] in ("out.log_probs", "out.probabilities")
            assert tensor["off"] is None
        else:
            np.testing.assert_array_equal(stored(document, tensor), entry.value[0].numpy())


def test_a_large_document_drops_what_can_be_computed() -> None:
    subject = golden_explanation().subject
    sizes = [make_document(subject, most_floats=most)["blob"]["n_floats"] for most in (100_000, 8100, 6200, 10)]
    assert sizes == sorted(sizes, reverse=True)
    assert len(set(sizes)) == 4
    lean = make_document(subject, most_floats=10)
    assert {tensor["op"] for tensor in lean["tensors"] if not tensor["derived"]} == {
        "linear",
        "heads",
        "gather",
        "given",
    }
    for tensor in lean["tensors"]:
        assert tensor["derived"] == (tensor["off"] is None)


def rows_of(document: Document, tensor: Document) -> NDArray[np.float64]:
    """Give a tensor as rows over all its heads."""
    numbers = stored(document, tensor).astype(np.float64)
    return numbers.swapaxes(0, 1).reshape(tensor["shape"][1], -1) if tensor["axes"][0] == "head" else numbers


def projections(document: Document, tensor: Document) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Give for each row what the input says of the output's projection, and what the output says."""
    source = next(other for other in document["tensors"] if other["name"] == tensor["in"][0])
    x, y, check = rows_of(document, source), rows_of(document, tensor), tensor["check"]
    r = np.array([1.0 if sign == "+" else -1.0 for sign in check["r"]])
    back = floats(document)[check["in"] : check["in"] + x.shape[1]].astype(np.float64)
    return x @ back + check["bias"], y @ r


def test_linear_layers_can_be_checked_without_their_weights() -> None:
    document = golden_document()
    linear = [tensor for tensor in document["tensors"] if tensor["op"] in ("linear", "heads")]
    assert all((tensor["check"] is not None) == (tensor in linear) for tensor in document["tensors"])
    assert len(linear) == 4 + 2 + 4 + 4 + 2 + 1  # attention, feed-forward, and the words
    for tensor in linear:
        expected, found = projections(document, tensor)
        within = 1e-2 * tensor["stats"][3]  # a hundredth of the standard deviation must show
        assert np.abs(expected - found).max() < within / 20, tensor["name"]


def test_norms_of_the_heads_are_of_what_they_add() -> None:
    document, trace = golden_document(), golden_explanation().trace
    tensor = next(t for t in document["tensors"] if t["name"] == "dec.0.cross.output")
    shape, off = tensor["constants"]["head_norms"]["shape"], tensor["constants"]["head_norms"]["off"]
    norms = floats(document)[off : off + math.prod(shape)].reshape(shape)
    entry, context = trace.entry("dec.0.cross.output"), trace.entry("dec.0.cross.context").value[0]
    width = context.size(2)
    for head in range(2):
        part = context[head] @ entry.constants["weight"][:, head * width : (head + 1) * width].T
        np.testing.assert_allclose(norms[:, head], part.norm(dim=1).detach().numpy(), rtol=1e-5)


def test_weights_travel_if_they_are_asked_for() -> None:
    explanation = golden_explanation()
    document = explanation.document(with_weights=["enc.0.self.*", "out.logits"])
    assert set(document["weights"]) == {f"enc.0.self.{name}" for name in ("q", "k", "v", "output")} | {"out.logits"}
    for name, where in document["weights"].items():
        constants = explanation.trace.entry(name).constants
        matrix = floats(document)[where["off"] : where["off"] + math.prod(where["shape"])].reshape(where["shape"])
        np.testing.assert_array_equal(matrix, constants["weight"].detach().numpy())
        bias = floats(document)[where["bias_off"] : where["bias_off"] + where["shape"][0]]
        np.testing.assert_array_equal(bias, constants["bias"].detach().numpy())
    assert "weights" not in golden_document()
    with pytest.raises(AddressError, match="no linear layer"):
        explanation.document(with_weights=["enc.0.norm*"])


def test_steps_add_up() -> None:
    document = golden_document()
    written = document["tokens"]["tgt"]
    assert len(document["steps"]) == len(written) - 1
    for step, token in zip(document["steps"], written[1:], strict=True):
        assert step["chosen"] == token["id"]
        node = document["beam"][step["node"]]
        assert (node["t"], node["id"]) == (step["t"], token["id"])
        assert node["logp"] == pytest.approx(step["logp"], abs=1e-5)
        assert sum(math.exp(word["logp"]) for word in step["top"]) + step["tail"] == pytest.approx(1)
        for word in step["top"]:
            assert word["logit"] - step["lse"] == pytest.approx(word["logp"], abs=1e-9)
            assert document["vocabulary"][word["id"]] == word["piece"]
    assert document["run"]["log_prob"] == pytest.approx(sum(step["logp"] for step in document["steps"]), abs=1e-5)
    for node in document["beam"]:
        assert node["score"] == pytest.approx(node["total"] / node["penalty"])


def test_what_another_engine_says_is_compared() -> None:
    subject = golden_explanation().subject
    assert golden_document()["run"]["engine"] == {"name": "torch", "text": subject.translation, "same": True}
    other = make_document(subject._replace(engine=EngineText("other", "something else")))
    assert other["run"]["engine"]["same"] is False


@pytest.mark.parametrize("text", HOSTILE, ids=repr)
def test_any_text_can_be_written_down(text: str) -> None:
    document = golden_translator().explain(text, reference=text).document()
    written = json.dumps(document, ensure_ascii=False, allow_nan=False).encode()  # a lone surrogate is no character
    assert json.loads(written)["run"]["src"] == text.replace("\ud800", "\ufffd")
    source = document["tokens"]["src"]
    assert [token["id"] for token in source] == [*tokenizers().src.encode(text), EOS]
    assert source[-1]["mark"]
    for token in source[:-1]:
        assert 0 <= token["span"][0] <= token["span"][1] <= len(text)


@EACH_CHOICE
def test_every_model_can_be_written_down(changes: dict[str, Any]) -> None:
    """Also one that knows more ids than there are names."""
    model = build(0, torch.float32, **{**changes, "src_vocab": 320, "tgt_vocab": 320})
    with torch.no_grad():
        model.output.weight[310:] = 0
    forced: dict[int, str | int] = {0: 266, 2: 270, 3: 280}
    search = SearchConfig(width=2, max_length=4)
    translator = Translator(TorchEngine([model]), tokenizers(), About(), max_positions=80, search=search)
    document = explain(translator, SENTENCE, forced=forced).document()
    assert len(document["vocabulary"]) == 320
    json.dumps(document, allow_nan=False)


@given(st.text(max_size=30))
@settings(max_examples=40, deadline=None)
def test_words_are_cut_as_the_tokenizer_cuts(text: str) -> None:
    for kind, tokenizer in vocabularies().items():
        found, words = cut_words(tokenizer, text)
        assert found == kind
        if any(ord(letter) in (0, 0x2581) or 0xD800 <= ord(letter) < 0xE000 for letter in text):
            continue  # letters that the tokenizer treats apart
        expected = tokenizer.pieces(tokenizer.encode(text))
        if kind == "unigram":
            cut = [piece for word in words if word.best for piece, _, _ in word.best.pieces]
            assert cut == expected
            assert all(word.second is None or word.second.score <= word.best.score for word in words if word.best)
        else:
            last = [piece for word in words for piece in word.merges[-1].pieces]
            assert "".join(last) == "".join(word.text for word in words)
            known = {piece for piece in expected if not piece.startswith("<0x")}
            assert known <= set(last)


def vocabularies() -> dict[str, Tokenizer]:
    return {"unigram": tokenizers().src, "bpe": _BPE}


_BPE = Tokenizer.train(
    ["le chat mange la souris et le chien dort", "the cat eats the mouse"], TokenizerConfig(model="bpe", vocab_size=300)
)


def test_merges_go_one_by_one() -> None:
    _, words = cut_words(_BPE, "le chat")
    for word in words:
        assert word.merges[0].pieces == tuple(word.text)
        for before, after in pairwise(word.merges):
            assert after.merged is not None
            joined = before.pieces[after.merged] + before.pieces[after.merged + 1]
            assert after.pieces[after.merged] == joined
            assert len(after.pieces) == len(before.pieces) - 1


def test_the_code_that_is_shown_is_the_code_that_ran() -> None:
    """A line that moved or a call that changed its operation would show."""
    for tensor in golden_document()["tensors"]:
        module, _, line = tensor["code"].rpartition(":")
        source = Path(str(import_module(module).__file__)).read_text(encoding="utf-8").splitlines()
        assert source[int(line) - 1].strip() in tensor["line"]
        call = next(node for node in ast.walk(ast.parse(tensor["line"])) if isinstance(node, ast.Call))
        names = {node.id for node in ast.walk(call) if isinstance(node, ast.Name)}
        assert tensor["op"] in names or "OPERATIONS" in names


@pytest.mark.parametrize("name", OPERATIONS)
def test_formulas_are_read_from_the_operations(name: str) -> None:
    found = operation_source(name)
    module, _, line = found.code.rpartition(":")
    lines = Path(str(import_module(module).__file__)).read_text(encoding="utf-8").splitlines()
    first = found.source.splitlines()[0]
    assert lines[int(line) - 1].strip() == first
    assert found.source.splitlines()[-1].startswith("return ")
    assert found.says == str(OPERATIONS[name].__doc__).splitlines()[0]
    assert statement(found.code).splitlines()[0] == first


def test_faces_of_an_explanation(tmp_path: Path) -> None:
    explanation = golden_explanation()
    address = "dec.0.cross.h1.weights[2,3]"
    assert explanation.tensor("dec.0.cross.h1.weights").shape == (6, 9)
    assert explanation.tensor(address) == explanation.trace[address] == explanation.cell(address).result
    node = next(n.number for n in explanation.subject.recording.tree.nodes if n.state == "pruned" and n.step == 4)
    there = explanation.tensor(f"@n{node}/dec.0.cross.h1.weights")
    np.testing.assert_array_equal(there, explanation.at_node(node).tensor("dec.0.cross.h1.weights"))
    assert explanation.cell(f"@n{node}/out.logits[4,5]").result == explanation.at_node(node).trace["out.logits[4,5]"]
    explanation.to_json(tmp_path / "trace.json")
    assert json.loads((tmp_path / "trace.json").read_text(encoding="utf-8")) == json.loads(
        json.dumps(golden_document())
    )
