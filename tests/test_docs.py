"""The site: built strictly from `docs/`, complete, true to the code, and asking no network for anything."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from html import unescape
from html.parser import HTMLParser
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

import griffe
import pytest

import glassformer
import glassformer.trace
from docs.fields import FieldTables
from docs.hooks import settings
from glassformer.config import CorpusConfig, ModelConfig, Settings
from glassformer.notes import NOTES
from glassformer.store.folder import About
from glassformer.training.recipe import Recipe
from tests.explainer.browser import Visitor, launch, needs_browser
from tests.test_readme import ROOT, blocks

DOCS: Final = ROOT / "docs"
PAGES: Final = (
    *("index", "notes", "explainer", "data", "training", "translation", "evaluation", "distributed"),
    *("architecture", "reference", "experiments", "performance"),
)
NOT_RUN: Final = "# not run by the tests: "  # and why
COMMAND: Final = re.compile(r"^\s*(?:\$ |(?:glassformer|make|pip|python3?|torchrun|export) )", re.MULTILINE)
FETCHED: Final = {"img": "src", "script": "src", "link": "href", "iframe": "src", "source": "src", "video": "src"}
FAR_STYLE: Final = re.compile(r"url\(\s*[\"']?(?:https?:)?//|@import")


def build(folder: Path, *options: str | Path) -> subprocess.CompletedProcess[str]:
    """Build the site of a folder with a `mkdocs.yml`, as `make docs` does."""
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", *options]
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    answer = build(ROOT, "--site-dir", folder)
    assert answer.returncode == 0, answer.stderr
    return folder


class Reader(HTMLParser):
    """Writes down what a page fetches, where it links to and which places it has."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.fetched: list[str] = []
        self.links: list[str] = []
        self.places: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = {name: value for name, value in attrs if value is not None}
        self.places |= {values["id"]} if "id" in values else set()
        if tag == "a" and "href" in values:
            self.links.append(values["href"])
        if tag in FETCHED and FETCHED[tag] in values:
            self.fetched.append(values[FETCHED[tag]])


def far(address: str) -> bool:
    """Whether an address is on another machine."""
    parts = urlsplit(address)
    return bool(parts.netloc) or parts.scheme not in ("", "data")


def test_every_page_is_there_and_in_the_navigation(site: Path) -> None:
    assert {path.stem for path in DOCS.glob("*.md")} == set(PAGES)
    listed = Reader((site / "index.html").read_text(encoding="utf-8")).links
    for page in PAGES:
        assert f"{page}.html" in listed
        assert (site / f"{page}.html").exists()
    assert list(site.rglob("*.py*")) == []


def test_no_page_asks_a_network_for_anything(site: Path) -> None:
    for path in site.rglob("*.html"):
        text = path.read_text(encoding="utf-8")
        assert [address for address in Reader(text).fetched if far(address)] == []
        assert FAR_STYLE.search(text) is None
        assert 'class="mermaid"' not in text  # the theme would fetch what draws it
    for path in site.rglob("*.css"):
        assert FAR_STYLE.search(path.read_text(encoding="utf-8")) is None


def test_the_check_knows_a_far_address() -> None:
    assert far("https://example.org/a.js")
    assert far("//example.org/a.js")
    assert not far("assets/a.js")
    assert Reader('<script src="https://example.org/a.js"></script>').fetched == ["https://example.org/a.js"]
    assert FAR_STYLE.search("src: url('https://example.org/a.woff')")


@needs_browser
def test_search_works_from_disk(site: Path) -> None:
    with launch() as browser:
        visitor = Visitor(browser.new_page(), site)
        visitor.page.goto((site / "index.html").as_uri())
        visitor.page.click(".md-search__input")
        visitor.page.keyboard.type("slip")
        found = visitor.page.wait_for_selector("a.md-search-result__link[href*='notes.html']", timeout=20_000)
        assert found is not None
        assert [address for address in visitor.requests if not address.startswith("file:")] == []
        assert visitor.faults == []


def test_the_notes_are_those_of_the_code(site: Path) -> None:
    text = (site / "notes.html").read_text(encoding="utf-8")
    shown = unescape(re.sub(r"<[^>]+>", "", text))
    assert {f"row-{number}" for number in NOTES} <= Reader(text).places
    assert "{{" not in shown
    shown = " ".join(shown.split())
    for number, note in NOTES.items():
        assert note.title in shown
        for part in () if number == 21 else note.parts():  # 21 measures anew
            if isinstance(part, str):
                prose = (block for block in part.split("\n\n") if not block.startswith(("|", "    ", ">")))
                assert all(plain(block) in shown for block in prose)
                assert all(plain(line) in shown for line in part.splitlines() if line.startswith(("    ", ">")))


def plain(markdown: str) -> str:
    """Take the marks out of Markdown."""
    return " ".join(re.sub(r"^>|[`*]", "", markdown, flags=re.MULTILINE).split())


def test_the_reference_has_every_public_name(site: Path) -> None:
    places = Reader((site / "reference.html").read_text(encoding="utf-8")).places
    for module in (glassformer, glassformer.trace):
        assert [name for name in module.__all__ if f"{module.__name__}.{name}" not in places] == []


def test_the_reference_has_settings_and_fields(site: Path) -> None:
    text = (site / "reference.html").read_text(encoding="utf-8")
    shown = re.sub(r"<[^>]+>", "", text)
    assert "source vocabulary size" in shown  # of a setting's description
    assert "number of translations to return; widens the beam if necessary" in shown
    assert "False: cut off by the length limit" in shown  # of a comment behind a field
    assert "<!-- settings" not in text


def test_settings_are_listed_with_what_they_may_be() -> None:
    listed = settings(ModelConfig).splitlines()
    assert len(listed) == 2 + len(ModelConfig.model_fields)
    assert "| `n_heads` | `int` | `8` | number of attention heads; must divide d\\_model |" in listed
    meaning = "position of layer norm: after or before each sublayer, or none"
    assert f"| `norm` | `'post'`, `'pre'`, `'none'` | `'post'` | {meaning} |" in listed


@pytest.mark.parametrize("cls", [Recipe, CorpusConfig, About])
def test_settings_that_are_listed_by_hand_are_those_of_the_code(cls: type[Settings]) -> None:
    """Classes outside `glassformer.config`, or with settings that have no default."""
    text = (DOCS / "reference.md").read_text(encoding="utf-8")
    part = text.partition(f".{cls.__name__}\n")[2].partition("\n::: ")[0]
    listed = dict(re.findall(r"^\| `(\w+)` \| (.+ \|) *$", part, re.MULTILINE))
    described = {name: field for name, field in cls.model_fields.items() if field.description}
    assert list(listed) == list(described)
    for row, (name, field) in zip(listed.values(), described.items(), strict=True):
        made = settings(cls).splitlines()[2 + list(cls.model_fields).index(name)]
        default = "" if field.is_required() else "`{}`" if field.default_factory else f"`{field.default!r}`"
        kind, meaning = made.split(" | ")[1:-2], made.rpartition(" | ")[2]
        assert row == " | ".join([*kind, default, meaning])
    for name in cls.model_fields.keys() - described.keys():  # sections, which have their own tables
        assert f"[`{name}`](#" in part


def test_fields_are_listed_with_their_comments(tmp_path: Path) -> None:
    code = 'class A:\n    """It."""\n    a: int  # one\n    b: str | None = None\n    _c: int\n    d = 1\n'
    (tmp_path / "m.py").write_text(code, encoding="utf-8")
    read = griffe.load("m", search_paths=[tmp_path], extensions=griffe.Extensions(FieldTables()))
    docstring = read["A"].docstring
    assert docstring.value.splitlines()[-2:] == ["| `a` | `int` | one |", "| `b` | `str | None` |  |"]


def test_every_recipe_is_in_the_table() -> None:
    text = (DOCS / "training.md").read_text(encoding="utf-8")
    listed = re.findall(r"^\| `([\w/-]+\.toml)` \|", text, re.MULTILINE)
    folder = ROOT / "recipes"
    assert {str(path.relative_to(folder)) for path in folder.rglob("*.toml")} <= set(listed)


def is_silent(code: str) -> bool:
    """Whether a block holds commands that no test runs, without saying so."""
    return bool(COMMAND.search(code)) and not (code.startswith(NOT_RUN) and code.split("\n")[0] != NOT_RUN)


@pytest.mark.parametrize("page", PAGES)
def test_a_block_that_is_not_run_says_so(page: str) -> None:
    """`test_readme` runs every block that has a language; of the others, only drawings need not say why not."""
    found = blocks((DOCS / f"{page}.md").read_text(encoding="utf-8"))
    assert [block.code for block in found if not block.language and is_silent(block.code)] == []


def test_the_check_knows_a_command_that_is_not_run() -> None:
    assert is_silent("glassformer train mine.toml\n")
    assert is_silent(f"{NOT_RUN}\nglassformer train mine.toml\n")
    assert not is_silent(f"{NOT_RUN}it needs a corpus\nglassformer train mine.toml\n")
    assert not is_silent("q, k --> scores\n")


def test_links_that_lead_nowhere_end_the_build(tmp_path: Path) -> None:
    """The settings of the site, on one bad page."""
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "index.md").write_text("# A\n[1](b.md) [2](#c) [3](/d) [4](e/f)\n", encoding="utf-8")
    (tmp_path / "docs" / "g.md").write_text("# G\n", encoding="utf-8")
    changes = f"INHERIT: {ROOT / 'mkdocs.yml'}\nnav: [index.md]\nhooks: []\nplugins: []\nextra_css: []\n"
    (tmp_path / "mkdocs.yml").write_text(changes, encoding="utf-8")
    answer = build(tmp_path)
    assert answer.returncode == 1
    for named in ("'b.md'", "'#c'", "'/d'", "'e/f'", "g.md"):
        assert named in answer.stderr
