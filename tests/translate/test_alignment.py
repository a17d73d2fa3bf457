"""The head that was planted is found, links that were planted are learnt, and words come from their pieces."""

from __future__ import annotations

import random
import re
from functools import cache

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from glassformer.config import ModelConfig, TokenizerConfig
from glassformer.model.decoder import DecoderLayer
from glassformer.model.trace import look
from glassformer.model.transformer import Transformer
from glassformer.store.folder import AttentionHead, load_model, read_config
from glassformer.store.registry import find_model
from glassformer.text.tokenizer import Tokenizer, Tokenizers
from glassformer.text.vocab import EOS
from glassformer.translate.alignment import (
    align_words,
    alignment_layer,
    alignment_weights,
    choose_head,
    error_rates,
    pharaoh,
    word_alignment,
    word_pieces,
)
from glassformer.translate.translator import Translator

VOCAB = 60
WORDS = 40


def pairs(count: int, backwards: bool = False, seed: int = 0) -> list[tuple[list[int], list[int]]]:
    """Make up a language whose words are those of another plus 10, in the same order or backwards."""
    draws = random.Random(seed)
    sources = [draws.sample(range(4, WORDS), draws.randint(2, 12)) for _ in range(count)]
    return [(s, [t + 10 for t in (reversed(s) if backwards else s)]) for s in sources]


def planted(layer: int, head: int) -> Transformer:
    """Make a model in which one head looks at its own place of the source, and all others everywhere."""
    torch.manual_seed(0)
    model = Transformer(
        ModelConfig(
            src_vocab=VOCAB, tgt_vocab=VOCAB, d_model=32, n_heads=4, d_ff=0, norm="none", max_positions=40,
            n_encoder_layers=1, n_decoder_layers=3,
        )
    ).eval()  # fmt: skip
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.zero_()  # so a token's vector is its position from bottom to top
        decoder_layer = model.decoder.layers[layer]
        assert isinstance(decoder_layer, DecoderLayer)
        attention = decoder_layer.cross_attention
        for part in (0, 1):  # queries and keys of the head: the fastest sines and cosines
            rows = slice(part * 32 + head * 8, part * 32 + head * 8 + 8)
            attention.projection.weight[rows, :8] = 5 * torch.eye(8)
    return model


@pytest.mark.parametrize(("layer", "head"), [(0, 0), (1, 3), (2, 1)])
def test_the_planted_head_is_found(layer: int, head: int) -> None:
    model = planted(layer, head)
    trace = look(model, [9, 8, 7, 6, EOS], [model.start_id, 19, 18, 17])
    weights = trace[f"dec.{layer}.cross.h{head}.weights"]
    assert isinstance(weights, torch.Tensor)
    assert weights.argmax(dim=-1).tolist() == [0, 1, 2, 3]

    found = choose_head(model, pairs(200))
    assert (found.layer, found.head) == (layer, head)
    rates = error_rates(model, pairs(200))
    assert rates.shape == (3, 4)
    assert rates[layer, head] < 0.02
    assert np.delete(rates, 4 * layer + head).min() > 0.5


def test_padding_and_empty_sides_do_not_matter() -> None:
    model = planted(1, 2)
    together = error_rates(model, [([], [5]), *pairs(40), ([5], [])])
    assert np.array_equal(together, error_rates(model, pairs(40)))


def test_pieces_of_words() -> None:
    #       the  r   ac   coon   's    bed
    spans = [(0, 3), (3, 5), (5, 7), (7, 11), (11, 13), (13, 18)]
    assert word_pieces("the raccoon's  bed", spans) == [(0, 1), (1, 5), (5, 6)]
    assert word_pieces("", []) == []


def test_links_of_words() -> None:
    attention = np.array(
        [
            [0.1, 0.3, 0.3, 0.2],  # two pieces of one source word outweigh a heavier single one
            [0.0, 0.1, 0.1, 0.7],
            [0.0, 0.0, 0.0, 0.9],
            [0.02, 0.02, 0.0, 0.01],  # rests on the end mark
            [0.9, 0.0, 0.0, 0.0],
        ],
        np.float32,
    )
    src, tgt = [(0, 1), (1, 3), (3, 4)], [(0, 1), (1, 3), (3, 4), (4, 5)]
    assert word_alignment(attention, src, tgt) == [(0, 3), (1, 0), (2, 1)]
    assert pharaoh(word_alignment(attention, src, tgt)) == "0-3 1-0 2-1"
    assert pharaoh([]) == ""
    assert word_alignment(attention[:0, :0], [], []) == []


@cache
def _tokenizer() -> Tokenizer:
    return Tokenizer.train(["ab ba abba", "baba aba"], TokenizerConfig(vocab_size=265))


@given(st.text(alphabet="ab ç€ \u2028\t", max_size=20), st.text(alphabet="ab ç€ \u2028\t", max_size=20))
def test_links_name_words_that_exist(source: str, target: str) -> None:
    tokenizer = _tokenizer()
    src, tgt = (word_pieces(text, tokenizer.spans(text)) for text in (source, target))
    assert (len(src), len(tgt)) == (len(source.split()), len(target.split()))
    shape = (len(tokenizer.encode(target)), len(tokenizer.encode(source)))
    attention = np.random.default_rng(0).dirichlet(np.ones(shape[1] + 1), shape[0])[:, :-1].astype(np.float32)
    for first, second in word_alignment(attention.reshape(shape), src, tgt):
        assert 0 <= first < len(src)
        assert 0 <= second < len(tgt)


def test_one_head_aligns_or_the_mean_of_all() -> None:
    weights = torch.rand(2, 4, 3, 5, generator=torch.Generator().manual_seed(0))  # (B, H, T, S)
    head = AttentionHead(layer=0, head=2)
    assert torch.equal(alignment_weights(weights, head), weights[:, 2])
    assert torch.equal(alignment_weights(weights, None), weights.mean(dim=1))
    assert torch.equal(alignment_weights(weights[0], head), weights[0, 2])
    assert torch.equal(alignment_weights(weights[0], None), weights[0].mean(dim=0))
    assert [alignment_layer(planted(0, 0), one) for one in (head, None)] == [0, 2]


def test_given_translations_are_aligned_as_ours_are() -> None:
    folder = find_model("fr-en")
    head = read_config(folder).about.alignment
    with Translator.load(folder, engine="torch") as translator:
        found = translator.results("Il fait beau aujourd'hui, mais il pleuvra demain.", alignment=True)
    links = align_words(load_model(folder), Tokenizers.load(folder), found.src, found.text, head)
    words = [[m.span() for m in re.finditer(r"\S+", text)] for text in (found.src, found.text)]
    assert [(words[0][s], words[1][t]) for s, t in links] == list(found.alignment)
    assert len(links) > 5
