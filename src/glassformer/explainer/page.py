"""The explainer's page: static files that a browser runs, served as they are or put into one file with a document."""

from __future__ import annotations

import json
import re
from functools import cache
from importlib.resources import files
from typing import Final

from glassformer.explainer.document import Document

_INDEX: Final = "index.html"
_STYLE: Final = re.compile(r'<link rel="stylesheet" href="([\w.-]+)">')
_PRELOAD: Final = re.compile(r'\s*<link rel="modulepreload" href="([\w.-]+)">')
_MODULE: Final = re.compile(r'<script type="module" src="([\w.-]+)"></script>')
_SLOT: Final = re.compile(r'(<script type="application/json" id="trace">)(</script>)')
_IMPORT: Final = re.compile(r"^import .*;\n", re.MULTILINE)
_EXPORT: Final = re.compile(r"^export ", re.MULTILINE)
_MARGIN: Final = re.compile(r"^\s*(?://.*\n\s*)*", re.MULTILINE)  # of code: what people need and browsers do not
_BLANKS: Final = re.compile(r"\s*([{};,>])\s*|(?<=:) ")  # of a stylesheet
_POLICY: Final = (
    "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data: blob:; base-uri 'none'"
)


def page_html(document: Document) -> str:
    """Put the page, its styles, its modules and a document into one file that opens from disk.

    Modules are joined in the order of the index, which is that of dependency: their names are unique, so their
    imports and exports can go.
    """
    index = _text(_INDEX)
    names = [*_PRELOAD.findall(index), *_MODULE.findall(index)]
    joined = "\n".join(_MARGIN.sub("", _EXPORT.sub("", _IMPORT.sub("", _text(name)))) for name in dict.fromkeys(names))
    assert "</script" not in joined.lower(), "a module would end its own script element"
    page = _STYLE.sub(
        lambda match: f"<style>\n{_BLANKS.sub(lambda m: m[1] or '', _text(match[1])).replace(';}', '}')}</style>",
        _PRELOAD.sub("", index),
    )
    page = _MODULE.sub(lambda match: f'<script type="module">\n{joined}</script>', page)
    page = page.replace("<head>", f'<head>\n<meta http-equiv="Content-Security-Policy" content="{_POLICY}">', 1)
    return _SLOT.sub(lambda match: match[1] + _as_element(document) + match[2], page)


def live_index() -> str:
    """Give the index as the live server serves it: told that there is somebody to ask."""
    return _text(_INDEX).replace("<html lang", "<html data-live lang", 1)


@cache
def static_names() -> frozenset[str]:
    """Name the files that the page is made of."""
    return frozenset(
        file.name for file in files("glassformer.explainer").joinpath("static").iterdir() if file.is_file()
    )


def static_file(name: str) -> bytes:
    """Read a file of the page."""
    return files("glassformer.explainer").joinpath("static", name).read_bytes()


def _text(name: str) -> str:
    return static_file(name).decode("utf-8")


def _as_element(document: Document) -> str:
    """Write JSON so that nothing in it can end the element it stands in."""
    return json.dumps(document, ensure_ascii=False, allow_nan=False).replace("<", "\\u003c")
