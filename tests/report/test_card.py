"""The card of a model: enough to make the model again, nothing of the machine's folders, a person's words kept."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path
from typing import Any

import pytest

from glassformer.config import CorpusConfig
from glassformer.errors import RunError
from glassformer.model.transformer import Transformer
from glassformer.report.card import ModelCard, write_card
from glassformer.store.folder import CARD, save_model
from glassformer.text.tokenizer import train_tokenizers
from glassformer.training.recipe import Recipe
from tests.runs import SIGNATURE, look, report, write_run

TEXT = [(f"un chat {n}", f"a cat {n}") for n in range(20)]


def finish(folder: Path, **changes: Any) -> tuple[Path, Recipe]:
    """Write a run that has ended, its data in another folder."""
    data = folder / "data"
    data.mkdir()
    for name in ("train.tsv", "other.fr", "other.en", "dev.tsv"):
        (data / name).write_text("".join(f"{src}\t{tgt}\n" for src, tgt in TEXT), encoding="utf-8")
    corpora = {"train": [str(data / "train.tsv"), f"{data / 'other.fr'},{data / 'other.en'}@0.5"]}
    lines = [report(200), look(200), look(200, "end", weights="average", chosen=True, texts=("it's `un` chat", "b"))]
    out = folder / "my model"
    settings = {"preset": "pocket", "tokenizer__vocab_size": 280, **changes}
    recipe = write_run(out, lines, **corpora, dev=[str(data / "dev.tsv")], **settings)
    tokenizers = train_tokenizers(TEXT, recipe.tokenizer)
    tokenizers.save(out)
    save_model(Transformer(recipe.model_settings(tokenizers.src.vocab_size, tokenizers.tgt.vocab_size)), out)
    checkpoint = out / "checkpoints" / "step-00000200"
    checkpoint.mkdir(parents=True)
    (checkpoint / "state.json").write_text(json.dumps({"tokens": 123456}), encoding="utf-8")
    write_card(out)
    return out, recipe


def blocks(out: Path, language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", (out / CARD).read_text(encoding="utf-8"), re.DOTALL)


def test_the_recipe_of_the_card_is_that_of_the_run(tmp_path: Path) -> None:
    changes = {"training__lr": 0.125, "model__dropout": 0.25, "reader__noise__lower": 0.1, "search__width": 3}
    out, recipe = finish(tmp_path, **changes)
    (tmp_path / "data" / "recipe.toml").write_text(blocks(out, "toml")[0], encoding="utf-8")
    command = shlex.split(blocks(out, "sh")[1])
    assert command == ["glassformer", "train", "recipe.toml", "--out", "my model"]
    again = Recipe.read(tmp_path / "data" / "recipe.toml", {"out": str(recipe.out)})
    assert again == recipe


def test_the_card_says_what_one_wants_to_know(tmp_path: Path) -> None:
    out, _ = finish(tmp_path, src_lang="fr", tgt_lang="en", training__warmup=77)
    text = (out / CARD).read_text(encoding="utf-8")
    for words in ("fr to en", "280 pieces", "200 updates, 123,456 source", "| average | 39.55", SIGNATURE, "Licence"):
        assert words in text
    assert "| `training.warmup` | 77 |" in text
    assert str(tmp_path) not in text
    shell = shlex.split(blocks(out, "sh")[0].splitlines()[0])
    assert shell[2] == "it's `un` chat"
    assert shell[-1] == "my model"
    compile(blocks(out, "python")[0], "card", "exec")


def test_the_observer_writes_the_card_at_the_end(tmp_path: Path) -> None:
    out, _ = finish(tmp_path)
    before = (out / CARD).read_bytes()
    (out / CARD).unlink()
    ModelCard().validated(out)
    assert not (out / CARD).exists()
    ModelCard().finished(out)
    assert (out / CARD).read_bytes() == before


def test_the_card_shows_chrf_where_it_was_measured(tmp_path: Path) -> None:
    out, _ = finish(tmp_path)
    old = look(300, "end", weights="last", chosen=True)
    del old["chrf"]  # version 0.1 did not measure it
    write_run(out, [report(300), old], preset="pocket")
    write_card(out)
    assert "chrF" not in (out / CARD).read_text(encoding="utf-8")
    ends = [look(300, "end", weights="last", chosen=True, chrf=61.25)]
    write_run(out, [report(300), *ends], preset="pocket", training__metric="chrf")
    write_card(out)
    text = (out / CARD).read_text(encoding="utf-8")
    assert "| weights | BLEU | chrF | perplexity | |\n|---|---|---|---|---|\n| last | 39.70 | 61.25 | 3.030 |" in text


def test_a_card_that_cannot_be_written(tmp_path: Path) -> None:
    out, _ = finish(tmp_path)
    (out / CARD).unlink()
    (out / CARD).mkdir()
    with pytest.raises(RunError, match=r"README\.md cannot be read: Is a directory"):
        write_card(out)


def test_a_card_that_nobody_changed_is_renewed(tmp_path: Path) -> None:
    out, _ = finish(tmp_path)
    before = (out / CARD).read_bytes()
    write_run(out, [report(300), look(300, "end", weights="last", chosen=True)], preset="pocket")
    write_card(out)
    assert (out / CARD).read_bytes() != before
    assert "300 updates" in (out / CARD).read_text(encoding="utf-8")


@pytest.mark.parametrize("change", ["all", "front", "middle", "end"])
def test_a_card_that_a_person_changed_stays(tmp_path: Path, change: str) -> None:
    out, _ = finish(tmp_path)
    text = (out / CARD).read_text(encoding="utf-8")
    mine = {"all": "mine", "front": "x" + text, "middle": text.replace("Licence", "License"), "end": text + "x"}[change]
    (out / CARD).write_text(mine, encoding="utf-8")
    write_card(out)
    assert (out / CARD).read_text(encoding="utf-8") == mine


def test_data_that_is_gone_is_named(tmp_path: Path) -> None:
    out, recipe = finish(tmp_path)
    corpus = recipe.train[0]
    assert isinstance(corpus, CorpusConfig)
    corpus.path.unlink()
    write_card(out)
    assert "| train | `train.tsv` | 1 | file not found |" in (out / CARD).read_text(encoding="utf-8")
