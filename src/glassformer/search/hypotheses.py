"""What a search needs of a model, and what it returns.

B sentences, W hypotheses of each, N = B * W prefixes, T tokens, V vocabulary.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple, Protocol, Self, TypeVar

import torch
import torch.nn.functional as F
from torch import Tensor

from glassformer.text.vocab import EOS, PAD


class State(Protocol):
    """What a model remembers of the prefixes it has read, as a value."""

    def select(self, rows: Tensor) -> Self:
        """Keep, repeat or reorder prefixes within their sentences."""

    def keep(self, sentences: Tensor) -> Self:
        """Keep some sentences only."""


S = TypeVar("S", bound=State)
Step = Callable[[Tensor, S], tuple[Tensor, S]]  # tokens (N, 1) -> logits (N, 1, V)


class Hypotheses(NamedTuple):
    """The result of a search: W hypotheses per sentence, best first; `scores` is -inf where there are fewer."""

    tokens: Tensor  # (B, W, T) without the start mark, with the end mark, padded
    log_probs: Tensor  # (B, W) sum over the tokens, including the end mark
    scores: Tensor  # (B, W) log_probs / length penalty (without the end mark) + coverage penalty
    margin: Tensor  # (B,) the least change in log_probs or scores that would make another one the best

    @property
    def ended(self) -> Tensor:
        """Whether each reached its end mark (B, W), and was not cut off by the length limit."""
        return (self.tokens == EOS).any(dim=-1)


def nothing(batch: int, width: int, device: torch.device) -> Hypotheses:
    """Return the hypotheses of a search that has not begun."""
    worst = torch.full((batch, width), -math.inf, device=device)
    no_tokens = torch.full((batch, width, 0), PAD, device=device)
    return Hypotheses(no_tokens, worst, worst, torch.full((batch,), math.inf, device=device))


def merge(found: Hypotheses, sentences: Tensor, new: Hypotheses) -> Hypotheses:
    """Merge new hypotheses of the unfinished `sentences` into those found before, and keep the W best of each."""
    width = found.scores.size(1)
    margin = found.margin.to(new.margin).index_select(0, sentences).minimum(new.margin)
    if not (new.scores > -math.inf).any():
        return found._replace(margin=found.margin.to(margin).index_copy(0, sentences, margin))
    tokens = F.pad(found.tokens, (0, new.tokens.size(2) - found.tokens.size(2)), value=PAD)
    old = Hypotheses(tokens, found.log_probs.to(new.scores), found.scores.to(new.scores), found.margin.to(margin))
    both = [torch.cat([a.index_select(0, sentences), b], dim=1) for a, b in zip(old[:3], new[:3], strict=True)]
    scores, best = both[2].topk(width + 1)
    if width > 1:
        margin = margin.minimum(gap(scores[:, width - 1], scores[:, width]))
    best = best[:, :width]
    merged = Hypotheses(gather(both[0], best), both[1].gather(1, best), scores[:, :width], margin)
    return Hypotheses(*(a.index_copy(0, sentences, b) for a, b in zip(old, merged, strict=True)))


def gather(sequences: Tensor, chosen: Tensor) -> Tensor:
    """Return the chosen (B, C) of the sequences (B, W, T)."""
    return sequences.gather(1, chosen.unsqueeze(2).expand(-1, -1, sequences.size(2)))


def gap(inside: Tensor, outside: Tensor) -> Tensor:
    """Return how far the chosen are above the others; infinity where there was no choice."""
    return (inside - outside).nan_to_num(nan=math.inf, posinf=math.inf)
