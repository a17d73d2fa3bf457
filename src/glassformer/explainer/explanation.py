"""An explanation: a translation with every number on the way to it, for Python, notebooks, files and the terminal."""

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
from glassformer.errors import AddressError
from glassformer.explainer.cell import Cell, explain_cell, follow
from glassformer.explainer.document import Document, EngineText, Subject, make_document
from glassformer.explainer.page import page_html
from glassformer.explainer.recording import record
from glassformer.files import write_text
from glassformer.model.trace import Trace, look
from glassformer.model.transformer import Transformer
from glassformer.store.folder import About
from glassformer.text.tokenizer import Tokenizers

_NODE: Final = re.compile(r"@n(\d+)/(.*)", re.DOTALL)


@dataclass(frozen=True, eq=False)
class Explanation:
    """A translation, its beam and all tensors of its winner; `@n7/` in front of an address means beam node 7."""

    subject: Subject

    def __repr__(self) -> str:
        return f"<Explanation of {self.subject.text!r}: {self.text!r}>"

    @property
    def text(self) -> str:
        """The translation."""
        return self.subject.translation

    @property
    def trace(self) -> Trace:
        """Every tensor of the pass, by address."""
        return self.subject.recording.trace

    def at_node(self, number: int) -> Explanation:
        """Give the same for another node of the beam: the tensors of its own tokens."""
        recording, model = self.subject.recording, self.subject.model
        tokens = recording.tree.tokens(number)
        if not tokens:
            raise AddressError("node 0 is the start mark, before which there is nothing to look at")
        trace = look(model, recording.src, [model.start_id, *tokens[:-1]])
        return Explanation(self.subject._replace(recording=recording._replace(node=number, trace=trace), engine=None))

    def cell(self, address: str) -> Cell:
        """Take one number apart."""
        there, address = self._find(address)
        return explain_cell(there.trace, address)

    def follow(self, address: str, depth: int) -> list[Cell]:
        """Take one number apart, then what it mostly comes from, and so on, `depth` times."""
        there, address = self._find(address)
        return follow(there.trace, address, depth)

    def tensor(self, address: str) -> NDArray[Any]:
        """Give a tensor, a row or a number."""
        there, address = self._find(address)
        found = there.trace[address]
        return np.asarray(found if isinstance(found, float | int) else found.cpu().numpy())

    def document(self, with_weights: Sequence[str] = ()) -> Document:
        """Write all of it down as JSON; see docs/explainer.md."""
        return make_document(self.subject, with_weights)

    def to_json(self, path: str | Path, with_weights: Sequence[str] = ()) -> None:
        """Write the document into a file."""
        write_text(path, json.dumps(self.document(with_weights), ensure_ascii=False, allow_nan=False))

    def to_html(self, path: str | Path, with_weights: Sequence[str] = ()) -> None:
        """Write the page into one file that needs nothing else."""
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
    model: Transformer,
    tokenizers: Tokenizers,
    text: str,
    search: SearchConfig,
    *,
    about: About | None = None,
    name: str = "",
    reference: str | None = None,
    forced: Mapping[int, int] | None = None,
    node: int | None = None,
    engine: EngineText | None = None,
) -> Explanation:
    """Translate a text as one sentence and keep every number; `forced` are tokens by step."""
    about = about or About()
    text, reference = _readable(text), None if reference is None else _readable(reference)
    recording = record(model, tokenizers.src.encode(text), search, forced, node)
    name = name or "-".join(filter(None, (about.src_lang, about.tgt_lang))) or "model"
    return Explanation(Subject(model, tokenizers, about, name, text, recording, reference, engine))


def _readable(text: str) -> str:
    """Put U+FFFD for a lone surrogate, as the tokenizer does: it is no character, and no file could hold it."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
