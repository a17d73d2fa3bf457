"""Recipes: TOML and values, and errors that name the nearest setting."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from glassformer.errors import ConfigError, GlassformerError
from glassformer.store.folder import read_config
from glassformer.training.recipe import Recipe, list_settings, to_toml

CORPORA = {"train": ["a.tsv"], "dev": ["b.tsv"]}


def test_every_setting_is_listed_with_its_description() -> None:
    recipe, known = Recipe.read(None, CORPORA), list_settings()
    for name in known:
        place: object = recipe
        if name.startswith("model."):
            continue
        for part in name.split("."):
            place = getattr(place, part)
    assert {"training.max_updates", "model.d_model", "reader.noise.lower", "seed", "tokenizer.model"} <= known.keys()
    assert all(setting.description for setting in known.values())
    assert known["training.schedule"].choices == ("paper", "inverse-sqrt", "cosine", "linear", "constant")
    assert known["training.schedule"].default == "inverse-sqrt"
    assert known["model.d_model"].default == 256, "of the preset small"
    assert known["train"] == ("training corpora", (), None)


def test_values_change_the_file(tmp_path: Path) -> None:
    path = tmp_path / "recipe.toml"
    path.write_text('train = ["a.tsv"]\ndev = ["/b.tsv"]\npreset = "tiny"\n[training]\nlr = 0.1\nmax_updates = 5\n')
    recipe = Recipe.read(path, {"training.lr": 0.2, "model.n_heads": 2})
    assert (recipe.training.lr, recipe.training.max_updates) == (0.2, 5)
    assert recipe.model_settings(50, 50).n_heads == 2
    assert recipe.train[0].path == tmp_path / "a.tsv", "a recipe's files lie beside it"
    assert recipe.dev[0].path == Path("/b.tsv")
    assert Recipe.read(path, {"train": ["c.tsv"]}).train[0].path == Path("c.tsv"), "values are relative to here"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('train = ["a.tsv"]', "dev is not set: name a validation corpus"),
        ('train = ["a.tsv"]\ndev = ["a.tsv"]\n[training]\nlerning_rate = 1', "unknown setting training.lerning_rate"),
        ('train = ["a.tsv"]\ndev = ["a.tsv"]\n[training]\nlr = -1', "training.lr=-1"),
        ('train = ["a.tsv"]\ndev = ["a.tsv"]\npreset = "smal"', "unknown preset smal; did you mean small"),
        ('train = ["a.tsv"]\ndev = ["a.tsv"]\n[model]\nn_heads = 3', "d_model=256 does not divide into n_heads=3"),
        ('train = ["$NO_SUCH_FOLDER/a.tsv"]\ndev = ["a.tsv"]', "NO_SUCH_FOLDER is not set"),
        ('train = ["a.tsv"]\ndev = ["a.tsv"]\n[model]\nname = "x"', "unknown setting name"),
        ('train = ["a.tsv"]\ndev = ["a.tsv"]\n[model]\nmax_positions = 128', "max_length=256 exceeds the model"),
        ('train = ["a.tsv"]\ndev = ["a.tsv"]\n[training]\nchoose = "ema"', "choose='ema' needs a moving average"),
        ('train = ["a.tsv"]\ndev = ["a.tsv"]\n[training]\nweight_decay = 0.1', "weight_decay needs optimizer='adamw'"),
        ('train = ["a.tsv"]\ndev = ["a.tsv"]\ninit = "nowhere"', "nowhere: no such model folder"),
        ('train = ["a.tsv"]\ndev = ["a.tsv"]\ninit = "fr-en"\n[model]\nn_heads = 8', "starts from fr-en, which has 4"),
        ("train = 7\ndev = 7", "a corpus is a file name or a table"),
        ("train = [", "is not valid TOML"),
    ],
)
def test_faulty_recipes(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "recipe.toml"
    path.write_text(text)
    with pytest.raises(GlassformerError, match=message.replace("$", r"\$")):
        Recipe.read(path, {})


def test_a_section_is_a_table(tmp_path: Path) -> None:
    (tmp_path / "recipe.toml").write_text('train = ["a.tsv"]\ndev = ["a.tsv"]\ntraining = 3\n')
    with pytest.raises(ConfigError, match="training is a table of settings, got 3"):
        Recipe.read(tmp_path / "recipe.toml", {"training.lr": 1})


def test_variables_in_paths_are_expanded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RUNS", "/runs")
    assert Recipe.read(None, {**CORPORA, "out": "$RUNS/7"}).out == Path("/runs/7")


def test_fine_tuning_keeps_the_shape_of_the_model() -> None:
    started = Recipe.read(None, {**CORPORA, "init": "fr-en", "model.dropout": 0.3}).model_settings(8000, 5248)
    shipped = read_config("fr-en").model
    assert started == shipped.model_copy(update={"dropout": 0.3})


def test_no_such_recipe(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"No such file or directory; a recipe is a TOML file"):
        Recipe.read(tmp_path / "none.toml", {})


def test_a_recipe_survives_being_written(tmp_path: Path) -> None:
    corpora = {"train": ["a.tsv@2", "x.fr,x.en"], "dev": ['q"uo\x7fte\\.tsv']}
    recipe = Recipe.read(None, {**corpora, "reader.noise.upper": 0.25})
    text = to_toml(recipe.model_dump(mode="json", exclude_none=True))
    (tmp_path / "run.toml").write_text(text, encoding="utf-8")
    assert tomllib.loads(text)["reader"]["noise"]["upper"] == 0.25
    again = Recipe.read(None, tomllib.loads(text))
    assert again == recipe


@pytest.mark.parametrize("path", sorted((Path(__file__).parents[2] / "recipes").glob("*.toml")), ids=lambda p: p.stem)
def test_the_recipes_that_we_ship(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GLASSFORMER_DATA", "/data")
    starts_elsewhere = "init" in tomllib.loads(path.read_text(encoding="utf-8"))  # with what another recipe made
    recipe = Recipe.read(path, {"init": "fr-en"} if starts_elsewhere else {})
    assert recipe.out is not None
    assert recipe.model_settings(1000, 1000).d_model > 0
