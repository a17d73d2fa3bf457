"""An explanation: a translation with every number computed on the way, for Python, notebooks, files and terminal."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from glassformer.config import SearchConfig
from glassformer.explainer.cell import Cell, explain_cell, follow
from glassformer.explainer.document import Document, EngineText, Subject, make_document
from glassformer.explainer.page import page_html
from glassformer.explainer.recording import record, trace_node
from glassformer.files import write_text
from glassformer.model.trace import Trace
from glassformer.text.tokenizer import Tokenizer
from glassformer.translate.translator import Translator

_NODE: Final = re.compile(r"@n(\d+)/(.*)", re.DOTALL)


@dataclass(frozen=True, eq=False)
class Explanation:
    """A translation, its beam and all tensors of the winner; an address that begins with `@n7/` is of beam node 7."""

    subject: Subject

    def __repr__(self) -> str:
        return f"<Explanation of {self.subject.text!r}: {self.text!r}>"

    @property
    def text(self) -> str:
        """Return the translation."""
        return self.subject.translation

    @property
    def trace(self) -> Trace:
        """Return every tensor of the pass, by address."""
        return self.subject.recording.trace

    def at_node(self, number: int) -> Explanation:
        """Return the explanation of another node of the beam, with the tensors of its own tokens."""
        recording = self.subject.recording
        trace = trace_node(self.subject.model, recording.src, recording.tree, number)
        return Explanation(self.subject._replace(recording=recording._replace(node=number, trace=trace), engine=None))

    def cell(self, address: str) -> Cell:
        """Return how one number was computed."""
        there, address = self._find(address)
        return explain_cell(there.trace, address)

    def follow(self, address: str, depth: int) -> list[Cell]:
        """Return how one number was computed, then the operand that contributed most, and so on, `depth` times."""
        there, address = self._find(address)
        return follow(there.trace, address, depth)

    def tensor(self, address: str) -> NDArray[Any]:
        """Return a tensor, a row or a number."""
        there, address = self._find(address)
        found = there.trace[address]
        return np.asarray(found if isinstance(found, float | int) else found.cpu().numpy())

    def document(self, with_weights: Sequence[str] = ()) -> Document:
        """Return everything as JSON (see docs/explainer.md), with the weights of layers that match `with_weights`."""
        return make_document(self.subject, with_weights)

    def to_json(self, path: str | Path, with_weights: Sequence[str] = ()) -> None:
        """Write the document to a file."""
        write_text(path, json.dumps(self.document(with_weights), ensure_ascii=False, allow_nan=False))

    def to_html(self, path: str | Path, with_weights: Sequence[str] = ()) -> None:
        """Write the page as one self-contained file."""
        write_text(path, page_html(self.document(with_weights)))

    def _repr_html_(self) -> str:
        page = escape(page_html(self.document()), quote=True)
        return f'<iframe srcdoc="{page}" style="width:100%;height:48rem;border:0" title="glassformer explain"></iframe>'

    def _find(self, address: str) -> tuple[Explanation, str]:
        match = _NODE.fullmatch(address.strip())
        if match is None:
            return self, address
        return self.at_node(int(match[1])), match[2]


def explain(
    translator: Translator,
    text: str,
    *,
    search: SearchConfig | None = None,
    reference: str | None = None,
    forced: Mapping[int, str | int] | None = None,
    node: int | None = None,
    name: str = "",
) -> Explanation:
    """Translate a text as one sentence with the translator's own model, and keep every number.

    `forced` maps steps to what must come there: a word, whose pieces take one step each, or the id of a token. `node`
    is a node of the beam to look at instead of the winner. `name` is how the page calls the model.
    """
    model, tokenizers, about = translator.model, translator.tokenizers, translator.about
    search = search or translator.search
    engine = None
    if not forced and node is None:  # a translation that the engine would make, too
        engine = EngineText(translator.engine_for(search), translator.translate(text, search=search))
    text, reference = _readable(translator.read(text)), None if reference is None else _readable(reference)
    recording = record(model, tokenizers.src.encode(text), search, _tokens(forced or {}, tokenizers.tgt), node)
    name = name or "-".join(filter(None, (about.src_lang, about.tgt_lang))) or "model"
    return Explanation(Subject(model, tokenizers, about, name, text, recording, reference, engine))


def _tokens(forced: Mapping[int, str | int], tokenizer: Tokenizer) -> dict[int, int]:
    """Return the forced token of each step."""
    pieces = {step: tokenizer.encode(word) if isinstance(word, str) else [word] for step, word in forced.items()}
    return {step + place: token for step, tokens in pieces.items() for place, token in enumerate(tokens)}


def _readable(text: str) -> str:
    """Replace lone surrogates by U+FFFD, as the tokenizer does, so that the text can be written to a file."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
