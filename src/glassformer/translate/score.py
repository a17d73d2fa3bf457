"""Scores of given translations: log-probability and perplexity by the model, pair by pair.

B pairs, T target length, D model width, V vocabulary.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Final, NamedTuple

import torch

from glassformer.data.batches import collate
from glassformer.data.pair import Pair
from glassformer.model.transformer import Transformer
from glassformer.text.tokenizer import Tokenizers
from glassformer.text.vocab import PAD

_WINDOW: Final = 4096  # pairs sorted by length together
_MAX_TOKENS: Final = 4096  # per batch, padded
_ROWS: Final = 1024  # positions whose probabilities over all words are held at once


class PairScore(NamedTuple):
    """The score of a pair; NaN if the pair is longer than the model's longest sequence."""

    log_prob: float
    n_tokens: int  # of the target, including the end mark

    @property
    def perplexity(self) -> float:
        """The perplexity of the target."""
        return perplexity(self.log_prob, self.n_tokens)


def perplexity(log_prob: float, n_tokens: int) -> float:
    """Return the perplexity of `n_tokens` tokens with the total log-probability `log_prob`."""
    if math.isnan(log_prob) or not n_tokens:
        return math.nan
    return math.exp(min(-log_prob / n_tokens, 700.0))


def score_pairs(model: Transformer, tokenizers: Tokenizers, pairs: Iterable[Pair]) -> Iterator[PairScore]:
    """Score pairs as they are, in order and in constant memory; nothing is split into sentences."""
    remaining = iter(pairs)
    while window := list(islice(remaining, _WINDOW)):
        sources = tokenizers.src.encode_batch([pair.src for pair in window])
        targets = tokenizers.tgt.encode_batch([pair.tgt for pair in window])
        yield from _score_window(model, sources, targets)


def _score_window(
    model: Transformer, sources: Sequence[Sequence[int]], targets: Sequence[Sequence[int]]
) -> list[PairScore]:
    limit = model.config.max_positions if model.config.positions != "none" else math.inf
    sizes = [max(len(source), len(target)) + 1 for source, target in zip(sources, targets, strict=True)]
    scores = [PairScore(math.nan, len(target) + 1) for target in targets]
    order = sorted((i for i, size in enumerate(sizes) if size <= limit), key=sizes.__getitem__)
    while order:
        count = max(1, _MAX_TOKENS // sizes[order[-1]])
        numbers, order = order[-count:], order[:-count]
        log_probs = log_probs_of(model, [sources[i] for i in numbers], [targets[i] for i in numbers])
        for i, of_tokens in zip(numbers, log_probs, strict=True):
            scores[i] = scores[i]._replace(log_prob=sum(of_tokens))
    return scores


@torch.inference_mode()
def log_probs_of(
    model: Transformer, sources: Sequence[Sequence[int]], targets: Sequence[Sequence[int]]
) -> list[list[float]]:
    """Return the log-probability of each token of the targets, and of their end marks, given the sources."""
    batch = collate(sources, targets, model.start_id).to(model.output.weight.device)
    hidden = model.hidden(batch.src, batch.tgt_in, batch.src_mask)  # (B, T, D)
    is_token = batch.tgt_out != PAD  # (B, T)
    chunks = zip(torch.split(hidden[is_token], _ROWS), torch.split(batch.tgt_out[is_token], _ROWS), strict=True)
    given = [model.output(part).log_softmax(dim=-1).gather(1, ids.unsqueeze(1)).squeeze(1) for part, ids in chunks]
    rows = torch.split(torch.cat(given).double(), is_token.sum(dim=1).tolist())
    return [row.tolist() for row in rows]
