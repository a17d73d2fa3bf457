"""Beam search over anything that can take one step; greedy search is a beam of one.

B sentences, W beam width, N = B * W prefixes, C = 2 * W candidates, G groups, T tokens so far, V vocabulary, S source.

A search knows the model as a `step` function, which reads the last token of each prefix, and a state that can `select`
prefixes and `keep` sentences. By default a sentence stops as in CTranslate2, at W finished hypotheses.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from glassformer.config import SearchConfig
from glassformer.errors import ConfigError
from glassformer.search.choose import Choice, choose
from glassformer.search.hypotheses import Hypotheses, S, Step, gap, gather, merge, nothing
from glassformer.search.penalties import best_possible, coverage_penalty, length_penalty
from glassformer.search.rules import Rules, forbid, forbid_marks, log_softmax
from glassformer.search.top import top
from glassformer.text.vocab import EOS, PAD


class _Beam(NamedTuple):
    """The prefixes of the unfinished sentences."""

    sentences: Tensor  # (B,) their numbers
    tokens: Tensor  # (B, W, T), W being 1 before the first step
    total: Tensor  # (B, W) log-probabilities
    margin: Tensor  # (B,) of the choices since the last finished hypothesis
    coverage: Tensor  # (B, W, S) attention that each source position got; (B, W, 1) if unused

    def follow(self, choice: Choice, coverage: Tensor) -> _Beam:
        """Continue with the chosen candidates."""
        parent, token = choice.parent.gather(1, choice.going), choice.token.gather(1, choice.going)
        tokens = torch.cat([gather(self.tokens, parent), token.unsqueeze(2)], dim=2)
        total = choice.sums.gather(1, choice.going)
        # Finished hypotheses have accounted for the margins before them.
        margin = choice.margin_going if choice.any_ends else choice.margin_going.minimum(self.margin)
        return _Beam(self.sentences, tokens, total, margin, gather(coverage, parent))

    def keep(self, stays: Tensor) -> _Beam:
        """Keep some sentences only."""
        return _Beam(*(part.index_select(0, stays) for part in self))


@torch.inference_mode()
def beam_search(
    step: Step[S],
    state: S,
    start: Tensor,
    config: SearchConfig,
    *,
    rules: Rules | None = None,
    attention: Callable[[S], Tensor] | None = None,
    watch: Callable[[Choice], None] | None = None,
) -> Hypotheses:
    """Continue each first token in `start` (B,) until W hypotheses of its sentence have ended.

    `attention` returns how much each prefix of a state attended to each source position (N, S) in its last step, and 1
    for padding; the coverage penalty needs it, and counts the step that predicts the end mark, too. `watch` is called
    with the choice of each step, for the unfinished sentences.
    """
    if config.coverage_penalty and attention is None:
        raise ConfigError("coverage_penalty needs the attention to the source: pass `attention`")
    is_plain = config.stop == "first" and not config.coverage_penalty and rules is None and watch is None
    if config.width == 1 and is_plain:
        return _greedy_search(step, state, start, config)
    device, groups = start.device, config.groups
    found = nothing(len(start) * groups, config.width // groups, device)  # each group has its own
    beam = _Beam(
        torch.arange(len(start), device=device),
        start.view(-1, 1, 1),
        torch.zeros(len(start), 1, device=device),
        torch.full((len(start),), math.inf, device=device),
        torch.zeros(len(start), 1, 1, device=device),
    )
    for length in range(config.max_length):
        logits, state = step(beam.tokens[:, :, -1].reshape(-1, 1), state)
        written, coverage = beam.tokens[:, :, 1:], beam.coverage
        log_probs = forbid(log_softmax(logits[:, -1]), written, rules, beam.sentences, config)  # (N, V)
        if config.coverage_penalty and attention is not None:
            coverage = coverage + attention(state).view(*beam.total.shape, -1)

        at_limit = length + 1 == config.max_length
        choice = choose(log_probs, beam.total, written, rules.required if rules else None, config, at_limit)
        if watch is not None:
            watch(choice)
        if choice.any_ends:
            found = merge(found, _places(beam.sentences, groups), _ended(beam, choice, coverage, config))
        state = state.select(_rows(choice, beam))
        beam = beam.follow(choice, coverage)
        if config.stop == "first" and not choice.any_ends and groups == 1 and (beam.total > -math.inf).all():
            continue  # nothing ended, so no sentence is finished

        is_open = _is_open(found, beam, config)  # (B, G)
        goes_on = is_open.any(dim=1)
        if at_limit or not goes_on.any():
            break
        if groups > 1:  # a finished group has no prefixes
            closed = ~is_open.repeat_interleave(config.width // groups, dim=1)
            beam = beam._replace(total=beam.total.masked_fill(closed, -math.inf))
        if not goes_on.all():
            stays = goes_on.nonzero().squeeze(1)
            beam, state = beam.keep(stays), state.keep(stays)
    return _rank(found, groups)


def _places(sentences: Tensor, groups: int) -> Tensor:
    """Return the numbers (B * G,) of the groups of sentences."""
    if groups == 1:
        return sentences
    return (sentences.unsqueeze(1) * groups + torch.arange(groups, device=sentences.device)).flatten()


def _rows(choice: Choice, beam: _Beam) -> Tensor:
    """Return the numbers (N,) of the prefixes that are continued."""
    batch, width = beam.total.shape
    first_row = torch.arange(batch, device=beam.total.device).unsqueeze(1) * width  # (B, 1)
    return (choice.parent.gather(1, choice.going) + first_row).flatten()


def _ended(beam: _Beam, choice: Choice, coverage: Tensor, config: SearchConfig) -> Hypotheses:
    """Return the hypotheses that ended, group by group (B * G, C / G)."""
    tokens = torch.cat([gather(beam.tokens[:, :, 1:], choice.parent), choice.token.unsqueeze(2)], dim=2)  # (B, C, T)
    counted = beam.tokens.size(2) - 1 + (choice.token != EOS).to(choice.sums)
    scores = choice.sums / length_penalty(counted, config)
    if config.coverage_penalty:
        scores = scores + coverage_penalty(coverage, config.coverage_penalty).gather(1, choice.parent)
    scores = scores.masked_fill(~choice.ends, -math.inf)
    margin = choice.margin_ending.minimum(beam.margin).repeat_interleave(config.groups)
    tokens, sums, scores = (part.reshape(len(margin), -1, *part.shape[2:]) for part in (tokens, choice.sums, scores))
    return Hypotheses(tokens, sums, scores, margin)


def _is_open(found: Hypotheses, beam: _Beam, config: SearchConfig) -> Tensor:
    """Return which groups of which sentences (B, G) are unfinished."""
    scores = found.scores.index_select(0, _places(beam.sentences, config.groups))
    worst = scores[:, -1].view(-1, config.groups)
    total = beam.total.view(*worst.shape, -1).amax(dim=2)
    if config.stop == "first":
        return (worst == -math.inf) & (total > -math.inf)
    return best_possible(total, beam.tokens.size(2) - 1, config) > worst


def _rank(found: Hypotheses, groups: int) -> Hypotheses:
    """Sort the hypotheses of all groups, and include the lead of the best in the margin."""
    if groups > 1:
        batch, width = len(found.scores) // groups, found.scores.size(1) * groups
        tokens, log_probs, scores = (part.reshape(batch, width, *part.shape[2:]) for part in found[:3])
        scores, order = scores.sort(dim=1, descending=True, stable=True)
        margin = found.margin.view(batch, groups).amin(dim=1)
        found = Hypotheses(gather(tokens, order), log_probs.gather(1, order), scores, margin)
    if found.scores.size(1) == 1:
        return found
    same = (found.tokens == found.tokens[:, :1]).all(dim=2)  # groups may find the same hypothesis
    second = found.scores.masked_fill(same, -math.inf).amax(dim=1)
    return found._replace(margin=found.margin.minimum(gap(found.scores[:, 0], second)))


def _greedy_search(step: Step[S], state: S, start: Tensor, config: SearchConfig) -> Hypotheses:
    """Continue by the likeliest token: the result of a beam of one, at half the cost."""
    batch, device = len(start), start.device
    sentences = torch.arange(batch, device=device)  # unfinished ones
    token, total, margin = start, torch.zeros(batch, device=device), torch.full((batch,), math.inf, device=device)
    columns, totals, margins = list[Tensor](), total, margin
    for length in range(config.max_length):
        logits, state = step(token.unsqueeze(1), state)
        log_probs = forbid_marks(log_softmax(logits[:, -1]), length, config)  # (B, V)
        best, where = top(log_probs, 2)
        (first, second), token = best.unbind(1), where.select(1, 0)
        total, margin = total + first, margin.minimum(first - second)
        is_whole = token.size(0) == batch
        columns.append(token if is_whole else start.new_full((batch,), PAD).index_copy(0, sentences, token))

        has_ended = (token == EOS) | (total == -math.inf)
        at_limit = length + 1 == config.max_length
        if not at_limit and not has_ended.any():
            continue
        totals = total if is_whole else totals.index_copy(0, sentences, total)
        margins = margin if is_whole else margins.index_copy(0, sentences, margin)
        stays = (~has_ended).nonzero().squeeze(1)
        if at_limit or not len(stays):
            break
        sentences, token, total, margin = (part.index_select(0, stays) for part in (sentences, token, total, margin))
        state = state.keep(stays)
    tokens = torch.stack(columns, dim=1)  # (B, T)
    counted = ((tokens != PAD) & (tokens != EOS)).sum(dim=1).to(totals)
    scores = totals / length_penalty(counted, config)
    return Hypotheses(
        tokens.unsqueeze(1), totals.unsqueeze(1), scores.unsqueeze(1), margins.nan_to_num(math.inf, posinf=math.inf)
    )
