"""`glassformer explain`: the walk, one number, files, and mistakes in one line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from glassformer.cli import app
from glassformer.errors import GlassformerError, UsageError
from glassformer.store.folder import About, save_model
from tests.explainer.golden import SENTENCE, golden_document, golden_explanation, golden_translator
from tests.explainer.test_export import inside
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


def test_the_walk_is_what_a_sentence_alone_gives(folder: Path) -> None:
    text = run(folder, SENTENCE)
    assert golden_explanation().text in text
    assert "Text to pieces" in text
    assert "Alignment" in text


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
