"""An export gives the probabilities that our model gives, for every setting that CTranslate2 can express."""

from __future__ import annotations

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import ctranslate2
import numpy as np
import pytest
import torch
from torch import Tensor

from glassformer.config import TokenizerConfig
from glassformer.convert.ctranslate2 import export_ctranslate2, read_mark, vocabulary
from glassformer.errors import ConfigError, ModelFileError
from glassformer.model.trace import look
from glassformer.model.transformer import Transformer
from glassformer.store.folder import About, AttentionHead
from glassformer.text.tokenizer import Tokenizer, Tokenizers
from glassformer.text.vocab import EOS
from tests.models import EACH_CHOICE, build

LINES = ["le raton laveur lave son repas", "the raccoon washes its meal", "un deux trois", "one two three"]
SOURCES = [[5, 9, 260, 17, 200], [261], [4, 4, 12, 13, 14, 15, 16, 30, 31]]
TARGETS = [[7, 6, 5], [100, 101, 102, 103, 104, 105, 106], []]


@pytest.fixture(scope="module")
def joint() -> Tokenizers:
    tokenizer = Tokenizer.train(LINES, TokenizerConfig(vocab_size=280))
    return Tokenizers(tokenizer, tokenizer)


@pytest.fixture(scope="module")
def separate(joint: Tokenizers) -> Tokenizers:
    return Tokenizers(Tokenizer.train(LINES, TokenizerConfig(vocab_size=285)), joint.tgt)


def sized(changes: dict[str, Any], tokenizers: Tokenizers) -> dict[str, Any]:
    return {**changes, "src_vocab": tokenizers.src.vocab_size, "tgt_vocab": tokenizers.tgt.vocab_size}


def log_probs(model: Transformer, source: list[int], target: list[int]) -> Tensor:
    """Ask our model for each token of a target and its end mark."""
    with torch.inference_mode():
        read = torch.tensor([[model.start_id, *target]])
        logits = model.decode(read, model.encode(torch.tensor([[*source, EOS]])))[0]
    return logits.log_softmax(dim=-1)[range(len(target) + 1), [*target, EOS]]


def their_log_probs(folder: Path, tokenizers: Tokenizers, kind: str = "float32") -> list[list[float]]:
    translator = ctranslate2.Translator(str(folder), compute_type=kind, intra_threads=1)
    src, tgt = (vocabulary(side, side.vocab_size) for side in tokenizers)
    scored = translator.score_batch(
        [[src[i] for i in row] for row in SOURCES], [[tgt[i] for i in row] for row in TARGETS]
    )
    return [result.log_probs for result in scored]


def gaps(model: Transformer, theirs: list[list[float]]) -> Iterator[float]:
    for source, target, row in zip(SOURCES, TARGETS, theirs, strict=True):
        ours = log_probs(model, source, target).tolist()
        assert len(row) == len(ours)
        yield from (abs(a - b) for a, b in zip(ours, row, strict=True))


REFUSED = {"norm": "none", "d_ff": 0, "positions": "rotary"}  # in the order of their checks


@EACH_CHOICE
def test_probabilities_are_ours(
    changes: dict[str, Any], joint: Tokenizers, separate: Tokenizers, tmp_path: Path
) -> None:
    tokenizers = separate if changes.get("tie") in ("target", "none") else joint
    model = build(**sized(changes, tokenizers))
    refused = [f"{name}={value!r}" for name, value in REFUSED.items() if changes.get(name) == value]
    if refused:
        with pytest.raises(ConfigError, match=refused[0]):
            export_ctranslate2(model, tokenizers, tmp_path / "out")
        assert list(tmp_path.iterdir()) == []
        return
    export_ctranslate2(model, tokenizers, tmp_path / "out")
    assert max(gaps(model, their_log_probs(tmp_path / "out", tokenizers))) < 2e-5


@pytest.mark.parametrize("start", ["bos", "eos", "pad"])
def test_start_tokens(start: str, joint: Tokenizers, tmp_path: Path) -> None:
    model = build(**sized({"start_token": start}, joint))
    export_ctranslate2(model, joint, tmp_path / "out")
    assert max(gaps(model, their_log_probs(tmp_path / "out", joint))) < 2e-5


def test_no_feed_forward_network_in_pre_norm(joint: Tokenizers, tmp_path: Path) -> None:
    model = build(**sized({"d_ff": 0, "norm": "pre", "final_norm": True}, joint))
    export_ctranslate2(model, joint, tmp_path / "out")
    assert max(gaps(model, their_log_probs(tmp_path / "out", joint))) < 2e-5


@pytest.mark.parametrize("head", [(0, 0), (0, 3), (1, 0), (1, 2)])
def test_attention_is_the_chosen_heads(head: tuple[int, int], joint: Tokenizers, tmp_path: Path) -> None:
    model = build(**sized({"n_heads": 4}, joint))
    about = About(alignment=AttentionHead(layer=head[0], head=head[1]))
    export_ctranslate2(model, joint, tmp_path / "out", about)
    assert max(gaps(model, their_log_probs(tmp_path / "out", joint))) < 2e-5

    translator = ctranslate2.Translator(str(tmp_path / "out"), intra_threads=1)
    names = vocabulary(joint.src, joint.src.vocab_size)
    found = translator.translate_batch(
        [[names[i] for i in SOURCES[0]]], beam_size=2, return_attention=True, max_decoding_length=6
    )[0]
    ids = [names.index(piece) for piece in found.hypotheses[0]]
    trace = look(model, [*SOURCES[0], EOS], [model.start_id, *ids[:-1]])
    weights = trace[f"dec.{head[0]}.cross.h{head[1]}.weights"]
    assert isinstance(weights, Tensor)
    np.testing.assert_allclose(found.attention[0], weights[:, :-1].numpy(), atol=1e-5)


def test_int8_has_no_row_that_saturates(joint: Tokenizers, tmp_path: Path) -> None:
    """Rounded to 7 bits a log-probability moves by hundredths; where 16 bits overflow, by tenths."""
    model = build(**sized({"d_model": 64, "d_ff": 128, "n_heads": 4}, joint))
    export_ctranslate2(model, joint, tmp_path / "out", quantization="int8")
    assert np.mean(list(gaps(model, their_log_probs(tmp_path / "out", joint, "int8")))) < 0.05
    assert read_mark(tmp_path / "out") is not None


def test_wrong_tokenizer_and_wrong_head(joint: Tokenizers, separate: Tokenizers, tmp_path: Path) -> None:
    model = build(**sized({}, joint))
    with pytest.raises(ModelFileError, match="285 ids but the model 280"):
        export_ctranslate2(model, separate, tmp_path / "out")
    with pytest.raises(ConfigError, match="no head 5 in a decoder layer 0"):
        export_ctranslate2(model, joint, tmp_path / "out", About(alignment=AttentionHead(layer=0, head=5)))
    assert list(tmp_path.iterdir()) == []


def test_only_exports_are_replaced(joint: Tokenizers, tmp_path: Path) -> None:
    first, second = build(0, **sized({}, joint)), build(1, **sized({}, joint))
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "diary.txt").write_text("dear diary")
    with pytest.raises(ModelFileError, match="not a CTranslate2 export of glassformer"):
        export_ctranslate2(first, joint, tmp_path / "mine")
    export_ctranslate2(first, joint, tmp_path / "out")
    (tmp_path / "out" / "glassformer.json").write_text('{"of": "another version"}')
    export_ctranslate2(second, joint, tmp_path / "out")
    assert max(gaps(second, their_log_probs(tmp_path / "out", joint))) < 2e-5
    assert {path.name for path in tmp_path.iterdir()} == {"mine", "out"}


def test_several_at_once(joint: Tokenizers, tmp_path: Path) -> None:
    model = build(**sized({}, joint))
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda i: export_ctranslate2(model, joint, tmp_path / "out", fingerprint=str(i % 2)), range(8)))
    assert max(gaps(model, their_log_probs(tmp_path / "out", joint))) < 2e-5
    assert [path.name for path in tmp_path.iterdir()] == ["out"]
    assert json.loads((tmp_path / "out" / "config.json").read_text())["add_source_eos"]
