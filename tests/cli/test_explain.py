"""`glassformer explain`: the walk in the terminal, one number, files, and mistakes in one line."""

from __future__ import annotations

import io
import json
import re
from pathlib import Path

import pytest
from rich.cells import cell_len
from rich.console import Console
from typer.testing import CliRunner

from glassformer.cli import app
from glassformer.errors import GlassformerError, UsageError
from glassformer.explainer.document import EngineText
from glassformer.explainer.explanation import Explanation
from glassformer.explainer.page import page_html, static_file, static_names
from glassformer.report.explanation import STATIONS, show_explanation
from glassformer.store.folder import About, save_model
from tests.explainer.golden import SENTENCE, golden_document, golden_explanation, golden_translator
from tests.translate.fakes import tokenizers


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("models") / "golden"
    translator = golden_translator()
    save_model(translator.model, path, About(src_lang="fr", tgt_lang="en", search=translator.search))
    tokenizers().save(path)
    return path


def run(*words: str | Path) -> str:
    result = CliRunner().invoke(app, ["explain", *map(str, words), "--engine", "torch"])
    if result.exception is not None:
        raise result.exception
    return result.stdout


def shown(explanation: Explanation) -> str:
    file = io.StringIO()
    show_explanation(explanation, Console(file=file, width=120, highlight=False))
    return file.getvalue()


def test_the_walk_goes_from_pieces_to_the_alignment(folder: Path) -> None:
    text = run(folder, SENTENCE)
    explanation = golden_explanation()
    places = [text.index(word) for word in ("Text to pieces", "The decoder, step by step", "The beam", "Alignment")]
    assert places == sorted(places)
    assert explanation.text in text
    for station in STATIONS:
        address = station.tensor.format(l=0)
        assert address in explanation.trace.entries
        assert station.title in text
        assert f"   {address} " in text
    steps = text[places[1] : places[2]]
    for piece in tokenizers().tgt.pieces(explanation.subject.recording.tokens):
        assert piece in steps
    assert steps.rstrip().splitlines()[-1].split()[-2] == "</s>"


def test_the_walk_leaves_out_what_a_model_has_not() -> None:
    translator = golden_translator(3, norm="none", d_ff=0, positions="none")
    text = shown(translator.explain(SENTENCE))
    assert "enc.0.add1.sum" in text
    assert "norm1" not in text
    assert "enc.position" not in text


def test_the_walk_goes_in_the_order_of_the_model() -> None:
    """Pre-norm normalises before it attends."""
    text = shown(golden_translator(3, norm="pre", final_norm=True).explain(SENTENCE))
    assert text.index("   enc.0.norm1.output ") < text.index("   enc.0.self.q ") < text.index("   enc.0.add1.sum ")


@pytest.mark.parametrize(
    ("norm", "address", "reader"),
    [
        ("post", "enc.0.norm2.output", "the next layer"),
        ("pre", "enc.0.norm2.output", "the feed-forward network"),
        ("pre", "enc.0.add2.sum", "the next layer"),
        ("none", "enc.0.add2.sum", "the next layer"),
    ],
)
def test_the_walk_says_who_reads_what(norm: str, address: str, reader: str) -> None:
    text = shown(golden_translator(3, norm=norm).explain(SENTENCE))
    station = text[text.index(f"   {address} ") :]
    assert f"This is what {reader} reads." in station[: station.index(" = ")]


@pytest.mark.parametrize("width", [50, 80, 200])
def test_pictures_fit_and_say_what_they_show(width: int) -> None:
    file = io.StringIO()
    show_explanation(golden_explanation(), Console(file=file, width=width, highlight=False))
    lines = file.getvalue().splitlines()
    captions = [place for place, line in enumerate(lines) if "rows: " in line]
    assert len(captions) == sum(station.is_drawn for station in STATIONS)
    for place in captions:
        assert all(cell_len(line) <= width for line in lines[place - 5 : place])
    masked = next(place for place, line in enumerate(lines) if "   dec.0.self.weights " in line)
    first = next(line for line in lines[masked + 4 :] if line.startswith("  <s>"))
    assert len(first.split()) == 2  # the start mark sees itself, and the rest is forbidden


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["--open", "--html", "x.html"], "--open cannot be combined"),
        (["Bonjour.", "--no-browser"], "needs --open"),
        (["Bonjour.", "--json", "-"], "cannot write to -"),
        (["Bonjour.", "--depth", "2"], "needs --at"),
        (["Bonjour.", "--with-weights", "enc.*"], "needs --html or --json"),
    ],
)
def test_words_that_make_no_sense_together(words: list[str], complaint: str) -> None:
    with pytest.raises(UsageError, match=complaint):
        run(*words)


def test_no_text_speaks_to_the_terminal() -> None:
    text = shown(golden_translator().explain("\x1b[31mrouge\x07\x7f", reference="\x1b]0;title\x07"))
    assert not {letter for letter in text if letter < " " and letter != "\n"} | ({"\x7f"} & set(text))
    assert "␛[31mrouge" in text


def test_an_explanation_says_in_a_line_what_it_is() -> None:
    assert repr(golden_explanation()).startswith(f"<Explanation of {SENTENCE!r}: ")


def test_another_text_of_the_engine_is_said() -> None:
    explanation = golden_explanation()
    assert "another text" not in shown(explanation)
    other = Explanation(explanation.subject._replace(engine=EngineText("ctranslate2", "quite different")))
    assert "ctranslate2 gives" in shown(other)
    assert "quite different" in shown(other)


def test_one_number_is_explained_and_followed_back(folder: Path) -> None:
    address = "dec.0.cross.h1.weights[2,3]"
    one, three = run(folder, SENTENCE, "--at", address), run(folder, SENTENCE, "--at", address, "--depth", "2")
    assert one.startswith(address)
    assert f"= {golden_explanation().cell(address).result:.6g}" in one
    assert three.startswith(one.rstrip()[:200])
    addresses = [cell.address for cell in golden_explanation().follow(address, 2)]
    places = [three.index(f"{each}\n  = ") for each in addresses]
    assert places == sorted(places)
    assert "which comes mostly from" not in one


def test_a_node_of_the_beam_is_looked_at(folder: Path) -> None:
    explanation = golden_explanation()
    node = next(n.number for n in explanation.subject.recording.tree.nodes if n.state == "pruned" and n.step == 3)
    address = f"@n{node}/out.logits[3,270]"
    assert f"= {explanation.cell(address).result:.6g}" in run(folder, SENTENCE, "--at", address)


def test_files_are_written_and_nothing_else(folder: Path, tmp_path: Path) -> None:
    files = {"--json": tmp_path / "trace.json", "--html": tmp_path / "page.html"}
    words = [word for pair in files.items() for word in pair]
    assert run(folder, SENTENCE, "--reference", "The cat sleeps.", "--with-weights", "out.logits", *words) == ""
    document = json.loads(files["--json"].read_text(encoding="utf-8"))
    assert document["run"] == json.loads(json.dumps(golden_document()["run"]))
    assert list(document["weights"]) == ["out.logits"]
    assert inside(files["--html"].read_text(encoding="utf-8")) == document


def test_settings_and_forced_words_reach_the_search(folder: Path, tmp_path: Path) -> None:
    out = tmp_path / "trace.json"
    run("--model", folder, SENTENCE, "--beam", "2", "--search", "max_length=5", "--force", "1=dog", "--json", out)
    document = json.loads(out.read_text(encoding="utf-8"))
    assert (document["run"]["decode"]["width"], document["run"]["decode"]["max_length"]) == (2, 5)
    forced = tokenizers().tgt.encode("dog")
    assert [token["id"] for token in document["tokens"]["tgt"][2 : 2 + len(forced)]] == forced
    assert document["run"]["engine"] is None


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "no sentence given"),
        (["fr-en"], "no sentence given"),
        (["{}"], "no sentence given"),
        (["{}", "two", "words"], "quote it"),
        (["{}", "a", "--force", "house"], "STEP=WORD"),
        (["{}", "a", "--force", "99=house"], "cannot be forced"),
        (["{}", "a", "--at", "enc.0.self.q"], "add the index"),
        (["{}", "a", "--at", "@n99999/enc.sum[0,0]"], "no node 99999"),
        (["{}", "a", "--json", "{}/missing/trace.json"], "cannot be written"),
        (["{}", "a", "--json", "{}/trace.json", "--with-weights", "enc.9.*"], "no linear layer"),
        (["{}", "a", "--search", "groups=5"], "groups"),
    ],
    ids=str,
)
def test_mistakes_are_one_line(folder: Path, words: list[str], said: str) -> None:
    with pytest.raises(GlassformerError, match=said) as error:
        run(*(word.format(folder) for word in words))
    assert "\n" not in str(error.value)


def inside(page: str) -> object:
    """Give the document that a page holds, read as a browser does: up to the first end of the element."""
    match = re.search(r'<script type="application/json" id="trace">(.*?)</script', page, re.DOTALL | re.IGNORECASE)
    assert match is not None
    return json.loads(match[1])


def test_the_page_is_one_file() -> None:
    page = page_html(golden_document())
    assert inside(page) == json.loads(json.dumps(golden_document()))
    assert not re.search(r'(?:src|href)="(?!#|data:)[^"]+"', page)
    assert not re.search(r"^(?:import|export) ", page, re.MULTILINE)
    for name in static_names() - {"index.html"}:
        last = static_file(name).decode().rstrip().splitlines()[-1]
        assert last.removeprefix("export ") in page


@pytest.mark.parametrize("text", ["</script><script>alert(1)</script>", "<!--<script>", '"><img src=x>', "שלום 👩‍👩‍👧"])
def test_hostile_text_stays_inside_its_element(text: str) -> None:
    page = page_html(golden_translator().explain(text, reference=text).document())
    assert text.encode() not in page.encode() or "<" not in text
    document = inside(page)
    assert isinstance(document, dict)
    assert (document["run"]["src"], document["run"]["reference"]) == (text, text)
    assert page.count("<script") == page_html(golden_document()).count("<script")


def test_a_notebook_shows_the_page_in_a_frame() -> None:
    html = golden_explanation()._repr_html_()
    assert html.startswith('<iframe srcdoc="')
    assert html.count("<") == 2
