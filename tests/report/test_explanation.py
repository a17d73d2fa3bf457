"""The walk in the terminal: the stations of the shared table, in the model's order, with pictures that fit."""

from __future__ import annotations

import io

import pytest
from rich.cells import cell_len
from rich.console import Console

from glassformer.explainer.document import EngineText
from glassformer.explainer.explanation import Explanation
from glassformer.explainer.stations import stations
from glassformer.report.explanation import show_cells, show_explanation
from tests.explainer.golden import SENTENCE, golden_explanation, golden_translator
from tests.translate.fakes import tokenizers


def shown(explanation: Explanation) -> str:
    file = io.StringIO()
    show_explanation(explanation, Console(file=file, width=120, highlight=False))
    return file.getvalue()


def test_the_walk_goes_from_pieces_to_the_alignment() -> None:
    explanation = golden_explanation()
    text = shown(explanation)
    slugs = ("pieces", "embedding", "append", "beam-tree", "back-to-text")
    places = [text.index(f"\n{stations()[slug].number}  {stations()[slug].title}") for slug in slugs]
    assert places == sorted(places)
    assert explanation.text in text
    for station in stations().values():
        for address in (tensor.replace("*", "0") for tensor in station.tensors if "rotated" not in tensor):
            assert address in explanation.trace.entries
            assert f"{station.number}  {station.title}   {address} " in text
    steps = text[places[2] : places[3]]
    for piece in tokenizers().tgt.pieces(explanation.subject.recording.tokens):
        assert piece in steps
    assert steps.rstrip().splitlines()[-1].split()[-2] == "</s>"


def test_the_walk_leaves_out_what_a_model_has_not() -> None:
    translator = golden_translator(3, norm="none", d_ff=0, positions="none")
    text = shown(translator.explain(SENTENCE))
    assert "enc.0.add1.sum" in text
    assert "norm1" not in text
    assert "enc.position" not in text


def test_the_walk_goes_in_the_order_of_the_model() -> None:
    """Pre-norm normalises before it attends."""
    text = shown(golden_translator(3, norm="pre", final_norm=True).explain(SENTENCE))
    assert text.index("   enc.0.norm1.output ") < text.index("   enc.0.self.q ") < text.index("   enc.0.add1.sum ")


@pytest.mark.parametrize(
    ("norm", "address", "reader"),
    [
        ("post", "enc.0.norm2.output", "the next layer"),
        ("pre", "enc.0.norm2.output", "the feed-forward network"),
        ("pre", "enc.0.add2.sum", "the next layer"),
        ("none", "enc.0.add2.sum", "the next layer"),
    ],
)
def test_the_walk_says_who_reads_what(norm: str, address: str, reader: str) -> None:
    text = shown(golden_translator(3, norm=norm).explain(SENTENCE))
    station = text[text.index(f"   {address} ") :]
    assert f"This is what {reader} reads." in station[: station.index(" = ")]


@pytest.mark.parametrize("width", [50, 80, 200])
def test_pictures_fit_and_say_what_they_show(width: int) -> None:
    file = io.StringIO()
    show_explanation(golden_explanation(), Console(file=file, width=width, highlight=False))
    lines = file.getvalue().splitlines()
    captions = [place for place, line in enumerate(lines) if "rows: " in line]
    shown = [tensor for station in stations().values() for tensor in station.tensors if "rotated" not in tensor]
    same = ("scaled", "masked", "logits", "probabilities")  # as before, or with too many columns
    assert len(captions) == sum(not tensor.endswith(same) for tensor in shown)
    for place in captions:
        assert all(cell_len(line) <= width for line in lines[place - 5 : place])
    masked = next(place for place, line in enumerate(lines) if "   dec.0.self.weights " in line)
    first = next(line for line in lines[masked + 4 :] if line.startswith("  <s>"))
    assert len(first.split()) == 2  # the start mark sees itself, and the rest is forbidden


def test_no_text_speaks_to_the_terminal() -> None:
    text = shown(golden_translator().explain("\x1b[31mrouge\x07\x7f", reference="\x1b]0;title\x07"))
    assert not {letter for letter in text if letter < " " and letter != "\n"} | ({"\x7f"} & set(text))
    assert "␛[31mrouge" in text


def test_another_text_of_the_engine_is_said() -> None:
    explanation = golden_explanation()
    assert "differs" not in shown(explanation)
    other = Explanation(explanation.subject._replace(engine=EngineText("ctranslate2", "quite different")))
    assert "ctranslate2 gives" in shown(other)
    assert "quite different" in shown(other)


def test_a_slip_is_told_once_and_names_no_lecture_notes() -> None:
    text = " ".join(shown(golden_explanation()).split())
    for station in stations().values():
        if station.slip:
            assert text.count(f"A common slip: {station.slip}") == 1
    assert "notes 00" not in text.lower()


def test_the_walk_shows_rotary_positions() -> None:
    text = shown(golden_translator(3, positions="rotary").explain(SENTENCE))
    assert "3  Rotary positions   enc.0.self.rotated_q " in text
    assert "enc.position" not in text
    assert "enc.sum" not in text


def test_a_number_is_shown_with_its_operands() -> None:
    file = io.StringIO()
    show_cells(golden_explanation(), "dec.0.cross.h1.scaled[2,3]", 1, Console(file=file, width=120, highlight=False))
    text = file.getvalue()
    assert "dec.0.cross.h1.scores[2,3]" in text
    assert text.count("which comes mostly from") == 1
