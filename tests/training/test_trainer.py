"""A run that is stopped, anyhow and anywhere, ends as one that never was; and what goes wrong is said in one line."""

from __future__ import annotations

import json
import logging
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

import glassformer
from glassformer.errors import ConfigError, DataError, GlassformerError, ModelFileError, RunError, Stopped
from glassformer.report.card import ModelCard
from glassformer.report.progress import JsonLines
from glassformer.store import checkpoint
from glassformer.store.checkpoint import load_checkpoint, whole_checkpoints
from glassformer.store.folder import load_model, read_config
from glassformer.text.tokenizer import Tokenizers
from glassformer.training.average import average_checkpoints, average_run
from glassformer.training.learner import Learner, Update
from glassformer.training.recipe import Recipe
from glassformer.training.run import LOCK, _remove_run, lock_run
from glassformer.training.start import train_run
from glassformer.training.validation import Validation, Validator

PAIRS = [("un chat", "a cat"), ("un chien", "a dog"), ("le chat noir", "the black cat"), ("le chien", "the dog")]
SETTINGS: dict[str, Any] = {
    "preset": "pocket",
    "model.dropout": 0.1,
    "tokenizer.vocab_size": 290,
    "batch.max_tokens": 24,
    "reader.join": 0.2,
    "reader.noise.lower": 0.3,
    "reader.sample_alpha": 0.3,
    "search.max_length": 12,
    "training.max_updates": 12,
    "training.checkpoint_every": 3,
    "training.validate_every": 4,
    "training.log_every": 2,
    "training.warmup": 4,
    "training.ema": 0.9,
    "training.threads": 1,
}


def recipe(folder: Path, out: str = "run", **changes: Any) -> Recipe:
    """Write a small corpus and make a recipe of it; `changes` write a dot as two underscores."""
    folder.mkdir(exist_ok=True)
    corpus = folder / "corpus.tsv"
    if not corpus.exists():
        corpus.write_text("".join(f"{src} {n}\t{tgt} {n}\n" for n in range(4) for src, tgt in PAIRS), encoding="utf-8")
    named = {name.replace("__", "."): value for name, value in changes.items()}
    corpora = {"train": [str(corpus)], "dev": [str(corpus)], "out": str(folder / out)}
    return Recipe.read(None, {**corpora, **SETTINGS, **named})


def final(run: Path) -> dict[str, bytes]:
    """Give the bytes of everything that a run ends with."""
    last = whole_checkpoints(run / "checkpoints")[-1]
    files = [run / "model.safetensors", *sorted(last.glob("*.safetensors"))]
    return {f"{path.parent.name if path.parent != run else ''}/{path.name}": path.read_bytes() for path in files}


def scores(run: Path) -> list[dict[str, Any]]:
    """Give the lines of metrics.jsonl without what a clock says."""
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return [{k: v for k, v in line.items() if k not in ("tokens_per_s", "seconds")} for line in lines]


@pytest.fixture(scope="module")
def unbroken(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("unbroken")
    return train_run(recipe(folder))


class Crash(BaseException):
    """A power loss, from inside."""


def test_a_finished_run_is_a_model_folder(unbroken: Path) -> None:
    model = load_model(unbroken)
    assert model.config.src_vocab == Tokenizers.load(unbroken).src.vocab_size
    assert (unbroken / "run.toml").exists()
    kinds = [line["kind"] for line in scores(unbroken)]
    assert kinds.count("dev") == 3
    assert kinds.count("train") == 6
    ends = [line for line in scores(unbroken) if line["kind"] == "end"]
    assert {line["weights"] for line in ends} == {"last", "average", "best", "ema"}
    assert [line["chosen"] for line in ends].count(True) == 1


def test_the_same_command_again_changes_nothing(unbroken: Path) -> None:
    before = final(unbroken)
    train_run(recipe(unbroken.parent))
    assert final(unbroken) == before


def test_a_guided_run_resumes_with_the_aligner_it_began_with(tmp_path: Path) -> None:
    whole = train_run(recipe(tmp_path, "whole", training__guided_alignment=0.5))
    stopped = recipe(tmp_path, "stopped", training__guided_alignment=0.5, training__max_updates=6)
    out = train_run(stopped)
    assert (out / "aligner.npz").exists()
    for name in ("config.json", "model.safetensors"):  # as if it had not come to its end
        (out / name).unlink()
    train_run(recipe(tmp_path, "stopped", training__guided_alignment=0.5), accept_changes=True)
    assert final(out) == final(whole)
    plain = train_run(recipe(tmp_path, "plain"))
    assert not (plain / "aligner.npz").exists()
    assert final(plain) != final(whole)


def test_outside_the_main_thread_a_run_ends_the_same(tmp_path: Path, unbroken: Path) -> None:
    """There no signal handler can be set."""
    with ThreadPoolExecutor(1) as thread:
        run = thread.submit(glassformer.train, recipe(tmp_path)).result()
    assert final(run) == final(unbroken)


@pytest.mark.parametrize("crashes", [(1,), (2, 5), (3, 4, 6, 9)])
def test_a_crash_between_updates(
    tmp_path: Path, unbroken: Path, monkeypatch: pytest.MonkeyPatch, crashes: tuple[int, ...]
) -> None:
    update = Learner.update
    for number in crashes:

        def crash(self: Learner, step: int, *rest: Any, number: int = number) -> Update:
            if step == number + 1:
                raise Crash
            return update(self, step, *rest)

        with monkeypatch.context() as patched:
            patched.setattr(Learner, "update", crash)
            with pytest.raises(Crash):
                train_run(recipe(tmp_path))
    assert final(train_run(recipe(tmp_path))) == final(unbroken)
    assert scores(tmp_path / "run") == scores(unbroken)


@pytest.mark.parametrize("which", [0, 4, 7, 9, 10])
def test_a_crash_inside_a_checkpoint(
    tmp_path: Path, unbroken: Path, monkeypatch: pytest.MonkeyPatch, which: int
) -> None:
    write, calls = checkpoint._write, iter(range(1000))

    def crash(path: Path, data: bytes) -> None:
        if next(calls) == which:
            path.write_bytes(data[: len(data) // 2])
            raise Crash
        write(path, data)

    with monkeypatch.context() as patched:
        patched.setattr(checkpoint, "_write", crash)
        with pytest.raises(Crash):
            train_run(recipe(tmp_path))
    assert final(train_run(recipe(tmp_path))) == final(unbroken)


def test_kill_9_at_random_instants(tmp_path: Path, unbroken: Path) -> None:
    wanted = recipe(tmp_path)
    words = [f"--{name}={value}" for name, value in SETTINGS.items()]
    corpus = str(wanted.train[0].path)
    command = [sys.executable, "-m", "glassformer", "train", "--train", corpus, "--dev", corpus]
    command += ["--out", str(tmp_path / "run"), *words]
    draws, kills = random.Random(5), 0
    for _ in range(4):
        process = subprocess.Popen(command, stderr=subprocess.DEVNULL)
        begin = time.monotonic()
        while not (tmp_path / "run" / "checkpoints").exists() and process.poll() is None:
            assert time.monotonic() - begin < 120
            time.sleep(0.02)
        time.sleep(draws.random() * 0.4)
        process.kill()
        kills += process.wait() == -signal.SIGKILL
    subprocess.run(command, check=True, capture_output=True)
    assert kills > 0
    assert final(tmp_path / "run") == final(unbroken)


def test_two_cannot_train_into_one_folder(tmp_path: Path) -> None:
    with lock_run(tmp_path / "run"), pytest.raises(RunError, match=f"in use: process {os.getpid()} is training"):
        train_run(recipe(tmp_path, training__max_updates=1), fresh=True)
    run = train_run(recipe(tmp_path, training__max_updates=1))
    with lock_run(run):  # reading takes no lock
        assert load_model(run)
        average_run(run, tmp_path / "mean", last=1)
    assert not (run / LOCK).exists()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_asked_to_stop_it_saves_and_says_so(
    tmp_path: Path, unbroken: Path, monkeypatch: pytest.MonkeyPatch, number: signal.Signals
) -> None:
    update = Learner.update

    def interrupted(self: Learner, step: int, *rest: Any) -> Update:
        if step == 5:
            os.kill(os.getpid(), number)
        return update(self, step, *rest)

    with monkeypatch.context() as patched:
        patched.setattr(Learner, "update", interrupted)
        with pytest.raises(Stopped, match=f"stopped by {number.name} after update 5, which is saved") as stopped:
            train_run(recipe(tmp_path))
    assert stopped.value.exit_code == 128 + number
    assert (tmp_path / "run/checkpoints/latest").read_text().strip() == "step-00000005"
    assert final(train_run(recipe(tmp_path)))["/model.safetensors"] == final(unbroken)["/model.safetensors"] or (
        # the average at the end is over the checkpoints there are, and the stop has made one more
        final(tmp_path / "run")["step-00000012/model.safetensors"] == final(unbroken)["step-00000012/model.safetensors"]
    )


def test_other_settings_need_consent(tmp_path: Path) -> None:
    train_run(recipe(tmp_path, training__max_updates=3))
    message = r"lr was 0.001, is 0.5; training.max_updates was 3, is 4; continue .* \(accept_changes=True\)"
    with pytest.raises(RunError, match=message):
        train_run(recipe(tmp_path, training__max_updates=4, training__lr=0.5))
    train_run(recipe(tmp_path, training__max_updates=4, training__lr=0.5), accept_changes=True)
    assert whole_checkpoints(tmp_path / "run/checkpoints")[-1].name == "step-00000004"
    train_run(recipe(tmp_path, training__max_updates=2), fresh=True)
    assert whole_checkpoints(tmp_path / "run/checkpoints")[-1].name == "step-00000002"


def test_nothing_to_learn_from(tmp_path: Path) -> None:
    empty = tmp_path / "empty.tsv"
    empty.write_text("no tab\n")
    with pytest.raises(DataError, match="no sentence pair to train on"):
        train_run(recipe(tmp_path, train=[str(empty)]))
    with pytest.raises(DataError, match="no sentence pair to validate on"):
        train_run(recipe(tmp_path, dev=[str(empty)]))
    with pytest.raises(ConfigError, match="if it is a corpus, set train to it"):
        Recipe.read(empty, {})


def test_settings_that_are_damaged_are_said_to_be(tmp_path: Path) -> None:
    run = train_run(recipe(tmp_path, training__max_updates=1))
    (run / "run.toml").write_text("lr = fast", encoding="utf-8")
    with pytest.raises(RunError, match=r"start over \(fresh=True\)"):
        train_run(recipe(tmp_path, training__max_updates=1))


def test_a_start_that_came_to_nothing_binds_nobody(tmp_path: Path) -> None:
    with pytest.raises(GlassformerError, match="the text suffices for"):
        train_run(recipe(tmp_path, tokenizer__vocab_size=5000, training__max_updates=1))
    train_run(recipe(tmp_path, training__max_updates=1))
    assert whole_checkpoints(tmp_path / "run/checkpoints")


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"train": ["no-such-file.tsv"]}, "no such file"),
        ({"vocabulary": "no-such-folder"}, "no-such-folder"),
        ({"model.n_heads": 7}, "n_heads"),
        ({"tokenizer.vocab_size": 5000}, "the text suffices for"),
    ],
)
def test_a_mistake_costs_no_run(changes: dict[str, Any], complaint: str, tmp_path: Path) -> None:
    run = train_run(recipe(tmp_path, training__max_updates=1))
    before = {path: path.read_bytes() for path in run.rglob("*") if path.is_file()}
    with pytest.raises(GlassformerError, match=complaint):
        train_run(recipe(tmp_path, training__max_updates=1, **changes), fresh=True)
    assert {path: path.read_bytes() for path in run.rglob("*") if path.is_file()} == before


def test_starting_over_deletes_only_what_a_run_made(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "glassformer")
    run = train_run(recipe(tmp_path, training__max_updates=1), observers=[ModelCard()])
    for name in ("report.html", "ctranslate2.json", "ctranslate2-int8/model.bin", "tensorboard/events.out.tfevents.1"):
        (run / name).parent.mkdir(exist_ok=True)
        (run / name).touch()
    (run / ".model.safetensors.77.part").touch()
    made = {path for path in run.rglob("*") if path.is_file()}
    foreign = [run / name for name in ("notes.txt", "data/corpus.tsv", "checkpoints/mine/x", "ctranslate2.tsv")]
    for path in foreign:
        path.parent.mkdir(exist_ok=True)
        shutil.copy(tmp_path / "corpus.tsv", path)
    corpus = str(run / "data/corpus.tsv")
    _remove_run(run, recipe(tmp_path))
    assert {path for path in run.rglob("*") if path.is_file()} == {run / "run.toml", *foreign}, made
    assert "kept files that no run wrote: checkpoints, ctranslate2.tsv, data, notes.txt" in caplog.text
    train_run(recipe(tmp_path, training__max_updates=2, train=[corpus]), fresh=True, observers=[ModelCard()])
    assert (run / "README.md").exists()
    (run / "README.md").write_text("my own words")
    train_run(recipe(tmp_path, training__max_updates=1, train=[corpus]), fresh=True, observers=[ModelCard()])
    assert whole_checkpoints(run / "checkpoints")[-1].name == "step-00000001"
    assert all(path.read_bytes() == (tmp_path / "corpus.tsv").read_bytes() for path in foreign)
    assert (run / "README.md").read_text() == "my own words"


@pytest.mark.parametrize("name", ["init", "train"])
def test_starting_over_never_deletes_what_it_reads(tmp_path: Path, name: str) -> None:
    run = train_run(recipe(tmp_path, training__max_updates=1))
    shutil.copy(tmp_path / "corpus.tsv", run / "examples.txt")
    table: dict[str, Any] = {"init": str(run), "train": [{"path": str(run / "examples.txt"), "format": "tsv"}]}
    with pytest.raises(RunError, match="which this run reads; move it or set another out"):
        train_run(recipe(tmp_path, **{name: table[name]}), fresh=True)
    assert load_model(run)


def test_a_run_goes_on_without_the_vocabulary_it_was_given(tmp_path: Path) -> None:
    made = train_run(recipe(tmp_path, "made", training__max_updates=1))
    given = tmp_path / "vocabulary"
    Tokenizers.load(made).save(given)
    train_run(recipe(tmp_path, training__max_updates=1, vocabulary=str(given)))
    shutil.rmtree(given)
    run = train_run(recipe(tmp_path, training__max_updates=2, vocabulary=str(given)), accept_changes=True)
    assert whole_checkpoints(run / "checkpoints")[-1].name == "step-00000002"


def test_the_shape_of_a_model_cannot_change_on_the_way(tmp_path: Path) -> None:
    run = train_run(recipe(tmp_path, training__max_updates=1))
    before = (run / "run.toml").read_bytes()
    with pytest.raises(RunError, match=r"cannot continue with another model or vocabulary: model.d_ff was .*, is 24"):
        train_run(recipe(tmp_path, training__max_updates=2, model__d_ff=24), accept_changes=True)
    assert (run / "run.toml").read_bytes() == before
    train_run(recipe(tmp_path, training__max_updates=2, model__dropout=0.2), accept_changes=True)


def test_changed_corpora_are_named_by_their_paths(tmp_path: Path) -> None:
    train_run(recipe(tmp_path, training__max_updates=1))
    other = tmp_path / "other.tsv"
    other.write_bytes((tmp_path / "corpus.tsv").read_bytes())
    with pytest.raises(RunError, match=r"train was \S+/corpus\.tsv, is \S+/other\.tsv;"):
        train_run(recipe(tmp_path, training__max_updates=1, train=[str(other)]))


def test_a_finer_model_reads_as_the_one_that_it_began_with(tmp_path: Path) -> None:
    first = train_run(recipe(tmp_path, src_lang="fr", tgt_lang="en", lower_capitals=True, training__max_updates=1))
    finer = train_run(recipe(tmp_path, "finer", init=str(first), tgt_lang="de", training__max_updates=1))
    about = read_config(finer).about
    assert (about.src_lang, about.tgt_lang, about.lower_capitals) == ("fr", "de", True)


def test_weights_that_are_the_same_are_validated_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[Any] = []
    validate = Validator.validate

    def counted(self: Validator, *rest: Any) -> Validation:
        calls.append(rest)
        return validate(self, *rest)

    monkeypatch.setattr(Validator, "validate", counted)
    train_run(recipe(tmp_path, training__max_updates=1, training__validate_every=1))
    names = [line["weights"] for line in scores(tmp_path / "run") if line["kind"] == "end"]
    assert {"last", "average"} <= set(names)
    assert len(calls) < 1 + len(names) + 1


def test_a_folder_that_is_not_a_runs(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "thesis.doc").write_text("years of work")
    for fresh in (False, True):
        with pytest.raises(RunError, match="contains files but no run"):
            train_run(recipe(tmp_path), fresh=fresh)
    assert (tmp_path / "run" / "thesis.doc").exists()
    (tmp_path / "file").write_text("")
    with pytest.raises(RunError, match="the run needs a writable folder"):
        train_run(recipe(tmp_path, out="file/run"))


def test_no_folder_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="out is not set: name the run folder"):
        train_run(recipe(tmp_path).model_copy(update={"out": None}))


def test_a_damaged_checkpoint_falls_back(tmp_path: Path, unbroken: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "glassformer")
    train_run(recipe(tmp_path, training__max_updates=6))
    victim = tmp_path / "run/checkpoints/step-00000006/model.safetensors"
    victim.write_bytes(victim.read_bytes()[:100])
    train_run(recipe(tmp_path), accept_changes=True)
    said = caplog.text
    assert "skipped a damaged checkpoint: " in said
    assert "step-00000006" in said
    assert "resuming from update 3" in said
    last = "step-00000012/model.safetensors"
    assert final(tmp_path / "run")[last] == final(unbroken)[last]


def planted(fault_at: int, times: int) -> Any:
    """Make an update whose gradient is no number, that many times."""
    left, update = [times], Learner.update

    def faulty(self: Learner, step: int, *rest: Any) -> Update:
        if step == fault_at and left[0]:
            left[0] -= 1
            with torch.no_grad():
                self.parameters["encoder.layers.0.self_attention.output.weight"][0, 0] = float("nan")
        return update(self, step, *rest)

    return faulty


def test_not_a_number_rolls_back_with_smaller_steps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(Learner, "update", planted(fault_at=5, times=2))
    train_run(recipe(tmp_path))
    said = caplog.text
    assert "loss or gradient is not finite at update 5" in said
    assert "first in encoder.layers.0.self_attention.output.weight itself" in said
    assert "corpus.tsv:" in said, "the pairs are named by file and line"
    assert "back to update 3 with 0.5 times" in said
    assert "back to update 3 with 0.25 times" in said
    last = load_checkpoint(whole_checkpoints(tmp_path / "run/checkpoints")[-1])
    assert last.state["rollbacks"] == 2
    assert all(tensor.isfinite().all() for tensor in last.tensors["model"].values())
    rates = {line["step"]: line["lr"] for line in scores(tmp_path / "run") if line["kind"] == "train"}
    assert rates[6] == pytest.approx(0.25 * 0.001 * (4 / 6) ** 0.5)


def test_not_a_number_for_ever_stops_with_everything_saved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Learner, "update", planted(fault_at=5, times=99))
    with pytest.raises(
        RunError, match=r"not finite at update 5 .* gave up after 3 rollbacks; the state of update 3 is saved"
    ):
        train_run(recipe(tmp_path))
    assert (tmp_path / "run/checkpoints/latest").read_text().strip() == "step-00000003"


def test_out_of_memory_names_the_batch_and_the_setting(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(self: Learner, *_: Any) -> Update:
        raise RuntimeError("[enforce fail at alloc_cpu.cpp:128] DefaultCPUAllocator: can't allocate memory")

    monkeypatch.setattr(Learner, "update", full)
    with pytest.raises(RunError, match=r"out of memory at update 1, on a batch of \d+ x .*; lower max_tokens \(24\)"):
        train_run(recipe(tmp_path))


def test_patience_ends_a_run(tmp_path: Path) -> None:
    train_run(recipe(tmp_path, training__patience=1, training__lr=1e-9, training__max_updates=100))
    steps = [line["step"] for line in scores(tmp_path / "run") if line["kind"] == "dev"]
    assert steps == [4, 8], "the second validation is no better than the first, and one is enough"


def test_accumulating_is_one_batch_in_parts(tmp_path: Path) -> None:
    """Two batches an update, without dropout, give the gradient of both together: sums, not means of means."""
    quiet = {"model__dropout": 0.0, "reader__join": 0.0, "reader__sample_alpha": 0.0, "reader__noise__lower": 0.0}
    one = train_run(recipe(tmp_path, "one", batch__max_tokens=4096, training__max_updates=1, **quiet))
    many = train_run(recipe(tmp_path, "many", training__accumulate=99, training__max_updates=1, **quiet))
    gradients = [load_file(run / "checkpoints/step-00000001/optimizer.safetensors") for run in (one, many)]
    for name, tensor in gradients[0].items():  # Adam's first moment is a tenth of the gradient
        assert torch.allclose(tensor, gradients[1][name], atol=1e-6), name


@pytest.mark.parametrize("choose", ["last", "average", "best", "ema"])
def test_the_weights_that_were_chosen(tmp_path: Path, unbroken: Path, choose: str) -> None:
    run = train_run(recipe(tmp_path, training__choose=choose))
    found = load_file(run / "model.safetensors")
    newest = whole_checkpoints(unbroken / "checkpoints")
    expected = {
        "last": lambda: load_checkpoint(newest[-1]).tensors["model"],
        "ema": lambda: load_checkpoint(newest[-1]).tensors["ema"],
        "average": lambda: average_checkpoints(newest[1:][-5:]),
        "best": lambda: load_file(unbroken / "best.safetensors"),
    }[choose]()
    assert all(torch.equal(found[name], expected[name]) for name in found)


def test_averaging_a_run(tmp_path: Path, unbroken: Path) -> None:
    average_run(unbroken, tmp_path / "mean", last=2)
    parts = [load_checkpoint(path).tensors["model"] for path in whole_checkpoints(unbroken / "checkpoints")[-2:]]
    for name, parameter in load_model(tmp_path / "mean").named_parameters():
        assert torch.allclose(parameter, (parts[0][name] + parts[1][name]) / 2, atol=1e-7)
    assert Tokenizers.load(tmp_path / "mean") == Tokenizers.load(unbroken)
    about, of_run = (read_config(folder).about for folder in (tmp_path / "mean", unbroken))
    assert about.training == {"averaged": 2}
    assert about.model_copy(update={"training": of_run.training}) == of_run
    with pytest.raises(RunError, match="no checkpoint to average"):
        average_checkpoints([])
    with pytest.raises(ModelFileError, match="already exists"):
        average_run(unbroken, unbroken, last=2)


def test_the_beginning_is_never_averaged(tmp_path: Path, unbroken: Path) -> None:
    n_steps = len(whole_checkpoints(unbroken / "checkpoints")) - 1
    average_run(unbroken, tmp_path / "mean", last=100)
    assert read_config(tmp_path / "mean").about.training == {"averaged": n_steps}


def test_fine_tuning_starts_from_a_model(tmp_path: Path, unbroken: Path) -> None:
    small = {"preset": "small"}  # which has no say
    run = train_run(recipe(tmp_path, init=str(unbroken), training__max_updates=1, training__lr=1e-9, **small))
    average_run(run, tmp_path / "mean", last=1)
    assert read_config(tmp_path / "mean").model == read_config(unbroken).model
    assert Tokenizers.load(run) == Tokenizers.load(unbroken)
    start = load_file(run / "checkpoints/step-00000000/model.safetensors")
    assert all(torch.equal(start[name], p) for name, p in load_model(unbroken).named_parameters())


def test_a_vocabulary_made_beforehand(tmp_path: Path, unbroken: Path) -> None:
    run = train_run(recipe(tmp_path, vocabulary=str(unbroken / "tokenizer.model"), training__max_updates=1))
    assert Tokenizers.load(run) == Tokenizers.load(unbroken)


@pytest.mark.parametrize(
    "changes",
    [
        {"training__optimizer": "adamw", "training__weight_decay": 0.1},
        {"training__schedule": "paper", "training__lr": 1.0},
        {"training__clip_norm": 0.0, "training__label_smoothing": 0.0},
        {"training__precision": "bf16"},
        {"training__metric": "loss", "training__average_last": 1, "search__width": 2},
        {"tokenizer__joint": False, "model__tie": "target", "tokenizer__model": "bpe"},
        {"model__start_token": "bos", "bleu_tokenize": "none"},
    ],
)
def test_every_choice_trains(tmp_path: Path, changes: dict[str, Any]) -> None:
    run = train_run(recipe(tmp_path, training__max_updates=3, **changes))
    losses = [line["loss"] for line in scores(run) if line["kind"] == "train"]
    assert all(0 < loss < 20 for loss in losses)


@pytest.mark.parametrize("precision", ["bf16", "fp16"])
def test_reduced_precision_stays_near_the_full_one(tmp_path: Path, precision: str) -> None:
    """With norms, wide and narrow numbers meet; the loss is computed in full precision either way."""
    size = {"preset": "tiny", "model__d_model": 32, "model__dropout": 0.0, "training__log_every": 1}
    full = train_run(recipe(tmp_path, "full", **size))
    reduced = train_run(recipe(tmp_path, "reduced", training__precision=precision, **size))
    curves = [[line["loss"] for line in scores(run) if line["kind"] == "train"] for run in (full, reduced)]
    assert curves[0] != curves[1]
    assert curves[0] == pytest.approx(curves[1], rel=0.02)


def test_the_model_knows_how_to_be_searched_and_which_head_aligns(unbroken: Path) -> None:
    about = read_config(unbroken).about
    assert about.search is not None
    assert (about.search.width, about.search.max_length) in {(1, 12), (5, 12)}
    assert about.alignment is not None
    assert about.alignment.layer == about.alignment.head == 0  # the only one
    assert about.tokenizer_sha256 == tuple(tokenizer.sha256 for tokenizer in Tokenizers.load(unbroken))
    assert about.training["updates"] == 12


def test_machines_read_json(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "glassformer")
    lines = JsonLines()
    logging.getLogger("glassformer").addHandler(lines)
    try:
        train_run(recipe(tmp_path, training__max_updates=4), observers=[lines])
    finally:
        logging.getLogger("glassformer").removeHandler(lines)
    printed = [json.loads(line) for line in capsys.readouterr().err.splitlines()]
    assert {"message", "train", "dev", "end"} == {line["kind"] for line in printed}


def test_wrong_words_on_the_command_line(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "glassformer", "train", "--max-update", "3"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr == "glassformer: unknown setting --max-update; did you mean max-updates?\n"
