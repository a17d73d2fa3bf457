"""Rows 11 to 15: what stands around attention, and the stack that it all makes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

import torch
from rich.table import Table
from torch import Tensor, nn

from glassformer.config import ModelConfig
from glassformer.model.layers import FeedForward, LayerNorm
from glassformer.model.operations import mean, variance
from glassformer.model.scope import Scope
from glassformer.model.trace import zero
from glassformer.notes.note import Slots
from glassformer.notes.specimen import FRENCH, Notebook, count, gap, ids, model, picture, seen, traced
from glassformer.report.terminal import heat_map, side_by_side, table, vector


def residual() -> Slots:
    specimen = model(11, gain=2.0, d_model=8, norm="none", d_ff=0, n_encoder_layers=1)
    trace = traced(specimen)
    names = {"x, the input": "enc.sum", "the sublayer": "enc.0.self.output", "their sum": "enc.0.add1.sum"}
    tensors = [seen(trace, address) for address in names.values()]
    silent = traced(specimen, FRENCH, (), zero("enc.0.self.output"))
    asked = 2
    rows = [(*names, vector(tensor[asked, :5])) for names, tensor in zip(names.items(), tensors, strict=True)]
    return {
        "word": FRENCH[asked],
        "tensors": table(("tensor", "address", "first five channels"), rows),
        "picture": picture(
            torch.stack(tensors)[:, asked], ("input", "+ sublayer", "= sum"), "01234567", -2.5, 2.5, digits=None
        ),
        "error": gap(tensors[0] + tensors[1], tensors[2]),
        "through": gap(seen(silent, "enc.sum"), seen(silent, "enc.0.add1.sum")),
    }


def layer_norm(width: int) -> LayerNorm:
    """Return the model's layer norm, in float64."""
    return LayerNorm(width, ModelConfig().norm_eps).double().requires_grad_(False)


def batch_norm(x: Tensor) -> Tensor:
    """Return the batch norm of `x`, channels last, with the statistics of this batch."""
    norm = nn.BatchNorm1d(x.size(-1), affine=False, track_running_stats=False).double()
    normalised: Tensor = norm(x.reshape(-1, x.size(-1)))
    return normalised.view(x.shape)


def reach(norm: Callable[[Tensor], Tensor], x: Tensor, place: tuple[int, ...]) -> Tensor:
    """Show which outputs move when one number moves: 1 that number's own, 0.7 the rest that move, 0 those that stay."""
    nudged = x.clone()
    nudged[place] += 1.0
    moved = ((norm(nudged) - norm(x)).abs() > 1e-12).double() * 0.7
    moved[place] = 1.0
    return moved


def _example(*shape: int) -> Tensor:
    generator = torch.Generator().manual_seed(12)
    return torch.randn(*shape, generator=generator, dtype=torch.float64)


def _reaches(x: Tensor, place: tuple[int, ...], rows: Sequence[str]) -> Table:
    """Draw the reach of both norms; an image channel by channel: rows (image, channel), columns pixels."""
    pictures = {}
    for name, norm in (("batch norm", batch_norm), ("layer norm", layer_norm(x.size(-1)))):
        moved = reach(norm, x, place)
        moved = (moved.permute(0, 3, 1, 2) if moved.dim() == 4 else moved).reshape(len(rows), -1)
        pictures[name] = heat_map(moved.tolist(), rows, (), low=0, high=1)
    return side_by_side(pictures)


def norms() -> Slots:
    linear = _example(4, 6)  # (B, D)
    images = _example(2, 3, 3, 3)  # (B, height, width, C), channels last
    texts = _example(2, 3, 4)  # (B, T, D)
    shapes = {"linear": linear, "images": images, "texts": texts}
    return {
        "over_batch": {name: x.flatten(0, -2).mean(dim=0).numel() for name, x in shapes.items()},
        "over_channels": {name: mean(x).numel() for name, x in shapes.items()},
        "linear": _reaches(linear, (1, 2), [f"sample {b}" for b in range(4)]),
        "images": _reaches(images, (0, 1, 1, 0), [f"{b}, {c}" for b in range(2) for c in range(3)]),
        "over_images": images.flatten(1).mean(dim=1).numel(),
        "texts": _reaches(texts, (0, 1, 2), [f"text {b} token {t}" for b in range(2) for t in range(3)]),
        "batch_gap": gap(batch_norm(texts)[0], batch_norm(texts[:1])[0]),
        "layer_gap": gap(layer_norm(4)(texts)[0], layer_norm(4)(texts[:1])[0]),
    }


_E: Final = ((0.5, -3.0, 8.5), (-2.0, 4.0, 1.0))
_SLIPPED: Final = ((-0.75, -2.5, 3.25), (-1.5, 1.5, 0.0))


def worked_norm() -> Notebook:
    """Send e1 and e2 through the model's layer norm, gamma 1 and beta 0 as before training."""
    notebook = Notebook()
    layer_norm(3)(torch.tensor([_E], dtype=torch.float64), Scope(notebook, rows="src"))
    return notebook


def norm_in_numbers() -> Slots:
    found = worked_norm()
    names = ("e₁", "e₂")
    means, sigmas, output = found["mean"][:, 0], found["variance"][:, 0].sqrt(), found["output"]  # (2,), (2,), (2, 3)
    rows = [
        (name, vector(_E[n], 1), f"{means[n]:.0f}", f"{sigmas[n]:.4f}", vector(output[n], 4))
        for n, name in enumerate(names)
    ]
    pictures = {
        "before": heat_map(_E, names, (), low=-9, high=9, digits=2),
        "after": heat_map(output.tolist(), names, (), low=-2, high=2, digits=2),
    }
    return {
        "steps": table(("token", "channels", "μ", "σ", "(e - μ) / σ"), rows),
        "squares": " + ".join(f"{(value - means[0]) ** 2:.2f}" for value in _E[0]),
        "means": means,
        "sigmas": sigmas,
        "pictures": side_by_side(pictures),
        "eps": f"{ModelConfig().norm_eps:g}",
        "outputs": [vector(row, 4, aligned=False) for row in output],
        "left": [variance(p, mean(p)).sqrt().item() for p in torch.tensor(_SLIPPED, dtype=torch.float64)],
    }


def feed_forward() -> Slots:
    specimen = model(14, d_model=8, d_ff=24, activation="relu")
    trace = traced(specimen)
    network = next(part for part in specimen.modules() if isinstance(part, FeedForward))
    x, active, output = (seen(trace, f"enc.0.{name}") for name in ("norm1.output", "ff.active", "ff.output"))
    one_by_one = torch.stack([network(token.view(1, 1, -1))[0, 0] for token in x])
    swapped = network(x.flip(0).unsqueeze(0))[0].flip(0)
    return {
        "width": x.size(1),
        "hidden": active.size(1),
        "picture": heat_map(active.tolist(), FRENCH, (), low=0, ends=("0", f"{active.max():.1f}")),
        "share": (active > 0).double().mean().item(),
        "one_by_one": gap(one_by_one, output),
        "swapped": gap(swapped, output),
        "base": ModelConfig(),
        "size": count(FeedForward, ModelConfig()),
    }


def stack() -> Slots:
    specimen = model(15, n_encoder_layers=4)
    trace = traced(specimen)
    rows = []
    for number, layer in enumerate(specimen.encoder.layers):
        (source,) = trace.entry(f"enc.{number}.self.q").inputs
        size = sum(parameter.numel() for parameter in layer.parameters())
        before, after = seen(trace, source), seen(trace, f"enc.{number}.norm2.output")
        likeness = nn.functional.cosine_similarity(before, after, dim=-1).mean()
        rows.append((f"{number}", source, "×".join(map(str, after.shape)), f"{size:,}", f"{likeness:.2f}"))
    memory = specimen.encode(torch.tensor([ids(FRENCH)])).states[0]
    return {
        "layers": table(("layer", "reads", "gives", "numbers learned", "likeness in to out"), rows),
        "error": gap(memory, after),
    }
