"""The training loss, with the output layer inside: logits exist for a few hundred positions at a time.

M positions, D model width, V vocabulary. All logits of a batch at once are the largest tensor of a
training step by far; written and read again they cost more time than the arithmetic.
"""

from __future__ import annotations

import math
from typing import Any, Final

import torch
from torch import Tensor

from glassformer.model.attention import KeyValue

GUIDED_HEAD: Final = 0  # of the last decoder layer

_CHUNK = 512  # positions; 512 x 8,000 logits fit into the cache of a server's CPU


def cross_entropy(
    hidden: Tensor, weight: Tensor, bias: Tensor | None, targets: Tensor, smoothing: float = 0.0
) -> Tensor:
    """Sum the cross-entropy of `hidden @ weight.T + bias` over the positions of `hidden` (M, D).

    `targets` (M,) are the right tokens; label smoothing (Szegedy et al. 2015) spreads the share
    `smoothing` over the whole vocabulary, as `torch.nn.functional.cross_entropy` does.
    """
    loss: Tensor = _ChunkedCrossEntropy.apply(hidden, weight, bias, targets, smoothing)  # type: ignore[no-untyped-call]
    return loss


def alignment_loss(factor: float, query: Tensor, memory: KeyValue, allowed: Tensor | None, links: Tensor) -> Tensor:
    """Sum the cross-entropy of one head's attention at the target tokens that have a link (Garg et al. 2019).

    `query` (B, H, T, K), `memory` and `allowed` are what the attention reads, `links` (3, n) the rows, target and
    source positions of tokens that translate each other.
    """
    scores = factor * query[:, GUIDED_HEAD] @ memory.keys[:, GUIDED_HEAD].transpose(1, 2)  # (B, T, S)
    if allowed is not None:
        scores = scores.masked_fill(~allowed[:, 0], -math.inf)
    row, target, source = links
    return -scores.float().log_softmax(dim=-1)[row, target, source].sum()


class _ChunkedCrossEntropy(torch.autograd.Function):
    """Computes the gradients along with the loss, chunk by chunk, so that no logit is kept."""

    @staticmethod
    def forward(
        ctx: Any, hidden: Tensor, weight: Tensor, bias: Tensor | None, targets: Tensor, smoothing: float
    ) -> Tensor:
        ctx.wanted = wanted = any(ctx.needs_input_grad[:3])
        n_words = weight.size(0)
        loss = hidden.new_zeros(())
        d_hidden, d_weight = (torch.empty_like(hidden), torch.zeros_like(weight)) if wanted else (None, None)
        d_bias = torch.zeros_like(bias) if wanted and bias is not None else None
        # The mean of a row of logits is one dot product: it needs no pass over the row.
        mean_weight = weight.mean(dim=0)
        mean_bias = 0.0 if bias is None else bias.mean()
        buffer = hidden.new_empty(
            min(_CHUNK, len(hidden)), n_words
        )  # one for all chunks, so that it stays in the cache
        for start in range(0, len(hidden), _CHUNK):
            h, right = hidden[start : start + _CHUNK], targets[start : start + _CHUNK, None]  # (m, D), (m, 1)
            logits = torch.mm(h, weight.t(), out=buffer[: len(h)])  # (m, V)
            if bias is not None:
                logits += bias
            right_logit = logits.gather(1, right)  # (m, 1)
            top = logits.amax(dim=1, keepdim=True)
            total = logits.sub_(top).exp_().sum(dim=1, keepdim=True)  # in place: logits are now exp(logit - top)
            log_total = total.log() + top
            mean_logit = h @ mean_weight + mean_bias  # (m,)
            loss += (log_total - (1 - smoothing) * right_logit).sum() - smoothing * mean_logit.sum()
            if d_hidden is None or d_weight is None:
                continue
            # Smoothing takes the same from each logit's gradient: that, too, needs no pass over the row.
            d_logits = logits.div_(total).scatter_add_(1, right, (smoothing - 1) * torch.ones_like(total))
            torch.mm(d_logits, weight, out=d_hidden[start : start + _CHUNK])
            d_weight.addmm_(d_logits.t(), h)
            if d_bias is not None:
                d_bias += d_logits.sum(dim=0)
        if smoothing and d_hidden is not None and d_weight is not None:
            d_hidden -= smoothing * mean_weight
            d_weight -= smoothing / n_words * hidden.sum(dim=0)
            if d_bias is not None:
                d_bias -= smoothing / n_words * len(hidden)
        ctx.save_for_backward(d_hidden, d_weight, d_bias)
        return loss

    @staticmethod
    def backward(ctx: Any, d_loss: Tensor) -> tuple[Tensor | None, ...]:
        return (*(None if d is None else d.mul_(d_loss) for d in ctx.saved_tensors), None, None)
