"""The learning rate of each update: warm-up, then decay."""

from __future__ import annotations

import math

from glassformer.config import TrainingConfig


def learning_rate(step: int, config: TrainingConfig, d_model: int) -> float:
    """Return the rate of update `step`, counted from 1.

    `paper` is section 5.3: D^-0.5 * min(step^-0.5, step * warmup^-1.5), times `lr`. The other schedules rise
    linearly to `lr` at the end of the warm-up; then they decay with the inverse square root of the step, decay to 0 at
    the last update along a cosine or a line, or stay constant.
    """
    warmup = max(config.warmup, 1)
    if config.schedule == "paper":
        return float(config.lr * d_model**-0.5 * min(step**-0.5, step * warmup**-1.5))
    if step < warmup:
        return config.lr * step / warmup
    done = min((step - warmup) / max(config.max_updates - warmup, 1), 1.0)
    falls = {
        "inverse-sqrt": math.sqrt(warmup / step),
        "cosine": (1 + math.cos(math.pi * done)) / 2,
        "linear": 1 - done,
        "constant": 1.0,
    }
    return config.lr * falls[config.schedule]
