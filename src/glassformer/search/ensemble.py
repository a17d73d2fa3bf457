"""Several models that share a vocabulary, searched as one: the mean of what they hold probable.

N prefixes, V vocabulary.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from glassformer.search.hypotheses import Step
from glassformer.search.rules import log_softmax


class States(NamedTuple):
    """The states of all models, in their order."""

    members: tuple[Any, ...]  # each a State of its own kind

    def select(self, rows: Tensor) -> States:
        """Keep, repeat or reorder prefixes within their sentences, for every model."""
        return States(tuple(member.select(rows) for member in self.members))

    def keep(self, sentences: Tensor) -> States:
        """Go on with some sentences only, for every model."""
        return States(tuple(member.keep(sentences) for member in self.members))


def ensemble(steps: Sequence[Step[Any]]) -> Step[States]:
    """Make one step of those of several models; its logits are log-probabilities."""

    def step(tokens: Tensor, state: States) -> tuple[Tensor, States]:
        taken = [one(tokens, member) for one, member in zip(steps, state.members, strict=True)]
        return mean_log_probs([logits for logits, _ in taken]), States(tuple(member for _, member in taken))

    return step


def mean_log_probs(logits: Sequence[Tensor]) -> Tensor:
    """Take the mean of the probabilities that logits (..., V) stand for, and its logarithm."""
    log_probs = torch.stack([log_softmax(each) for each in logits])
    return log_probs.logsumexp(dim=0) - math.log(len(logits))
