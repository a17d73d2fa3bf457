"""The explainer's page: static files for the browser, served as they are or joined into one file with a document."""

from __future__ import annotations

import json
import re
from functools import cache
from importlib.resources import files
from typing import Final

from glassformer.explainer.document import Document
from glassformer.explainer.stations import stations_json

_STATIC: Final = files("glassformer.explainer").joinpath("static")
_STYLE: Final = re.compile(r'<link rel="stylesheet" href="([\w.-]+)">')
_PRELOAD: Final = re.compile(r'\s*<link rel="modulepreload" href="([\w.-]+)">')
_MODULE: Final = re.compile(r'<script type="module" src="([\w.-]+)"></script>')
_IMPORT: Final = re.compile(r"^import [^;]*;\n", re.MULTILINE)
_EXPORT: Final = re.compile(r"^export ", re.MULTILINE)
_MARGIN: Final = re.compile(r"^\s*(?://.*\n\s*)*", re.MULTILINE)  # indents and comments of code
_LITERAL: Final = re.compile(r"""(`.*`|'(?:\\.|[^'\\])*'|"(?:\\.|[^"\\])*")""")  # strings stay on one line
_SPACE: Final = re.compile(r" ?([=<>!&|?:,(){}\[\];]) ?")  # around punctuation of code
_BLANKS: Final = re.compile(r"\s*([{};,>])\s*|(?<=:) ")  # spaces of a stylesheet
_POLICY: Final = (
    "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data: blob:; base-uri 'none'"
)


def page_html(document: Document) -> str:
    """Return the page, its styles, its modules and a document as one file that opens from disk.

    Modules are joined in the order of the index, which is that of their dependencies. Their names are unique, so
    imports and exports can be dropped.
    """
    index = _index()
    names = [*_PRELOAD.findall(index), *_MODULE.findall(index)]
    joined = "\n".join(_module(name) for name in dict.fromkeys(names))
    assert "</script" not in joined.lower(), "a module would end its own script element"
    page = _STYLE.sub(
        lambda match: f"<style>\n{_BLANKS.sub(lambda m: m[1] or '', _text(match[1])).replace(';}', '}')}</style>",
        _PRELOAD.sub("", index),
    )
    page = _MODULE.sub(lambda match: f'<script type="module">\n{joined}</script>', page)
    page = page.replace("<head>", f'<head>\n<meta http-equiv="Content-Security-Policy" content="{_POLICY}">', 1)
    return _fill(page, "trace", document)


def live_index() -> str:
    """Return the index for the live server, marked so that the page knows it can ask for translations."""
    return _index().replace("<html lang", "<html data-live lang", 1)


@cache
def static_names() -> frozenset[str]:
    """Return the names of the page's files."""
    return frozenset(file.name for file in _STATIC.iterdir() if file.is_file())


def static_file(name: str) -> bytes:
    """Read one of the page's files."""
    return _STATIC.joinpath(name).read_bytes()


def _index() -> str:
    return _fill(_text("index.html"), "stations", json.loads(stations_json()))


def _module(name: str) -> str:
    """Return a module without imports, exports, comments and the spaces that only people need."""
    code = _MARGIN.sub("", _EXPORT.sub("", _IMPORT.sub("", _text(name))))
    return "".join(map(_compact, code.splitlines()))


def _compact(line: str) -> str:
    """Drop spaces around punctuation; a slash may begin a comment or a pattern, so its line stays as it is."""
    if "/" in line:
        return f"{line}\n"
    parts = _LITERAL.split(line)
    short = "".join(part if number % 2 else _SPACE.sub(r"\1", part) for number, part in enumerate(parts))
    return short if short.endswith(("(", "[", "{", ",", ";")) else f"{short}\n"


def _text(name: str) -> str:
    return static_file(name).decode("utf-8")


def _fill(page: str, name: str, content: Document) -> str:
    """Put JSON into the element of that id; an escaped `<` keeps it from ending the element."""
    slot = f'<script type="application/json" id="{name}">'
    written = json.dumps(content, ensure_ascii=False, allow_nan=False, separators=(",", ":")).replace("<", "\\u003c")
    return page.replace(slot, slot + written, 1)
