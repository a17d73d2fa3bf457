"""The document of a translation (`glassformer-trace`, version 1): everything that the explainer shows, as JSON.

All tensors lie in one deflated array of float32. Each names its offset, its operation and its inputs, so that a reader
can recompute it.
"""

from __future__ import annotations

import base64
import hashlib
import math
import re
import zlib
from collections.abc import Sequence
from fnmatch import fnmatchcase
from typing import Any, Final, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from glassformer.errors import AddressError
from glassformer.evaluation.scores import measure
from glassformer.explainer.pieces import Cut, cut_words
from glassformer.explainer.recording import Node, Recording
from glassformer.explainer.source import operation_source, statement
from glassformer.model.operations import OPERATIONS
from glassformer.model.trace import Entry
from glassformer.model.transformer import Transformer
from glassformer.store.folder import About
from glassformer.text.tokenizer import Span, Tokenizer, Tokenizers
from glassformer.text.vocab import EOS, SPECIAL

Document = dict[str, Any]  # JSON

FORMAT: Final = "glassformer-trace"
VERSION: Final = 1

_N_TOP: Final = 20
_MOST_FLOATS: Final = 500_000  # 2.5 MB in the document; above, tensors that can be recomputed are left out
_LINEAR: Final = frozenset(("linear", "heads"))
_NEVER_KEPT: Final = frozenset(("out.log_probs", "out.probabilities"))
# Operations whose results are left out, step by step and cheapest first, until the rest is small enough. What remains
# after the last step cannot be recomputed: matrices and tables are not in the document.
_LEFT_OUT: Final = (
    frozenset[str](),
    frozenset(("concat", "mask", "scale")),
    frozenset(("add", "concat", "gelu", "mask", "normalise", "relu", "scale", "silu")),
    frozenset(OPERATIONS) - _LINEAR - {"gather", "given", "rows"},
)
_HIDDEN: Final = frozenset(("weight", "bias", "table", "value", "dtype"))  # constants that are left out
_WORD: Final = re.compile(r"\S+")


class EngineText(NamedTuple):
    """The text that `translate` gives with its engine."""

    name: str
    text: str


class Subject(NamedTuple):
    """A translation to explain: model, texts and recording."""

    model: Transformer
    tokenizers: Tokenizers
    about: About
    name: str
    text: str
    recording: Recording
    reference: str | None = None
    engine: EngineText | None = None

    @property
    def written(self) -> list[int]:
        """Return the tokens of the translation, without the end mark."""
        tokens = self.recording.tokens
        return tokens[:-1] if tokens[-1] == EOS else tokens

    @property
    def translation(self) -> str:
        """Return the text of the translation."""
        return self.tokenizers.tgt.decode(self.written)


def make_document(subject: Subject, with_weights: Sequence[str] = (), most_floats: int = _MOST_FLOATS) -> Document:
    """Return the document, with the weights of linear layers that match `with_weights` (such as `enc.0.self.*`).

    If tensors have more than `most_floats` numbers, those that can be recomputed are left out.
    """
    for pattern in with_weights:
        if not any(_matches(entry, pattern) for entry in subject.recording.trace.entries.values()):
            raise AddressError(f"with_weights: no linear layer matches {pattern!r}; an example is enc.0.self.q")
    sizes = ((left_out, _count(subject, left_out)) for left_out in _LEFT_OUT)
    left_out = next((left_out for left_out, size in sizes if size <= most_floats), _LEFT_OUT[-1])
    blob, tensors, weights = _tensors(subject, with_weights, left_out)
    names = _names(subject.tokenizers.tgt, range(subject.model.config.tgt_vocab))
    document: Document = {
        "format": FORMAT,
        "version": VERSION,
        "model": _model(subject),
        "run": _run(subject),
        "tokens": _tokens(subject),
        "pieces": _pieces(subject),
        "steps": _steps(subject, names),
        "beam": [_node(node, names) for node in subject.recording.tree.nodes],
        "vocabulary": names,
        "operations": {
            name: operation_source(name)._asdict()
            for name in sorted({entry.operation for entry in subject.recording.trace.entries.values()})
        },
        "tensors": tensors,
    }
    if with_weights:
        document["weights"] = weights
    document["blob"] = {"dtype": "f32", "encoding": "base64+deflate-raw", "n_floats": blob.size, "data": blob.encode()}
    return document


class _Blob:
    """A growing array of float32."""

    def __init__(self) -> None:
        self.size = 0
        self._parts: list[bytes] = []

    def add(self, numbers: Tensor) -> int:
        """Append numbers and return their offset."""
        array: NDArray[np.float32] = numbers.detach().cpu().to(torch.float32).contiguous().numpy()
        self._parts.append(array.astype("<f4", copy=False).tobytes())
        self.size += array.size
        return self.size - array.size

    def encode(self) -> str:
        """Return the array, deflated, in base64."""
        deflate = zlib.compressobj(6, zlib.DEFLATED, -15)
        return base64.b64encode(deflate.compress(b"".join(self._parts)) + deflate.flush()).decode("ascii")


def _is_left_out(entry: Entry, left_out: frozenset[str]) -> bool:
    return entry.address in _NEVER_KEPT or entry.operation in left_out


def _count(subject: Subject, left_out: frozenset[str]) -> int:
    entries = subject.recording.trace.entries.values()
    return sum(entry.value.numel() for entry in entries if not _is_left_out(entry, left_out))


def _tensors(
    subject: Subject, patterns: Sequence[str], left_out: frozenset[str]
) -> tuple[_Blob, list[Document], Document]:
    blob, tensors, weights = _Blob(), list[Document](), Document()
    for entry in subject.recording.trace.entries.values():
        is_derived = _is_left_out(entry, left_out)
        tensors.append(
            {
                "name": entry.address,
                "shape": list(entry.shape),
                "axes": list(entry.axes),
                "op": entry.operation,
                "in": list(entry.inputs),
                "constants": _constants(entry, subject, blob),
                "off": None if is_derived else blob.add(entry.value),
                "code": entry.code,
                "line": statement(entry.code),
                "check": _check(entry, blob) if entry.operation in _LINEAR else None,
                "stats": _stats(entry.value),
                "derived": is_derived,
            }
        )
        if any(_matches(entry, pattern) for pattern in patterns):
            matrix, bias = entry.constants["weight"], entry.constants.get("bias")
            weights[entry.address] = {
                "shape": list(matrix.shape),
                "off": blob.add(matrix),
                "bias_off": None if bias is None else blob.add(bias),
            }
    return blob, tensors, weights


def _matches(entry: Entry, pattern: str) -> bool:
    return entry.operation in _LINEAR and fnmatchcase(entry.address, pattern)


def _constants(entry: Entry, subject: Subject, blob: _Blob) -> Document:
    said: Document = {}
    for name, value in entry.constants.items():
        if name in _HIDDEN:
            continue
        if name == "allowed":
            rows = value.reshape(-1, value.shape[-1]).tolist()
            said[name] = ["".join("01"[cell] for cell in row) for row in rows]
        elif isinstance(value, Tensor):
            said[name] = _array(value, blob)
        else:
            said[name] = value
    if entry.inputs and entry.inputs[0].endswith(".concat"):
        joined = subject.recording.trace.entries[entry.inputs[0]].value
        said["head_norms"] = _array(_head_norms(entry, joined, subject.model.config.n_heads), blob)
    return said


def _head_norms(entry: Entry, joined: Tensor, n_heads: int) -> Tensor:
    """Return the norm (T, H) of each head's contribution to the output of W_O."""
    split = joined[0].view(len(joined[0]), n_heads, -1)  # (T, H, K)
    weight: Tensor = entry.constants["weight"]
    lengths: Tensor = torch.einsum("thk,dhk->thd", split, weight.view(len(weight), n_heads, -1)).norm(dim=-1)
    return lengths


def _array(value: Tensor, blob: _Blob) -> Document:
    return {"off": blob.add(value), "shape": list(value.shape)}


def _check(entry: Entry, blob: _Blob) -> Document:
    """Project onto random signs r: (W x + b).r = x.(W^T r) + b.r, which can be checked without W."""
    weight, bias = entry.constants["weight"].double(), entry.constants.get("bias")
    seed = zlib.crc32(entry.address.encode())
    signs = torch.randint(0, 2, (weight.size(0),), generator=torch.Generator().manual_seed(seed))
    r = (2 * signs - 1).to(weight)
    return {
        "r": "".join("-+"[sign] for sign in signs.tolist()),
        "in": blob.add(r @ weight),
        "bias": 0.0 if bias is None else (bias.double() @ r).item(),
    }


def _stats(value: Tensor) -> list[float]:
    """Return minimum, maximum, mean and standard deviation of the finite numbers."""
    finite = value[value.isfinite()].double()
    if not finite.numel():
        return [0.0, 0.0, 0.0, 0.0]
    return [one.item() for one in (finite.min(), finite.max(), finite.mean(), finite.std(correction=0))]


def _model(subject: Subject) -> Document:
    model, about = subject.model, subject.about
    digest = hashlib.sha256()
    for name, parameter in model.named_parameters():
        digest.update(name.encode())
        digest.update(parameter.detach().cpu().contiguous().view(torch.uint8).numpy().tobytes())
    return {
        "name": subject.name,
        "sha256": digest.hexdigest(),
        "config": model.config.model_dump(mode="json"),
        "src_lang": about.src_lang,
        "tgt_lang": about.tgt_lang,
        "n_parameters": sum(parameter.numel() for parameter in model.parameters()),
        "alignment": None if about.alignment is None else about.alignment.model_dump(),
    }


def _run(subject: Subject) -> Document:
    recording, translation = subject.recording, subject.translation
    tree = recording.tree
    shown, engine = tree.nodes[recording.node], subject.engine
    scores = None if subject.reference is None else measure([translation], [subject.reference])
    return {
        "src": subject.text,
        "tgt": translation,
        "reference": subject.reference,
        "reference_scores": scores and {name: scores[name].value for name in ("BLEU", "chrF")},
        "decode": recording.search.model_dump(mode="json"),
        "ended": shown.token == EOS,
        "score": shown.score,
        "log_prob": shown.total,
        "node": recording.node,
        "winner": tree.winner,
        "engine": None if engine is None else {**engine._asdict(), "same": engine.text == translation},
        "forced": [list(pair) for pair in sorted(recording.forced.items())],
    }


def _tokens(subject: Subject) -> Document:
    recording, (src, tgt) = subject.recording, subject.tokenizers
    spans = [*src.spans(subject.text), None]
    written = [subject.model.start_id, *recording.tokens]
    tgt_spans: list[Span | None] = [None, *tgt.decode_spans(subject.written)]
    tgt_spans += [None] * (len(written) - len(tgt_spans))
    return {
        "src": _side(src, recording.src, spans, subject.text),
        "tgt": _side(tgt, written, tgt_spans, subject.translation),
    }


def _side(tokenizer: Tokenizer, ids: Sequence[int], spans: Sequence[Span | None], text: str) -> list[Document]:
    words = [word.span() for word in _WORD.finditer(text)]
    side = []
    for token, piece, span in zip(ids, _names(tokenizer, ids), spans, strict=True):
        inside = [] if span is None else [n for n, word in enumerate(words) if span[0] < word[1] and span[1] > word[0]]
        said: Document = {"id": token, "piece": piece, "span": span if span is None else list(span)}
        side.append({**said, "word": inside[0] if inside else None, "mark": token in SPECIAL.values()})
    return side


def _names(tokenizer: Tokenizer, ids: Sequence[int]) -> list[str]:
    """Return names of ids; a model may have more of them than its vocabulary."""
    size = tokenizer.vocab_size
    return [tokenizer.pieces([token])[0] if token < size else f"<{token}>" for token in ids]


def _pieces(subject: Subject) -> Document:
    kind, words = cut_words(subject.tokenizers.src, subject.text)
    if kind == "bpe":
        merges = [{"text": word.text, "states": [merge._asdict() for merge in word.merges]} for word in words]
        return {"kind": kind, "src": merges}
    said: list[Document] = []
    for word in words:
        assert word.best is not None, "a unigram model has a best path"
        second, score = (None, None) if word.second is None else (_cut(word.second), word.second.score)
        best: Document = {"text": word.text, "best": _cut(word.best), "score": word.best.score}
        said.append({**best, "second": second, "second_score": score})
    return {"kind": kind, "src": said}


def _cut(cut: Cut) -> list[Document]:
    return [{"piece": piece, "id": token, "score": score} for piece, token, score in cut.pieces]


def _steps(subject: Subject, names: Sequence[str]) -> list[Document]:
    recording = subject.recording
    logits = recording.trace.entry("out.logits").value[0].double()  # (T, V)
    log_probs = logits.log_softmax(dim=-1)
    steps = []
    for node, row, row_log_probs in zip(recording.tree.path(recording.node), logits, log_probs, strict=True):
        best = row.topk(min(_N_TOP, len(row))).indices.tolist()
        top = [{"id": i, "piece": names[i], "logit": row[i].item(), "logp": row_log_probs[i].item()} for i in best]
        probabilities = row_log_probs.exp()
        steps.append(
            {
                "t": node.step,
                "node": node.number,
                "chosen": node.token,
                "logp": row_log_probs[node.token].item(),
                "top": top,
                "lse": row.logsumexp(dim=0).item(),
                "tail": max(0.0, 1.0 - probabilities[best].sum().item()),
                "entropy": -(probabilities * row_log_probs).sum().item(),
            }
        )
    return steps


def _node(node: Node, names: Sequence[str]) -> Document:
    return {
        "n": node.number,
        "parent": node.parent,
        "t": node.step,
        "id": node.token,
        "piece": names[node.token],
        "logp": node.log_prob,
        "total": node.total,
        "length": node.length,
        "penalty": node.penalty,
        "score": node.score,
        "state": node.state,
        "rank": node.rank,
        "lost_by": node.lost_by if node.lost_by is None or math.isfinite(node.lost_by) else None,
        "cut": node.is_cut_off,
    }
