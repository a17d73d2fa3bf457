"""One step of a beam: which continuations end, which go on, and how close the choice was.

B sentences, P prefixes of each (1 before the first step, then W), C candidates, U required tokens, V vocabulary.

Candidates are sorted by preference. Of the first W, those with the end mark become hypotheses, and the first W of the
others go on: each prefix ends at most once, so C = 2 * W are enough. The order is by log-probability, unless
- tokens are required: then prefixes with the same number of missing tokens form a bank and compete with each other; the
  best of each bank come first, then the second best of each (after Post and Vilar 2018);
- there are groups: each chooses for itself, and a token costs for each earlier group that has just had it among its
  first W (Vijayakumar et al. 2016, Hamming diversity). The cost is not part of the log-probability.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from glassformer.config import SearchConfig
from glassformer.search.hypotheses import gap
from glassformer.search.rules import Required
from glassformer.search.top import top
from glassformer.text.vocab import EOS, PAD


class Choice(NamedTuple):
    """The candidates of all groups, group by group, and which of them end and go on."""

    sums: Tensor  # (B, C) log-probabilities
    parent: Tensor  # (B, C) the prefix that each continues
    token: Tensor  # (B, C)
    ends: Tensor  # (B, C) whether each becomes a hypothesis
    any_ends: bool  # whether any ends or came close to it
    going: Tensor  # (B, W) the numbers of those that go on
    margin_ending: Tensor  # (B,) by how much other candidates would have ended
    margin_going: Tensor  # (B,) by how much other candidates would have gone on


class _Candidates(NamedTuple):
    """The candidates of one group, in order of preference; one more than needed, to measure the margin."""

    preference: Tensor  # (B, C + 1) log-probability minus the cost of diversity
    sums: Tensor  # (B, C + 1)
    parent: Tensor  # (B, C + 1)
    token: Tensor  # (B, C + 1)
    missing: Tensor | None = None  # (B, C + 1) missing required tokens, if any are required: the bank
    n_banks: int = 1


def choose(
    log_probs: Tensor, total: Tensor, written: Tensor, required: Required | None, config: SearchConfig, at_limit: bool
) -> Choice:
    """Choose among all continuations of the prefixes `written` (B, P, T), of log-probability `total` (B, P).

    `log_probs` (N, V) are those of each next token; they may become sums, in place.
    """
    width = config.width // config.groups
    if config.groups == 1 and required is None:
        return _settle(_likeliest(log_probs, total, 2 * width + 1), width, at_limit)
    sums = log_probs.view(*total.shape, -1).add_(total.unsqueeze(2))  # (B, P, V)
    if config.groups == 1:
        return _settle(_candidates(sums, written, required, width, None), width, at_limit)
    chosen, cost = list[Choice](), torch.zeros_like(sums[:, 0])  # (B, V)
    for group in range(config.groups):
        first = group * width if total.size(1) > 1 else 0  # before the first step, all groups share one prefix
        rows = slice(first, first + width)
        choice = _settle(_candidates(sums[:, rows], written[:, rows], required, width, cost), width, at_limit)
        price = config.diversity * (choice.sums[:, :width] > -math.inf).to(cost)  # a finished group chooses nothing
        cost = cost.scatter_add(1, choice.token[:, :width], price)
        place = group * choice.sums.size(1)
        chosen.append(choice._replace(parent=choice.parent + first, going=choice.going + place))
    return _together(chosen)


def _together(groups: Sequence[Choice]) -> Choice:
    """Concatenate the candidates of all groups."""
    any_ends = any(choice.any_ends for choice in groups)

    def joined(name: str) -> Tensor:
        return torch.stack([getattr(choice, name) for choice in groups], dim=1)

    sums, parent, token, ends, going = (
        joined(name).flatten(1) for name in ("sums", "parent", "token", "ends", "going")
    )
    margin_ending, margin_going = (joined(name).amin(dim=1) for name in ("margin_ending", "margin_going"))
    return Choice(sums, parent, token, ends, any_ends, going, margin_ending, margin_going)


def _likeliest(log_probs: Tensor, total: Tensor, count: int) -> _Candidates:
    """Return the likeliest continuations of all prefixes, out of the likeliest of each."""
    best, token = top(log_probs, min(count, log_probs.size(1)))  # (N, K)
    n_best = best.size(1)
    sums = best.view(*total.shape, n_best) + total.unsqueeze(2)  # (B, P, K)
    best, where = sums.flatten(1).topk(min(count, total.size(1) * n_best))  # (B, C + 1)
    token = token.view(len(total), -1).gather(1, where)
    spare = count - best.size(1)  # a vocabulary smaller than the beam: pad with candidates that never win
    best = F.pad(best, (0, spare), value=-math.inf)
    return _Candidates(best, best, F.pad(where // n_best, (0, spare)), F.pad(token, (0, spare), value=PAD))


def _candidates(
    sums: Tensor, written: Tensor, required: Required | None, width: int, cost: Tensor | None
) -> _Candidates:
    count = 2 * width + 1
    preference = sums if cost is None else sums - cost.unsqueeze(1)
    if required is not None:
        return _by_bank(preference, sums, written, required, count)
    best, where = top(preference.flatten(1), min(count, preference[0].numel()))
    if best.size(1) < count:  # a vocabulary smaller than the beam: pad with candidates that never win
        best = F.pad(best, (0, count - best.size(1)), value=-math.inf)
        where = F.pad(where, (0, count - where.size(1)), value=PAD)
    vocab = sums.size(2)
    return _Candidates(best, sums.flatten(1).gather(1, where), where // vocab, where % vocab)


def _by_bank(preference: Tensor, sums: Tensor, written: Tensor, required: Required, count: int) -> _Candidates:
    batch, n_prefixes, vocab = sums.shape
    n_banks = required.total + 1
    after, after_other, after_glued = required.missing_after(written)
    # All tokens of a kind that are not required lead to one bank, so the best of each kind are enough.
    free = preference.index_fill(2, required.tokens, -math.inf)
    kinds = [(free, after_other)]
    if required.continues is not None:
        kinds = [
            (free.masked_fill(required.continues, -math.inf), after_other),
            (free.masked_fill(~required.continues, -math.inf), after_glued),
        ]
    others = [(kind.topk(min(count, vocab)), bank.unsqueeze(2)) for kind, bank in kinds]  # (B, P, K)
    fixed = required.tokens.expand(batch, n_prefixes, -1)  # (B, P, U)
    token = torch.cat([*(found.indices for found, _ in others), fixed], dim=2)
    missing = torch.cat([*(bank.expand_as(found.values) for found, bank in others), after], dim=2).flatten(1)
    values = torch.cat([*(found.values for found, _ in others), preference.gather(2, fixed)], dim=2)
    ranked, order = values.flatten(1).sort(descending=True)
    missing = missing.gather(1, order)
    rank = F.one_hot(missing, n_banks).cumsum(dim=1).gather(2, missing.unsqueeze(2)).squeeze(2)
    turn = (rank * n_banks + missing).masked_fill(ranked == -math.inf, torch.iinfo(torch.long).max)
    turn, by_turn = turn.sort(dim=1, stable=True)
    order = order.gather(1, by_turn)
    token = token.flatten(1).gather(1, order)
    parent = order // values.size(2)
    best = ranked.gather(1, by_turn)
    best_sums = sums.flatten(1).gather(1, parent * vocab + token).masked_fill(best == -math.inf, -math.inf)
    spare = max(0, count - best.size(1))
    return _Candidates(
        F.pad(best, (0, spare), value=-math.inf),
        F.pad(best_sums, (0, spare), value=-math.inf),
        F.pad(parent, (0, spare)),
        F.pad(token, (0, spare), value=PAD),
        F.pad(missing.gather(1, by_turn), (0, spare)),
        n_banks,
    )


def _settle(candidates: _Candidates, width: int, at_limit: bool) -> Choice:
    """Choose which candidates end and which go on."""
    preference, sums, parent, token, missing, n_banks = candidates
    count = 2 * width  # at most W of them end, so W others are among these
    is_end = token == EOS
    if missing is None and not at_limit and not is_end.any():
        going = torch.arange(width, device=token.device).expand(token.size(0), -1)
        never = preference.new_full((), math.inf).expand(token.size(0))
        margin = gap(preference[:, width - 1], preference[:, width])
        return Choice(
            sums[:, :count], parent[:, :count], token[:, :count], is_end[:, :count], False, going, never, margin
        )
    ends = torch.ones_like(is_end) if at_limit else is_end
    going = is_end.byte().argsort(dim=1, stable=True)[:, :width]  # the first W that do not end
    if missing is None:
        others = preference.masked_fill(is_end, -math.inf).topk(width + 1).values
        margin_going = gap(others[:, -2], others[:, -1])
        first, after = preference[:, :width], preference[:, width:]
        over = torch.cat([first - after[:, :1], first[:, -1:] - after], dim=1)  # by how much each is on its side of W
        margin_ending = over.masked_fill(~ends, math.inf).nan_to_num(nan=math.inf, posinf=math.inf).amin(dim=1)
    else:
        goes_on = torch.zeros_like(is_end).scatter(1, going, True)
        margin_going = _border(preference.masked_fill(is_end, -math.inf), goes_on, missing, n_banks).amin(dim=1)
        is_first = (torch.arange(is_end.size(1), device=token.device) < width).expand_as(is_end)
        whole = _border(preference, is_first, missing, n_banks)[:, 0]  # only prefixes without missing tokens end
        margin_ending = whole.masked_fill(~(ends & (preference > -math.inf)).any(dim=1), math.inf)
    found = ends[:, :count].clone()
    found[:, width:] = False
    return Choice(sums[:, :count], parent[:, :count], token[:, :count], found, True, going, margin_ending, margin_going)


def _border(preference: Tensor, inside: Tensor, missing: Tensor, n_banks: int) -> Tensor:
    """Return how far those `inside` are above the others of their bank, for each bank."""
    empty = preference.new_full((len(missing), n_banks), math.inf)
    low = empty.scatter_reduce(1, missing, preference.masked_fill(~inside, math.inf), "amin")
    high = (-empty).scatter_reduce(1, missing, preference.masked_fill(inside, -math.inf), "amax")
    return gap(low, high)
