"""Rows 1 to 3: a word becomes a vector, and the vector learns its place."""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

from glassformer.config import ModelConfig
from glassformer.model.operations import sinusoid
from glassformer.model.positions import Positions
from glassformer.model.transformer import Transformer
from glassformer.notes.note import Slots
from glassformer.notes.specimen import LEXICON, RACCOON, WOMAN, gap, ids, model, picture, seen, traced
from glassformer.report.terminal import heat_map, legend, side_by_side, table, vector


def embedding() -> Slots:
    specimen = model(1, d_model=8)
    trace = traced(specimen, WOMAN)
    row, scaled = seen(trace, "enc.row"), seen(trace, "enc.embedding")
    first, second = (place for place, word in enumerate(WOMAN) if word == "the")
    factor, base = specimen.src_embedding.factor, ModelConfig()
    steps = [
        (word, str(token), vector(row[place, :3]), vector(scaled[place, :3]))
        for place, (word, token) in enumerate(zip(WOMAN, ids(WOMAN), strict=True))
    ]
    return {
        "n_words": len(LEXICON),
        "width": specimen.config.d_model,
        "factor": factor,
        "steps": table(("word", "id", "row of the table", f"times {factor:.4f}"), steps),
        "first": first,
        "second": second,
        "difference": gap(row[first], row[second]),
        "picture": picture(scaled, WOMAN, "01234567", -2.5, 2.5, digits=1),
        "base": base,
        "millions": {tie: table_numbers(tie) / 1e6 for tie in ("all", "target", "embeddings", "none")},
    }


def table_numbers(tie: str) -> int:
    """Count the parameters of the embedding tables and the output layer, without allocating them."""
    with torch.device("meta"):
        big = Transformer(ModelConfig.parse({"tie": tie, "n_encoder_layers": 1, "n_decoder_layers": 1}, "tie"))
    tables = {id(t): t.numel() for t in (big.src_embedding.table, big.tgt_embedding.table, big.output.weight)}
    return sum(tables.values())


class Pair(NamedTuple):
    """A sine and its cosine, the cosine with the exponent that is often written, and how long each pair is."""

    sine: float
    cosine: float
    slipped_cosine: float
    length: float
    slipped_length: float


def pair(position: int, i: int, width: int) -> Pair:
    """Return channels 2i and 2i + 1 of a position, from the model's own encoding."""
    row = sinusoid(start=position, length=1, width=width, layout="interleaved")[0, 0]
    sine, cosine = row[2 * i : 2 * i + 2].tolist()
    slipped = math.cos(position / 10000 ** ((2 * i + 1) / width))
    return Pair(sine, cosine, slipped, math.hypot(sine, cosine), math.hypot(sine, slipped))


def positions() -> Slots:
    small, wide, places = 4, 16, 12
    encoding = sinusoid(start=0, length=4, width=small, layout="interleaved")[0]
    config = ModelConfig(d_model=wide, n_heads=1, max_positions=places)
    waves = Positions(config)(0, places)[0]  # (T, D)
    trace = traced(model(2), WOMAN)
    header = (f"d_model {small}", "sin 2i=0", "cos 2i=0", "sin 2i=2", "cos 2i=2")
    names = [f"pos {p}" for p in range(places)]
    return {
        "numbers": table(header, [(names[p], *(f"{value:.4f}" for value in encoding[p])) for p in range(4)]),
        "width": wide,
        "waves": picture(waves, names, [f"{c}" for c in range(wide)], -1, 1, digits=None),
        "turning_error": _turning_error(3, wide),
        "added": gap(seen(trace, "enc.embedding") + seen(trace, "enc.position"), seen(trace, "enc.sum")),
        "pair": pair(1, 0, 4),
    }


def _turning_error(step: int, width: int) -> float:
    """Compare PE(pos + step) with PE(pos), each sin/cos pair turned by its own angle."""
    encoding = sinusoid(start=0, length=50 + step, width=width, layout="interleaved")[0]
    sine, cosine = encoding[:, 0::2], encoding[:, 1::2]
    by_sine, by_cosine = sine[step], cosine[step]  # of the angle itself, as pos 0 has angle 0
    turned_sine = sine[:-step] * by_cosine + cosine[:-step] * by_sine
    turned_cosine = cosine[:-step] * by_cosine - sine[:-step] * by_sine
    return max(gap(turned_sine, sine[step:]), gap(turned_cosine, cosine[step:]))


def raccoon(positions: str) -> Tensor:
    """Return how far each word of the first sentence is from each of the second (5, 5), both encoded by one model."""
    specimen = model(3, gain=2.0, positions=positions)
    first, second = specimen.encode(torch.tensor([ids(WOMAN), ids(RACCOON)])).states
    return torch.cdist(first, second, compute_mode="donot_use_mm_for_euclid_dist")


def as_sets(distances: Tensor) -> float:
    """Return how far the worst word is from its nearest, either way; 0: the same vectors in another order."""
    return max(distances.amin(dim=dim).max().item() for dim in (0, 1))


def word_order() -> Slots:
    both = {"without positions": raccoon("none"), "with positions": raccoon("interleaved")}
    without, with_positions = both.values()
    top = with_positions.max().item()
    columns = [word[:4] for word in RACCOON]
    maps = {n: heat_map((top - d).tolist(), WOMAN, columns, low=0, high=top) for n, d in both.items()}
    moved = [
        (word, *(f"{d[place, RACCOON.index(word)]:.4f}" for d in both.values()))
        for place, word in enumerate(WOMAN)
        if word in ("woman", "ate", "raccoon")
    ]
    return {
        "down": " ".join(WOMAN),
        "across": " ".join(RACCOON),
        "maps": side_by_side(maps),
        "legend": legend(f"{top:.1f} apart", "the same vector"),
        "moved": table(("word", *both), moved),
        "without": as_sets(without),
        "with_positions": as_sets(with_positions),
    }
