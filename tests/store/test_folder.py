"""A model is a folder: written and read again it is the same model, and a damaged one is told in one line."""

from __future__ import annotations

import json
import pickle
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

import glassformer
from glassformer.cli import main
from glassformer.config import TokenizerConfig
from glassformer.errors import ConfigError, GlassformerError
from glassformer.store.folder import CARD, CONFIG, WEIGHTS, copy_model, load_model, read_config, save_model
from glassformer.text.tokenizer import Tokenizer, Tokenizers
from tests.models import EACH_CHOICE, build, ids, padding

Damage = Callable[[Path], object]


@EACH_CHOICE
def test_written_and_read_it_is_the_same_model(changes: dict[str, Any], tmp_path: Path) -> None:
    model = build(**changes)
    save_model(model, tmp_path / "new" / "folder")
    again = load_model(tmp_path / "new" / "folder")
    assert again.config == model.config == read_config(tmp_path / "new" / "folder").model
    assert not again.training
    src, tgt, mask = ids(0, 2, 5, vocab=model.config.src_vocab), ids(1, 2, 4), padding([5, 3])
    assert torch.equal(again.decode(tgt, again.encode(src, mask)), model.decode(tgt, model.encode(src, mask)))


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
def test_the_number_format_is_kept(dtype: torch.dtype, tmp_path: Path) -> None:
    model = build(dtype=dtype)
    save_model(model, tmp_path)
    again = load_model(tmp_path)
    assert {parameter.dtype for parameter in again.parameters()} == {dtype}
    assert all(torch.equal(a, b) for a, b in zip(again.parameters(), model.parameters(), strict=True))
    assert torch.equal(again.encode(ids(0, 1, 5)).states, model.encode(ids(0, 1, 5)).states)


def test_half_precision_is_for_storing(tmp_path: Path) -> None:
    """A copy in float16 is half as large, computes in float32, and says what was stored."""
    model = build(dtype=torch.float32)
    whole, half = tmp_path / "whole", tmp_path / "half"
    save_model(model, whole)
    Tokenizers(*[Tokenizer.train(["a b c d e f g"] * 9, TokenizerConfig(vocab_size=268))] * 2).save(whole)
    (whole / CARD).write_text("# a card")
    copy_model(whole, half, "float16")
    assert {tensor.dtype for tensor in load_file(half / WEIGHTS).values()} == {torch.float16}
    again = load_model(half)
    for a, b in zip(again.parameters(), model.parameters(), strict=True):
        assert a.dtype == torch.float32
        assert torch.equal(a, b.half().float())
    assert Tokenizers.load(half) == Tokenizers.load(whole)
    assert (half / CARD).read_text() == "# a card"
    with pytest.raises(GlassformerError, match="already exists; name a new folder"):
        copy_model(whole, half, "float16")


@pytest.mark.parametrize(("tie", "tables"), [("all", 1), ("target", 2), ("embeddings", 2), ("none", 3)])
def test_shared_weights_are_stored_once(tie: str, tables: int, tmp_path: Path) -> None:
    model = build(tie=tie)
    save_model(model, tmp_path)
    stored = load_file(tmp_path / WEIGHTS)
    assert sum(tensor.shape == (11, 8) for tensor in stored.values()) == tables
    assert sum(tensor.numel() for tensor in stored.values()) == sum(p.numel() for p in model.parameters())
    again = load_model(tmp_path)
    assert (again.src_embedding.table is again.tgt_embedding.table) == (tie in ("all", "embeddings"))
    assert (again.output.weight is again.tgt_embedding.table) == (tie in ("all", "target"))


def test_writing_twice_leaves_the_second(tmp_path: Path) -> None:
    save_model(build(0), tmp_path)
    second = build(1, norm="pre")
    save_model(second, tmp_path)
    again = load_model(tmp_path)
    assert again.config.norm == "pre"
    assert all(torch.equal(a, b) for a, b in zip(again.parameters(), second.parameters(), strict=True))


def change(**settings: Any) -> Damage:
    """Change settings of the model in config.json."""

    def damage(folder: Path) -> None:
        content = json.loads((folder / CONFIG).read_text(encoding="utf-8"))
        content["model"].update(settings)
        (folder / CONFIG).write_text(json.dumps(content), encoding="utf-8")

    return damage


def write(name: str, content: str | bytes) -> Damage:
    data = content if isinstance(content, bytes) else content.encode()
    return lambda folder: (folder / name).write_bytes(data)


def remove(name: str) -> Damage:
    return lambda folder: (folder / name).unlink()


def truncate(name: str, share: float) -> Damage:
    return lambda folder: (folder / name).write_bytes(
        (folder / name).read_bytes()[: int((folder / name).stat().st_size * share)]
    )


def tensors(edit: Callable[[dict[str, torch.Tensor]], object]) -> Damage:
    """Change the stored tensors."""

    def damage(folder: Path) -> None:
        weights = load_file(folder / WEIGHTS)
        edit(weights)
        save_file(weights, folder / WEIGHTS)

    return damage


def foreign(folder: Path) -> None:
    save_file({"model.decoder.embed_tokens.weight": torch.ones(11, 8)}, folder / WEIGHTS)


def rename(folder: Path) -> None:
    folder.rename(folder.with_name("elsewhere"))


def both(one: Damage, other: Damage) -> Damage:
    def damage(folder: Path) -> None:
        one(folder)
        other(folder)

    return damage


def as_folder(folder: Path) -> None:
    (folder / CONFIG).unlink()
    (folder / CONFIG).mkdir()


FIRST = "src_embedding.table"
DAMAGES: dict[str, tuple[Damage, str]] = {
    "no folder": (rename, "no such model folder"),
    "no config": (remove(CONFIG), "is not a model folder: it has no config.json"),
    "a run that goes on": (both(remove(CONFIG), write("run.toml", "")), "has not finished: resume it"),
    "an export": (both(write(CONFIG, "{}"), write("model.bin", "")), "is a CTranslate2 export"),
    "config is a folder": (as_folder, "cannot be read"),
    "config is not JSON": (write(CONFIG, "d_model = 512"), "is not valid JSON"),
    "config is empty": (write(CONFIG, ""), "is not valid JSON"),
    "config is cut short": (truncate(CONFIG, 0.5), "is not valid JSON, possibly truncated"),
    "config is binary": (write(CONFIG, b"\xff\xfe\x00\x80"), "is not valid JSON"),
    "config is bottomless": (write(CONFIG, "[" * 100_000), "is not valid JSON"),
    "config is a list": (write(CONFIG, "[1, 2]"), "does not describe a glassformer model"),
    "config is another program's": (write(CONFIG, '{"model_type": "marian", "d_model": 512}'), "does not describe"),
    "config without model": (write(CONFIG, '{"format": "glassformer-model"}'), "model: Field required"),
    "config of the future": (write(CONFIG, '{"format": "glassformer-model", "version": 2, "model": {}}'), "version=2"),
    "unknown setting": (change(d_modle=8), "unknown setting model.d_modle; did you mean d_model?"),
    "heads do not divide": (change(n_heads=3), "d_model=8 does not divide into n_heads=3"),
    "negative size": (change(d_ff=-1), "model.d_ff=-1"),
    "monstrous size": (change(d_model=10**18, n_heads=1), "model.d_model=1000000000000000000"),
    "monstrous depth": (change(n_encoder_layers=10**9), "model.n_encoder_layers=1000000000"),
    "monstrous length": (change(max_positions=10**12), "model.max_positions=1000000000000"),
    "text for a number": (change(d_model="wide"), "model.d_model='wide'"),
    "no number": (change(norm_eps=float("nan")), "model.norm_eps=nan"),
    "no weights": (remove(WEIGHTS), "has no weights: model.safetensors is missing"),
    "weights are empty": (write(WEIGHTS, b""), "is not a complete safetensors file"),
    "weights are cut short": (truncate(WEIGHTS, 0.7), "is not a complete safetensors file"),
    "weights are cut in the header": (truncate(WEIGHTS, 0.01), "is not a complete safetensors file"),
    "weights are a pickle": (write(WEIGHTS, pickle.dumps({"a": [1] * 100})), "is not a complete safetensors file"),
    "weights are another model's": (foreign, f"lacks {FIRST}"),
    "a weight is missing": (tensors(lambda w: w.pop("encoder.layers.0.feed_forward.hidden.bias")), "lacks encoder"),
    "a weight too many": (tensors(lambda w: w.update(extra=torch.ones(2))), "has extra, which this model does not"),
    "a weight of another shape": (tensors(lambda w: w.update({FIRST: torch.ones(2)})), f"{FIRST} has shape (2,),"),
    "whole numbers": (tensors(lambda w: w.update({k: v.long() for k, v in w.items()})), "expected floating point"),
    "config of another size": (change(d_model=16), f"{FIRST} has shape (11, 8), config.json requires (11, 16)"),
    "config of another depth": (change(n_decoder_layers=3), "lacks decoder.layers.2"),
    "config of another tie": (change(tie="none"), "lacks tgt_embedding.table"),
}  # fmt: skip


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    save_model(build(), tmp_path / "model")
    return tmp_path / "model"


@pytest.mark.parametrize("name", DAMAGES)
def test_a_damaged_folder_is_told_in_one_line(
    name: str, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    damage, said = DAMAGES[name]
    damage(folder)
    with pytest.raises(GlassformerError) as caught:
        load_model(folder)
    message = str(caught.value)
    assert said in message
    assert "\n" not in message
    assert str(folder) in message

    monkeypatch.setattr(sys, "argv", ["glassformer", "info", str(folder)])
    with pytest.raises(SystemExit) as stopped:
        main()
    assert stopped.value.code == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err == f"glassformer: {message}\n"


@pytest.mark.parametrize("name", ["unknown setting", "weights are cut short"])
def test_the_command_ends_with_code_2_and_no_traceback(name: str, folder: Path) -> None:
    DAMAGES[name][0](folder)
    done = subprocess.run(
        [sys.executable, "-m", "glassformer", "info", folder], capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert done.stdout == ""
    assert len(done.stderr.splitlines()) == 1
    assert done.stderr.startswith("glassformer: ")


def test_the_command_says_what_is_in_a_folder(folder: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "glassformer", "info", folder], capture_output=True, text=True, check=True
    )
    assert done.stderr == ""
    weights = sum(p.numel() for p in build().parameters())
    assert re.search(rf"^all +{weights:,}$", done.stdout, re.MULTILINE)
    assert re.search(r"^d_model +8$", done.stdout, re.MULTILINE)


def test_nothing_unpickles() -> None:
    """A folder from a stranger must not be able to run code."""
    sources = list(Path(glassformer.__file__).parent.rglob("*.py"))
    assert len(sources) > 20
    for path in sources:
        code = path.read_text(encoding="utf-8")
        assert not re.search(r"\bpickle\b|torch\.load\b|\bdill\b|\bjoblib\b|\bmarshal\b|\bshelve\b", code), path


def test_a_head_that_the_model_does_not_have(folder: Path) -> None:
    facts = json.loads((folder / CONFIG).read_text(encoding="utf-8"))
    facts["about"]["alignment"] = {"layer": 0, "head": 99}
    (folder / CONFIG).write_text(json.dumps(facts), encoding="utf-8")
    with pytest.raises(GlassformerError, match="no head 99 in a decoder layer 0"):
        read_config(folder)


def test_a_device_that_is_not_there(folder: Path) -> None:
    with pytest.raises(ConfigError, match="device=toaster: no such device; known: auto, cpu"):
        load_model(folder, "toaster")


def test_a_place_that_is_no_folder(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(GlassformerError, match="file cannot be created: File exists"):
        save_model(build(), tmp_path / "file")
