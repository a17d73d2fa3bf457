"""The demo: the model that ships, what it looked at, and the page that it leaves behind."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from glassformer.cli import app
from glassformer.report.demo import JANE, SENTENCES, _activation, looked_at, run_demo
from glassformer.translate.translator import Translator


@pytest.fixture(scope="module")
def translator() -> Iterator[Translator]:
    with Translator.load(engine="torch") as loaded:
        yield loaded


def test_demo_translates_the_notes_and_writes_the_page(
    translator: Translator, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page = tmp_path / "page.html"
    run_demo(translator, page)
    said = capsys.readouterr().out
    for text in translator.translate(list(SENTENCES)):
        assert text in said
    assert "Jane visits Africa in September." in said
    assert "I am a student." in said or "I'm a student." in said
    assert said.count("confidence ") == len(SENTENCES)
    assert str(page) in said.replace("\n", "")
    assert translator.translate(SENTENCES[0]) in page.read_text(encoding="utf-8")


def test_demo_takes_sentences_until_an_empty_line(
    translator: Translator, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = iter(["Merci.", "Bonjour. Merci.", "", "not reached"])
    run_demo(translator, tmp_path / "page.html", lambda: next(asked))
    said = capsys.readouterr().out
    assert said.count("confidence ") == len(SENTENCES) + 2
    assert "not reached" not in said
    assert next(asked) == "not reached"


def test_demo_ends_with_the_input(translator: Translator, tmp_path: Path) -> None:
    def end() -> str:
        raise EOFError

    run_demo(translator, tmp_path / "page.html", end)
    assert (tmp_path / "page.html").is_file()


def test_the_command_shows_it(tmp_path: Path) -> None:
    done = CliRunner().invoke(app, ["demo", "--html", str(tmp_path / "page.html")])
    assert done.exit_code == 0
    assert JANE in done.stdout
    assert (tmp_path / "page.html").exists()


def test_it_says_how_the_command_comes_onto_the_path(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    monkeypatch.setattr("shutil.which", lambda name: None)
    assert _activation() == ""
    (tmp_path / "activate").touch()
    assert "activate" in _activation()
    monkeypatch.setattr("shutil.which", lambda name: name)
    assert _activation() == ""


def test_each_word_has_a_row_and_looks_at_its_own(translator: Translator) -> None:
    found = translator.results(JANE, attention=True, token_probabilities=True)
    header, *rows = looked_at(found).plain.splitlines()
    assert header.split() == found.src.split()
    assert [row.split()[0] for row in rows] == found.text.split()
    column = header.index("l'Afrique")
    assert max(rows, key=lambda row: "·░▒▓█".index(row[column])).startswith("Africa")


@pytest.mark.parametrize("width", [40, 60, 100])
def test_the_picture_fits(translator: Translator, width: int) -> None:
    found = translator.results(
        "Il a anticonstitutionnellement mangé six pommes hier.", attention=True, token_probabilities=True
    )
    assert max(map(len, looked_at(found, width).plain.splitlines())) <= width
