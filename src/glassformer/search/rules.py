"""What a translation must and must not hold: rules turn what may not come next into -inf.

B sentences, W prefixes of each, N = B * W, T tokens so far (no start mark), V vocabulary, Q sequences, P forced tokens.

All rules look at the tokens written so far and keep no state of their own. A forced prefix overrides all others; a
required sequence overrides suppressed ones and repeats where it could otherwise no longer come in time.
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
    """Token sequences that must come, each at least once."""

    sequences: tuple[Tensor, ...]  # Q times (L,)
    tokens: Tensor  # (U,) that are in them

    @property
    def total(self) -> int:
        """Count the tokens of all sequences."""
        return sum(map(len, self.sequences))

    def missing(self, written: Tensor) -> Tensor:
        """Count the tokens that are surely enough to complete `written` (..., T).

        That is all tokens of the sequences that have not come, without those of the one that is furthest begun.
        There is always a token that makes it one less: the next one of that sequence.
        """
        needed, begun = (torch.zeros(written.shape[:-1], dtype=torch.long, device=written.device) for _ in range(2))
        for sequence in self.sequences:
            size = len(sequence)
            came = _equal(written.unfold(-1, size, 1), sequence).any(-1) if written.size(-1) >= size else needed < 0
            needed += size * ~came
            for part in range(1, min(size, written.size(-1) + 1)):
                at_end = _equal(written[..., -part:], sequence[:part]) & ~came
                begun = begun.maximum(part * at_end)
        return needed - begun

    def missing_after(self, written: Tensor) -> tuple[Tensor, Tensor]:
        """Count the same after one more token: for each of `tokens` (..., U), and for any other (...)."""
        extended = written.unsqueeze(-2).expand(*written.shape[:-1], len(self.tokens), -1)
        last = self.tokens.view(-1, 1).expand(*extended.shape[:-1], 1)
        other = torch.full_like(written[..., :1], PAD)
        return (
            self.missing(torch.cat([extended, last], dim=-1)),
            self.missing(torch.cat([written, other], dim=-1)),
        )


class Rules(NamedTuple):
    """What is asked of translations besides the settings of their search."""

    prefix: Tensor | None = None  # (B, P) what each begins with, padded
    suppressed: tuple[Tensor, ...] = ()  # sequences (Q, L) that must not come, one tensor for each length L
    required: Required | None = None


def make_rules(
    config: SearchConfig,
    device: torch.device,
    prefixes: _Sequences = (),
    suppressed: _Sequences = (),
    required: _Sequences = (),
) -> Rules | None:
    """Check and arrange the rules for a batch, whose sentences begin with `prefixes`; None, if there are none."""
    forced = max(map(len, prefixes), default=0)
    unique = sorted({tuple(sequence) for sequence in suppressed if sequence}, key=lambda s: (len(s), s))
    wanted = sorted({tuple(sequence) for sequence in required if sequence})
    _check(config, forced, unique, wanted)
    if not (forced or unique or wanted or config.no_repeat_ngram):
        return None
    rows = [[*prefix, *[PAD] * (forced - len(prefix))] for prefix in prefixes]
    tokens = sorted({token for sequence in wanted for token in sequence})
    return Rules(
        torch.tensor(rows, device=device) if forced else None,
        tuple(torch.tensor(list(group), device=device) for _, group in groupby(unique, len)),
        Required(tuple(torch.tensor(s, device=device) for s in wanted), torch.tensor(tokens, device=device))
        if wanted
        else None,
    )


def log_softmax(logits: Tensor) -> Tensor:
    """Give log-probabilities (N, V) of their own, and not in half precision, in which sums would be lost."""
    half = logits.dtype in (torch.float16, torch.bfloat16)
    return logits.log_softmax(dim=-1, dtype=torch.float32 if half else None)


def forbid_marks(log_probs: Tensor, length: int, config: SearchConfig) -> Tensor:
    """Put -inf, in place, where padding would come, or the end before the shortest length."""
    log_probs.select(1, PAD).fill_(-math.inf)
    if length < config.min_length:
        log_probs.select(1, EOS).fill_(-math.inf)
    return log_probs


def forbid(log_probs: Tensor, written: Tensor, rules: Rules | None, sentences: Tensor, config: SearchConfig) -> Tensor:
    """Put -inf in `log_probs` (N, V) where a token may not follow `written` (B, W, T)."""
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
    """Forbid the last token of each suppressed sequence, and of each n-gram, whose others stand at the end."""
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
    """Forbid the end before all has come, and whatever leaves no room for it among the `left` tokens."""
    missing = required.missing(written)  # (N,)
    after, after_other = required.missing_after(written)  # (N, U), (N,)
    room = (missing - 1).clamp(min=max(left - 2, 0)).unsqueeze(1)  # (N, 1) a place for the end mark, where there is one
    is_late = after_other.unsqueeze(1) > room  # (N, 1) only required tokens are still possible
    result = log_probs.masked_fill(is_late, -math.inf)
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
