"""The one entry to search: `SearchConfig.method` decides how translations are found.

B sentences, W hypotheses of each, S source positions, N = B * W prefixes.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from torch import Tensor

from glassformer.config import SearchConfig
from glassformer.search.beam import beam_search
from glassformer.search.hypotheses import Hypotheses, S, Step, gap
from glassformer.search.rules import Rules
from glassformer.search.sample import sample


def search(
    step: Step[S],
    state: S,
    start: Tensor,
    config: SearchConfig,
    *,
    n_best: int = 1,
    keys: Tensor | None = None,
    rules: Rules | None = None,
    attention: Callable[[S], Tensor] | None = None,
) -> Hypotheses:
    """Continue each first token in `start` (B,), by beam search or by draws; minimum Bayes risk ranks draws later.

    Draws need `keys` (B,), 64 bits of each sentence; `attention` is for `needs_attention`, see `beam_search`. The
    margin is for any of the `n_best` hypotheses to change, not only the best.
    """
    if config.method == "beam":
        found = beam_search(step, state, start, config, rules=rules, attention=attention)
        return found._replace(margin=_n_best_margin(found, n_best))
    assert keys is not None, "draws need the keys of their sentences"
    return sample(step, state, start, config, keys, rules=rules)


def needs_attention(config: SearchConfig) -> bool:
    """Return whether a search has to know the attention to the source."""
    return config.method == "beam" and config.coverage_penalty > 0


def refuses(config: SearchConfig, *, has_required: bool) -> str | None:
    """Return what the search does not support, or None: required words need a beam to make room for them."""
    return f"required words with method={config.method}" if has_required and config.method != "beam" else None


def _n_best_margin(found: Hypotheses, n_best: int) -> Tensor:
    """Return how little would change any of the n best (B,)."""
    tokens, ranked = found.tokens[:, : n_best + 1], found.scores[:, : n_best + 1]
    if n_best == 1 or ranked.size(1) == 1:
        return found.margin
    same = (tokens[:, 1:] == tokens[:, :-1]).all(dim=2)  # groups may find the same
    return found.margin.minimum(gap(ranked[:, :-1], ranked[:, 1:]).masked_fill(same, math.inf).amin(dim=1))
