"""A student learns what its teacher says; distillation resumes, and finds mistakes before hours are spent."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from glassformer import Recipe, Translator, distill
from glassformer.errors import ConfigError, DataError, GlassformerError, RunError
from glassformer.evaluation.scores import sentence_bleu
from glassformer.training import distill as module
from glassformer.training.distill import Distillation, translate_sources
from glassformer.training.run import read_run

ROOT = Path(__file__).parents[2]
TEACHER = "fr-en"
PAIRS = [
    ("Je suis étudiant.", "I am a student."),
    ("Où est la gare ?", "Where is the station?"),
    ("Il fait très beau aujourd'hui.", "The weather is very nice today."),
    ("Nous avons mangé du pain et du fromage.", "We ate bread and cheese."),
    ("Elle ne veut pas partir demain matin.", "She doesn't want to leave tomorrow morning."),
]
MORE = ["Bonjour à tous mes amis.", "Le chat dort sur la table."]


def student(folder: Path, **changes: object) -> Recipe:
    """Write a corpus and return the recipe of a student of two updates."""
    corpus = folder / "corpus.tsv"
    corpus.write_text("".join(f"{src}\t{tgt}\n" for src, tgt in PAIRS), encoding="utf-8")
    (folder / "more.txt").write_text("\n".join([*MORE, "", "  "]) + "\n", encoding="utf-8")
    settings = {
        "train": [f"{corpus}@2"],
        "dev": [str(corpus)],
        "out": str(folder / "student"),
        "preset": "pocket",
        "tokenizer.vocab_size": 330,
        "training.max_updates": 2,
        "search.max_length": 12,
    }
    return Recipe.read(None, {**settings, **changes})


def rows(path: Path) -> list[list[str]]:
    """Read a file that a teacher wrote."""
    return [line.split("\t") for line in gzip.decompress(path.read_bytes()).decode().splitlines()]


def test_a_student_trains_on_what_its_teacher_says(tmp_path: Path) -> None:
    recipe = student(tmp_path)
    out = distill(recipe, TEACHER, text=[tmp_path / "more.txt"], beam=4, n_best=4)
    with Translator.load(TEACHER) as teacher:
        search = teacher.search.model_copy(update={"width": 4})
        several = teacher.results([src for src, _ in PAIRS], search=search, n_best=4)
        best = [
            max(found.n_best, key=lambda text, tgt=tgt: sentence_bleu(text, tgt))  # type: ignore[misc]
            for found, (_, tgt) in zip(several, PAIRS, strict=True)
        ]
        said = teacher.translate(MORE, search=search)
    folder = tmp_path / "student-distilled"
    assert rows(folder / "00-corpus.tsv.gz") == [[src, text] for (src, _), text in zip(PAIRS, best, strict=True)]
    assert rows(folder / "01-more.tsv.gz") == [list(pair) for pair in zip(MORE, said, strict=True)]
    assert best != [found.text for found in several]  # the reference has made a difference
    trained_on = read_run(out).train
    assert [(corpus.path.name, corpus.weight) for corpus in trained_on] == [
        ("00-corpus.tsv.gz", 2.0),
        ("01-more.tsv.gz", 1.0),
    ]
    assert Translator.load(out).translate("Bonjour.") is not None


def test_references_can_be_added(tmp_path: Path) -> None:
    recipe = student(tmp_path)
    plan = Distillation(recipe, (TEACHER,), add_references=True)
    assert plan.student.train[1:] == recipe.train


def test_an_interrupted_distillation_resumes_after_its_last_shard(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_SHARD", 2)
    recipe = student(tmp_path)
    plan = Distillation(recipe, (TEACHER,))
    translate_sources(plan)
    expected = rows(plan.path(0))
    plan.path(0).unlink()
    asked = list[int]()
    results = Translator.results

    def failing(self: Translator, texts: list[str], *words: object) -> object:
        asked.append(len(texts))
        if len(asked) == 2:
            raise KeyboardInterrupt
        return results(self, texts, *words)  # type: ignore[call-overload]

    monkeypatch.setattr(Translator, "results", failing)
    with pytest.raises(KeyboardInterrupt):
        translate_sources(plan)
    translate_sources(plan)
    assert asked == [2, 2, 2, 1]  # the first shard was not translated again
    assert rows(plan.path(0)) == expected
    assert sorted(path.name for path in plan.folder.iterdir()) == ["00-corpus.tsv.gz", "distilled.json"]
    translate_sources(plan)
    assert len(asked) == 4


def test_bytes_are_watched_whether_translated_or_done(tmp_path: Path) -> None:
    plan = Distillation(student(tmp_path), (TEACHER,), (tmp_path / "more.txt",))
    for _ in range(2):
        seen = list[int]()
        translate_sources(plan, watch=seen.append)
        assert sum(seen) == plan.size > 0


def test_mistakes_are_found_before_anything_is_translated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(complaint: str, recipe: Recipe, kind: type[GlassformerError] = ConfigError, **words: object) -> None:
        with pytest.raises(kind, match=complaint):
            distill(recipe, **{"teachers": TEACHER, **words})  # type: ignore[arg-type]

    monkeypatch.setattr(Translator, "results", lambda *_: pytest.fail("translated"))
    recipe = student(tmp_path)
    english = tmp_path / "english.txt"
    english.write_text("".join(f"{tgt}\n" for _, tgt in PAIRS), encoding="utf-8")
    empty = tmp_path / "empty.tsv"
    empty.write_text("no tab\n", encoding="utf-8")
    refused("no such file", recipe, DataError, text=[tmp_path / "nothing.txt"])
    refused("english.txt looks like en, but the teacher translates from fr", recipe, text=[english])
    refused("translates from fr to en, but the recipe sets tgt_lang='de'", student(tmp_path, tgt_lang="de"))
    refused("no sentence pair to validate on", student(tmp_path, dev=[str(empty)]), DataError)
    refused("no sentence pair to train on", student(tmp_path, train=[str(empty)]), DataError)
    refused("no such model", recipe, GlassformerError, teachers="nobody")
    refused("width", recipe, beam=0)
    refused("out is not set", recipe.model_copy(update={"out": None}))
    (tmp_path / "student").mkdir()
    (tmp_path / "student" / "letter.txt").touch()
    refused("contains files but no run", recipe, RunError)
    refused("contains files that no distillation wrote", student(tmp_path, out="other"), DataError, folder=tmp_path)


def test_a_folder_belongs_to_one_teacher_and_one_text(tmp_path: Path) -> None:
    recipe = student(tmp_path)
    plan = Distillation(recipe, (TEACHER,), n_best=1)
    translate_sources(plan)
    with pytest.raises(ConfigError, match="made with other n_best"):
        translate_sources(plan._replace(n_best=2))
    with pytest.raises(ConfigError, match="made with other search"):
        translate_sources(plan._replace(beam=2))
    with pytest.raises(ConfigError, match="made with other teachers"):
        translate_sources(plan._replace(teachers=(TEACHER, TEACHER)))
    with pytest.raises(ConfigError, match="made with other sources"):
        translate_sources(plan._replace(text=(tmp_path / "more.txt",)))
    assert json.loads((plan.folder / "distilled.json").read_text())["n_best"] == 1
    (plan.folder / "distilled.json").write_text("{", encoding="utf-8")
    with pytest.raises(DataError, match=r"distilled\.json is damaged"):
        translate_sources(plan)
