"""Rows 11 to 15: what stands around attention, and the stack that it all makes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from rich.text import Text
from torch import Tensor, nn

from glassformer.config import ModelConfig
from glassformer.model.encoder import Encoder, EncoderLayer
from glassformer.model.layers import AddNorm, FeedForward, LayerNorm
from glassformer.model.operations import add, affine, mean, normalise, variance
from glassformer.model.scope import Scope
from glassformer.model.trace import look, zero
from glassformer.notes.note import Erratum, Note, Shown
from glassformer.notes.specimen import FRENCH, Notebook, gap, ids, model, seen
from glassformer.report.terminal import heat_map, side_by_side, table, tiny, vector


def _show_residual() -> Shown:
    specimen = model(11, gain=2.0, d_model=8, norm="none", d_ff=0, n_encoder_layers=1)
    sentence, start = ids(FRENCH), [specimen.start_id]
    trace = look(specimen, sentence, start)
    names = (("x, the input", "enc.sum"), ("the sublayer", "enc.0.self.output"), ("their sum", "enc.0.add1.sum"))
    tensors = [seen(trace, address) for _, address in names]
    silent = look(specimen, sentence, start, [zero("enc.0.self.output")])
    through = gap(seen(silent, "enc.sum"), seen(silent, "enc.0.add1.sum"))
    asked, error = 2, gap(tensors[0] + tensors[1], tensors[2])
    return (
        f'"{FRENCH[asked]}" on its way around the first self-attention, three tensors:',
        table(
            ("tensor", "address", "first five channels"),
            [
                (name, address, vector(tensor[asked, :5]))
                for (name, address), tensor in zip(names, tensors, strict=True)
            ],
        ),
        heat_map(
            [tensor[asked].tolist() for tensor in tensors],
            ["input", "+ sublayer", "= sum"],
            [f"{n}" for n in range(8)],
            low=-2.5,
            high=2.5,
            ends=("-2.5", "2.5"),
        ),
        f"input + sublayer against the sum, all words: they differ by {tiny(error)}.",
        f"With the attention switched off (its output set to 0), the input comes through changed by {tiny(through)}:"
        " what the word was, position and all, need not be learned again in each layer.",
    )


def layer_norm(width: int) -> LayerNorm:
    """Make the model's layer norm, in float64."""
    return LayerNorm(width, ModelConfig().norm_eps).double().requires_grad_(False)


def batch_norm(x: Tensor) -> Tensor:
    """Batch norm of `x`, the channels being its last axis, with the statistics of this batch."""
    norm = nn.BatchNorm1d(x.size(-1), affine=False, track_running_stats=False).double()
    normalised: Tensor = norm(x.reshape(-1, x.size(-1)))
    return normalised.view(x.shape)


def reach(norm: Callable[[Tensor], Tensor], x: Tensor, place: tuple[int, ...]) -> Tensor:
    """Show which outputs move when one number moves: 0 those that stay, 1 that number's own, 0.7 the others."""
    nudged = x.clone()
    nudged[place] += 1.0
    moved = ((norm(nudged) - norm(x)).abs() > 1e-12).double() * 0.7
    moved[place] = 1.0
    return moved


def _example(*shape: int) -> Tensor:
    generator = torch.Generator().manual_seed(12)
    return torch.randn(*shape, generator=generator, dtype=torch.float64)


def _reaches(x: Tensor, place: tuple[int, ...], rows: Sequence[str], columns: int) -> dict[str, Text]:
    norm = layer_norm(x.size(-1))
    pictures = {"batch norm": reach(batch_norm, x, place), "layer norm": reach(norm, x, place)}
    return {
        name: heat_map(moved.reshape(-1, columns).tolist(), rows, [""] * columns, low=0, high=1)
        for name, moved in pictures.items()
    }


def _show_axes() -> Shown:
    linear = _example(4, 6)  # (B, D)
    images = _example(2, 3, 3, 3)  # (B, height, width, C), channels last
    texts = _example(2, 3, 4)  # (B, T, D)
    rows = [
        (name, axes, f"{over_batch}: {x.flatten(0, -2).mean(dim=0).numel()}", f"{over_layer}: {mean(x).numel()}")
        for name, axes, x, over_batch, over_layer in (
            ("linear layer", "B 4, units 6", linear, "one a unit", "one a sample"),
            ("convolution", "B 2, C 3, 3×3", images, "one a channel", "one a pixel"),
            ("text", "B 2, T 3, D 4", texts, "one a channel", "one a token"),
        )
    ]
    # A convolution is drawn channel by channel: rows (image, channel), columns pixels.
    image_norm = layer_norm(3)
    image_pictures = {
        name: heat_map(
            reach(norm, images, (0, 1, 1, 0)).permute(0, 3, 1, 2).reshape(6, 9).tolist(),
            [f"{b}, {c}" for b in range(2) for c in range(3)],
            [""] * 9,
            low=0,
            high=1,
        )
        for name, norm in (("batch norm", batch_norm), ("layer norm", image_norm))
    }
    return (
        "How many means (and variances) does each compute?",
        table(("", "tensor", "batch norm", "layer norm"), rows),
        "Move one number (densest block): which outputs move with it? All that share its mean.",
        "a) a linear layer: lines are samples, columns hidden units",
        side_by_side(_reaches(linear, (1, 2), [f"sample {b}" for b in range(4)], 6)),
        "b) a convolution: lines are image and channel, columns the nine pixels",
        side_by_side(image_pictures),
        "(Some let an image's layer norm run over channels and pixels together:"
        f" {images.flatten(1).mean(dim=1).numel()} means, one an image.)",
        "c) text: lines are tokens, columns the channels of a token (d_model)",
        side_by_side(_reaches(texts, (0, 1, 2), [f"text {b} token {t}" for b in range(2) for t in range(3)], 4)),
        "Batch norm ties a word to the other sentences that happen to be in its batch; layer norm looks at nothing"
        " but the word's own channels, so a sentence alone and in a batch come out the same:",
        table(
            ("text 0 alone against text 0 in the batch", "largest difference"),
            [
                ("batch norm", f"{gap(batch_norm(texts)[0], batch_norm(texts[:1])[0]):.4f}"),
                ("layer norm", tiny(gap(layer_norm(4)(texts)[0], layer_norm(4)(texts[:1])[0]))),
            ],
        ),
    )


def _axes_errata() -> tuple[Erratum, ...]:
    texts = _example(2, 3, 4)
    return (
        Erratum(
            "000",
            "for text, channels = N = the number of words in the sentence.",
            "The channels are the d_model entries of one token, as notes 003 compute it.",
            "Each token is normalised by itself: 2 sentences of 3 words with d_model = 4 have"
            f" {mean(texts).numel()} means, one a token. A mean over the N words would mix tokens, and would change"
            " with every word that the decoder adds.",
        ),
    )


class WorkedNorm(NamedTuple):
    """The example of notes 003, as the module computes it."""

    mean: Tensor  # (2, 1)
    deviation: Tensor  # (2, 1) sigma
    output: Tensor  # (2, 3)


_E = ((0.5, -3.0, 8.5), (-2.0, 4.0, 1.0))
_PRINTED = ((-0.75, -2.5, 3.25), (-1.5, 1.5, 0.0))


def worked_norm() -> WorkedNorm:
    """Send e1 and e2 through the model's layer norm, gamma 1 and beta 0 as before training."""
    notebook = Notebook()
    output = layer_norm(3)(torch.tensor([_E], dtype=torch.float64), Scope(notebook, rows="src"))
    return WorkedNorm(notebook["mean"], notebook["variance"].sqrt(), output[0])


def _show_worked_norm() -> Shown:
    found = worked_norm()
    rows = [
        (
            f"e{'₁₂'[n]}",
            vector(_E[n], 1),
            f"{found.mean[n, 0]:.0f}",
            f"{found.deviation[n, 0]:.4f}",
            vector(found.output[n], 4),
        )
        for n in range(2)
    ]
    squares = [f"{(value - found.mean[0, 0]) ** 2:.2f}" for value in _E[0]]
    return (
        table(("token", "channels", "μ", "σ", "(e - μ) / σ"), rows),
        f"For e₁: σ² = ({' + '.join(squares)}) / 3 = {found.deviation[0, 0] ** 2:.4f}, so σ ="
        f" {found.deviation[0, 0]:.4f}.",
        side_by_side(
            {
                "before": heat_map(_E, ["e₁", "e₂"], [""] * 3, low=-9, high=9, digits=2),
                "after": heat_map(found.output.tolist(), ["e₁", "e₂"], [""] * 3, low=-2, high=2, digits=2),
            }
        ),
        f"γ = (1, 1, 1) and β = (0, 0, 0), as before training. The module adds {ModelConfig().norm_eps:g} to σ² so"
        " that it never divides by zero; four digits do not show it.",
    )


def _norm_errata() -> tuple[Erratum, ...]:
    found = worked_norm()
    left = [variance(p, mean(p)).sqrt().item() for p in torch.tensor(_PRINTED, dtype=torch.float64)]
    one, two = (vector(output, 4, aligned=False) for output in found.output)
    return (
        Erratum(
            "003",
            "σ₁ = 2 and σ₂ = 2, hence (-0.75, -2.5, 3.25) and (-1.5, 1.5, 0).",
            f"σ₁ = {found.deviation[0, 0]:.4f} and σ₂ = {found.deviation[1, 0]:.4f}, hence {one} and {two}."
            f" The means, {found.mean[0, 0]:.0f} and {found.mean[1, 0]:.0f}, are right.",
            "The slide's own formula for σ gives these. And the printed vectors miss the aim: their own deviations are"
            f" {left[0]:.4f} and {left[1]:.4f}, where normalising must leave 1.",
        ),
    )


def _show_feed_forward() -> Shown:
    specimen = model(14, d_model=8, d_ff=24, activation="relu")
    trace = look(specimen, ids(FRENCH), [specimen.start_id])
    network = specimen.encoder.layers[0].get_submodule("feed_forward")
    assert isinstance(network, FeedForward)
    x, active, output = (seen(trace, f"enc.0.{name}") for name in ("norm1.output", "ff.active", "ff.output"))
    one_by_one = torch.stack([network(token.view(1, 1, -1))[0, 0] for token in x])
    swapped = network(x.flip(0).unsqueeze(0))[0].flip(0)
    share = (active > 0).double().mean().item()
    with torch.device("meta"):
        base = FeedForward(ModelConfig())
    size = sum(parameter.numel() for parameter in base.parameters())
    width, hidden = base.hidden.in_features, base.hidden.out_features
    return (
        f"From {x.size(1)} channels to {active.size(1)}, through the rectifier, and back to {output.size(1)}."
        " The hidden layer, one line a word:",
        heat_map(active.tolist(), FRENCH, [""] * active.size(1), low=0, ends=("0", f"{active.max():.1f}")),
        f"{share:.0%} of the hidden units are above 0, many only just; the rectifier set the others to exactly 0.",
        table(
            ("the whole sentence at once, against", "difference"),
            [
                ("one word at a time", tiny(gap(one_by_one, output))),
                ("the words in reverse order, turned back", tiny(gap(swapped, output))),
            ],
        ),
        "No word sees another here: that is attention's work. The weights are the same for every place.",
        f"The base model's network ({width} → {hidden} → {width}) learns {size:,} numbers in each layer.",
    )


def _show_stack() -> Shown:
    specimen = model(15, n_encoder_layers=4)
    trace = look(specimen, ids(FRENCH), [specimen.start_id])
    layers = list(specimen.encoder.layers)
    rows = []
    for number, layer in enumerate(layers):
        (source,) = trace.entry(f"enc.{number}.self.q").inputs
        size = sum(parameter.numel() for parameter in layer.parameters())
        before, after = seen(trace, source), seen(trace, f"enc.{number}.norm2.output")
        likeness = nn.functional.cosine_similarity(before, after, dim=-1).mean()
        rows.append((f"{number}", source, "×".join(map(str, after.shape)), f"{size:,}", f"{likeness:.2f}"))
    memory = specimen.encode(torch.tensor([ids(FRENCH)])).states[0]
    last = seen(trace, f"enc.{len(layers) - 1}.norm2.output")
    return (
        "What each layer's query was computed from, read off the trace:",
        table(("layer", "reads", "gives", "numbers learned", "likeness in to out"), rows),
        "Layers are built alike and sized alike, but each has weights of its own. Likeness is the cosine between a"
        " word's vector before and after the layer, averaged over the words.",
        f"What the last layer gives is what the decoder will read: the two differ by {tiny(gap(memory, last))}.",
    )


NOTES = (
    Note(
        number=11,
        title="Residual connections",
        sources="notes 002 and 003",
        idea="Each sublayer's result is added to what went in, not put in its place. The sublayer only has to learn"
        " what to change, and the word with its position travels on beside it.",
        formula="y = x + sublayer(x)",
        code=(AddNorm, AddNorm.after, add),
        work=_show_residual,
    ),
    Note(
        number=12,
        title="Layer norm, and how batch norm differs",
        sources="notes 000 and 003",
        idea="Norms bring numbers to mean 0 and variance 1, then give them a learned scale γ and shift β. What differs"
        " is over which axis the mean is taken: batch norm takes one channel across all samples, layer norm takes one"
        " token across all its channels.",
        formula="μ = mean over the channels of x     σ² = mean of (x - μ)²\ny = γ (x - μ) / √(σ² + ε) + β",
        code=(LayerNorm, mean, variance, affine),
        work=_show_axes,
        errata=_axes_errata,
    ),
    Note(
        number=13,
        title="Layer norm in numbers",
        sources="notes 003",
        idea="Two tokens with three channels each. Every token is brought to mean 0 and variance 1 by itself; the other"
        " token has no say in it.",
        formula="μ = (1/d) Σᵢ eᵢ     σ = √((1/d) Σᵢ (eᵢ - μ)²)     e → (e - μ) / σ",
        code=(LayerNorm, normalise),
        work=_show_worked_norm,
        errata=_norm_errata,
    ),
    Note(
        number=14,
        title="The feed-forward network",
        sources="the paper, section 3.3 (in no set of notes as text)",
        idea="After the words have spoken with each other, each one thinks by itself: two linear maps with a rectifier"
        " between them, applied to every place on its own, with the same weights.",
        formula="FFN(x) = max(0, x W₁ + b₁) W₂ + b₂",
        code=(FeedForward,),
        work=_show_feed_forward,
    ),
    Note(
        number=15,
        title="The encoder is a stack",
        sources="notes 003 and 004",
        idea="Self-attention and feed-forward network, each with residual and norm, make a layer; N layers that are"
        " built alike make the encoder. Only the first sees the embedding; each next one reads the layer below.",
        formula="x⁰ = embedding + PE     xˡ⁺¹ = layerˡ(xˡ)     memory = xᴺ",
        code=(Encoder, EncoderLayer),
        work=_show_stack,
    ),
)
