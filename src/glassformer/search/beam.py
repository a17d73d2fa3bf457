"""Beam search over anything that can take one step; greedy search is a beam of one.

B sentences, W beam width, N = B * W prefixes, C = 2 * W candidates, T tokens so far, V vocabulary.

A search knows two functions: `step`, which reads the last token of each prefix, and what a state can do:
`select` prefixes and `keep` sentences. It stops a sentence as CTranslate2 does, at W finished hypotheses.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple, Protocol, Self, TypeVar

import torch
import torch.nn.functional as F
from torch import Tensor

from glassformer.config import SearchConfig
from glassformer.text.vocab import EOS, PAD

__all__ = ["Hypotheses", "State", "Step", "beam_search"]


class State(Protocol):
    """What a model remembers of the prefixes it has read, as a value."""

    def select(self, rows: Tensor) -> Self:
        """Keep, repeat or reorder prefixes within their sentences."""
        ...

    def keep(self, sentences: Tensor) -> Self:
        """Go on with some sentences only."""
        ...


S = TypeVar("S", bound=State)
Step = Callable[[Tensor, S], tuple[Tensor, S]]  # tokens (N, 1) -> logits (N, 1, V)


class Hypotheses(NamedTuple):
    """What a search found: W hypotheses a sentence, the best first, -inf in `scores` where there are fewer."""

    tokens: Tensor  # (B, W, T) without the start mark, with the end mark, padded
    log_probs: Tensor  # (B, W) sum over the tokens, the end mark included
    scores: Tensor  # (B, W) log_probs / length ** length_penalty, the end mark not counted

    @property
    def ended(self) -> Tensor:
        """Whether each came to its end mark (B, W), and was not cut off by the length limit."""
        return (self.tokens == EOS).any(dim=-1)


@torch.inference_mode()
def beam_search(step: Step[S], state: S, start: Tensor, config: SearchConfig) -> Hypotheses:
    """Continue each first token in `start` (B,) until W hypotheses of its sentence have ended."""
    width = config.width
    found = _nothing(len(start), width, start.device)
    sentences = torch.arange(len(start), device=start.device)  # (B,) those that go on
    tokens = start.view(-1, 1, 1)  # (B, W, T), W being 1 before the first step
    total = torch.zeros(len(start), 1, device=start.device)  # (B, W) log-probabilities

    for length in range(config.max_length):
        logits, state = step(tokens[:, :, -1].reshape(-1, 1), state)
        sums, parent, token = _candidates(logits[:, -1], total, 2 * width)  # (B, C)
        grown = torch.cat([_gather(tokens, parent), token.unsqueeze(2)], dim=2)  # (B, C, T)

        at_limit = length + 1 == config.max_length
        ends = (token == EOS) | at_limit
        ends[:, width:] = False  # C candidates, so that W can go on; but only the first W may end
        counted = (length + (token != EOS)).clamp(min=1).to(sums)
        scores = (sums / counted**config.length_penalty).masked_fill(~ends, -math.inf)
        found = _merge(found, sentences, Hypotheses(grown[:, :, 1:], sums, scores))

        total, chosen = sums.masked_fill(token == EOS, -math.inf).topk(width)  # (B, W)
        first_row = torch.arange(len(tokens), device=start.device).unsqueeze(1) * tokens.size(1)  # (B, 1)
        state = state.select((parent.gather(1, chosen) + first_row).flatten())
        tokens = _gather(grown, chosen)

        has_found = (found.scores.index_select(0, sentences) > -math.inf).sum(dim=1)
        goes_on = (has_found < width) & (total[:, 0] > -math.inf)
        if at_limit or not goes_on.any():
            break
        if not goes_on.all():
            stays = goes_on.nonzero().squeeze(1)
            sentences, tokens, total, state = sentences[stays], tokens[stays], total[stays], state.keep(stays)
    return found


def _nothing(batch: int, width: int, device: torch.device) -> Hypotheses:
    worst = torch.full((batch, width), -math.inf, device=device)
    return Hypotheses(torch.full((batch, width, 0), PAD, device=device), worst, worst)


def _candidates(logits: Tensor, total: Tensor, count: int) -> tuple[Tensor, Tensor, Tensor]:
    """Choose the best `count` continuations of the prefixes with log-probabilities `total` (B, W).

    Gives their log-probabilities, the prefix and the token of each (B, C), the best first.
    """
    log_probs = logits.log_softmax(dim=-1)  # (N, V)
    log_probs[:, PAD] = -math.inf
    sums = (total.view(-1, 1) + log_probs).view(len(total), -1)  # (B, W * V)
    best, where = sums.topk(min(count, sums.size(1)))
    if best.size(1) < count:  # a vocabulary smaller than the beam: fill up with what can never win
        best = F.pad(best, (0, count - best.size(1)), value=-math.inf)
        where = F.pad(where, (0, count - where.size(1)), value=PAD)
    return best, where // logits.size(-1), where % logits.size(-1)


def _gather(tokens: Tensor, chosen: Tensor) -> Tensor:
    """Take the chosen (B, C) of the sequences (B, W, T)."""
    return tokens.gather(1, chosen.unsqueeze(2).expand(-1, -1, tokens.size(2)))


def _merge(found: Hypotheses, sentences: Tensor, new: Hypotheses) -> Hypotheses:
    """Keep the W best of what was found before and what ended now, for the `sentences` that go on."""
    if not (new.scores > -math.inf).any():
        return found
    width = found.scores.size(1)
    tokens = F.pad(found.tokens, (0, new.tokens.size(2) - found.tokens.size(2)), value=PAD)
    old = Hypotheses(tokens, found.log_probs.to(new.scores), found.scores.to(new.scores))
    both = Hypotheses(*(torch.cat([a.index_select(0, sentences), b], dim=1) for a, b in zip(old, new, strict=True)))
    scores, best = both.scores.topk(width)
    merged = Hypotheses(_gather(both.tokens, best), both.log_probs.gather(1, best), scores)
    return Hypotheses(*(a.index_copy(0, sentences, b) for a, b in zip(old, merged, strict=True)))
