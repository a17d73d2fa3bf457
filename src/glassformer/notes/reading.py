"""Rows 8 to 10: attention for all words at once, as a look-up, and with several heads."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from glassformer.model.attention import KeyValue, MultiHeadAttention
from glassformer.model.operations import linear
from glassformer.model.scope import Scope
from glassformer.notes.note import Slots
from glassformer.notes.scores import slip_heads, slip_root
from glassformer.notes.specimen import FRENCH, Notebook, clear_attention, gap, model, seen, shares, traced
from glassformer.report.terminal import bars, heat_map, table, tiny, vector


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
        "result": heat_map(result[:, :12].tolist(), FRENCH, [""] * 12, low=-3, high=3, ends=("-3", "3")),
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
    return {"shares": shares(weights, answers, "abcd", digits=3)}


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
        "weights": shares(found.weights[:, asked], names, FRENCH),
        "parts": bars(dict(zip(names, sizes, strict=True)), digits=2),
        "sums": table(("", "first channels"), sums),
        "error": gap(found.contributions.sum(dim=0) + found.bias, found.output),
        **slip_heads(),
    }
