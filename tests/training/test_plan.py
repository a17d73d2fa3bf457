"""A plan: its counts are those of the run, its times add up, and the folder of the run stays as it was."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from glassformer import cli
from glassformer.errors import DataError, GlassformerError, RunError, UsageError
from glassformer.store.checkpoint import whole_checkpoints
from glassformer.text.tokenizer import Tokenizers
from glassformer.training import plan
from glassformer.training.plan import EpochFigures, Forecast, extrapolate, forecast, largest_batch
from glassformer.training.probe import Measurement, Memory, Task
from glassformer.training.recipe import Recipe
from glassformer.training.start import train_run

SETTINGS: dict[str, Any] = {
    "preset": "pocket",
    "tokenizer.vocab_size": 310,
    "batch.max_tokens": 64,
    "search.max_length": 12,
    "training.max_updates": 8,
    "training.checkpoint_every": 4,
    "training.validate_every": 3,
    "training.ema": 0.9,
    "training.threads": 1,
}
FOUND = Measurement(
    parameters={"encoder": 600, "decoder": 400},
    memory=Memory(empty=100_000, part=150_000, whole=240_000, validation=250_000),
    part_tokens=1024,
    start_seconds=2.0,
    n_tokens=5000,
    seconds=20.0,
    validation_seconds=3.0,
    save_seconds=0.5,
    checkpoint_bytes=12_000,
    device="cpu",
    threads=2,
)
WHOLE = EpochFigures(n_pairs=1000, n_tokens=25_000, n_updates=50, seconds=4.0, background=0.0, n_bytes=999)


def recipe(folder: Path, n_pairs: int = 60, **changes: Any) -> Recipe:
    """Write a small corpus and make a recipe of it; `changes` write a dot as two underscores."""
    folder.mkdir(exist_ok=True)
    words = ("un", "chat", "noir", "et", "gris", "dort", "bien", "ici")
    lines = [" ".join(words[: 2 + n % 6]) + f" {n}" for n in range(n_pairs)]
    (folder / "corpus.tsv").write_text("".join(f"{line}\t{line.upper()}\n" for line in lines), encoding="utf-8")
    named = {name.replace("__", "."): value for name, value in changes.items()}
    corpus = [str(folder / "corpus.tsv")]
    return Recipe.read(None, {"train": corpus, "dev": corpus, "out": str(folder / "run"), **SETTINGS, **named})


@pytest.fixture(scope="module")
def planned(tmp_path_factory: pytest.TempPathFactory) -> tuple[Recipe, Forecast]:
    wanted = recipe(tmp_path_factory.mktemp("plan"), training__accumulate=2)
    return wanted, forecast(wanted, 0.3)


def test_the_run_takes_what_was_planned(planned: tuple[Recipe, Forecast]) -> None:
    wanted, found = planned
    assert wanted.out is not None
    assert not wanted.out.exists()  # a plan leaves nothing behind
    run = train_run(wanted)
    last = whole_checkpoints(run / "checkpoints")[-1]
    state = json.loads((last / "state.json").read_bytes())
    made = wanted.training.max_updates
    assert state["epoch"] == made // found.updates_per_epoch
    if made % found.updates_per_epoch == 0:
        assert state["tokens"] == found.tokens_per_epoch * made // found.updates_per_epoch
    assert found.n_pairs == 60
    n_bytes = sum(path.stat().st_size for path in last.iterdir())
    kept = len(whole_checkpoints(run / "checkpoints"))
    assert found.disk["checkpoints"] == pytest.approx(kept * n_bytes, rel=0.02)
    assert found.disk["best and chosen weights"] == 2 * 4 * found.parameters["all"]
    model = (run / "model.safetensors").stat().st_size
    assert 4 * found.parameters["all"] == pytest.approx(model, rel=0.1)


def test_figures_of_a_probe(planned: tuple[Recipe, Forecast]) -> None:
    _, found = planned
    assert found.tokens_per_s > 0
    assert found.validation_seconds > 0
    assert 0 < found.memory["python, torch and data"] < found.memory_peak < found.memory_free
    assert found.threads == 1
    assert found.notes == ()


@pytest.fixture
def tasks(monkeypatch: pytest.MonkeyPatch) -> list[Task]:
    """Measure nothing, and see what would have been measured."""
    asked: list[Task] = []

    def note(task: Task) -> Measurement:
        asked.append(task)
        return FOUND

    monkeypatch.setattr(plan, "_probe", note)
    return asked


def test_the_vocabulary_of_the_run_is_taken(tmp_path: Path, tasks: list[Task]) -> None:
    run = train_run(recipe(tmp_path, training__max_updates=1))
    files = {path: path.stat().st_mtime_ns for path in run.rglob("*")}
    forecast(recipe(tmp_path, tokenizer__vocab_size=305), 0.1)
    assert tasks[0].tokenizers == Tokenizers.load(run)
    assert tasks[0].src_vocab == 310
    assert {path: path.stat().st_mtime_ns for path in run.rglob("*")} == files


def test_a_large_corpus_is_sampled(tmp_path: Path, tasks: list[Task], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plan, "_SAMPLE", 100)
    whole = forecast(recipe(tmp_path, 100), 0.1)
    found = forecast(recipe(tmp_path, 1000, training__patience=4, tokenizer__vocab_size=620), 0.1)
    assert found.n_pairs == 1000
    assert found.tokens_per_epoch == pytest.approx(10 * whole.tokens_per_epoch, rel=0.1)
    assert len(found.notes) == 4
    assert found.notes[0] == "measured on 100 pairs, 10.0% of the corpora"
    assert found.notes[2] == "the sample is too small for 620 pieces; measured with 310"
    assert tasks[1].src_vocab == 620
    assert not tasks[1].data.exists()


def test_the_beginning_tells_how_long_a_corpus_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plan, "_READ", 20_000)
    wanted = recipe(tmp_path, 200_000)
    pairs, n_pairs = plan._read(wanted.train[0], wanted)
    assert len(pairs) == 20_000
    assert n_pairs == pytest.approx(200_000, rel=0.3)


@pytest.mark.parametrize(
    "changes",
    [
        {"training__device": "cuda:99x"},
        {"tokenizer__vocab_size": 5000},
        {"bleu_tokenize": "13b"},
        {"tokenizer__joint": False, "tokenizer__vocab_size": 275, "vocabulary": "nowhere"},
    ],
)
def test_a_wrong_recipe_gives_the_errors_of_train(tmp_path: Path, changes: dict[str, Any]) -> None:
    wanted = recipe(tmp_path, **changes)
    with pytest.raises(GlassformerError) as planned:
        forecast(wanted, 0.1)
    with pytest.raises(GlassformerError) as trained:
        train_run(wanted)
    assert (type(planned.value), str(planned.value)) == (type(trained.value), str(trained.value))


def test_files_that_are_not_there(tmp_path: Path) -> None:
    for side in ("train", "dev"):
        changes: dict[str, Any] = {side: [str(tmp_path / "nowhere.tsv")]}
        wanted = recipe(tmp_path, **changes)
        with pytest.raises(DataError, match=r"nowhere\.tsv"):
            forecast(wanted, 0.1)


def test_a_probe_that_is_killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plan, "probe", sys.exit)  # as the system's killer does: gone without an answer
    with pytest.raises(RunError, match=r"probably out of memory: lower max_tokens \(64\)"):
        forecast(recipe(tmp_path), 0.1)


def with_training(**changes: Any) -> Recipe:
    named = {f"training.{name}": value for name, value in changes.items()}
    return Recipe.read(None, {"train": ["a.tsv"], "dev": ["b.tsv"], **named})


@given(st.integers(1, 10**6), st.integers(1, 1000), st.integers(1, 1000))
def test_times_add_up(max_updates: int, validate_every: int, checkpoint_every: int) -> None:
    every = {"validate_every": validate_every, "checkpoint_every": checkpoint_every}
    found = extrapolate(with_training(max_updates=max_updates, **every), FOUND, WHOLE, 10**9)
    assert found.seconds_training == pytest.approx(max_updates * 500 / 250)  # tokens of an update over tokens a second
    n_validations, n_saves = -(-max_updates // validate_every), -(-max_updates // checkpoint_every) + 1
    assert found.validation_seconds == pytest.approx(3.0 * (n_validations + 3))
    assert found.seconds_saving == pytest.approx(0.5 * (n_saves + min(5, n_saves - 1)))
    parts = found.seconds_preparing + found.seconds_training + found.validation_seconds + found.seconds_saving
    assert found.seconds == pytest.approx(parts)
    assert found.epochs * found.updates_per_epoch == pytest.approx(max_updates)
    assert sum(found.memory.values()) == found.memory_peak
    assert found.disk["checkpoints"] == min(10, n_saves) * 12_000


def test_epochs_that_are_drawn_anew_cost_their_preparation() -> None:
    wanted = with_training(max_updates=500)
    plain = extrapolate(wanted, FOUND, WHOLE, 10**9).seconds_training
    assert extrapolate(wanted, FOUND, WHOLE._replace(background=2.0), 10**9).seconds_training == plain + 9 * 2.0
    most = extrapolate(wanted, FOUND, WHOLE._replace(background=1e9), 10**9).seconds_training
    assert plain < most <= 1.1 * plain


@given(st.integers(0, 10**9), st.integers(1, 10**6), st.integers(10**6, 10**12))
def test_the_largest_batch_is_the_largest_that_fits(fixed: int, slope: int, free: int) -> None:
    def peak(tokens: int) -> int:
        return fixed + slope * tokens

    memory = Memory(empty=0, part=peak(1024), whole=peak(4096), validation=peak(4096))
    largest = largest_batch(FOUND._replace(memory=memory), 4096, free)
    assert largest is not None
    assert largest == 0 or peak(largest) <= 0.9 * free
    assert peak(largest + 512) > 0.9 * free
    flat = memory._replace(part=memory.whole)
    assert largest_batch(FOUND._replace(memory=flat), 4096, free) is None


def test_the_command(tmp_path: Path, tasks: list[Task], capsys: pytest.CaptureFixture[str]) -> None:
    corpus = str(recipe(tmp_path).train[0].path)
    settings = [word for name, value in SETTINGS.items() for word in (f"--{name}", str(value))]
    cli.app(["plan", "--train", corpus, "--dev", corpus, *settings, "--json"], standalone_mode=False)
    printed = capsys.readouterr()
    assert json.loads(printed.out)["max_tokens"] == 64
    assert printed.err.endswith("training for 15 seconds\n")
    with pytest.raises(UsageError, match="unknown setting --max-update; did you mean max-updates"):
        cli.app(["plan", "--max-update", "3"], standalone_mode=False)


def test_no_pair_to_look_at(tmp_path: Path) -> None:
    (tmp_path / "empty.tsv").touch()
    with pytest.raises(DataError, match=r"empty\.tsv"):
        forecast(recipe(tmp_path, dev=[str(tmp_path / "empty.tsv")]), 0.1)
