"""Plain greedy search: the result of a beam of one, at half the cost.

B sentences, T tokens, V vocabulary.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from glassformer.config import SearchConfig
from glassformer.search.hypotheses import Hypotheses, S, Step
from glassformer.search.penalties import length_penalty
from glassformer.search.rules import forbid_marks, log_softmax
from glassformer.search.top import top
from glassformer.text.vocab import EOS, PAD


@torch.inference_mode()
def greedy_search(step: Step[S], state: S, start: Tensor, config: SearchConfig) -> Hypotheses:
    """Continue each first token in `start` (B,) by the likeliest token, until it is the end mark."""
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
