"""What a search asks of a model, and what it gives back.

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
    scores: Tensor  # (B, W) log_probs over the length penalty, the end mark not counted, plus the coverage penalty
    margin: Tensor  # (B,) how little would have to change in log_probs or scores for another one to be the best

    @property
    def ended(self) -> Tensor:
        """Whether each came to its end mark (B, W), and was not cut off by the length limit."""
        return (self.tokens == EOS).any(dim=-1)


def nothing(batch: int, width: int, device: torch.device) -> Hypotheses:
    """Make the find of a search that has not begun."""
    worst = torch.full((batch, width), -math.inf, device=device)
    no_tokens = torch.full((batch, width, 0), PAD, device=device)
    return Hypotheses(no_tokens, worst, worst, torch.full((batch,), math.inf, device=device))


def merge(found: Hypotheses, sentences: Tensor, new: Hypotheses) -> Hypotheses:
    """Keep the W best of what was found before and what ended now, for the `sentences` that go on."""
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
    """Take the chosen (B, C) of the sequences (B, W, T)."""
    return sequences.gather(1, chosen.unsqueeze(2).expand(-1, -1, sequences.size(2)))


def gap(inside: Tensor, outside: Tensor) -> Tensor:
    """Say how far what was chosen lies above what was not; infinitely, where there was no choice."""
    return (inside - outside).nan_to_num(nan=math.inf, posinf=math.inf)
