"""Rows 1 to 3: a word becomes a vector, and the vector learns its place."""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

from glassformer.config import ModelConfig
from glassformer.model.layers import Embedding
from glassformer.model.operations import gather, sinusoid
from glassformer.model.positions import Positions
from glassformer.model.trace import look
from glassformer.model.transformer import Transformer
from glassformer.notes.note import Erratum, Note, Shown
from glassformer.notes.specimen import LEXICON, RACCOON, WOMAN, gap, ids, model, seen
from glassformer.report.terminal import heat_map, legend, side_by_side, table, tiny, vector


def _show_embedding() -> Shown:
    specimen = model(1, d_model=8)
    trace = look(specimen, ids(WOMAN), [specimen.start_id])
    row, scaled = seen(trace, "enc.row"), seen(trace, "enc.embedding")
    first, second = (place for place, word in enumerate(WOMAN) if word == "the")
    steps = [
        (word, str(token), vector(row[place, :3]), vector(scaled[place, :3]))
        for place, (word, token) in enumerate(zip(WOMAN, ids(WOMAN), strict=True))
    ]
    factor, base = specimen.src_embedding.factor, ModelConfig()
    tables = [
        (f"tie = {tie!r}", meaning, f"{_table_numbers(tie) / 1e6:.1f} million")
        for tie, meaning in (
            ("all", "one for all"),
            ("target", "source; target and output"),
            ("embeddings", "source and target; output"),
            ("none", "source; target; output"),
        )
    ]
    return (
        f"A table of {len(LEXICON)} words by {specimen.config.d_model} channels; √{specimen.config.d_model} ="
        f" {factor:.4f}. The first three channels of each word:",
        table(("word", "id", "row of the table", f"times {factor:.4f}"), steps),
        f'"the" stands at places {first} and {second}. Its two rows differ by {tiny(gap(row[first], row[second]))}:'
        " the table knows words, not places.",
        heat_map(
            scaled.tolist(),
            WOMAN,
            [f"{channel}" for channel in range(8)],
            low=-2.5,
            high=2.5,
            digits=1,
            ends=("-2.5", "2.5"),
        ),
        f"Each language may have its own table, or all share one ({base.src_vocab:,} words of width {base.d_model}):",
        table(("setting", "tables", "numbers to learn"), tables),
    )


def _table_numbers(tie: str) -> int:
    """Count the numbers in the embedding tables and the output layer, without making any."""
    with torch.device("meta"):
        big = Transformer(ModelConfig.parse({"tie": tie, "n_encoder_layers": 1, "n_decoder_layers": 1}, "tie"))
    tables = {id(t): t.numel() for t in (big.src_embedding.table, big.tgt_embedding.table, big.output.weight)}
    return sum(tables.values())


class Pair(NamedTuple):
    """A sine and its cosine, and what becomes of them with the exponent that notes 000 print."""

    sine: float
    cosine: float
    printed_cosine: float

    @property
    def length(self) -> float:
        """The pair as a point: how far it lies from the origin."""
        return math.hypot(self.sine, self.cosine)

    @property
    def printed_length(self) -> float:
        """The same with the printed cosine."""
        return math.hypot(self.sine, self.printed_cosine)


def pair(position: int, i: int, width: int) -> Pair:
    """Take channels 2i and 2i + 1 of a position from the model's own encoding."""
    row = sinusoid(start=position, length=1, width=width, layout="interleaved")[0, 0]
    printed = math.cos(position / 10000 ** ((2 * i + 1) / width))
    return Pair(row[2 * i].item(), row[2 * i + 1].item(), printed)


def _show_positions() -> Shown:
    small, wide, places = 4, 16, 12
    encoding = sinusoid(start=0, length=4, width=small, layout="interleaved")[0]
    numbers = [(f"pos {p}", *(f"{value:.4f}" for value in encoding[p])) for p in range(4)]
    config = ModelConfig(d_model=wide, n_heads=1, max_positions=places)
    picture = Positions(config)(0, places)[0]  # (T, D)
    specimen = model(2)
    trace = look(specimen, ids(WOMAN), [specimen.start_id])
    added = gap(seen(trace, "enc.embedding") + seen(trace, "enc.position"), seen(trace, "enc.sum"))
    header = ("d_model 4", "sin 2i=0", "cos 2i=0", "sin 2i=2", "cos 2i=2")
    return (
        table(header, numbers),
        f"Width {wide}, one line for each place: the channels on the left turn fast, those on the right hardly at all.",
        heat_map(
            picture.tolist(),
            [f"pos {p}" for p in range(places)],
            [f"{c}" for c in range(wide)],
            low=-1,
            high=1,
            ends=("-1", "1"),
        ),
        f"Three places further is the same turn from anywhere, by 3 angles: {tiny(_turning_error(3, wide))} is the"
        " largest difference between PE(pos + 3) and PE(pos) turned, over all pairs and 50 places.",
        f"embedding + position against the sum that the encoder reads: they differ by {tiny(added)}.",
    )


def _turning_error(step: int, width: int) -> float:
    """Compare PE(pos + step) with PE(pos), each sin/cos pair turned by its own angle."""
    table = sinusoid(start=0, length=50 + step, width=width, layout="interleaved")[0]
    sine, cosine = table[:, 0::2], table[:, 1::2]
    by_sine, by_cosine = sine[step], cosine[step]  # of the angle itself, as pos 0 has angle 0
    turned_sine = sine[:-step] * by_cosine + cosine[:-step] * by_sine
    turned_cosine = cosine[:-step] * by_cosine - sine[:-step] * by_sine
    return max(gap(turned_sine, sine[step:]), gap(turned_cosine, cosine[step:]))


def _position_errata() -> tuple[Erratum, ...]:
    example = pair(1, 0, 4)
    return (
        Erratum(
            "000",
            "cos(pos / 10000^((2i+1)/d)): another exponent under the cosine than under the sine.",
            "2i/d under both, as notes 004 and the paper have it.",
            "Only one angle for both makes each pair a point on a circle, so that moving along the sentence is a"
            f" rotation. At pos 1, i 0, d 4 the pair is ({example.sine:.4f}, {example.cosine:.4f}), of length"
            f" {example.length:.4f}; as printed it would be ({example.sine:.4f}, {example.printed_cosine:.4f}), of"
            f" length {example.printed_length:.4f}.",
        ),
    )


class Raccoon(NamedTuple):
    """The two sentences, encoded by the same weights."""

    first: Tensor  # (5, D) the woman ate the raccoon
    second: Tensor  # (5, D) the raccoon ate the woman

    @property
    def distances(self) -> Tensor:
        """How far each word of the first lies from each word of the second (5, 5)."""
        return (self.first.unsqueeze(1) - self.second.unsqueeze(0)).square().sum(dim=-1).sqrt()

    @property
    def as_sets(self) -> float:
        """How far the worst word is from its nearest counterpart, either way; 0: the same vectors in another order."""
        return max(self.distances.amin(dim=dim).max().item() for dim in (0, 1))


def raccoon(positions: str) -> Raccoon:
    """Encode both sentences, with or without positions; the weights are the same either way."""
    specimen = model(3, gain=2.0, positions=positions)
    states = specimen.encode(torch.tensor([ids(WOMAN), ids(RACCOON)])).states
    return Raccoon(states[0], states[1])


def _show_raccoon() -> Shown:
    without, with_positions = raccoon("none"), raccoon("interleaved")
    top = with_positions.distances.max().item()
    maps = [
        heat_map((top - r.distances).tolist(), WOMAN, [w[:4] for w in RACCOON], low=0, high=top)
        for r in (without, with_positions)
    ]
    moved = [
        (word, *(f"{r.distances[place, RACCOON.index(word)]:.4f}" for r in (without, with_positions)))
        for place, word in enumerate(WOMAN)
        if word in ("woman", "ate", "raccoon")
    ]
    return (
        f'"{" ".join(WOMAN)}" (down) against "{" ".join(RACCOON)}" (across), through two encoder layers; dense: the'
        " two vectors are near each other.",
        side_by_side({"without positions": maps[0], "with positions": maps[1]}),
        legend(f"{top:.1f} apart", "the same vector"),
        "How far does a word's vector move when woman and raccoon change places?",
        table(("word", "without positions", "with positions"), moved),
        f"As sets of vectors, the two sentences differ by {tiny(without.as_sets)} without positions and by"
        f" {with_positions.as_sets:.4f} with them.",
        "Without positions the encoder hands over the same five vectors in another order: who ate whom is lost.",
    )


NOTES = (
    Note(
        number=1,
        title="A word becomes a row of numbers",
        sources="notes 002 and 004; the factor from the paper, section 3.4",
        idea="A network can only add and multiply, so each word is given an id and each id a row of a table that is"
        " learned. One table serves every place in the sentence. The paper multiplies the row by √d_model: rows are"
        " drawn small, with variance 1/d_model, and come out as large as the waves that row 2 adds to them.",
        formula="x = √d_model · E[id]",
        code=(Embedding, gather),
        work=_show_embedding,
    ),
    Note(
        number=2,
        title="Positions as sines and cosines",
        sources="notes 000, 002 and 004",
        idea="Every place in a sentence has its own pattern of waves, fast ones in the first channels and slow ones in"
        " the last, like the hands of many clocks. The pattern is added to the word's vector.",
        formula="PE(pos, 2i)   = sin(pos / 10000^(2i/d_model))\nPE(pos, 2i+1) = cos(pos / 10000^(2i/d_model))",
        code=(Positions, sinusoid),
        work=_show_positions,
        errata=_position_errata,
    ),
    Note(
        number=3,
        title="Why positions: the woman and the raccoon",
        sources="notes 000",
        idea="Attention sums over all words, and a sum does not know the order of its terms. Swap two words and,"
        " without positions, their vectors only change places; with positions each word's vector says what happened.",
        formula="without PE:  encode(P x) = P encode(x)   for any reordering P",
        code=(Positions, Transformer.encode),
        work=_show_raccoon,
    ),
)
