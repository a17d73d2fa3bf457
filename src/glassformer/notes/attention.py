"""Rows 4 to 10: queries meet keys, scores become shares, and shares mix values; for all words, in several heads."""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

from glassformer.config import ModelConfig
from glassformer.model.attention import KeyValue, MultiHeadAttention
from glassformer.model.operations import linear, scale, softmax
from glassformer.model.scope import Scope
from glassformer.notes.note import Slots
from glassformer.notes.specimen import (
    FRENCH,
    THINKING,
    Notebook,
    clear_attention,
    count,
    gap,
    model,
    picture,
    seen,
    traced,
)
from glassformer.report.terminal import bar, bars, table, tiny, vector


def query_key_value() -> Slots:
    specimen = model(4, d_model=8, n_heads=1, gain=1.5)
    trace = traced(specimen)
    x = seen(trace, "enc.sum")
    parts = {name: seen(trace, f"enc.0.self.h0.{name}") for name in "qkv"}
    attention = next(part for part in specimen.modules() if isinstance(part, MultiHeadAttention))
    weights, biases = attention.projection.weight.chunk(3), attention.projection.bias.chunk(3)
    by_hand = torch.stack([torch.stack([w @ token + b for token in x]) for w, b in zip(weights, biases, strict=True)])
    products, bias = weights[0][0] * x[0], biases[0][0]
    return {
        "word": FRENCH[0],
        "vectors": table((), [(name, vector(v[0])) for name, v in (("x", x), *parts.items())]),
        "terms": " ".join(f"{term:+.3f}" for term in (*products, bias)),
        "total": products.sum() + bias,
        "error": gap(by_hand, torch.stack(list(parts.values()))),
        "queries": picture(parts["q"], FRENCH, [f"q{n}" for n in range(8)], -2, 2, digits=1),
        "width": ModelConfig().d_model,
        "with_bias": count(MultiHeadAttention, ModelConfig(attention_bias=True)),
        "without_bias": count(MultiHeadAttention, ModelConfig(attention_bias=False)),
    }


def one_key_softmax(scores: Tensor) -> Tensor:
    """Make a common slip: k_m.q / N, and the same k_m in every term of the sum."""
    n = scores.size(-1)
    return (scores / n).exp() / (n * (scores / n).exp())


def twice_exponential(scores: Tensor) -> Tensor:
    """Make a common slip: exp(e^(q.k)) over its sum."""
    return scores.exp().softmax(dim=-1)


def attention() -> Slots:
    trace = traced(model(5, gain=0.6, n_heads=1, scaled_attention=False))
    scores, weights, values, context = (
        seen(trace, f"enc.0.self.h0.{n}") for n in ("scores", "weights", "v", "context")
    )
    asked = 2
    by_hand = sum((weights[asked, m] * values[m] for m in range(len(FRENCH))), torch.zeros_like(values[0]))
    steps = [
        (word, f"{score:.2f}", f"{score.exp():.2f}", f"{weight:.3f}", bar(weight.item(), 1.0))
        for word, score, weight in zip(FRENCH, scores[asked], weights[asked], strict=True)
    ]
    example = torch.tensor([2.0, 1.0], dtype=torch.float64)
    return {
        "word": FRENCH[asked],
        "steps": table(("word m", "k·q", "exp", "share", ""), steps),
        "exponentials": scores[asked].exp().sum(),
        "shares": weights[asked].sum(),
        "weights": picture(weights, FRENCH, FRENCH),
        "mixed": table((), [("by hand", vector(by_hand[:6])), ("the model", vector(context[asked, :6]))]),
        "width": values.size(1),
        "error": gap(by_hand, context[asked]),
        "right": softmax(example),
        "one_key": one_key_softmax(example),
        "twice": twice_exponential(example),
        "seven": math.exp(7),
    }


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


def scaling() -> Slots:
    found = {d_k: spread(d_k) for d_k in (4, 16, 64, 256)}
    rows = [(f"{d_k}", f"{math.sqrt(d_k):.0f}", *(f"{value:.2f}" for value in each)) for d_k, each in found.items()]
    tops = {"plain": found[256].top_raw, "scaled": found[256].top_scaled, "even": 0.1}
    return {
        "spreads": table(("d_k", "√d_k", "spread", "scaled", "top share", "scaled"), rows),
        "tops": table((), [(name, f"{value:.2f}", bar(value, 1.0)) for name, value in tops.items()]),
        **slip_root(),
        **slip_heads(),
    }


def slip_root() -> Slots:
    """Return the slots of `slip-root.md`: scores divided by d_k."""
    scores = torch.tensor([112.0, 96.0], dtype=torch.float64)
    return {name: softmax(scale(scores, factor=1 / by)) for name, by in (("by_root", 8), ("by_width", 64))}


def slip_heads() -> Slots:
    """Return the slots of `slip-heads.md`: scores divided by the root of the model's width."""
    with torch.device("meta"):
        return {"base": ModelConfig(), "divisor": 1 / MultiHeadAttention(ModelConfig()).factor}


def worked_scores() -> tuple[Notebook, Tensor]:
    """Set one head of a base-sized attention so that q1.k1 = 112 and q1.k2 = 96; return also the unrecorded output.

    Word n is the unit vector n. q1 is 2 in all 64 channels, k1 is 7/8 and k2 is 3/4: 64 * 2 * 7/8 = 112.
    q2 plays no part and is 1 everywhere. v1 and v2 are unit vectors, so that z1 shows the mix.
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
    attention(*attention.query_and_memory(x, scope), scope=scope)
    return notebook, attention(*attention.query_and_memory(x))[0]


def worked_example() -> Slots:
    found, fused = worked_scores()
    names = ("scores", "scaled", "weights", "context")
    scores, scaled, weights, context = (found[name][0, 0] for name in names)  # of head 0 and word 0
    d_k = len(context)
    root = math.sqrt(d_k)
    rows = [
        (f"{word} (k{k})", f"{score:.0f}", f"{s:.0f}", f"{s.exp():,.0f}", f"{w:.4f}", bar(w.item(), 1.0, 16))
        for word, k, score, s, w in zip(THINKING, "₁₂", scores, scaled, weights, strict=True)
    ]
    return {
        "word": THINKING[0],
        "d_k": d_k,
        "root": root,
        "steps": table(("word", "q₁·k", f"/ {root:.0f}", "exp", "share", ""), rows),
        "scores": found["scores"][0],
        "weights": weights,
        "mix": table((), [("z₁ = ", vector(context[:3], 4) + " …")]),
        "plain": softmax(scores),
        "error": gap(fused, found["output"]),
    }


def forms(scaled: bool) -> tuple[Tensor, dict[tuple[str, str], Tensor]]:
    """Return the attention (T, K) of a model over one sentence, `scaled` or plain, and the same in other forms."""
    trace = traced(model(8, gain=1.5, n_heads=1, scaled_attention=scaled))
    q, k, v, context = (seen(trace, f"enc.0.self.h0.{name}") for name in ("q", "k", "v", "context"))  # (T, K)
    root = q.size(1) ** 0.5 if scaled else 1.0
    loop = torch.stack([sum_of_values(torch.stack([key @ query / root for key in k]), v) for query in q])
    big_q, big_k, big_v = q.T, k.T, v.T  # (K, T): a word is a column
    return context, {
        ("word by word, a loop", "no matrices"): loop,
        ("softmax(QKᵀ/√d_k) V", "words are rows"): (q @ k.T / root).softmax(dim=1) @ v,
        ("V softmax(KᵀQ/√d_k)", "words are columns"): (big_v @ (big_k.T @ big_q / root).softmax(dim=0)).T,
        ("softmax(QᵀK/√d_k) Vᵀ", "columns in, rows out"): (big_q.T @ big_k / root).softmax(dim=1) @ big_v.T,
    }


def sum_of_values(scores: Tensor, values: Tensor) -> Tensor:
    """Mix `values` (T, K) by the exponentials of one word's `scores` (T,)."""
    shares = scores.exp() / scores.exp().sum()
    return torch.stack([share * value for share, value in zip(shares, values, strict=True)]).sum(dim=0)


def all_words() -> Slots:
    both = forms(scaled=True), forms(scaled=False)
    rows = [(*form, *(tiny(gap(found[form], module)) for module, found in both)) for form in both[0][1]]
    result = both[0][0]
    n_words, width = result.shape
    return {
        "n_words": n_words,
        "width": width,
        "forms": table(("form", "", "scaled", "plain"), rows),
        "result": picture(result[:, :12], FRENCH, (), -3, 3, digits=None),
        **slip_root(),
        **slip_heads(),
    }


def look_up(query: Tensor) -> Notebook:
    """Query a table of four entries, unit vectors as keys and 10, 20, 30, 40 as values, by real unscaled attention."""
    attention = clear_attention(4, scaled=False)
    notebook = Notebook()
    keys = torch.eye(4, dtype=torch.float64)[None, None]  # (1, H, S, K)
    values = torch.zeros(1, 1, 4, 4, dtype=torch.float64)
    values[..., 0] = torch.tensor([10.0, 20.0, 30.0, 40.0])
    scope = Scope(notebook, rows="tgt", keys="src")
    attention(attention.query(query.view(1, 1, 4), scope), KeyValue(keys, values), scope=scope)
    return notebook


def soft_look_up() -> Slots:
    unit = torch.eye(4, dtype=torch.float64)
    asked = {f"{loudness} × key c": look_up(loudness * unit[2]) for loudness in (0, 1, 2, 4, 8, 16)}
    asked["8 × (key a + key b)"] = look_up(8 * (unit[0] + unit[1]))
    weights = torch.stack([found["weights"][0, 0] for found in asked.values()])
    answers = [f"{name} → {found['output'][0, 0]:.2f}" for name, found in asked.items()]
    return {"shares": picture(weights, answers, "abcd", digits=3)}


class Heads(NamedTuple):
    """Eight heads over one sentence, and each one's part in the output."""

    weights: Tensor  # (8, T, T)
    contributions: Tensor  # (8, T, D) through its own columns of W_O
    bias: Tensor  # (D,)
    output: Tensor  # (T, D)


def multi_head() -> Heads:
    """Take apart an encoder's first self-attention, eight heads of width 8."""
    specimen = model(10, gain=3.0, d_model=64, n_heads=8)
    trace = traced(specimen)
    attention = next(part for part in specimen.modules() if isinstance(part, MultiHeadAttention))
    weights, context, output = (seen(trace, f"enc.0.self.{name}") for name in ("weights", "context", "output"))
    columns = attention.output.weight.chunk(len(context), dim=1)  # (D, K) per head
    contributions = torch.stack([linear(c, weight=weight) for c, weight in zip(context, columns, strict=True)])
    return Heads(weights, contributions, attention.output.bias, output)


def heads() -> Slots:
    found = multi_head()
    asked, names = 2, [f"head {head}" for head in range(len(found.weights))]
    sizes = found.contributions[:, asked].norm(dim=-1).tolist()
    width, total = found.output.size(1), found.contributions[:, asked].sum(dim=0) + found.bias
    sums = [
        ("eight parts + bias", vector(total[:6], 3)),
        ("the model's output", vector(found.output[asked, :6], 3)),
    ]
    return {
        "word": FRENCH[asked],
        "width": width,
        "n_heads": len(names),
        "weights": picture(found.weights[:, asked], names, FRENCH),
        "parts": bars(dict(zip(names, sizes, strict=True)), digits=2),
        "sums": table(("", "first channels"), sums),
        "error": gap(found.contributions.sum(dim=0) + found.bias, found.output),
        **slip_heads(),
    }
