"""The explainer in the terminal: a walk through a translation, each tensor with a picture and one worked number."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from typing import Final

import torch
from rich.cells import cell_len
from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.rule import Rule
from rich.text import Text
from torch import Tensor

from glassformer.explainer.cell import Cell, address_of, explain_cell
from glassformer.explainer.document import Subject
from glassformer.explainer.explanation import Explanation
from glassformer.explainer.pieces import Cut, cut_words
from glassformer.explainer.source import statement
from glassformer.explainer.stations import Station, stations
from glassformer.model.trace import Entry
from glassformer.report.terminal import heat_map, show, table
from glassformer.text.vocab import EOS
from glassformer.translate.alignment import alignment_layer, alignment_weights

_N_OPERANDS: Final = 8  # lines of a table
_N_COLUMNS: Final = 16  # of a heat map
_LONGEST_NAME: Final = 6  # of a column
_N_WORDS: Final = 3  # next words of a step
_SAME_PICTURE: Final = frozenset(("scale", "mask"))  # operations that change numbers but hardly their picture

# Names of the axes of a picture.
_AXES: Final = {
    "src": "source",
    "src_q": "source (queries)",
    "src_k": "source (keys)",
    "tgt": "target so far",
    "tgt_q": "target so far (queries)",
    "tgt_k": "target so far (keys)",
    "channel": "channels",
    "head_channel": "channels of the head",
    "hidden": "hidden units",
}

# Which part reads a tensor depends on where the norm is.
_READERS: Final = {
    "post": {"enc.0.norm1.output": "the feed-forward network", "enc.0.norm2.output": "the next layer"},
    "pre": {
        "enc.0.norm1.output": "self-attention",
        "enc.0.norm2.output": "the feed-forward network",
        "enc.0.add2.sum": "the next layer",
    },
    "none": {"enc.0.add1.sum": "the feed-forward network", "enc.0.add2.sum": "the next layer"},
}


def show_explanation(explanation: Explanation, console: Console) -> None:
    """Walk through a translation: pieces, stations, the decoder step by step, the beam, the alignment."""
    for part in _walk(explanation.subject, console.width):
        show(console, part)


def show_cells(explanation: Explanation, address: str, depth: int, console: Console) -> None:
    """Show how one number was computed, then the operand that contributed most, `depth` times."""
    for place, cell in enumerate(explanation.follow(address, depth)):
        if place:
            show(console, Text("\nwhich comes mostly from\n", style="dim"))
        show(console, _cell(cell))
        terms = cell.terms[:_N_OPERANDS]
        rows = [
            (operand.name, f"{operand.value:.6g}", operand.address or "a weight or constant")
            for operand in dict.fromkeys(operand for term in terms for operand in term.operands)
        ]
        if rows:
            show(console, Padding(table(("operand", "value", "address"), rows[: 2 * _N_OPERANDS]), (1, 0, 0, 2)))


def _walk(subject: Subject, width: int) -> Iterator[RenderableType]:
    yield _title(subject)
    yield from _cutting(subject)
    known = stations(subject.model.config.positions).values()
    first_layer = {tensor.replace("*", "0"): station for station in known for tensor in station.tensors}
    passed: dict[str, Station] = {}
    for entry in subject.recording.trace.entries.values():  # pre-norm has another order than the table
        if entry.address in first_layer:
            station = first_layer[entry.address]
            yield _heading(station, entry.address)
            if station not in passed.values():
                yield from _words(station)
            # Scores that were scaled or masked look like those before: only the numbers differ.
            is_drawn = entry.operation not in _SAME_PICTURE or passed.keys().isdisjoint(entry.inputs)
            yield from _tensor(entry, subject, width, is_drawn=is_drawn and entry.axes[-1] != "vocab")
            passed[entry.address] = station
    yield from _all_heads(subject)
    yield from _steps(subject)
    yield from _beam(subject)
    yield from _alignment(subject)


def _heading(station: Station, address: str = "") -> RenderableType:
    return _rule(f"{station.number}  {station.title}" + (f"   {address}" if address else ""))


def _rule(text: str) -> RenderableType:
    return Group(Text(), Rule(Text(text, style="bold"), align="left", style="dim"))


def _words(station: Station) -> Iterator[RenderableType]:
    yield Text(f"{station.idea} {station.words}")
    if station.slip:
        yield Text(f"A common slip: {station.slip}", style="yellow")


def _title(subject: Subject) -> RenderableType:
    lines = [
        ("source", subject.text),
        ("translation", subject.translation),
        *([] if subject.reference is None else [("reference", subject.reference)]),
    ]
    engine = subject.engine
    if engine is not None and engine.text != subject.translation:
        lines.append((f"{engine.name} gives", f"{engine.text}  (differs from the model shown here)"))
    return table((), [(Text(name, style="dim"), _visible(text)) for name, text in lines])


def _visible(text: str) -> str:
    """Replace control characters, so that a text cannot send commands to the terminal."""
    text = re.sub(r"[\x00-\x1f]", lambda found: chr(0x2400 + ord(found[0])), text)
    return re.sub(r"[\x7f-\x9f]", "\ufffd", text)


def _cutting(subject: Subject) -> Iterator[RenderableType]:
    kind, words = cut_words(subject.tokenizers.src, subject.text)
    yield _heading(stations()["pieces"])
    yield from _words(stations()["pieces"])
    if kind == "unigram":
        yield Text("A unigram model takes the cut with the highest sum of log-probabilities.")
        rows = [(_visible(word.text), *_cut(word.best), *_cut(word.second)) for word in words if word.best is not None]
        yield Padding(table(("word", "pieces", "sum", "second best", "sum"), rows), (1, 0, 0, 2))
    else:
        yield Text("BPE merges neighbours, the pair that was learned earliest first.")
        merges = [
            (_visible(word.text), _visible("  →  ".join(" ".join(state.pieces) for state in word.merges)))
            for word in words
        ]
        yield Padding(table(("word", "merges"), merges), (1, 0, 0, 2))
    ids = subject.recording.src
    yield Padding(Text("ids  " + " ".join(map(str, ids)) + f"   ({EOS} is the end mark)"), (1, 0, 0, 2))


def _cut(cut: Cut | None) -> tuple[str, str]:
    """Return the pieces of a cut and their sum."""
    return ("", "") if cut is None else (" ".join(piece for piece, _, _ in cut.pieces), f"{cut.score:.2f}")


def _tensor(entry: Entry, subject: Subject, width: int, *, is_drawn: bool) -> Iterator[RenderableType]:
    reader = _READERS[subject.model.config.norm].get(entry.address)
    if reader is not None:
        yield Text(f"This is what {reader} reads.")
    n_columns = _N_COLUMNS
    if is_drawn:
        picture, n_columns = _picture(entry, subject, width - 2)
        yield Padding(picture, (1, 0, 0, 2))
    yield Padding(_cell(explain_cell(subject.recording.trace, _strongest(entry, subject, n_columns))), (1, 0, 0, 2))


def _picture(entry: Entry, subject: Subject, width: int) -> tuple[RenderableType, int]:
    """Draw a tensor's first head, as many columns as fit, and return their number; masked cells stay blank."""
    value, axes, caption = entry.value[0], entry.axes, ""
    if axes[0] == "head":
        caption, value, axes = f"head 0 of {len(value)}, ", value[0], axes[1:]
    if axes == ("tgt_q", "tgt_k"):
        value = value.masked_fill(torch.ones_like(value).triu(1).bool(), math.nan)
    rows = _labels(axes[0], subject)
    names = _labels(axes[1], subject) or [str(i) for i in range(value.size(1))]
    names = [name if cell_len(name) <= _LONGEST_NAME else f"{name[: _LONGEST_NAME - 1]}…" for name in names]
    longest = max(map(cell_len, names[:_N_COLUMNS]))
    n_columns = max(1, min(_N_COLUMNS, (width - max(map(cell_len, rows)) - 1) // (max(2, longest) + 1)))
    shown = value[:, :n_columns].float()
    drawn = shown[shown.isfinite()]
    part = "" if n_columns >= len(names) else f" 0 to {n_columns - 1} of {len(names)}"
    caption += (
        f"rows: {_AXES[axes[0]]}; columns: {_AXES[axes[1]]}{part}; from {drawn.min():.3g} ·· to {drawn.max():.3g} ██"
    )
    heat = heat_map(shown.tolist(), rows, names[:n_columns])
    return Group(heat, Text(caption, style="dim")), shown.size(1)


def _labels(axis: str, subject: Subject) -> list[str]:
    side = axis.partition("_")[0]
    if side == "src":
        return subject.tokenizers.src.pieces(subject.recording.src)
    if side == "tgt":
        return subject.tokenizers.tgt.pieces([subject.model.start_id, *subject.recording.tokens[:-1]])
    return []


def _strongest(entry: Entry, subject: Subject, n_columns: int) -> str:
    """Return the address of a number to show: the largest one drawn, or in `out` that of the last word."""
    value = entry.value[0][0] if entry.axes[0] == "head" else entry.value[0]
    last = len(value) - 1
    if entry.axes[-1] == "vocab":
        index = (last, subject.recording.tokens[-1])
    else:
        first = last if entry.address.startswith("dec") else 0  # the last row sees all rows
        shown = value[first:, :n_columns]
        row, column = divmod(int(shown.masked_fill(shown.isinf(), 0.0).abs().argmax()), shown.size(1))
        index = (first + row, column)
    return address_of(entry, (0, *index) if entry.axes[0] == "head" else index)


def _cell(cell: Cell) -> RenderableType:
    lines = Text.assemble(
        (cell.address, "bold"), "\n  = ", (cell.formula, "green"), "\n  = ", cell.numbers, f"\n  = {cell.result:.6g}"
    )
    if cell.n_summed:
        others = "one smaller term" if cell.n_summed == 1 else f"{cell.n_summed} smaller terms"
        lines.append(f"\n  (the last number of the sum stands for {others})", style="dim")
    code = " ".join(statement(cell.code).split())
    return lines.append(f"\n  {cell.code.removeprefix('glassformer.')}  {code}", style="dim")


def _all_heads(subject: Subject) -> Iterator[RenderableType]:
    """Show the strongest pair of positions of each layer and head."""
    rows = []
    for entry in subject.recording.trace.entries.values():
        if not entry.address.endswith(".weights"):
            continue
        side, layer, kind = entry.address.split(".")[:3]
        queries, keys = (_labels(axis, subject) for axis in entry.axes[1:])
        for head, weights in enumerate(entry.value[0]):
            query, key = divmod(int(weights.argmax()), weights.size(1))
            share, entropy = weights[query, key].item(), _entropy(weights)
            pair = f"{queries[query]} → {keys[key]}"
            rows.append((f"{side}.{layer}.{kind}.h{head}", pair, f"{share:.0%}", f"{entropy:.2f}"))
    yield _rule("All layers and heads")
    yield Text(
        "The strongest pair of each head, and the mean entropy of its rows in nats (0: each row attends to one place)."
    )
    yield Padding(table(("head", "attends", "share", "entropy"), rows), (1, 0, 0, 2))


def _entropy(weights: Tensor) -> float:
    return float(-(weights * weights.clamp(min=1e-30).log()).sum(dim=-1).mean())


def _steps(subject: Subject) -> Iterator[RenderableType]:
    pieces = subject.tokenizers.tgt.pieces
    log_probs = subject.recording.trace.entry("out.log_probs").value[0]
    known = subject.tokenizers.tgt.vocab_size
    rows = []
    written = [subject.model.start_id, *subject.recording.tokens]
    for step, (row, token) in enumerate(zip(log_probs, written[1:], strict=True)):
        best = row[:known].topk(min(_N_WORDS, known)).indices.tolist()
        nexts = "  ".join(f"{pieces([i])[0]} {row[i].exp():.0%}" for i in best)
        rows.append((str(step), pieces([written[step]])[0], nexts, pieces([token])[0], f"{row[token]:.3f}"))
    yield _heading(stations()["append"])
    yield from _words(stations()["append"])
    yield Padding(table(("t", "reads", "most likely", "chosen", "log p"), rows), (1, 0, 0, 2))


def _beam(subject: Subject) -> Iterator[RenderableType]:
    tree, search = subject.recording.tree, subject.recording.search
    decode = subject.tokenizers.tgt.decode
    ended = sorted((n for n in tree.nodes if n.state in ("finished", "winner")), key=lambda n: -n.score)
    yield _heading(stations()["beam-tree"])
    yield Text(
        f"{'One prefix is' if search.width == 1 else f'{search.width} prefixes are'} kept at each step;"
        " finished ones are ranked by their log-probability over"
        f" {'length' if search.penalty_form == 'power' else '((5 + length) / 6)'}^{search.length_penalty:g}."
    )
    rows = [
        (
            f"@n{node.number}",
            f"{node.total:.3f} / {node.penalty:.3f}",
            f"{node.score:.4f}",
            "winner" if node.lost_by is None else f"lost by {node.lost_by:.4f}",
            _visible(decode(tree.tokens(node.number))),
        )
        for node in ended
    ]
    yield Padding(table(("node", "log p / penalty", "score", "", "text"), rows), (1, 0, 0, 2))
    pruned = [(node.lost_by, node) for node in tree.nodes if node.state == "pruned" and node.lost_by is not None]
    if pruned:
        lost_by, node = min(pruned)
        text = _visible(decode(tree.tokens(node.number)))
        said = f"The closest of the pruned: @n{node.number} “{text}” at step {node.step} lost by {lost_by:.4f}."
        yield Padding(Text(said), (1, 0, 0, 2))


def _alignment(subject: Subject) -> Iterator[RenderableType]:
    head = subject.about.alignment
    layer = alignment_layer(subject.model, head)
    weights = subject.recording.trace.entry(f"dec.{layer}.cross.weights").value[0]  # (H, T, S)
    shown = alignment_weights(weights, head)
    rows = subject.tokenizers.tgt.pieces(subject.recording.tokens)
    which = "the mean over all heads" if head is None else f"head {head.head}"
    yield _heading(stations()["back-to-text"])
    yield Text(f"Alignment: where each written token (row) attended in the source, in layer {layer}, {which}.")
    columns = _labels("src", subject)
    yield Padding(heat_map(shown.float().tolist(), rows, columns, low=0.0, high=1.0, ends=("0", "1")), (1, 0, 0, 2))
