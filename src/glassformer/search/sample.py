"""Sampling: W draws per sentence, each token at random by its probability.

B sentences, W draws of each, N = B * W prefixes, K candidate tokens, T tokens so far, V vocabulary.

A draw is the likeliest token after noise was added to its log-probability (Gumbel 1954: with noise -log(-log(u)) the
winner is distributed by the probabilities). The noise of a token is a hash of the seed, the sentence's key, the
draw, the step and the token only, so that neither the batch nor the order of sentences matters.
"""

from __future__ import annotations

import math
from typing import Final, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from glassformer.config import SearchConfig
from glassformer.search.hypotheses import Hypotheses, S, Step, gap
from glassformer.search.penalties import length_penalty
from glassformer.search.rules import Rules, forbid, log_softmax
from glassformer.text.vocab import EOS, PAD

_SPARE: Final = 8  # tokens that just missed the top k, kept to measure the margin


class _Draws(NamedTuple):
    """The draws of the unfinished sentences."""

    sentences: Tensor  # (B,) their numbers
    tokens: Tensor  # (B, W, T)
    log_probs: Tensor  # (B, W)
    margin: Tensor  # (B,)
    key: Tensor  # (B,)

    def keep(self, stays: Tensor) -> _Draws:
        """Keep some sentences only."""
        return _Draws(*(part.index_select(0, stays) for part in self))


@torch.inference_mode()
def sample(
    step: Step[S], state: S, start: Tensor, config: SearchConfig, keys: Tensor, *, rules: Rules | None = None
) -> Hypotheses:
    """Continue each first token in `start` (B,) by W independent draws; `keys` (B,) are 64 bits of each sentence.

    Hypotheses are in the order of drawing, so the first is an unbiased draw, too. `log_probs` are the model's own: at
    temperature 1 and over all tokens, even if only some of them were candidates.
    """
    batch, width, device = len(start), config.width, start.device
    draws = _Draws(
        torch.arange(batch, device=device),
        start.view(-1, 1, 1).expand(-1, width, -1),
        torch.zeros(batch, width, device=device),
        torch.full((batch,), math.inf, device=device),
        keys,
    )
    found, goes_on = list[_Draws](), torch.ones(batch, width, dtype=torch.bool, device=device)
    for length in range(config.max_length):
        last = draws.tokens[:, : width if length else 1, -1]  # all draws of a sentence begin with the start mark
        logits, state = step(last.reshape(-1, 1), state)
        if length == 0:
            state = state.select(torch.arange(batch, device=device).repeat_interleave(width))
            logits = logits.repeat_interleave(width, dim=0)
        draws, goes_on = _draw(draws, goes_on, logits[:, -1], length, rules, config)

        is_open = goes_on.any(dim=1)
        if is_open.all() and length + 1 < config.max_length:
            continue
        is_done = ~is_open if length + 1 < config.max_length else torch.ones_like(is_open)
        found.append(draws.keep(is_done.nonzero().squeeze(1)))
        stays = (~is_done).nonzero().squeeze(1)
        if not len(stays):
            break
        draws, goes_on, state = draws.keep(stays), goes_on.index_select(0, stays), state.keep(stays)
    return _collect(found, config)


def noise(key: Tensor, tokens: Tensor) -> Tensor:
    """Hash keys (N,) and token ids (N, K) to uniform numbers u in (0, 1), and return -log(-log(1 - u)) in float32.

    Small u make large noise, and float32 is finer near 0 than near 1: hence 1 - u, not u. A 32-bit hash per token of
    the vocabulary takes a tenth of the time of a 64-bit one.
    """
    bits = key.to(torch.int32).unsqueeze(1) + tokens.to(torch.int32) * _GOLDEN_32  # the finaliser of MurmurHash3
    bits ^= (bits >> 16) & 0xFFFF
    bits *= _FIRST_32
    bits ^= (bits >> 13) & 0x7FFFF
    bits *= _SECOND_32
    bits ^= (bits >> 16) & 0xFFFF
    uniform = ((bits & 0x7FFFFFFF).float() + 0.5) * 2.0**-31
    return uniform.neg_().log1p_().neg_().log_().neg_()


def _draw(
    draws: _Draws, goes_on: Tensor, logits: Tensor, length: int, rules: Rules | None, config: SearchConfig
) -> tuple[_Draws, Tensor]:
    """Draw one more token for each unfinished prefix (B, W), and padding for the others."""
    batch, width = goes_on.shape
    allowed = forbid(log_softmax(logits), draws.tokens[:, :, 1:], rules, draws.sentences, config)  # (N, V)
    number = torch.arange(width, device=logits.device) + (length << 32)  # of the draw and the step
    seeded = _mix(draws.key + _signed(config.seed * _GOLDEN % 2**64))
    key = _mix(seeded.unsqueeze(1) + number * _GOLDEN).flatten()  # (N,)
    token, log_prob, margin = _pick(allowed, key, config)
    token = token.view(batch, width).masked_fill(~goes_on, PAD)
    log_prob = log_prob.view(batch, width).masked_fill(~goes_on, 0.0)
    margin = margin.view(batch, width).masked_fill(~goes_on, math.inf).amin(dim=1)
    tokens = torch.cat([draws.tokens, token.unsqueeze(2)], dim=2)
    goes_on = goes_on & (token != EOS) & (log_prob > -math.inf)
    log_probs = draws.log_probs + log_prob
    return draws._replace(tokens=tokens, log_probs=log_probs, margin=draws.margin.minimum(margin)), goes_on


def _pick(log_probs: Tensor, key: Tensor, config: SearchConfig) -> tuple[Tensor, Tensor, Tensor]:
    """Draw a token for each row (N, V); return it, its log-probability and the margin to another winner (N,).

    Another token wins if it reaches the winner and, if it missed the top k or top p, enters these as well, or if
    the winner drops out.
    """
    vocab = log_probs.size(1)
    if config.top_k == 0 and config.top_p == 1.0:
        tokens = torch.arange(vocab, device=key.device).unsqueeze(0)
        noisy = torch.add(log_probs, noise(key, tokens), alpha=config.temperature)
        best_two, where = noisy.topk(2)
        token = where[:, :1]
        return token.squeeze(1), log_probs.gather(1, token).squeeze(1), gap(best_two[:, 0], best_two[:, 1])
    count = vocab if config.top_p < 1.0 else min(vocab, config.top_k + _SPARE)
    ranked, tokens = log_probs.topk(count)  # (N, K)
    into, out_of = _limits(ranked, config)
    beyond = (
        into[:, -1] if count < vocab else torch.full_like(ranked[:, 0], math.inf)
    )  # what all other tokens lack at least
    noisy = ranked + config.temperature * noise(key, tokens).to(ranked)
    best = noisy.masked_fill(into > 0, -math.inf).max(dim=1, keepdim=True)
    lacks = gap(best.values, noisy).maximum(into).scatter(1, best.indices, math.inf).amin(dim=1)
    token, log_prob, spares = (part.gather(1, best.indices).squeeze(1) for part in (tokens, ranked, out_of))
    return token, log_prob, lacks.minimum(spares).minimum(beyond)


def _limits(ranked: Tensor, config: SearchConfig) -> tuple[Tensor, Tensor]:
    """Return what each ranked token (N, K) lacks to enter the top k and top p, and by how much it is in them.

    Top p are the likeliest of the allowed tokens, at this temperature, up to the one with which their total probability
    reaches p.
    """
    place = torch.arange(ranked.size(1), device=ranked.device)
    inside = (place < (config.top_k or len(place))).expand_as(ranked)
    to_p = torch.full_like(ranked, math.inf)
    if config.top_p < 1.0:
        probs = (ranked.double() / config.temperature).softmax(dim=1)
        before = probs.cumsum(dim=1) - probs  # total probability of the likelier tokens
        to_p = (config.temperature * (before - config.top_p).abs()).to(ranked)
        to_p = to_p.masked_fill(
            ~inside | (place == 0), math.inf
        )  # the first is always in, and the top k exclude the rest
        inside = inside & ((before < config.top_p) | (place == 0))
    last_in = ranked.masked_fill(~inside, math.inf).amin(dim=1, keepdim=True)
    first_out = ranked.masked_fill(inside, -math.inf).amax(dim=1, keepdim=True)
    least = torch.finfo(ranked.dtype).tiny  # outside tokens lack something, even in a tie
    into = gap(last_in, ranked).minimum(to_p).clamp(min=least).masked_fill(inside, 0.0)
    return into, gap(ranked, first_out).minimum(to_p)


def _collect(found: list[_Draws], config: SearchConfig) -> Hypotheses:
    """Put all sentences back in order."""
    longest = max(draws.tokens.size(2) for draws in found)
    padded = [
        draws._replace(tokens=F.pad(draws.tokens, (0, longest - draws.tokens.size(2)), value=PAD)) for draws in found
    ]
    together = _Draws(*(torch.cat(parts) for parts in zip(*padded, strict=True)))
    draws = together.keep(together.sentences.argsort())
    tokens = draws.tokens[:, :, 1:]
    counted = ((tokens != PAD) & (tokens != EOS)).sum(dim=2).to(draws.log_probs)
    return Hypotheses(tokens, draws.log_probs, draws.log_probs / length_penalty(counted, config), draws.margin)


def _signed(bits: int) -> int:
    return bits - 2**64 if bits >= 2**63 else bits


# The finaliser of splitmix64 (Steele, Lea and Flood 2014); torch's integers wrap around as it wants.
_GOLDEN: Final = _signed(0x9E3779B97F4A7C15)
_FIRST: Final = _signed(0xBF58476D1CE4E5B9)
_SECOND: Final = _signed(0x94D049BB133111EB)
_GOLDEN_32: Final = 0x1E3779B9
_FIRST_32: Final = 0x85EBCA6B - 2**32
_SECOND_32: Final = 0xC2B2AE35 - 2**32


def _mix(bits: Tensor) -> Tensor:
    bits = (bits ^ _shift(bits, 30)) * _FIRST
    bits = (bits ^ _shift(bits, 27)) * _SECOND
    return bits ^ _shift(bits, 31)


def _shift(bits: Tensor, count: int) -> Tensor:
    """Shift right, filling with zeros."""
    kept: int = 2 ** (64 - count) - 1
    return (bits >> count) & kept
