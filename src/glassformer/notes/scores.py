"""Rows 4 to 7: queries meet keys, and scores become shares."""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

from glassformer.config import ModelConfig
from glassformer.model.attention import MultiHeadAttention
from glassformer.model.operations import heads, matmul_t, scale, softmax, weighted_sum
from glassformer.model.scope import Scope
from glassformer.model.trace import look
from glassformer.notes.note import Erratum, Note, Shown
from glassformer.notes.specimen import FRENCH, THINKING, Notebook, clear_attention, gap, ids, model, seen
from glassformer.report.terminal import bar, heat_map, table, tiny, vector


def _show_projections() -> Shown:
    specimen = model(4, d_model=8, n_heads=1, gain=1.5)
    trace = look(specimen, ids(FRENCH), [specimen.start_id])
    x = seen(trace, "enc.sum")
    parts = {name: seen(trace, f"enc.0.self.h0.{name}") for name in "qkv"}
    attention = specimen.encoder.layers[0].get_submodule("self_attention")
    assert isinstance(attention, MultiHeadAttention)
    weights, biases = attention.projection.weight.chunk(3), attention.projection.bias.chunk(3)
    by_hand = torch.stack([torch.stack([w @ token + b for token in x]) for w, b in zip(weights, biases, strict=True)])
    error = gap(by_hand, torch.stack(list(parts.values())))
    products = weights[0][0] * x[0]
    terms = " ".join(f"{product:+.3f}" for product in products)
    sizes = [
        (f"attention_bias = {bias}", f"{_attention_size(bias):,}", formula)
        for bias, formula in ((True, "4 d² + 4 d"), (False, "4 d²"))
    ]
    return (
        f'"{FRENCH[0]}" as it enters, and as a question, a label and a content:',
        table((), [(name, vector(v[0])) for name, v in (("x", x), *parts.items())]),
        f"The first entry of its query is eight products and a bias:\n{terms} {biases[0][0]:+.3f} ="
        f" {products.sum() + biases[0][0]:.3f}",
        f"W x + b by hand, for every word, against the tensors of the model: they differ by {tiny(error)}.",
        heat_map(parts["q"].tolist(), FRENCH, [f"q{n}" for n in range(8)], low=-2, high=2, digits=1, ends=("-2", "2")),
        f"The bias is optional; with W_O (row 10), an attention of width d = {ModelConfig().d_model} learns:",
        table(("setting", "numbers", ""), sizes),
    )


def _attention_size(bias: bool) -> int:
    with torch.device("meta"):
        attention = MultiHeadAttention(ModelConfig(attention_bias=bias))
    return sum(parameter.numel() for parameter in attention.parameters())


def printed_softmax(scores: Tensor) -> Tensor:
    """Follow notes 000 to the letter: k_m.q / N, and one and the same k_m throughout the sum."""
    n = scores.size(-1)
    return (scores / n).exp() / (n * (scores / n).exp())


def twice_exponential(scores: Tensor) -> Tensor:
    """Follow notes 001 to the letter: exp(e^(q.k)) over its sum."""
    return scores.exp().softmax(dim=-1)


def _show_plain_attention() -> Shown:
    specimen = model(5, gain=0.6, n_heads=1, scaled_attention=False)
    trace = look(specimen, ids(FRENCH), [specimen.start_id])
    scores, weights, values, context = (
        seen(trace, f"enc.0.self.h0.{n}") for n in ("scores", "weights", "v", "context")
    )
    asked = 2
    by_hand = sum((weights[asked, m] * values[m] for m in range(len(FRENCH))), torch.zeros_like(values[0]))
    total = scores[asked].exp().sum()
    steps = [
        (word, f"{score:.2f}", f"{score.exp():.2f}", f"{weight:.3f}", bar(weight.item(), 1.0))
        for word, score, weight in zip(FRENCH, scores[asked], weights[asked], strict=True)
    ]
    return (
        f'What "{FRENCH[asked]}" asks of each word, unscaled (scaled_attention = False):',
        table(("word m", "k·q", "exp", "share", ""), steps),
        f"The exponentials sum to {total:.2f}; the shares to {weights[asked].sum():.4f}.",
        heat_map(weights.tolist(), FRENCH, FRENCH, low=0, high=1, digits=2, ends=("0", "1")),
        "Each line is one word's shares. Shares times values, summed by hand, against the model's own:",
        table((), [("by hand", vector(by_hand[:6])), ("the model", vector(context[asked, :6]))]),
        f"(first six of {values.size(1)} channels; all differ by at most {tiny(gap(by_hand, context[asked]))})",
    )


def _softmax_errata() -> tuple[Erratum, ...]:
    scores = torch.tensor([2.0, 1.0], dtype=torch.float64)
    right, printed, twice = softmax(scores), printed_softmax(scores), twice_exponential(scores)
    return (
        Erratum(
            "000",
            "exp(kₘ·q / N) over the sum of exp(kₘ·q / N): divided by the number of words, and with one and the same"
            " kₘ in every term of the sum.",
            "exp(kₘ·q) over the sum over m' of exp(kₘ'·q); scaled, kₘ·q / √d_k in both.",
            f"With one k all terms are equal and every word gets 1/N: the scores 2 and 1 would give"
            f" {printed[0]:.2f} and {printed[1]:.2f} instead of {right[0]:.2f} and {right[1]:.2f}. And N, the length"
            " of the sentence, has no part in how large a dot product is: d_k has.",
        ),
        Erratum(
            "001",
            "exp(e^<q·k>), an exponential of an exponential.",
            "exp(q·k): one of them is enough. The e of the RNN's attention is the score itself, not a base.",
            f"Scores 2 and 1 give {right[0]:.2f} and {right[1]:.2f}; twice exponentiated {twice[0]:.2f} and"
            f" {twice[1]:.2f}, and a score of 7 would already be exp({math.exp(7):.0f}), too large even for 64 bits.",
        ),
    )


class Spread(NamedTuple):
    """How random scores behave at one width."""

    raw: float  # standard deviation of q.k
    scaled: float  # of q.k / sqrt(d_k)
    top_raw: float  # the largest share among ten keys, on average
    top_scaled: float


def spread(d_k: int) -> Spread:
    """Send 200 random queries to ten random keys each, all entries of variance 1."""
    generator = torch.Generator().manual_seed(6)
    x, memory = (torch.randn(n, m, d_k, generator=generator, dtype=torch.float64) for n, m in ((200, 1), (200, 10)))
    notebook = Notebook()
    attention, scope = clear_attention(d_k), Scope(notebook, rows="src", keys="src")
    attention(attention.query(x, scope), attention.memory(memory, scope), scope=scope)
    scores, scaled, weights = (notebook.kept[name][0] for name in ("scores", "scaled", "weights"))
    tops = (softmax(scores).amax(dim=-1), weights.amax(dim=-1))
    return Spread(scores.std().item(), scaled.std().item(), *(top.mean().item() for top in tops))


def _show_scale() -> Shown:
    found = {d_k: spread(d_k) for d_k in (4, 16, 64, 256)}
    rows = [
        (
            f"{d_k}",
            f"{math.sqrt(d_k):.0f}",
            f"{s.raw:.2f}",
            f"{s.scaled:.2f}",
            f"{s.top_raw:.2f}",
            f"{s.top_scaled:.2f}",
        )
        for d_k, s in found.items()
    ]
    widest = found[256]
    return (
        "200 random queries, ten random keys each; spread is the standard deviation of the scores:",
        table(("d_k", "√d_k", "spread", "scaled", "top share", "scaled"), rows),
        "The top share of ten, d_k = 256:",
        table(
            (),
            [
                ("plain", f"{widest.top_raw:.2f}", bar(widest.top_raw, 1.0)),
                ("scaled", f"{widest.top_scaled:.2f}", bar(widest.top_scaled, 1.0)),
                ("even", f"{0.1:.2f}", bar(0.1, 1.0)),
            ],
        ),
        "A dot product of d_k random terms is spread √d_k wide. Unscaled, a wide head gives nearly everything to one"
        " word before it has learned anything, and where softmax is that sure its gradient is nearly zero.",
    )


def lost_root() -> Erratum:
    """Notes 001 divide by d_k."""
    scores = torch.tensor([112.0, 96.0], dtype=torch.float64)
    by_root, by_width = (softmax(scale(scores, factor=factor)) for factor in (1 / 8, 1 / 64))
    return Erratum(
        "001",
        "QKᵀ over d_k in the matrix form: the root is lost.",
        "QKᵀ / √d_k.",
        f"The spread grows with the root of d_k, not with d_k. Scores 112 and 96 at d_k = 64 give {by_root[0]:.2f} and"
        f" {by_root[1]:.2f} over 8, but {by_width[0]:.2f} and {by_width[1]:.2f} over 64: too even.",
    )


def width_of_head() -> Erratum:
    """Notes 003 write sqrt(d) in a view with one head."""
    config = ModelConfig()
    with torch.device("meta"):
        factor = MultiHeadAttention(config).factor
    return Erratum(
        "003",
        "√d under the scores, d being the width of the model.",
        "√(d/h) with h heads: the width of one head's keys, d_k.",
        f"The slide shows a single head, for which d/1 = d. The base model has d = {config.d_model} and"
        f" h = {config.n_heads}, and divides by √{config.d_model // config.n_heads} = {1 / factor:.0f},"
        f" not by √{config.d_model} = {math.sqrt(config.d_model):.1f}.",
    )


class WorkedScores(NamedTuple):
    """The example of notes 004, as the module computes it for the row of the first word."""

    scores: Tensor  # (2, 2) q_n.k_m
    scaled: Tensor  # (2, 2)
    weights: Tensor  # (2, 2)
    context: Tensor  # (2, 64) z_1 and z_2
    fused: Tensor  # (2, 512) what the module gives when nobody looks
    output: Tensor  # (2, 512) what it gives when somebody does


def worked_scores() -> WorkedScores:
    """Set one head of a base-sized attention so that q1.k1 = 112 and q1.k2 = 96, and run it.

    Word n is the unit vector n. q1 is 2 in all 64 channels, k1 is 7/8 and k2 is 3/4: 64 * 2 * 7/8 = 112.
    The notes give no q2; ours is 1 everywhere. v1 and v2 are unit vectors, so that z1 shows the mix.
    """
    width, d_k = 512, 64
    attention = clear_attention(width, n_heads=8)
    query, key, value = attention.projection.weight.zero_().chunk(3)
    query[:d_k, 0], query[:d_k, 1] = 2.0, 1.0
    key[:d_k, 0], key[:d_k, 1] = 0.875, 0.75
    value[0, 0] = value[1, 1] = 1.0
    x = torch.eye(2, width, dtype=torch.float64).unsqueeze(0)  # (1, 2, D)
    notebook = Notebook()
    scope = Scope(notebook, rows="src", keys="src")
    output = attention(*attention.query_and_memory(x, scope), scope=scope)[0]
    fused = attention(*attention.query_and_memory(x))[0]
    scores, scaled, weights, context = (notebook[name][0] for name in ("scores", "scaled", "weights", "context"))
    return WorkedScores(scores, scaled, weights, context, fused, output)


def _show_worked_scores() -> Shown:
    found = worked_scores()
    names = [f"{word} (k{'₁₂'[m]})" for m, word in enumerate(THINKING)]
    rows = [
        (
            name,
            f"{found.scores[0, m]:.0f}",
            f"{found.scaled[0, m]:.0f}",
            f"{found.scaled[0, m].exp():,.0f}",
            f"{found.weights[0, m]:.4f}",
            bar(found.weights[0, m].item(), 1.0, 16),
        )
        for m, name in enumerate(names)
    ]
    plain = softmax(found.scores[0])
    d_k = found.context.size(1)
    root = math.sqrt(d_k)
    return (
        f'The first word\'s query, "{THINKING[0]}" (q₁), against both keys, in one head of the base model'
        f" (d_k = {d_k}, √d_k = {root:.0f}):",
        table(("word", "q₁·k", f"/ {root:.0f}", "exp", "share", ""), rows),
        f"Rounded to two digits: {found.weights[0, 0]:.2f} and {found.weights[0, 1]:.2f}, summing to"
        f" {found.weights[0].sum():.1f}. With v₁ = (1, 0, …) and v₂ = (0, 1, …) the head's answer for the word is",
        table((), [("z₁ = ", vector(found.context[0, :3], 4) + " …")]),
        f"Without the division: {plain[0]:.7f} and {plain[1]:.7f}. The second word would go unheard.",
        "Looked at or not, the module computes the same: the two paths differ by"
        f" {tiny(gap(found.fused, found.output))}.",
    )


def _worked_errata() -> tuple[Erratum, ...]:
    found = worked_scores()
    return (
        Erratum(
            "004",
            "q₁·k₂ = 96 on the first page of the example, but q₂·k₂ = 96 on the next two.",
            f"q₁·k₂ = {found.scores[0, 1]:.0f}.",
            "The softmax runs along the row of one query, here the first word's, over all keys. q₂·k₂ belongs to the"
            f" second word's row (with a q₂ of our own choosing it is {found.scores[1, 1]:.0f} here) and is no"
            " part of z₁.",
        ),
    )


NOTES = (
    Note(
        number=4,
        title="Query, key and value",
        sources="notes 000, 001, 002 and 004",
        idea="Each word's vector is mapped three times, by three matrices that are learned: to a query (what the word"
        " looks for), a key (by what it can be found) and a value (what it hands over).",
        formula="qₘ = W_q xₘ + b_q     kₘ = W_k xₘ + b_k     vₘ = W_v xₘ + b_v",
        code=(MultiHeadAttention, heads),
        work=_show_projections,
    ),
    Note(
        number=5,
        title="Dot-product self-attention",
        sources="notes 000, 001 and 002",
        idea="A word's query is multiplied with every word's key; softmax turns the scores into shares; the word's new"
        " vector is the mixture of all values by these shares. The larger the score, the larger the say.",
        formula="a(xₙ, xₘ) = softmaxₘ(kₘ·qₙ) = exp(kₘ·qₙ) / Σₘ' exp(kₘ'·qₙ)\nsa(xₙ) = Σₘ a(xₙ, xₘ) vₘ",
        code=(MultiHeadAttention.forward, matmul_t, softmax, weighted_sum),
        work=_show_plain_attention,
        errata=_softmax_errata,
    ),
    Note(
        number=6,
        title="Scaled by √d_k",
        sources="notes 000, 001, 003 and 004",
        idea="Long vectors have large dot products. Divided by the root of the keys' width, scores stay of one size"
        " whatever the width, and softmax stays undecided enough to learn. This is the default here.",
        formula="softmax(q·k / √d_k)",
        code=(MultiHeadAttention, scale),
        work=_show_scale,
        errata=lambda: (lost_root(), width_of_head()),
    ),
    Note(
        number=7,
        title="The scores 112 and 96",
        sources="notes 004",
        idea="The notes' own example in numbers: two words, two scores, a division, a softmax. The same numbers come"
        " out of the attention that translates, with its weights set to make these scores.",
        formula="aₘ = softmaxₘ(q₁·kₘ / √d_k)     z₁ = a₁ v₁ + a₂ v₂",
        code=(MultiHeadAttention.forward, scale, softmax),
        work=_show_worked_scores,
        errata=_worked_errata,
    ),
)
