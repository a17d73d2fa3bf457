"""The probe chooses what is fast and accurate, once; exports are made once, and anew when the model has changed."""

from __future__ import annotations

import json
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Thread, current_thread

import pytest
import torch
from typer.testing import CliRunner

from glassformer.cli import app
from glassformer.config import SearchConfig, TokenizerConfig
from glassformer.convert.ctranslate2 import read_mark
from glassformer.errors import ConfigError, UsageError
from glassformer.store.folder import EXAMPLES, load_model, save_model
from glassformer.text.tokenizer import Tokenizer, Tokenizers
from glassformer.translate.engines import probe
from glassformer.translate.engines.ctranslate2 import Setup
from glassformer.translate.engines.engine import Request, Source
from glassformer.translate.engines.probe import (
    Measurement,
    candidates,
    choose_setup,
    load_cached_export,
    load_engine,
    made_up,
    measure,
    typical_sources,
)
from tests.models import build

VOCAB = 280


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Make a model folder."""
    lines = ["le raton laveur lave son repas", "the raccoon washes its meal", "un deux trois", "one two three"]
    tokenizer = Tokenizer.train(lines, TokenizerConfig(vocab_size=VOCAB))
    Tokenizers(tokenizer, tokenizer).save(tmp_path / "model")
    save_model(build(dtype=torch.float32, src_vocab=VOCAB, tgt_vocab=VOCAB, d_model=32), tmp_path / "model")
    return tmp_path / "model"


def change(folder: Path) -> None:
    model = load_model(folder)
    with torch.no_grad():
        model.output.weight.add_(0.5)
    save_model(model, folder)


def test_every_way_is_measured(folder: Path) -> None:
    tried = measure(folder, made_up(VOCAB, 8))
    assert [each.setup._replace(batch=64) for each in tried] == candidates()
    assert {each.setup.batch for each in tried} <= {32, 64}
    assert tried[0].setup.quantization == "float32"
    for each in tried:
        assert each.seconds > 0
        if each.setup.quantization == "float32":
            assert each.error < 1e-5
            assert abs(each.loss) < 1e-5
        elif each.setup.quantization == "int8":
            assert 1e-4 < each.error < 0.1


def faked(monkeypatch: pytest.MonkeyPatch, **others: Measurement) -> list[int]:
    """Let the probe find what a test wants, and count how often it is asked."""
    calls: list[int] = []

    def measured(*_: object) -> list[Measurement]:
        calls.append(1)
        return [Measurement(Setup("float32", 2, 1), 1.0, 1e-7, 0.0), *others.values()]

    monkeypatch.setattr(probe, "measure", measured)
    return calls


def test_an_inaccurate_way_is_never_chosen(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    faked(
        monkeypatch,
        rounded=Measurement(Setup("int8", 2, 1), 0.1, 0.08, 0.0),
        unlikely=Measurement(Setup("bfloat16", 2, 1), 0.1, 0.001, 0.1),
        broken=Measurement(Setup("float16", 2, 1), 0.1, float("nan"), 0.0),
    )
    assert choose_setup(folder) == Setup("float32", 2, 1)


def test_the_fastest_accurate_way_is_chosen_and_remembered(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = faked(
        monkeypatch,
        good=Measurement(Setup("int8", 2, 1), 0.6, 0.01, 0.0),
        alone=Measurement(Setup("float32", 1, 2), 0.9, 1e-7, 0.0),
    )
    assert choose_setup(folder) == choose_setup(folder) == Setup("int8", 2, 1)
    assert len(calls) == 1
    change(folder)
    choose_setup(folder)
    assert len(calls) == 2
    monkeypatch.setenv("CT2_FORCE_CPU_ISA", "GENERIC")  # as good as another machine
    choose_setup(folder)
    assert len(calls) == 3
    assert len(json.loads((folder / "ctranslate2.json").read_text())["setups"]) == 2


def test_a_little_faster_is_not_worth_a_difference(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    faked(monkeypatch, hardly=Measurement(Setup("int8", 2, 1), 0.95, 0.01, 0.0))
    assert choose_setup(folder) == Setup("float32", 2, 1)


@pytest.mark.parametrize("damage", ["", "[]", "{", '{"fingerprint": "x"}', '{"setups": 3}'])
def test_a_damaged_memory_is_no_memory(damage: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = faked(monkeypatch)
    (folder / "ctranslate2.json").write_text(damage)
    choose_setup(folder)
    choose_setup(folder)
    assert len(calls) == 1


def test_an_export_is_made_once_and_anew_for_other_weights(folder: Path) -> None:
    export = load_cached_export(folder)
    assert export == folder / "ctranslate2"
    written = (export / "model.bin").stat().st_mtime_ns
    assert load_cached_export(folder) == export
    assert (export / "model.bin").stat().st_mtime_ns == written
    before = read_mark(export)
    change(folder)
    assert load_cached_export(folder) == export
    assert read_mark(export) != before
    assert load_cached_export(folder, "int8") == folder / "ctranslate2-int8"
    assert sorted(path.name for path in folder.iterdir() if path.is_dir()) == ["ctranslate2", "ctranslate2-int8"]


def test_a_folder_that_cannot_be_written(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(os, "access", lambda *_: False)  # whoever runs this may write everywhere
    before = sorted(folder.iterdir())
    export = load_cached_export(folder)
    assert export.is_relative_to(tmp_path / "cache" / "glassformer")
    faked(monkeypatch)
    choose_setup(folder)
    assert sorted(folder.iterdir()) == before


def test_what_lies_in_a_folder_that_cannot_be_written_is_used(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = faked(monkeypatch, good=Measurement(Setup("int8", 2, 1), 0.6, 0.01, 0.0))
    exports = [load_cached_export(folder), load_cached_export(folder, "int8")]
    choose_setup(folder)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(os, "access", lambda *_: False)  # whoever runs this may write everywhere
    assert [load_cached_export(folder), load_cached_export(folder, "int8")] == exports
    assert choose_setup(folder) == Setup("int8", 2, 1)
    assert len(calls) == 1
    assert not (tmp_path / "cache").exists()
    change(folder)
    assert load_cached_export(folder).is_relative_to(tmp_path / "cache")


def test_where_nothing_can_be_remembered_it_is_measured_again(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = faked(monkeypatch)
    load_cached_export(folder)
    monkeypatch.setenv("XDG_CACHE_HOME", "/dev/null")
    monkeypatch.setattr(os, "access", lambda *_: False)
    assert choose_setup(folder) == choose_setup(folder) == Setup("float32", 2, 1)
    assert len(calls) == 2


def test_one_can_insist_on_a_number_format(
    folder: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    calls = faked(
        monkeypatch,
        good=Measurement(Setup("int8", 2, 1), 0.6, 0.01, 0.0),
        rough=Measurement(Setup("bfloat16", 2, 1), 0.7, 0.5, 0.0),
    )
    caplog.set_level("INFO", "glassformer")
    for kind in ("float32", "int8", "bfloat16"):
        assert choose_setup(folder, kind).quantization == kind
        assert choose_setup(folder, kind).quantization == kind
    assert choose_setup(folder).quantization == "int8"
    assert len(calls) == 4
    assert len(caplog.messages) == 4
    assert "first use" in caplog.messages[0]
    with pytest.raises(
        ConfigError, match="does not support float16 on this machine; it supports float32, int8, bfloat16"
    ):
        choose_setup(folder, "float16")
    with pytest.raises(ConfigError, match="unknown quantization int9"):
        choose_setup(folder, "int9")


def test_several_at_once(folder: Path) -> None:
    with ThreadPoolExecutor(4) as pool:
        exports = list(pool.map(load_cached_export, [folder] * 4))
    assert exports == [folder / "ctranslate2"] * 4
    assert not [path for path in folder.iterdir() if path.name.startswith(".")]
    found = dict(load_engine(folder, Setup()).translate([Source([7, 8])], Request(SearchConfig(max_length=5))))
    assert found[0][0].tokens


def test_short_models(folder: Path) -> None:
    model = build(dtype=torch.float32, src_vocab=VOCAB, tgt_vocab=VOCAB, max_positions=9)
    save_model(model, folder)
    assert measure(folder, [[5] * 50])[0].error < 1e-5


def test_the_probe_reads_the_examples_of_the_folder(folder: Path) -> None:
    (folder / EXAMPLES).write_text("un deux trois\n\nle raton\n", encoding="utf-8")
    encoded = Tokenizers.load(folder).src.encode_batch(["un deux trois", "le raton"])
    found = typical_sources(folder)
    assert found[:4] == encoded * 2
    assert len(found) >= 64
    (folder / EXAMPLES).write_text("\n", encoding="utf-8")
    assert typical_sources(folder) == made_up(VOCAB, len(found))


def test_export_command(folder: Path, tmp_path: Path) -> None:
    run = CliRunner().invoke
    for words, place in ([], folder / "ctranslate2"), (["--quantization", "int8"], folder / "ctranslate2-int8"):
        said = run(app, ["export", str(folder), "--to", "ctranslate2", *words])
        assert (said.exit_code, said.stdout) == (0, f"{place}\n")
        assert read_mark(place) is not None
    said = run(app, ["export", str(folder), "--to", "ctranslate2", "--out", str(tmp_path / "here")])
    assert (said.exit_code, said.stdout) == (0, f"{tmp_path / 'here'}\n")
    wrong = run(app, ["export", str(folder), "--to", "marian"]).exception
    assert isinstance(wrong, UsageError)
    wrong = run(app, ["export", str(folder), "--to", "ctranslate2", "--quantization", "int7"]).exception
    assert isinstance(wrong, ConfigError)
    assert "did you mean int8?" in str(wrong)


def test_torch_computes_in_a_thread_that_ends(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """While a thread lives that torch has computed in, CTranslate2 is several times slower with several threads."""
    threads: list[Thread] = []

    def note(*words: object) -> None:
        threads.append(current_thread())

    monkeypatch.setattr(probe, "export_folder", note)
    load_cached_export(folder)
    monkeypatch.undo()
    assert len(threads) == 1
    assert threads[0] is not current_thread()
    assert not threads[0].is_alive()
