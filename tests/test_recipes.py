"""The scripts among the recipes: what they change in a model, and what they must not."""

from __future__ import annotations

import importlib.util
import random
from pathlib import Path
from types import ModuleType

import pytest
import torch

from glassformer.config import CorpusConfig, TokenizerConfig, preset
from glassformer.errors import UsageError
from glassformer.evaluation.evaluation import read_test
from glassformer.model.transformer import Transformer
from glassformer.store.folder import About, load_model, save_model
from glassformer.text.tokenizer import Tokenizers, train_tokenizers

RECIPES = Path(__file__).parent.parent / "recipes"


def script(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, RECIPES / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def corpus(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Path:
    script("grammar").main()
    (tmp_path / "grammar.tsv").write_text("".join(capsys.readouterr().out.splitlines(keepends=True)[:2000]))
    return tmp_path / "grammar.tsv"


@pytest.fixture
def folder(tmp_path: Path, corpus: Path) -> Path:
    """A model with random weights and a vocabulary that both sides share."""
    pairs = [(pair.src, pair.tgt) for pair in read_test(CorpusConfig(path=corpus))]
    tokenizers = train_tokenizers(pairs, TokenizerConfig(model="unigram", vocab_size=700))
    torch.manual_seed(0)
    sizes = {"n_encoder_layers": 2, "n_decoder_layers": 2}
    model = Transformer(preset("tiny", tokenizers.src.vocab_size, norm="pre", **sizes)).eval()
    save_model(model, tmp_path / "wide", About(tokenizer_sha256=tuple(side.sha256 for side in tokenizers)))
    tokenizers.save(tmp_path / "wide")
    return tmp_path / "wide"


def test_a_narrow_target_side_says_the_same(folder: Path, corpus: Path, tmp_path: Path) -> None:
    script("narrow").main(str(folder), str(tmp_path / "narrow"), str(corpus))
    (src, wide), (same, narrow) = Tokenizers.load(folder), Tokenizers.load(tmp_path / "narrow")
    assert same == src
    assert narrow.vocab_size % 64 == 0
    assert narrow.vocab_size < wide.vocab_size
    before, after = load_model(folder), load_model(tmp_path / "narrow")
    for pair in read_test(CorpusConfig(path=corpus)):
        pieces, ids = wide.pieces(wide.encode(pair.tgt)), narrow.encode(pair.tgt)
        assert narrow.pieces(ids) == pieces
        assert narrow.decode(ids) == pair.tgt
    source = torch.tensor([src.encode("bonjour")])
    shared = [number for number in range(4, narrow.vocab_size) if not narrow.is_byte(number)]
    names = {piece: number for number, piece in enumerate(wide.pieces(range(wide.vocab_size)))}
    theirs = before.decode(torch.tensor([[2, *wide.encode(pair.tgt)]]), before.encode(source))
    ours = after.decode(torch.tensor([[2, *ids]]), after.encode(source))
    rows = [names[piece] for piece in narrow.pieces(shared)]
    assert torch.allclose(ours[:, :, shared], theirs[:, :, rows], atol=1e-5)


def test_new_layers_change_nothing_yet(folder: Path, tmp_path: Path) -> None:
    layers = script("layers")
    layers.main(str(folder), str(tmp_path / "deep"), "4", "3")
    deep, before = load_model(tmp_path / "deep"), load_model(folder)
    assert (deep.config.n_encoder_layers, deep.config.n_decoder_layers) == (4, 3)
    source, target = torch.tensor([[5, 6, 7]]), torch.tensor([[2, 8, 9]])
    logits, theirs = (model.decode(target, model.encode(source)) for model in (before, deep))
    assert torch.allclose(theirs, logits, atol=1e-5)

    layers.main(str(tmp_path / "deep"), str(tmp_path / "flat"), "2", "2")
    flat = load_model(tmp_path / "flat")
    assert torch.equal(flat.decode(target, flat.encode(source)), logits)


def test_a_post_norm_layer_cannot_begin_as_nothing(tmp_path: Path) -> None:
    save_model(Transformer(preset("tiny", 20)), tmp_path / "post")
    with pytest.raises(UsageError, match="norm='post'"):
        script("layers").main(str(tmp_path / "post"), str(tmp_path / "out"), "3", "3")


def test_the_grammar_counts_in_both_languages() -> None:
    grammar = script("grammar")
    assert [grammar.french(number) for number in (21, 71, 80, 81, 99, 200, 342)] == [
        "vingt et un", "soixante et onze", "quatre-vingts", "quatre-vingt-un", "quatre-vingt-dix-neuf", "deux cents",
        "trois cent quarante-deux",
    ]  # fmt: skip
    assert [grammar.english(number) for number in (13, 40, 71, 342)] == [
        "thirteen", "forty", "seventy-one", "three hundred and forty-two",
    ]  # fmt: skip
    for rule in set(grammar.RULES):
        for fr, en in (rule() for _ in range(50)):
            digits = ["".join(filter(str.isdecimal, text)) for text in (fr, en)]
            assert sorted(digits[0].lstrip("0")) == sorted(digits[1].lstrip("0")) or "heure" in fr, (fr, en)


def test_the_grammar_is_the_same_every_time(capsys: pytest.CaptureFixture[str]) -> None:
    written = []
    for _ in range(2):
        random.seed()
        script("grammar").main()
        written.append(capsys.readouterr().out)
    assert written[0] == written[1]
    assert written[0].count("\n") > 20_000
