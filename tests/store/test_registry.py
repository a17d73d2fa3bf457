"""Models by name: found beside the code, behind a folder of the same name, and named in the error otherwise."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from glassformer import Transformer, load_model, preset, save_model
from glassformer.errors import ModelFileError
from glassformer.store.folder import CARD, WEIGHTS, read_config
from glassformer.store.registry import DEFAULT_MODEL, SHIPPED, find_model, shipped_models
from glassformer.text.tokenizer import Tokenizers
from glassformer.translate.engines.probe import load_cached_export

MEGABYTES = 20


def test_the_default_is_shipped() -> None:
    assert DEFAULT_MODEL in shipped_models()
    assert find_model(DEFAULT_MODEL) == SHIPPED / DEFAULT_MODEL


@pytest.mark.parametrize("name", shipped_models())
def test_a_shipped_model_is_whole_and_small(name: str) -> None:
    folder = find_model(name)
    config = read_config(name)
    model, tokenizers = load_model(name), Tokenizers.load(folder)
    assert model.output.weight.dtype == torch.float32  # what it is stored in is for storing
    assert config.about.tokenizer_sha256 == (tokenizers.src.sha256, tokenizers.tgt.sha256)
    assert config.about.alignment is not None
    assert config.about.training["tokens"]
    assert sum(file.stat().st_size for file in folder.iterdir() if file.is_file()) <= MEGABYTES * 10**6
    card = (folder / CARD).read_text(encoding="utf-8")
    for part in ("CC-BY", "Tatoeba", "BLEU", "chrF", "TER", "Signatures: ", "## Limits"):
        assert part in card
    assert {file.stat().st_mode & 0o044 for file in folder.iterdir() if file.is_file()} == {0o044}


def test_a_folder_of_that_name_comes_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    save_model(Transformer(preset("pocket", vocab=20)), DEFAULT_MODEL)
    assert find_model(DEFAULT_MODEL) == Path(DEFAULT_MODEL)
    assert load_model(DEFAULT_MODEL).config.d_model == 16


def test_an_unknown_name_is_told_the_nearest(tmp_path: Path) -> None:
    with pytest.raises(ModelFileError, match=r"^fr-em: no such model folder.*did you mean fr-en\?$"):
        find_model("fr-em")
    save_model(Transformer(preset("pocket", vocab=20)), tmp_path / "my-model")
    with pytest.raises(ModelFileError, match=rf"did you mean {tmp_path}/my-model\?$"):
        find_model(tmp_path / "my-modle")


def test_exports_of_a_shipped_model_go_to_the_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A package stays as it was installed."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    before = sorted(find_model(DEFAULT_MODEL).iterdir())
    assert load_cached_export(find_model(DEFAULT_MODEL)).is_relative_to(tmp_path)
    assert sorted(find_model(DEFAULT_MODEL).iterdir()) == before
    assert (find_model(DEFAULT_MODEL) / WEIGHTS).is_file()
