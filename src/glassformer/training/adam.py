"""Adam, by torch's fused kernel, and the learning rate of each of its updates.

`torch.optim.Adam` calls the same kernel, but imports torch's compiler with it: 75 MB of memory (torch 2.13) that a
training without `torch.compile` never uses.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor, nn

from glassformer.config import TrainingConfig

MOMENTS = ("step", "exp_avg", "exp_avg_sq")


class Adam:
    """Adam (Kingma and Ba 2015), or AdamW (Loshchilov and Hutter 2019) with its decay on matrices."""

    def __init__(self, parameters: Iterable[nn.Parameter], config: TrainingConfig) -> None:
        self.config, self.lr = config, config.lr
        self.state: dict[nn.Parameter, dict[str, Tensor]] = {}
        parameters = list(parameters)
        self.param_groups: list[dict[str, Any]] = [  # as `torch.amp.GradScaler` looks for them
            {"params": [p for p in parameters if p.dim() > 1], "weight_decay": config.weight_decay},
            {"params": [p for p in parameters if p.dim() <= 1], "weight_decay": 0.0},
        ]

    @torch.no_grad()
    def step(self) -> None:
        """Update each parameter that has a gradient."""
        kernel = torch._fused_adam_ if self.config.optimizer == "adam" else torch._fused_adamw_
        for group in self.param_groups:
            moving = [p for p in group["params"] if p.grad is not None]
            if not moving:
                continue
            steps, means, squares = ([self._moments(p)[name] for p in moving] for name in MOMENTS)
            torch._foreach_add_(steps, 1)
            kernel(
                moving,
                [p.grad for p in moving],
                means,
                squares,
                [],
                steps,
                lr=self.lr,
                beta1=self.config.beta1,
                beta2=self.config.beta2,
                weight_decay=group["weight_decay"],
                eps=self.config.adam_eps,
                amsgrad=False,
                maximize=False,
            )

    def zero_grad(self) -> None:
        """Clear all gradients."""
        for group in self.param_groups:
            for parameter in group["params"]:
                parameter.grad = None

    def _moments(self, parameter: nn.Parameter) -> dict[str, Tensor]:
        if parameter not in self.state:
            step = torch.zeros((), device=parameter.device)
            self.state[parameter] = dict(
                zip(MOMENTS, (step, *(torch.zeros_like(parameter) for _ in range(2))), strict=True)
            )
        return self.state[parameter]


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
