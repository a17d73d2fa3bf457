"""Length and coverage penalties, by which hypotheses are ranked.

S source positions. score = log_prob / length_penalty + coverage_penalty (Wu et al. 2016, equation 14).
"""

from __future__ import annotations

import torch
from torch import Tensor

from glassformer.config import SearchConfig


def length_penalty(length: Tensor, config: SearchConfig) -> Tensor:
    """Return what the log-probability of `length` tokens, not counting the end mark, is divided by."""
    base = (5 + length) / 6 if config.penalty_form == "gnmt" else length.clamp(min=1)
    return base**config.length_penalty


def coverage_penalty(coverage: Tensor, beta: float) -> Tensor:
    """Return beta * sum of log(min(total attention to a source position, 1)) over `coverage` (..., S)."""
    least = torch.finfo(coverage.dtype).tiny  # an underflowed weight must not make a hypothesis impossible
    return beta * coverage.clamp(least, 1.0).log().sum(dim=-1)


def best_possible(total: Tensor, length: int, config: SearchConfig) -> Tensor:
    """Return an upper bound of the score of any continuation of a prefix with log-probability `total`.

    Log-probabilities are not above 0 and length penalties not negative: the best case is to continue at no cost to the
    length with the largest penalty. Penalties are monotonic in the length, so this is the shortest or the longest one
    still possible. Coverage is at best complete, with penalty 0.
    """
    lengths = torch.tensor([max(length, config.min_length), config.max_length]).to(total)
    return total / length_penalty(lengths, config).amax()
