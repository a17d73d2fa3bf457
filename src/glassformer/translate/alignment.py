"""Word alignment: the cross-attention head that aligns best, and word links from its weights.

B pairs, S source tokens, T target tokens, H heads.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from glassformer.data.aligner import Aligner, TokenPair
from glassformer.data.batches import collate
from glassformer.model.scope import Scope
from glassformer.model.trace import Watcher
from glassformer.model.transformer import Transformer
from glassformer.store.folder import AttentionHead
from glassformer.text.tokenizer import Span, Tokenizers
from glassformer.text.vocab import EOS, PAD

_COMPARED: Final = 500  # pairs that heads are compared on
_MIN_WEIGHT: Final = 0.1  # of a link between words
_BATCH: Final = 32  # pairs


def choose_head(model: Transformer, pairs: Sequence[TokenPair]) -> AttentionHead:
    """Return the cross-attention head that aligns best.

    `pairs` are tokens of sources and targets, without marks. All of them train the statistical aligner that stands in
    for human alignments, better with thousands than with hundreds; heads are compared on the first of them.
    """
    rates = error_rates(model, pairs)
    layer, head = divmod(int(rates.argmin()), rates.shape[1])
    return AttentionHead(layer=layer, head=head)


def error_rates(model: Transformer, pairs: Sequence[TokenPair]) -> NDArray[np.float64]:
    """Return the AER (Och and Ney 2003) of every head (layers, H) against the statistical links."""
    pairs = [(source, target) for source, target in pairs if source and target]
    expected = Aligner.learn(pairs).links(pairs[:_COMPARED])
    hits = np.zeros((model.config.n_decoder_layers, model.config.n_heads), np.int64)
    n_links = sum(map(len, expected)) + sum(len(target) for _, target in pairs[:_COMPARED])
    for start in range(0, len(expected), _BATCH):
        batch = pairs[start : start + _BATCH]
        pointed = _pointed_at(model, batch)  # (layers, B, H, T)
        for b, links in enumerate(expected[start : start + _BATCH]):
            for source, target in links:
                hits += pointed[:, b, :, target] == source
    return 1 - 2 * hits / max(n_links, 1)


@torch.inference_mode()
def _pointed_at(model: Transformer, pairs: Sequence[TokenPair]) -> NDArray[np.int64]:
    """Return the source token (layers, B, H, T) that each head attends to most when it predicts a target token."""
    sources, targets = zip(*pairs, strict=True)
    batch = collate(sources, targets, model.start_id).to(model.output.weight.device)
    seen = Watcher("*.cross.weights")  # a layer: (B, H, T, S)
    scope = Scope(seen)
    model.read(batch.tgt_in, model.start(model.encode(batch.src, batch.src_mask), scope), scope)
    is_word = ((batch.src != PAD) & (batch.src != EOS))[:, None, None]  # (B, 1, 1, S)
    return np.stack([weights.masked_fill(~is_word, -1).argmax(dim=-1).cpu().numpy() for weights in seen.kept])


def alignment_layer(model: Transformer, head: AttentionHead | None) -> int:
    """Return the decoder layer whose cross-attention shows the alignment: the head's, or the last."""
    return model.config.n_decoder_layers - 1 if head is None else head.layer


def alignment_weights(weights: Tensor, head: AttentionHead | None) -> Tensor:
    """Return the weights (..., T, S) of the head that aligns, of all heads (..., H, T, S); their mean without one."""
    return weights.mean(dim=-3) if head is None else weights.select(-3, head.head)


def word_pieces(text: str, spans: Sequence[Span]) -> list[Span]:
    """Return the range of pieces that each word of `text` consists of; words are what white space separates.

    `spans` are the characters of each piece, as `Tokenizer.spans` and `decode_spans` return them. A word without
    a piece of its own has an empty range.
    """
    words = []
    for word in re.finditer(r"\S+", text):
        own = [i for i, (begin, end) in enumerate(spans) if begin < word.end() and end > word.start()]
        words.append((own[0], own[-1] + 1) if own else (0, 0))
    return words


def word_alignment(
    attention: NDArray[np.float32], src_words: Sequence[Span], tgt_words: Sequence[Span]
) -> list[tuple[int, int]]:
    """Link each target word to the source word it attends to most, as (source word, target word).

    `attention` (T, S) is of pieces, words are ranges of them. What a row lacks of 1 went to the end mark, where a head
    rests that has nothing to look for: a word that hardly attends to any source word has no link.
    """
    links = []
    for number, (first, end) in enumerate(tgt_words):
        if first == end or not src_words:
            continue
        row = attention[first:end].mean(axis=0)  # (S,)
        weights = [float(row[begin:behind].sum()) for begin, behind in src_words]
        best = int(np.argmax(weights))
        if weights[best] >= _MIN_WEIGHT:
            links.append((best, number))
    return sorted(links)


@torch.inference_mode()
def align_words(
    model: Transformer, tokenizers: Tokenizers, src: str, tgt: str, head: AttentionHead | None = None
) -> list[tuple[int, int]]:
    """Link the words of a given translation to those of its source, as (source word, target word)."""
    watcher = Watcher(f"dec.{alignment_layer(model, head)}.cross.weights")
    batch = collate([tokenizers.src.encode(src)], [tokenizers.tgt.encode(tgt)], model.start_id)
    model.decode(batch.tgt_in, model.encode(batch.src), Scope(watcher))
    attention = alignment_weights(watcher.kept[0], head)[0, :-1, :-1].float().cpu().numpy()  # without end marks
    words = [word_pieces(text, side.spans(text)) for text, side in zip((src, tgt), tokenizers, strict=True)]
    return word_alignment(attention, *words)


def pharaoh(links: Sequence[tuple[int, int]]) -> str:
    """Format links as `0-0 1-2`, source before target."""
    return " ".join(f"{source}-{target}" for source, target in links)
