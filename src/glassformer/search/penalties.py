"""What a log-probability is divided by and what is added to it before hypotheses are ranked.

S source positions. score = log_prob / length_penalty + coverage_penalty (Wu et al. 2016, equation 14).
"""

from __future__ import annotations

import torch
from torch import Tensor

from glassformer.config import SearchConfig


def length_penalty(length: Tensor, config: SearchConfig) -> Tensor:
    """Give what the log-probability of so many tokens, the end mark not counted, is divided by."""
    base = (5 + length) / 6 if config.penalty_form == "gnmt" else length.clamp(min=1)
    return base**config.length_penalty


def coverage_penalty(coverage: Tensor, beta: float) -> Tensor:
    """Give beta * sum of log(min(attention that a source position got in all, 1)) over `coverage` (..., S)."""
    least = torch.finfo(coverage.dtype).tiny  # a weight that underflowed is no proof of impossibility
    return beta * coverage.clamp(least, 1.0).log().sum(dim=-1)


def best_possible(total: Tensor, length: int, config: SearchConfig) -> Tensor:
    """Bound the score of whatever an unfinished prefix of log-probability `total` can become.

    No token adds to a log-probability, which is not above 0, and no length penalty is negative: the best is to
    go on for nothing to the length with the largest penalty. Penalties grow or fall with the length, so
    this is the shortest or the longest that is still possible. Coverage can at best become complete, penalty 0.
    """
    lengths = torch.tensor([max(length, config.min_length), config.max_length]).to(total)
    return total / length_penalty(lengths, config).amax()
