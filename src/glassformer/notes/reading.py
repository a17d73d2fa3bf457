"""Rows 8 to 10: attention for all words at once, as a look-up, and with several heads."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from glassformer.model.attention import KeyValue, MultiHeadAttention
from glassformer.model.operations import concat, linear
from glassformer.model.scope import Scope
from glassformer.model.trace import look
from glassformer.notes.note import Erratum, Note, Shown
from glassformer.notes.scores import lost_root, width_of_head
from glassformer.notes.specimen import FRENCH, Notebook, clear_attention, gap, ids, model, seen
from glassformer.report.terminal import bars, heat_map, table, tiny, vector


class Forms(NamedTuple):
    """One attention over one sentence, computed in five ways; all (T, K)."""

    module: Tensor
    loop: Tensor
    rows: Tensor  # notes 004 and the paper: words are rows
    columns: Tensor  # notes 000: words are columns
    mixed: Tensor  # notes 003: columns go in, rows come out


def forms(scaled: bool) -> Forms:
    """Take q, k and v from a model and attend by each form; `scaled` or plain."""
    specimen = model(8, gain=1.5, n_heads=1, scaled_attention=scaled)
    trace = look(specimen, ids(FRENCH), [specimen.start_id])
    q, k, v, context = (seen(trace, f"enc.0.self.h0.{name}") for name in ("q", "k", "v", "context"))  # (T, K)
    root = q.size(1) ** 0.5 if scaled else 1.0
    loop = torch.stack([sum_of_values(torch.stack([key @ query / root for key in k]), v) for query in q])
    rows = (q @ k.T / root).softmax(dim=1) @ v
    big_q, big_k, big_v = q.T, k.T, v.T  # (K, T): a word is a column
    columns = big_v @ (big_k.T @ big_q / root).softmax(dim=0)
    mixed = (big_q.T @ big_k / root).softmax(dim=1) @ big_v.T
    return Forms(context, loop, rows, columns.T, mixed)


def sum_of_values(scores: Tensor, values: Tensor) -> Tensor:
    """Mix `values` (T, K) by the exponentials of one word's `scores` (T,)."""
    shares = scores.exp() / scores.exp().sum()
    return torch.stack([share * value for share, value in zip(shares, values, strict=True)]).sum(dim=0)


def _show_forms() -> Shown:
    scaled, plain = forms(scaled=True), forms(scaled=False)
    names = (
        ("word by word, a loop", "no matrices", "loop"),
        ("softmax(QKᵀ/√d_k) V", "words are rows (004)", "rows"),
        ("V softmax(KᵀQ/√d_k)", "words are columns (000)", "columns"),
        ("softmax(QᵀK/√d_k) Vᵀ", "columns in, rows out (003)", "mixed"),
    )
    rows = [
        (form, meaning, *(tiny(gap(getattr(found, field), found.module)) for found in (scaled, plain)))
        for form, meaning, field in names
    ]
    shape = tuple(scaled.module.shape)
    return (
        f"{shape[0]} words, width {shape[1]}. The largest difference between each form and the model's own attention,"
        " with the root and without it:",
        table(("form", "", "scaled", "plain"), rows),
        "The result for the five words:",
        heat_map(scaled.module[:, :12].tolist(), FRENCH, [""] * 12, low=-3, high=3, ends=("-3", "3")),
        "All forms are one: the transpose follows from whether a word is a row or a column, and softmax always runs"
        " over the words that are read. Here words are rows. Notes 003 call the query's matrix W_E; it is W_Q.",
    )


def _forms_errata() -> tuple[Erratum, ...]:
    found = forms(scaled=False).module
    n_words, width = found.shape
    return (
        Erratum(
            "000",
            "V softmax(K Q): the transpose of K is gone.",
            "V softmax(KᵀQ), with words as columns.",
            f"K and Q are both {width} by {n_words} here; their product exists only as KᵀQ, {n_words} by {n_words},"
            " one score for each pair of words.",
        ),
        lost_root(),
        width_of_head(),
    )


def look_up(query: Tensor) -> Notebook:
    """Ask a table of four entries, unit vectors as keys, 10, 20, 30 and 40 as values, by real unscaled attention."""
    attention = clear_attention(4, scaled=False)
    notebook = Notebook()
    keys = torch.eye(4, dtype=torch.float64)[None, None]  # (1, H, S, K)
    values = torch.zeros(1, 1, 4, 4, dtype=torch.float64)
    values[..., 0] = torch.tensor([10.0, 20.0, 30.0, 40.0])
    scope = Scope(notebook, rows="tgt", keys="src")
    attention(attention.query(query.view(1, 1, 4), scope), KeyValue(keys, values), scope=scope)
    return notebook


def _show_look_up() -> Shown:
    unit = torch.eye(4, dtype=torch.float64)
    sharpness = (0, 1, 2, 4, 8, 16)
    asked = {f"{beta} × key c": look_up(beta * unit[2]) for beta in sharpness}
    asked["8 × (key a + key b)"] = look_up(8 * (unit[0] + unit[1]))
    weights = [found["weights"][0, 0].tolist() for found in asked.values()]
    answers = [f"{name} → {found['output'][0, 0]:.2f}" for name, found in asked.items()]
    return (
        "A table of four entries: a → 10, b → 20, c → 30, d → 40. Keys are unit vectors; the query is key c, louder"
        " from line to line. Its answer, and the shares that the four entries have in it:",
        heat_map(weights, answers, ["a", "b", "c", "d"], low=0, high=1, digits=3, ends=("0", "1")),
        "Silent, the query gets the average of all; loud, the one entry that a dictionary would have given. Between"
        " two keys it gets something between their values. And unlike a dictionary, it has a gradient: keys and"
        " queries can be learned.",
    )


class Heads(NamedTuple):
    """Eight heads over one sentence, and each one's part in the output."""

    weights: Tensor  # (8, T, T)
    contributions: Tensor  # (8, T, D) through its own columns of W_O
    bias: Tensor  # (D,)
    output: Tensor  # (T, D)

    @property
    def error(self) -> float:
        """How far the sum of the contributions is from the output."""
        return gap(self.contributions.sum(dim=0) + self.bias, self.output)


def multi_head() -> Heads:
    """Look at an encoder's first self-attention, eight heads of width 8."""
    specimen = model(10, gain=3.0, d_model=64, n_heads=8)
    trace = look(specimen, ids(FRENCH), [specimen.start_id])
    attention = specimen.encoder.layers[0].get_submodule("self_attention")
    assert isinstance(attention, MultiHeadAttention)
    context = seen(trace, "enc.0.self.context")  # (H, T, K)
    columns = attention.output.weight.chunk(len(context), dim=1)  # (D, K) a head
    contributions = torch.stack([linear(c, weight=weight) for c, weight in zip(context, columns, strict=True)])
    return Heads(
        seen(trace, "enc.0.self.weights"), contributions, attention.output.bias, seen(trace, "enc.0.self.output")
    )


def _show_heads() -> Shown:
    found = multi_head()
    asked, names = 2, [f"head {head}" for head in range(len(found.weights))]
    sizes = found.contributions[:, asked].norm(dim=-1).tolist()
    width, total = found.output.size(1), found.contributions[:, asked].sum(dim=0) + found.bias
    return (
        f'Where "{FRENCH[asked]}" looks, head by head (d = {width}, h = {len(names)}, so {width // len(names)} channels'
        " a head):",
        heat_map(found.weights[:, asked].tolist(), names, FRENCH, low=0, high=1, digits=2, ends=("0", "1")),
        "W_O joins the heads. As a matrix times pieces laid side by side is the sum of its column blocks times the"
        " pieces, each head has a part of the output to itself. How long is each part?",
        bars(dict(zip(names, sizes, strict=True)), digits=2),
        table(
            ("", "first channels"),
            [
                ("eight parts + bias", vector(total[:6], 3)),
                ("the model's output", vector(found.output[asked, :6], 3)),
            ],
        ),
        f"Over all words and channels the two differ by {tiny(found.error)}.",
    )


NOTES = (
    Note(
        number=8,
        title="All words at once",
        sources="notes 000, 003 and 004",
        idea="Nothing in one word's attention waits for another word's, so all queries are stacked into a matrix and"
        " the whole sentence is done in two matrix products. The notes write it in three ways that mean the same.",
        formula="Attention(Q, K, V) = softmax(QKᵀ / √d_k) V",
        code=(MultiHeadAttention.forward, MultiHeadAttention.query_and_memory),
        work=_show_forms,
        errata=_forms_errata,
    ),
    Note(
        number=9,
        title="Attention as a soft look-up",
        sources="notes 000 and 001",
        idea="A dictionary compares a question with its keys and hands over the value of the one that is equal."
        " Attention compares it with all keys and hands over a mixture, most of it from the keys that fit best.",
        formula="answer = Σₘ softmaxₘ(query·keyₘ) valueₘ",
        code=(MultiHeadAttention, KeyValue),
        work=_show_look_up,
    ),
    Note(
        number=10,
        title="Several heads",
        sources="notes 001, 002, 003 and 004",
        idea="One mixture cannot follow who does what and when at the same time. So attention runs h = 8 times side by"
        " side, each time with smaller queries, keys and values of its own, and W_O joins the results. Notes 002 call"
        " the heads self-attention cells.",
        formula="headⱼ = Attention(X W_Qʲ, X W_Kʲ, X W_Vʲ)     j = 1 … h\n"
        "MultiHead(X) = concat(head₁, …, headₕ) W_O = Σⱼ headⱼ W_Oʲ",
        code=(MultiHeadAttention, concat),
        work=_show_heads,
        errata=lambda: (width_of_head(),),
    ),
)
