"""Recipe settings as options: both names, values as in TOML, errors that name the nearest setting, completion."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from glassformer.cli import app
from glassformer.cli.settings import CONTEXT, Recipes, SettingsCommand, read_settings, settings
from glassformer.errors import UsageError
from glassformer.training.recipe import Recipe, to_toml
from tests.cli.test_cli import run

CORPORA = ["--train", "a.tsv", "--dev", "b.tsv"]
PANELS = ["Data", "Model", "Tokenizer", "Reader", "Noise", "Batch", "Training", "Search"]


def read(words: list[str]) -> Recipe:
    """Read words as `train` does, without training."""
    reader, found = typer.Typer(), list[Recipe]()

    @reader.command(cls=SettingsCommand, context_settings=CONTEXT)
    def command(context: typer.Context, recipe: Recipes = None) -> None:
        found.append(read_settings(context, recipe or []))

    reader(words, standalone_mode=False)
    return found[0]


def test_words_of_the_command_line(tmp_path: Path) -> None:
    path = tmp_path / "r.toml"
    path.write_text("[training]\nlr = 0.1\nwarmup = 5\n")
    words = [str(path), "--max-updates", "7", "--lr=0.5", "--train", "a.tsv", "--train", "b.tsv@2", "--dev", "c.tsv"]
    words += ["--compile", "true", "--noise.lower", "0.1", "--preset", "tiny", "--dropout", "0.3"]
    changes = {
        "training.max_updates": 7,
        "training.lr": 0.5,
        "train": ["a.tsv", "b.tsv@2"],
        "dev": ["c.tsv"],
        "training.compile": True,
        "reader.noise.lower": 0.1,
        "preset": "tiny",
        "model.dropout": 0.3,
    }
    found = read(words)
    assert found == Recipe.read(path, changes)
    assert found.training.warmup == 5, "an option that was not given changes nothing"


@pytest.mark.parametrize(
    "words",
    [
        ["--max-updates", "7"],
        ["--max_updates", "7"],
        ["--max-updates=7"],
        ["--training.max-updates", "7"],
        ["--training.max_updates=7"],
    ],
)
def test_a_setting_has_several_spellings(words: list[str]) -> None:
    assert read([*CORPORA, *words]).training.max_updates == 7


def test_the_short_name_is_of_the_outer_setting() -> None:
    found = read([*CORPORA, "--seed", "3", "--tokenizer.seed", "4"])
    assert (found.seed, found.tokenizer.seed, found.search.seed) == (3, 4, 0)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--max-update", "7"], "unknown setting --max-update; did you mean max-updates?"),
        (["--max_update=7"], "unknown setting --max-update; did you mean max-updates?"),
        (["--max-length", "7"], "--max-length is ambiguous: use --reader.max-length or --search.max-length"),
        (["--lr", "--seed", "1"], "--lr needs a value"),
        (["a.toml", "b.toml"], "'b.toml': expected one recipe"),
    ],
)
def test_wrong_words(words: list[str], message: str) -> None:
    with pytest.raises(UsageError, match="^" + re.escape(message)):
        read(words)


def test_a_setting_without_its_value_ends_with_2() -> None:
    answer = run("glassformer", "train", "--lr")
    assert (answer.returncode, answer.stdout) == (2, "")
    assert "'--training.lr' requires an argument" in answer.stderr


def test_every_option_is_a_setting_and_says_what_it_is() -> None:
    recipe = read(CORPORA)
    for name in settings():
        place: object = recipe
        if name.startswith("model."):
            continue
        for part in name.split("."):
            place = getattr(place, part)
    assert {"training.max_updates", "model.d_model", "reader.noise.lower", "seed"} <= settings().keys()
    assert all(setting.description for setting in settings().values())
    assert settings()["model.d_model"].default == 256, "of the preset small"


def test_every_setting_can_be_listed() -> None:
    answer = CliRunner().invoke(app, ["train", "--settings"])
    lines = answer.stdout.splitlines()
    assert [line.split()[0] for line in lines] == [f"--{name.replace('_', '-')}" for name in settings()]
    (schedule,) = (line for line in lines if line.startswith("--training.schedule "))
    assert schedule.endswith("(paper, inverse-sqrt, cosine, linear, constant) [inverse-sqrt]")
    assert next(line for line in lines if line.startswith("--training.compile ")).endswith("[false]")


@pytest.mark.parametrize("command", ["train", "plan"])
@pytest.mark.parametrize("width", ["80", "120"])
def test_help_is_grouped_and_shows_names_in_full(command: str, width: str) -> None:
    answer = run("glassformer", command, "--help", COLUMNS=width)
    assert (answer.returncode, answer.stderr) == (0, "")
    titles = [title for title in re.findall(r"─ (\w+)(?: \(.*?\))? ─", answer.stdout) if title in PANELS]
    assert titles == PANELS
    words = set(answer.stdout.split())
    for name in settings():
        leaf = name.rpartition(".")[2]
        assert {f"--{name.replace('_', '-')}", f"--{leaf.replace('_', '-')}"} & words, name
    assert "…" not in answer.stdout


def test_settings_are_named_without_torch() -> None:
    imported = run("python", "-X", "importtime", "-m", "glassformer", "train", "--help").stderr
    names = {line.rpartition("|")[2].strip().split(".")[0] for line in imported.splitlines()}
    assert "pydantic" in names
    assert "torch" not in names


def completed(*words: str) -> list[str]:
    """Complete the last word as a shell would ask for it."""
    asked: dict[str, Any] = {"COMP_WORDS": " ".join(["glassformer", *words]), "COMP_CWORD": str(len(words))}
    return run("glassformer", _GLASSFORMER_COMPLETE="complete_bash", **asked).stdout.split()


@pytest.mark.parametrize("command", ["train", "plan"])
def test_completion_knows_the_settings(command: str) -> None:
    assert completed(command, "--max-u") == ["--max-updates"]
    assert completed(command, "--training.m") == ["--training.max-updates", "--training.metric"]
    assert "--reader.noise.lower" in completed(command, "--reader")


def test_completion_knows_values() -> None:
    assert completed("train", "--schedule", "co") == ["cosine", "constant"]
    assert completed("train", "--compile", "t") == ["true"]
    assert completed("translate", "--search", "temp") == ["temperature="]


def test_folders_are_taken_as_they_stand() -> None:
    assert read([*CORPORA, "--out", "2025-01-02"]).out == Path("2025-01-02")


def test_a_recipe_survives_being_written(tmp_path: Path) -> None:
    words = ["--train", "a.tsv@2", "--train", "x.fr,x.en", "--dev", 'q"uo\x7fte\\.tsv', "--noise.upper", "0.25"]
    recipe = read(words)
    text = to_toml(recipe.model_dump(mode="json", exclude_none=True))
    (tmp_path / "run.toml").write_text(text, encoding="utf-8")
    assert tomllib.loads(text)["reader"]["noise"]["upper"] == 0.25
    assert Recipe.read(None, tomllib.loads(text)) == recipe
