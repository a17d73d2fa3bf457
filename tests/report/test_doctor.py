"""`glassformer check`: the report in the terminal and on a page, the files it writes, and mistakes."""

from __future__ import annotations

import io
import json
import os
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import pytest
from rich.console import Console

from glassformer.config import CorpusConfig
from glassformer.data.checks import Kind
from glassformer.data.doctor import Diagnosis, examine
from glassformer.report.doctor import doctor_html, show_diagnosis

ENVIRONMENT = {**os.environ, "TERM": "dumb", "COLUMNS": "80"}
HOSTILE = "<script>alert('%s')</script> & \"quotes\" \x1b[31m \u202e"
LINES = [
    *(f"Le chat numéro {word} dort.\tCat {word} sleeps." for word in ("un", "deux", "trois", "quatre")),
    "Le chat numéro un dort.\tCat un sleeps.",
    f"{HOSTILE}\tplain text that has none of it",
    "no tab in this line",
]


def check(*words: str | Path, folder: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "glassformer", "check", *map(str, words)]
    return subprocess.run(command, cwd=folder, env=ENVIRONMENT, capture_output=True, text=True, check=False)


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    path = tmp_path / "a.tsv"
    path.write_text("".join(line + "\n" for line in LINES), encoding="utf-8", newline="\n")
    return path


@pytest.fixture
def diagnosis(corpus: Path) -> Diagnosis:
    return examine([CorpusConfig(path=corpus)])


class Reader(HTMLParser):
    """Holds that tags close in order, and gathers what there is to see and to fetch."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: set[str] = set()
        self.attributes: list[tuple[str, str]] = []
        self.text = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes += [(name, value or "") for name, value in attrs]
        if tag not in ("meta", "br"):
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        self.open.pop()

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


def read_page(page: str) -> Reader:
    reader = Reader()
    reader.feed(page)
    reader.close()
    assert reader.open == []
    return reader


def test_the_page_stands_alone(diagnosis: Diagnosis) -> None:
    page = doctor_html(diagnosis)
    reader = read_page(page)
    assert not reader.tags & {"script", "link", "img", "iframe", "object"}
    assert not [value for name, value in reader.attributes if name in ("src", "href") and not value.startswith("#")]
    assert not re.search(r"https?:|url\(|@import", page)
    assert len(page.encode()) < 100_000


def test_the_page_says_what_was_found(diagnosis: Diagnosis) -> None:
    reader = read_page(doctor_html(diagnosis))
    targets = {value for name, value in reader.attributes if name == "id"}
    links = {value.removeprefix("#") for name, value in reader.attributes if name == "href"}
    assert links == targets == {str(kind) for kind in diagnosis.examples}
    assert {Kind.DUPLICATE, Kind.CONTROL, Kind.MARKUP} <= diagnosis.examples.keys()
    assert "Not checked: overlap, swapped, wrong-language." in reader.text
    assert "no tab between source and target" in reader.text
    assert len([value for name, value in reader.attributes if value == "img"]) == 3


def test_text_from_the_corpus_stays_text(diagnosis: Diagnosis) -> None:
    page = doctor_html(diagnosis)
    assert "<script" not in page
    assert "\x1b" not in page
    assert "\u202e" not in page
    assert "<script>alert('%s')</script> & \"quotes\" \\x1b[31m" in read_page(page).text


def test_the_terminal_shows_everything_once(diagnosis: Diagnosis) -> None:
    file = io.StringIO()
    show_diagnosis(diagnosis, Console(width=80, file=file))
    text = file.getvalue()
    assert "6 pairs: 4 to keep, 2 to remove; 1 unreadable line\n" in text
    for kind in Kind:
        assert len(re.findall(rf"^{kind} .*{kind.meaning}", text, re.MULTILINE)) == 1
    assert "\x1b[31m" not in text
    assert max(map(len, text.splitlines())) <= 80


def test_data_on_stdout_and_the_rest_on_stderr(corpus: Path, tmp_path: Path) -> None:
    answer = check("a.tsv", folder=tmp_path)
    assert answer.returncode == 0
    assert answer.stdout.startswith("a.tsv\n6 pairs: 4 to keep, 2 to remove")
    assert "a.tsv:7: no tab in this line" in answer.stderr
    assert "rule: faulty lines are skipped and counted" in answer.stderr
    assert "rule: pairs with these findings are removed: duplicate, overlap, copy" in answer.stderr
    assert "overlap: not checked" in answer.stderr
    assert "\r" not in answer.stderr, "no progress bar in a log"


def test_it_does_not_wait_for_torch(corpus: Path) -> None:
    command = [sys.executable, "-X", "importtime", "-m", "glassformer", "check", str(corpus)]
    imported = subprocess.run(command, env=ENVIRONMENT, capture_output=True, text=True, check=True).stderr
    names = {line.rpartition("|")[2].strip().split(".")[0] for line in imported.splitlines()}
    assert "numpy" in names
    assert "torch" not in names


def test_every_file_it_can_write(corpus: Path, tmp_path: Path) -> None:
    words = ["--html", "r.html", "--json", "r.json", "--write-clean", "out.fr,out.en"]
    answer = check("a.tsv", *words, "--keep", "duplicate", "--remove", "markup", folder=tmp_path)
    assert answer.returncode == 0
    written = re.findall(r"^glassformer: wrote (.+)$", answer.stderr, re.MULTILINE)
    assert written == ["out.fr", "out.en", "out.fr.removed.tsv", "r.html", "r.json"]
    assert len((tmp_path / "out.fr").read_text().splitlines()) == 5
    figures = json.loads((tmp_path / "r.json").read_text())
    assert (figures["pairs"], figures["kept"], figures["unreadable"]) == (6, 5, {"no-tab": 1})
    read_page((tmp_path / "r.html").read_text())


def test_every_option_is_understood(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text('{"l": "un chat noir", "r": "a black cat"}\n')
    (tmp_path / "b.txt").write_text('{"l": "rien du tout", "r": "A BLACK CAT!"}\n')
    options = ["--format", "jsonl", "--fields", "r,l", "--max-length", "11", "--max-ratio", "1.5", "--json", "r.json"]
    for held_out in (["--dev", "b.txt"], ["--dev", "b.txt", "--test", "b.txt"]):
        for swap in ([], ["--swap"]):
            answer = check("a.txt", *held_out, *options, *swap, folder=tmp_path)
            assert answer.returncode == 0, answer.stderr
            figures = json.loads((tmp_path / "r.json").read_text())
            assert (figures["findings"]["overlap"], figures["findings"]["length"]) == (1, 1)
            assert figures["examples"]["length"][0]["src"] == ("un chat noir" if swap else "a black cat")
    variants = "".join(
        f'<tuv xml:lang="{lang}"><seg>{text}</seg></tuv>' for lang, text in (("fr", "oui"), ("en", "yes"))
    )
    (tmp_path / "m.tmx").write_text(f"<tmx><body><tu>{variants}</tu></body></tmx>")
    assert check("m.tmx", "--languages", "fr,en", "--write-clean", "o.jsonl", folder=tmp_path).returncode == 0
    assert json.loads((tmp_path / "o.jsonl").read_text()) == {"translation": {"fr": "oui", "en": "yes"}}


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["no-such.tsv"], "glassformer: no-such.tsv: no such file"),
        (["a.txt"], "glassformer: a.txt: unknown file extension"),
        (["a.tsv", "--strict"], "glassformer: a.tsv:7: no tab in this line (no tab between source and target)"),
        (["a.tsv", "--keep", "duplicates"], "did you mean duplicate?"),
        (["a.tsv", "--write-clean", "a.tsv"], "a.tsv is an input file"),
        (["a.tsv", "--write-clean", "no/b.tsv"], "no/b.tsv cannot be written"),
        (["a.tsv", "--html", "no/r.html"], "no/r.html cannot be written"),
        (["a.tsv", "--dev", "b.tsv"], "b.tsv: no such file"),
        (["a.tsv", "--languages", "fr"], "--languages fr: expected SRC,TGT"),
        (["a.tsv", "--fields", "a,b,c"], "--fields a,b,c: expected SRC,TGT"),
        (["a.tsv", "--max-ratio", "1"], "max_ratio=1.0"),
        (["a.tsv", "--format", "xml"], "format='xml'"),
        ([], "FILE"),
    ],
)
def test_mistakes_end_with_2_and_leave_nothing(corpus: Path, tmp_path: Path, words: list[str], complaint: str) -> None:
    answer = check(*words, folder=tmp_path)
    assert (answer.returncode, answer.stdout) == (2, "")
    assert complaint in answer.stderr
    assert "Traceback" not in answer.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["a.tsv"]


def test_a_full_disk_leaves_nothing(tmp_path: Path) -> None:
    (tmp_path / "a.tsv").write_text("".join(f"chat {i} {i * i}\tcat {i} {i * i}\n" for i in range(2000)))
    command = f"ulimit -f 8; exec {sys.executable} -m glassformer check a.tsv --write-clean out.tsv"
    # Who measures coverage would write more than the limit lets it.
    plain = {name: value for name, value in os.environ.items() if not name.startswith("COV")}
    answer = subprocess.run(
        ["bash", "-c", command], cwd=tmp_path, env=plain, capture_output=True, text=True, check=False
    )
    assert (answer.returncode, answer.stdout) == (2, "")
    assert answer.stderr == "glassformer: out.tsv cannot be written: File too large\n"
    assert [path.name for path in tmp_path.iterdir()] == ["a.tsv"]
