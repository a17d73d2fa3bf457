"""A model without weights for the tests of the search, and what they share.

B sentences, W beam width, N = B * W prefixes, S source positions, T tokens, V vocabulary.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
from torch import Tensor

from glassformer.config import SearchConfig
from glassformer.search.beam import beam_search
from glassformer.search.hypotheses import Hypotheses
from glassformer.search.rules import Rules
from glassformer.text.vocab import BOS, EOS, PAD

__all__ = ["CPU", "Prefixes", "Toy", "all_sequences", "existing", "score", "strip"]

CPU = torch.device("cpu")


class Prefixes(NamedTuple):
    """What the toy remembers: which sentences, and every prefix whole."""

    sentences: Tensor  # (B,)
    tokens: Tensor  # (N, T)

    def select(self, rows: Tensor) -> Prefixes:
        return self._replace(tokens=self.tokens[rows])

    def keep(self, sentences: Tensor) -> Prefixes:
        width = len(self.tokens) // len(self.sentences)
        rows = [s * width + w for s in sentences.tolist() for w in range(width)]
        return Prefixes(self.sentences[sentences], self.tokens[rows])


@dataclass
class Toy:
    """A model without weights: the logits after a prefix are a jagged function of all its tokens."""

    vocab: int = 7
    seed: int = 0
    bias: dict[int, float] = field(default_factory=dict)
    calls: list[int] = field(default_factory=list)  # how many prefixes each step read

    def start(self, batch: int) -> Prefixes:
        return Prefixes(torch.arange(batch), torch.empty(batch, 0, dtype=torch.long))

    def step(self, tokens: Tensor, state: Prefixes) -> tuple[Tensor, Prefixes]:
        assert tokens.shape[1:] == (1,)
        width = len(tokens) // len(state.sentences)
        prefixes = torch.cat([state.tokens, tokens], dim=1)
        logits = [
            self.logits(s, p)
            for s, p in zip(state.sentences.repeat_interleave(width).tolist(), prefixes.tolist(), strict=True)
        ]
        self.calls.append(len(tokens))
        return torch.stack(logits).unsqueeze(1), Prefixes(state.sentences, prefixes)

    def logits(self, sentence: int, prefix: list[int]) -> Tensor:
        mixed = 0.1 + self.seed + 3.7 * sentence
        for token in prefix:
            mixed = math.sin(mixed * 12.9898 + token * 78.233) * 43.758
        jagged = (torch.arange(self.vocab, dtype=torch.float64) * 1.7 + mixed).sin() * 2
        for token, bonus in self.bias.items():
            jagged[token] += bonus
        return jagged

    def attend(self, sentence: int, prefix: list[int]) -> Tensor:
        """Give the attention to the source (S,) with which the next token is predicted."""
        return (self.logits(sentence, [7, *prefix])[:3] * 2).softmax(dim=0)

    def attention(self, state: Prefixes) -> Tensor:
        """Tell where the last step looked (N, S)."""
        width = len(state.tokens) // len(state.sentences)
        pairs = zip(state.sentences.repeat_interleave(width).tolist(), state.tokens.tolist(), strict=True)
        return torch.stack([self.attend(sentence, prefix) for sentence, prefix in pairs])

    def log_probs(self, sentence: int, tokens: list[int]) -> list[float]:
        """Give the log-probability of each token when asked again."""
        prefixes = ([BOS, *tokens[:t]] for t in range(len(tokens)))
        steps = (self.logits(sentence, prefix).log_softmax(dim=0) for prefix in prefixes)
        return [step[token].item() for step, token in zip(steps, tokens, strict=True)]

    def search(self, batch: int, rules: Rules | None = None, **settings: Any) -> Hypotheses:
        config = SearchConfig(**settings)
        attention = self.attention if config.coverage_penalty else None
        return beam_search(
            self.step, self.start(batch), torch.full((batch,), BOS), config, rules=rules, attention=attention
        )


def strip(tokens: Tensor) -> list[int]:
    """Take the padding off."""
    found: list[int] = tokens[tokens != PAD].tolist()
    return found


def score(log_prob: float, tokens: list[int], penalty: float) -> float:
    """Divide by the length, in which the end mark does not count."""
    length = len(tokens) - (tokens[-1] == EOS)
    return log_prob / math.pow(max(1, length), penalty)


def all_sequences(vocab: int, limit: int) -> list[list[int]]:
    """List everything that a search may find: it ends at the first end mark or at the limit, and holds no padding."""
    cut = {s[: s.index(EOS) + 1] if EOS in s else s for s in itertools.product(range(1, vocab), repeat=limit)}
    return sorted(map(list, cut))


def existing(found: Hypotheses, sentence: int) -> list[tuple[list[int], float, float]]:
    """List tokens, log-probability and score of each hypothesis of a sentence."""
    rows = zip(*(part[sentence] for part in found[:3]), strict=True)
    return [(strip(tokens), log_prob.item(), score.item()) for tokens, log_prob, score in rows if score > -math.inf]
