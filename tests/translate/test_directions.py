"""Which of the models that ship translates: by the languages asked for, else by the language of the text."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from typer.testing import CliRunner

from glassformer.cli import app
from glassformer.errors import ConfigError
from glassformer.store import registry
from glassformer.translate.loading import choose_model, shipped_directions

OLD = Path(__file__).parents[1] / "v0_1" / "model"
FRENCH = "Où est la gare, s'il vous plaît ?"
ENGLISH = "Where is the railway station, please?"


@pytest.fixture(autouse=True)
def both(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ship a model in each direction."""
    for src, tgt in (("fr", "en"), ("en", "fr")):
        folder = tmp_path / "models" / f"{src}-{tgt}"
        shutil.copytree(OLD, folder)
        config = json.loads((folder / "config.json").read_text())
        config["about"] |= {"src_lang": src, "tgt_lang": tgt}
        (folder / "config.json").write_text(json.dumps(config))
    monkeypatch.setattr(registry, "SHIPPED", tmp_path / "models")


def test_languages_choose_a_direction() -> None:
    assert shipped_directions() == {"en-fr": "en", "fr-en": "fr"}
    assert shipped_directions("EN-US") == {"en-fr": "en"}
    assert shipped_directions(tgt="en_GB") == {"fr-en": "fr"}
    with pytest.raises(
        ConfigError, match="no model that ships translates from de to fr; there are: en to fr, fr to en"
    ):
        shipped_directions("de", "fr")


def test_the_text_chooses_where_several_fit() -> None:
    assert choose_model(FRENCH) == "fr-en"
    assert choose_model(ENGLISH) == "en-fr"
    assert choose_model(ENGLISH, src="fr") == "fr-en"  # asked for
    assert choose_model("  ") == "fr-en"


@pytest.mark.parametrize(
    ("words", "text", "used"),
    [
        ([], FRENCH, "fr-en"),
        ([], ENGLISH, "en-fr"),
        (["--from", "fr"], ENGLISH, ""),
        (["--to", "fr"], ENGLISH, ""),
    ],
)
def test_the_command_says_which_model_it_has_found(tmp_path: Path, words: list[str], text: str, used: str) -> None:
    source, output = tmp_path / "in.txt", tmp_path / "out.txt"
    source.write_text(f"{text}\n{text}\n", encoding="utf-8")
    files = ["--input", str(source), "--output", str(output), "--engine", "torch"]
    answer = CliRunner().invoke(app, ["translate", *words, *files])
    assert answer.exit_code == 0, answer.output
    said = f"translating with {used}, by the language of the text" if used else ""
    assert (said in answer.stderr) if said else ("translating with" not in answer.stderr)
    assert len(output.read_text().splitlines()) == 2


def test_a_direction_and_a_model_exclude_each_other(tmp_path: Path) -> None:
    answer = CliRunner().invoke(app, ["translate", "fr-en", "--to", "en"])
    assert "--from and --to choose a model that ships" in str(answer.exception)
