"""Read translation memories (TMX 1.x) unit by unit in constant memory.

By expat rather than `ElementTree.iterparse`, which has no line numbers and cannot refuse a document type.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple
from xml.parsers import expat

from glassformer.data.lines import MAX_LINE, UNREADABLE, Watch, explain_unreadable, no_watch, open_bytes
from glassformer.errors import DataError

_CHUNK: Final = 1 << 16
_CODES: Final = frozenset({"bpt", "ept", "it", "ph", "ut"})  # their content is the markup of another program
_UTF8: Final = frozenset({"utf-8", "utf8", "us-ascii", "ascii"})


class Unit(NamedTuple):
    """One `<tu>`: a text in each of the two languages, where it has them."""

    line: int  # of its start tag
    src: str | None
    tgt: str | None
    n_codes: int  # inline elements that were left out
    n_spare: int  # further texts in the two languages, ignored
    is_too_long: bool


def closeness(code: str, wanted: str) -> int:
    """Return how well a language code matches: 2 equal, 1 only one of the two has a region, 0 not at all."""
    code, wanted = code.replace("_", "-").casefold(), wanted.replace("_", "-").casefold()
    if code == wanted:
        return 2
    return int(code.startswith(f"{wanted}-") or wanted.startswith(f"{code}-"))


def read_units(path: Path, src_lang: str, tgt_lang: str, watch: Watch = no_watch) -> Iterator[Unit]:
    """Yield the units of a translation memory.

    Raise a DataError that names the line of broken XML, or of a document type with declarations, since entities can
    expand a small file to fill the memory.
    """
    document = _Document(path, src_lang, tgt_lang)
    n_fed = 0
    try:
        with open_bytes(path, watch) as stream:
            while chunk := stream.read(_CHUNK):
                document.parser.Parse(chunk, False)
                n_fed += len(chunk)
                if n_fed - document.parser.CurrentByteIndex > 4 * MAX_LINE:
                    raise document.error("unterminated tag or comment")
                yield from document.take()
            document.parser.Parse(b"", True)
            yield from document.take()
    except expat.ExpatError as error:
        reason = expat.ErrorString(error.code)
        raise DataError(f"{path}:{error.lineno}: broken XML: {reason}; repair the file") from None
    except UNREADABLE as error:
        raise DataError(explain_unreadable(error, path, document.parser.CurrentLineNumber)) from error


class _Document:
    """Collects the events of the parser into units."""

    def __init__(self, path: Path, src_lang: str, tgt_lang: str) -> None:
        self._path = path
        self._wanted = (src_lang, tgt_lang)
        self._done: list[Unit] = []
        self._depth = 0
        self._tu_line = 0  # 0 outside a unit
        self._lang: str | None = None  # of the variant; None outside one
        self._parts: list[str] | None = None  # of the segment; None outside one
        self._n_code_levels = 0
        self._begin_unit(0)
        # The encoding is fixed; a declaration of another one is an error.
        self.parser = expat.ParserCreate("utf-8")
        self.parser.buffer_text = True
        self.parser.XmlDeclHandler = self._declaration
        self.parser.StartDoctypeDeclHandler = self._document_type
        self.parser.EntityDeclHandler = self._entity
        self.parser.SkippedEntityHandler = self._unknown_entity
        self.parser.StartElementHandler = self._start
        self.parser.EndElementHandler = self._end
        self.parser.CharacterDataHandler = self._characters

    def take(self) -> list[Unit]:
        """Return the units that are complete, and forget them."""
        done, self._done = self._done, []
        return done

    def error(self, reason: str) -> DataError:
        """Return an error at the current line."""
        return DataError(f"{self._path}:{self.parser.CurrentLineNumber}: {reason}")

    def _declaration(self, version: str, encoding: str | None, standalone: int) -> None:
        if encoding is not None and encoding.casefold() not in _UTF8:
            raise self.error(f"declared as {encoding!r}, but UTF-8 is required: convert the file and its first line")

    def _document_type(self, name: str, system_id: str | None, public_id: str | None, has_subset: bool) -> None:
        if has_subset:  # a mere reference to tmx14.dtd is common, and is ignored
            raise self.error("declarations inside <!DOCTYPE ...> are not allowed: remove the part in [ ]")

    def _entity(self, *declaration: object) -> None:
        raise self.error("entity declarations are not allowed")

    def _unknown_entity(self, name: str, is_parameter: bool) -> None:
        raise self.error(f"unknown entity &{name}; write the character itself")

    def _begin_unit(self, line: int) -> None:
        self._tu_line = line
        self._texts: list[str | None] = [None, None]
        self._closeness = [0, 0]
        self._n_codes = self._n_spare = 0
        self._is_too_long = False

    def _start(self, name: str, attributes: dict[str, str]) -> None:
        self._depth += 1
        if self._depth == 1 and name != "tmx":
            raise self.error(f"not a TMX file: the root element is <{name}>")
        if self._parts is not None:
            if name in ("tu", "tuv", "seg"):
                raise self.error(f"<{name}> inside <seg>")
            if name in _CODES or self._n_code_levels:
                self._n_codes += self._n_code_levels == 0
                self._n_code_levels += 1
        elif name == "tu":
            if self._tu_line:
                raise self.error("<tu> inside <tu>")
            self._begin_unit(self.parser.CurrentLineNumber)
        elif name == "tuv":
            if not self._tu_line or self._lang is not None:
                raise self.error("<tuv> that is not directly inside a <tu>")
            self._lang = attributes.get("xml:lang") or attributes.get("lang") or ""
        elif name == "seg":
            if self._lang is None:
                raise self.error("<seg> that is not inside a <tuv>")
            self._parts = []
            self._length = 0

    def _end(self, name: str) -> None:
        self._depth -= 1
        if self._n_code_levels:
            self._n_code_levels -= 1
        elif name == "seg":
            assert self._parts is not None
            self._keep("".join(self._parts))
            self._parts = None
        elif name == "tuv":
            self._lang = None
        elif name == "tu":
            src, tgt = self._texts
            self._done.append(Unit(self._tu_line, src, tgt, self._n_codes, self._n_spare, self._is_too_long))
            self._tu_line = 0

    def _keep(self, text: str) -> None:
        """Assign a segment to the side whose language it matches best; the first of equal matches wins."""
        assert self._lang is not None
        ranks = [closeness(self._lang, wanted) for wanted in self._wanted]
        if not any(ranks):
            return
        side = ranks.index(max(ranks))
        self._n_spare += self._texts[side] is not None
        if ranks[side] > self._closeness[side]:
            self._texts[side] = text
            self._closeness[side] = ranks[side]

    def _characters(self, text: str) -> None:
        if self._parts is None or self._n_code_levels or self._is_too_long:
            return
        self._parts.append(text)
        self._length += len(text)
        self._is_too_long = self._length > MAX_LINE
