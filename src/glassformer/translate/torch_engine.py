"""Translation by our own model: token ids in, hypotheses out, in batches of similar length."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from glassformer.config import SearchConfig
from glassformer.model.transformer import Transformer
from glassformer.search.beam import beam_search
from glassformer.text.vocab import EOS, PAD

__all__ = ["Found", "translate_ids"]


class Found(NamedTuple):
    """One hypothesis of one sentence."""

    tokens: list[int]  # without start and end mark
    log_prob: float
    score: float
    ended: bool  # False: cut off by the length limit


def translate_ids(
    model: Transformer, sources: Sequence[Sequence[int]], search: SearchConfig, max_tokens: int = 4096
) -> Iterator[tuple[int, list[Found]]]:
    """Translate sources (without end mark), longest first; give each one's number and its hypotheses, best first."""
    order = sorted(range(len(sources)), key=lambda i: -len(sources[i]))
    while order:
        longest = len(sources[order[0]]) + 1
        count = max(1, max_tokens // longest)
        numbers, order = order[:count], order[count:]
        found = _translate_batch(model, [sources[i] for i in numbers], search)
        yield from zip(numbers, found, strict=True)


def _translate_batch(model: Transformer, sources: Sequence[Sequence[int]], search: SearchConfig) -> list[list[Found]]:
    device = model.output.weight.device
    longest = max(map(len, sources)) + 1
    rows = [[*source, EOS, *[PAD] * (longest - len(source) - 1)] for source in sources]
    src = torch.tensor(rows, device=device)  # (B, S)
    is_token = src != PAD
    with torch.inference_mode():
        memory = model.encode(src, None if is_token.all() else is_token)
        start = torch.full((len(sources),), model.start_id, device=device)
        found = beam_search(model.step, model.start(memory), start, search)
    return [
        [_found(*hypothesis) for hypothesis in zip(*sentence, strict=True) if hypothesis[2] > float("-inf")]
        for sentence in zip(found.tokens, found.log_probs.tolist(), found.scores.tolist(), strict=True)
    ]


def _found(tokens: Tensor, log_prob: float, score: float) -> Found:
    ids = tokens.tolist()
    ended = EOS in ids
    kept = ids[: ids.index(EOS)] if ended else [i for i in ids if i != PAD]
    return Found(kept, log_prob, score, ended)
