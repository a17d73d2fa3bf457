"""Pages from templates: one palette and type for all, each page a single file that needs no network."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined, select_autoescape
from markdown_it import MarkdownIt
from markupsafe import Markup

from glassformer.data.pair import excerpt


def render(template: str, **values: object) -> str:
    """Fill a template of `report/templates`; values are escaped in HTML and taken as they are in Markdown."""
    return _environment().get_template(template).render(values)


def markdown(text: str) -> Markup:
    """Return Markdown as HTML; HTML in it is shown as text, and images, which would be fetched, become links."""
    renderer = MarkdownIt("commonmark", {"html": False}).enable("table").disable("image")
    return Markup(renderer.render(text))  # noqa: S704 - html is off, so the renderer escapes


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=FileSystemLoader(Path(__file__).with_name("templates")),
        autoescape=select_autoescape(("html.j2",), default=False),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    # `f` formats as Python does: {{ 1234.5 | f(",.2f") }}.
    environment.filters |= {"f": format, "excerpt": excerpt, "markdown": markdown}
    return environment
