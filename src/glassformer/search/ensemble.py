"""An ensemble: several models that share a vocabulary, searched as one with the mean of their probabilities.

N prefixes, V vocabulary.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Generic, NamedTuple

import torch
from torch import Tensor

from glassformer.search.hypotheses import S, Step
from glassformer.search.rules import log_softmax


class States(NamedTuple, Generic[S]):
    """The states of all models, in order."""

    members: tuple[S, ...]

    def select(self, rows: Tensor) -> States[S]:
        """Keep, repeat or reorder prefixes within their sentences, for every model."""
        return States(tuple(member.select(rows) for member in self.members))

    def keep(self, sentences: Tensor) -> States[S]:
        """Keep some sentences only, for every model."""
        return States(tuple(member.keep(sentences) for member in self.members))


def ensemble(steps: Sequence[Step[S]]) -> Step[States[S]]:
    """Combine the steps of several models into one, whose logits are log-probabilities."""

    def step(tokens: Tensor, state: States[S]) -> tuple[Tensor, States[S]]:
        taken = [one(tokens, member) for one, member in zip(steps, state.members, strict=True)]
        return mean_log_probs([logits for logits, _ in taken]), States(tuple(member for _, member in taken))

    return step


def mean_log_probs(logits: Sequence[Tensor]) -> Tensor:
    """Return the logarithm of the mean of the probabilities that logits (..., V) stand for."""
    log_probs = torch.stack([log_softmax(each) for each in logits])
    return log_probs.logsumexp(dim=0) - math.log(len(logits))
