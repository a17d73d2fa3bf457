"""Constraints on translations: rules set the log-probability of forbidden tokens to -inf.

B sentences, W prefixes of each, N = B * W, T tokens so far (no start mark), V vocabulary, Q sequences, P forced tokens.

Rules depend on the tokens written so far only, and keep no state. A forced prefix overrides all others; a required
sequence overrides suppressed sequences and repetitions if there is just enough room left for it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import groupby
from typing import NamedTuple

import torch
from torch import Tensor

from glassformer.config import SearchConfig
from glassformer.errors import ConfigError
from glassformer.text.vocab import EOS, PAD

_Sequences = Sequence[Sequence[int]]


class Required(NamedTuple):
    """Token sequences that must appear at least once, as whole words.

    A sequence is met if it appears and the next token, if there is one, does not continue its last word. Every sequence
    begins a word; otherwise `continues` must be None, and sequences may appear as parts of words.
    """

    sequences: tuple[Tensor, ...]  # Q times (L,)
    tokens: Tensor  # (U,) the tokens in them
    continues: Tensor | None = None  # (V,) tokens that continue the word before them

    @property
    def total(self) -> int:
        """Count the tokens of all sequences."""
        return sum(map(len, self.sequences))

    def missing(self, written: Tensor) -> Tensor:
        """Count the tokens that are enough to meet all sequences after `written` (..., T).

        These are the tokens of all unmet sequences, minus the best start: the tokens already written of one of them,
        minus those of the sequences that have just been met and that its next token would make part of a longer word.
        There is always a token that decreases the count: the next one of the best start, or, if there is none, the
        first of any sequence.
        """
        return self._missing(written, self._is_glued(written))

    def missing_after(self, written: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Count the same after one more token: each of `tokens` (..., U), other word starts, other continuations."""
        extended = written.unsqueeze(-2).expand(*written.shape[:-1], len(self.tokens), -1)
        last = self.tokens.view(-1, 1).expand(*extended.shape[:-1], 1)
        other = torch.cat([written, written.new_full((*written.shape[:-1], 1), PAD)], dim=-1)
        is_glued = self._is_glued(other)
        after_other = self._missing(other, is_glued)
        if self.continues is None:
            return self.missing(torch.cat([extended, last], dim=-1)), after_other, after_other
        is_glued[..., -1] = True
        return self.missing(torch.cat([extended, last], dim=-1)), after_other, self._missing(other, is_glued)

    def _is_glued(self, written: Tensor) -> Tensor:
        """Return which tokens (..., T) continue the word before them."""
        return torch.zeros_like(written, dtype=torch.bool) if self.continues is None else self.continues[written]

    def _missing(self, written: Tensor, is_glued: Tensor) -> Tensor:
        needed, loose, start = (written.new_zeros(written.shape[:-1]) for _ in range(3))
        have_come = []
        for sequence in self.sequences:
            size = len(sequence)
            firm = at_end = torch.zeros_like(needed, dtype=torch.bool)
            if written.size(-1) >= size:
                is_there = _equal(written.unfold(-1, size, 1), sequence)  # (..., T - L + 1)
                firm, at_end = (is_there[..., :-1] & ~is_glued[..., size:]).any(-1), is_there[..., -1]
            have_come.append(firm | at_end)
            needed += size * ~have_come[-1]
            loose += size * (at_end & ~firm)
        for sequence, has_come in zip(self.sequences, have_come, strict=True):
            undoes = self._is_glued(sequence)
            for part in range(1, min(len(sequence), written.size(-1) + 1)):
                is_begun = _equal(written[..., -part:], sequence[:part]) & ~has_come
                start = start.maximum((part - loose * undoes[part]) * is_begun)
        return needed - start


class Rules(NamedTuple):
    """The constraints on the translations of a batch."""

    prefix: Tensor | None = None  # (B, P) what each must begin with, padded
    suppressed: tuple[Tensor, ...] = ()  # sequences (Q, L) that must not appear, one tensor per length L
    required: Required | None = None


def make_rules(
    config: SearchConfig,
    device: torch.device,
    *,
    prefixes: _Sequences = (),
    suppressed: _Sequences = (),
    required: _Sequences = (),
    continues: Tensor | None = None,
) -> Rules | None:
    """Validate and arrange the rules for a batch whose translations begin with `prefixes`; None if there are none.

    `continues` (V,) is True for tokens that continue the word before them. Required sequences then appear as whole
    words, unless one of them begins with such a token because the vocabulary does not mark the beginning of words.
    """
    forced = max(map(len, prefixes), default=0)
    unique = sorted({tuple(sequence) for sequence in suppressed if sequence}, key=lambda s: (len(s), s))
    wanted = sorted({tuple(sequence) for sequence in required if sequence})
    _check(config, forced, unique, wanted)
    if not (forced or unique or wanted or config.no_repeat_ngram):
        return None
    rows = [[*prefix, *[PAD] * (forced - len(prefix))] for prefix in prefixes]
    tokens = sorted({token for sequence in wanted for token in sequence})
    if continues is not None and any(continues[sequence[0]] for sequence in wanted):
        continues = None
    return Rules(
        torch.tensor(rows, device=device) if forced else None,
        tuple(torch.tensor(list(group), device=device) for _, group in groupby(unique, len)),
        Required(tuple(torch.tensor(s, device=device) for s in wanted), torch.tensor(tokens, device=device), continues)
        if wanted
        else None,
    )


def log_softmax(logits: Tensor) -> Tensor:
    """Return log-probabilities (N, V) in a new tensor, in float32 at least, so that sums stay exact."""
    half = logits.dtype in (torch.float16, torch.bfloat16)
    return logits.log_softmax(dim=-1, dtype=torch.float32 if half else None)


def forbid_marks(log_probs: Tensor, length: int, config: SearchConfig) -> Tensor:
    """Forbid, in place, padding, and the end mark before the minimum length."""
    log_probs.select(1, PAD).fill_(-math.inf)
    if length < config.min_length:
        log_probs.select(1, EOS).fill_(-math.inf)
    return log_probs


def forbid(log_probs: Tensor, written: Tensor, rules: Rules | None, sentences: Tensor, config: SearchConfig) -> Tensor:
    """Set `log_probs` (N, V) to -inf where a token must not follow `written` (B, W, T)."""
    length = written.size(2)
    log_probs = forbid_marks(log_probs, length, config)
    if rules is None:
        return log_probs
    before = log_probs
    log_probs = _suppress(before, written.flatten(0, 1), rules, config)
    if rules.required is not None:
        log_probs = _demand(log_probs, before, written.flatten(0, 1), rules.required, config.max_length - length)
    if rules.prefix is not None and length < rules.prefix.size(1):
        forced = rules.prefix[sentences, length].repeat_interleave(written.size(1)).unsqueeze(1)  # (N, 1)
        only = torch.full_like(before, -math.inf).scatter(1, forced, before.gather(1, forced))
        log_probs = torch.where(forced == PAD, log_probs, only)
    return log_probs


def _suppress(log_probs: Tensor, written: Tensor, rules: Rules, config: SearchConfig) -> Tensor:
    """Forbid tokens that would complete a suppressed sequence or repeat an n-gram."""
    length, banned = written.size(1), list[Tensor]()
    for sequences in rules.suppressed:
        others = sequences.size(1) - 1
        if others <= length:
            at_end = _equal(written[:, None, length - others :], sequences[:, :-1])  # (N, Q)
            banned.append(torch.where(at_end, sequences[:, -1], PAD))
    size = config.no_repeat_ngram
    if 0 < size <= length:
        came = written.unfold(1, size, 1)  # (N, T - n + 1, n)
        at_end = _equal(came[:, :, :-1], written[:, None, length - size + 1 :])
        banned.append(torch.where(at_end, came[:, :, -1], PAD))
    return log_probs.scatter(1, torch.cat(banned, dim=1), -math.inf) if banned else log_probs.clone()


def _demand(log_probs: Tensor, before: Tensor, written: Tensor, required: Required, left: int) -> Tensor:
    """Forbid the end mark before all sequences are met, and tokens that leave no room for them in the `left` ones."""
    missing = required.missing(written)  # (N,)
    after, after_other, after_glued = required.missing_after(written)  # (N, U), (N,), (N,)
    room = (missing - 1).clamp(min=max(left - 2, 0)).unsqueeze(1)  # (N, 1) with a place for the end mark, if possible
    is_late = after_other.unsqueeze(1) > room  # (N, 1) only required tokens fit
    result = log_probs.masked_fill(is_late, -math.inf)
    if required.continues is not None:
        result = result.masked_fill(required.continues & (after_glued.unsqueeze(1) > room), -math.inf)
    hurried = is_late & (after < missing.unsqueeze(1))  # (N, U)
    columns = torch.where(hurried, before[:, required.tokens], log_probs[:, required.tokens])
    result[:, required.tokens] = columns.masked_fill(after > room, -math.inf)
    result[:, EOS] = log_probs[:, EOS].masked_fill(missing > 0, -math.inf)
    return result


def _equal(tokens: Tensor, sequence: Tensor) -> Tensor:
    return (tokens == sequence).all(dim=-1)


def _check(config: SearchConfig, forced: int, suppressed: _Sequences, required: _Sequences) -> None:
    needed = sum(map(len, required))
    if forced + needed > config.max_length:
        raise ConfigError(
            f"a forced prefix of {forced} tokens and required words of {needed} do not fit into "
            f"max_length={config.max_length}"
        )
    for wanted in required:
        for banned in suppressed:
            if any(wanted[i : i + len(banned)] == banned for i in range(len(wanted))):
                raise ConfigError(f"the tokens {list(banned)} are suppressed, but {list(wanted)} are required")
