"""The rows of the notes: their numbers against independent ones, and that every row shows what it must."""

from __future__ import annotations

import functools
import io
import math
import os
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from jinja2 import UndefinedError, meta
from rich.cells import cell_len
from rich.console import Console
from rich.text import Text
from typer.testing import CliRunner

import glassformer
from glassformer.cli import app
from glassformer.config import ModelConfig, preset
from glassformer.errors import UsageError
from glassformer.model.attention import MultiHeadAttention
from glassformer.model.trace import skip
from glassformer.model.transformer import Transformer
from glassformer.notes import NOTES, TOUR, show
from glassformer.notes.attention import (
    forms,
    look_up,
    multi_head,
    one_key_softmax,
    spread,
    twice_exponential,
    worked_scores,
)
from glassformer.notes.decoding import future, projections, search, start_tokens
from glassformer.notes.layers import batch_norm, layer_norm, reach, worked_norm
from glassformer.notes.note import MARKDOWN, ROWS, Note, place
from glassformer.notes.specimen import LEXICON, RACCOON, WOMAN, count, gap, ids, words
from glassformer.notes.whole import PHRASES, learn_phrases, loss_both_ways, time_both
from glassformer.notes.words import as_sets, pair, raccoon
from glassformer.text.vocab import BOS, EOS, PAD, UNK
from glassformer.translate.translator import Translator

NUMBERS = range(1, 25)
DOCS = Path(__file__).parents[2] / "docs" / "notes.md"
DOUBLE = torch.float64


def draw(row: int) -> str:
    file = io.StringIO()
    show([row], Console(file=file, width=80, highlight=False))
    return file.getvalue()


@functools.cache
def drawn(row: int) -> str:
    return draw(row)


def said(row: int) -> str:
    """A row as one line, without the frames of its panels."""
    return " ".join(re.sub(r"[┃│]", " ", drawn(row)).split())


def test_there_are_24_rows_in_order() -> None:
    assert list(NOTES) == list(NUMBERS)
    assert [note.number for note in NOTES.values()] == list(NUMBERS)


def plain(markdown: str) -> str:
    """Take the marks out of Markdown."""
    cells = re.sub(r"\|[-:|]*", " ", markdown) if markdown.startswith("|") else markdown
    return " ".join(re.sub(r"^>|[`*]", "", cells, flags=re.MULTILINE).split())


def slips(note: Note) -> list[str]:
    """What is in the boxes of a row."""
    text = "\n\n".join(part for part in note.parts() if isinstance(part, str))
    return re.findall(r"^>.*(?:\n>.*)*", text, re.MULTILINE)


@pytest.mark.parametrize("row", NUMBERS)
def test_every_row_shows_title_sources_prose_formula_and_code(row: int) -> None:
    note, text = NOTES[row], said(row)
    assert f"{row} {note.title}" in text
    assert note.sources in text
    assert re.search(r"\n\n    \S", note.body)  # a formula
    parts = () if row == 21 else note.parts()  # 21 measures anew
    for block in (block for part in parts if isinstance(part, str) for block in part.split("\n\n")):
        assert all(plain(line) in text for line in (block.splitlines() if block.startswith("|") else [block]))
    assert note.code
    for name in note.code:
        assert place(name) in text


@pytest.mark.parametrize("row", NUMBERS)
def test_every_number_has_a_slot_and_every_slot_a_number(row: int) -> None:
    note = NOTES[row]
    included = re.sub(r'{% include "(.+)" %}', lambda name: (ROWS / name[1]).read_text(encoding="utf-8"), note.body)
    assert meta.find_undeclared_variables(MARKDOWN.parse(included)) == set(note.work())


def test_every_file_of_a_row_is_shown() -> None:
    assert [path.name[:2] for path in sorted(ROWS.glob("[0-9]*.md"))] == [f"{row:02}" for row in NUMBERS]
    included = set(re.findall(r'include "(.+)"', "".join(note.body for note in NOTES.values())))
    assert {path.name for path in ROWS.glob("[!0-9]*")} == included


def test_a_missing_number_is_an_error() -> None:
    with pytest.raises(UndefinedError, match="b"):
        list(Note(1, "", "", (), "{{ a }} {{ b }}", lambda: {"a": 1}).parts())


def test_pictures_stand_where_the_text_has_them() -> None:
    note = Note(1, "", "", (), "one {{ a }}\n{{ b }}\ntwo", lambda: {"a": 1, "b": Text("picture")})
    assert list(note.parts()) == ["one 1", Text("picture"), "two"]


@pytest.mark.parametrize("row", NUMBERS)
def test_every_row_fits_into_80_columns(row: int) -> None:
    lines = drawn(row).splitlines()
    assert max(map(cell_len, lines)) <= 80
    assert not any(line.endswith(" ") for line in lines)


@pytest.mark.parametrize("row", NUMBERS)
def test_every_place_in_the_code_exists(row: int) -> None:
    package = Path(glassformer.__file__).parent
    for code in NOTES[row].code:
        found = re.fullmatch(r"([\w/]+\.py):(\d+) ([\w.]+)", place(code))
        assert found is not None
        file, line, name = found.groups()
        source = (package / file).read_text(encoding="utf-8").splitlines()[int(line) - 1]
        assert re.match(rf"\s*(class|def) {name.split('.')[-1]}\b", source)


def test_place_finds_what_decorators_hide() -> None:
    for code in ("search.beam:beam_search", "model.transformer:Transformer.start_id"):
        assert place(code).endswith(f" {code.partition(':')[2]}")


@pytest.mark.parametrize("row", NUMBERS)
def test_a_row_leaves_torch_as_it_was(row: int) -> None:
    random, threads, grad = torch.get_rng_state(), torch.get_num_threads(), torch.is_grad_enabled()
    NOTES[row].work()
    assert torch.equal(torch.get_rng_state(), random)
    assert (torch.get_num_threads(), torch.is_grad_enabled()) == (threads, grad)
    assert torch.get_default_dtype() == torch.float32


@pytest.mark.parametrize("row", [row for row in NUMBERS if row != 21])
def test_a_row_says_the_same_twice(row: int) -> None:
    torch.rand(7)
    assert draw(row) == drawn(row)


def test_a_row_takes_seconds_at_most() -> None:
    begin = time.process_time()
    for row in (7, 12, 20, 23):
        draw(row)
    assert time.process_time() - begin < 20


@pytest.mark.parametrize(
    ("row", "wrong", "right"),
    [
        (2, "10000^((2i+1)/d)", "2i/d for both"),
        (5, "exp(kₘ·q / N)", "kₘ'·q"),
        (5, "exp(e^<q·k>)", "exp(q·k)"),
        (6, "QKᵀ / d_k", "QKᵀ / √d_k"),
        (6, "√d under the scores", "√(d/h)"),
        (7, "q₂·k₂ = 96", "q₁·k₂ = 96."),
        (8, "V softmax(K Q)", "V softmax(KᵀQ)"),
        (8, "QKᵀ / d_k", "QKᵀ / √d_k"),
        (8, "√d under the scores", "√(d/h)"),
        (10, "√d under the scores", "√(d/h)"),
        (12, "channels = N", "d_model entries of one token"),
        (13, "σ₁ = 2 and σ₂ = 2", "σ₁ = 4.8132 and σ₂ = 2.4495"),
        (13, "(-0.75, -2.5, 3.25) and (-1.5, 1.5, 0)", "(-0.3116, -1.0388, 1.3505) and (-1.2247, 1.2247, 0.0000)"),
    ],
)
def test_a_slip_says_what_is_often_written_what_is_right_and_why(row: int, wrong: str, right: str) -> None:
    found = [re.fullmatch("Often written: (.+) Right: (.+) Why: (.+)", plain(slip)) for slip in slips(NOTES[row])]
    assert any(slip is not None and wrong in slip[1] and right in slip[2] for slip in found)
    assert drawn(row).count("A common slip") == len(found)
    for slip in slips(NOTES[row]):
        assert plain(slip) in said(row)


def test_rows_without_slips_show_none() -> None:
    assert {row for row in NUMBERS if "A common slip" in drawn(row)} == {2, 5, 6, 7, 8, 10, 12, 13}


def test_rows_cite_what_a_reader_can_look_up() -> None:
    assert "section 3.3" in NOTES[14].sources
    assert "the mask, section 3.2.3" in NOTES[16].sources
    for row in NUMBERS:
        assert re.search(r"(?<![\d,.])00[0-4]\b", drawn(row)) is None  # lecture notes are named in docs/notes.md only


def test_the_docs_name_the_sources_of_rows_and_slips() -> None:
    text = DOCS.read_text(encoding="utf-8")
    listed = re.findall(r"^\| (\d+) \| \[(.+)\]\(#row-(\d+)\) \| (.+) \|$", text, re.MULTILINE)
    assert [(int(row), plain(title), int(link)) for row, title, link, _ in listed] == [
        (row, note.title, row) for row, note in NOTES.items()
    ]
    for row, _, _, sources in listed:
        assert re.search(r"\b00[0-4]\b" if row != "14" else "the paper, section 3.3", sources)
    assert set(re.findall(r"\b00[0-4]\b", " ".join(sources for *_, sources in listed))) == {f"00{n}" for n in range(5)}
    erring = re.findall(r"^\| .+ \| 00[0-4] \| ([\d, ]+) \|$", text, re.MULTILINE)
    of_slips = sorted(int(row) for rows in erring for row in rows.split(", "))
    assert of_slips == [row for row in NUMBERS for _ in slips(NOTES[row])]


def test_row_22_learns_its_phrases() -> None:
    before, *_, after = learn_phrases()
    assert before.said != list(PHRASES.values())
    assert after.said == list(PHRASES.values())
    assert after.loss < 0.01 < before.loss
    assert "see you tomorrow" in said(22)


def test_row_23_counts_the_model_that_ships() -> None:
    assert f"{sum(weights.numel() for weights in glassformer.load_model('fr-en').parameters()):,} numbers" in said(23)


def test_row_24_translates_with_the_model_that_ships() -> None:
    with Translator.load("fr-en", engine="torch") as translator:
        translated = translator.translate("Jane visite l'Afrique en septembre.")
    assert translated == "Jane visits Africa in September."
    assert f"Jane visite l'Afrique en septembre. → {translated}" in said(24)


def test_the_lexicon_agrees_with_the_special_ids() -> None:
    assert (LEXICON[PAD], LEXICON[UNK], LEXICON[BOS], LEXICON[EOS]) == ("<pad>", "<unk>", "<sos>", "<eos>")
    assert words(ids(WOMAN)) == WOMAN


def test_row_1_same_word_same_row() -> None:
    assert "Its two rows differ by 0:" in said(1)
    for millions in (37_000 * 512 * n_tables / 1e6 for n_tables in (1, 2, 3)):
        assert f"{millions:.1f} million" in said(1)


@pytest.mark.parametrize("position", [0, 1, 3, 40])
@pytest.mark.parametrize("i", [0, 1])
def test_row_2_positions(position: int, i: int) -> None:
    found, angle = pair(position, i, 4), position / 10000 ** (2 * i / 4)
    assert found.sine == pytest.approx(math.sin(angle), abs=1e-12)
    assert found.cosine == pytest.approx(math.cos(angle), abs=1e-12)
    assert found.length == pytest.approx(1.0, abs=1e-12)


def test_row_2_the_slipped_exponent_makes_no_rotation() -> None:
    found = pair(1, 0, 4)
    assert found.slipped_cosine == pytest.approx(math.cos(0.1))
    assert found.slipped_length > 1.3
    assert "0.8415 0.5403 0.0100 1.0000" in said(2)


def test_row_3_without_positions_the_raccoon_sentences_are_one_set() -> None:
    found = raccoon("none")
    assert sorted(WOMAN) == sorted(RACCOON)
    assert as_sets(found) < 1e-12
    order = [0, 4, 2, 3, 1]  # where each word of the second sentence stands in the first
    assert found[order].diagonal().max() < 1e-12


def test_row_3_with_positions_they_differ() -> None:
    found = raccoon("interleaved")
    assert as_sets(found) > 0.1
    assert found.min() > 0.1


def test_row_5_what_the_slips_would_do() -> None:
    scores = torch.tensor([3.0, 1.0, -2.0], dtype=DOUBLE)
    assert torch.allclose(one_key_softmax(scores), torch.full((3,), 1 / 3, dtype=DOUBLE))
    powers = [math.exp(math.exp(score)) for score in scores.tolist()]
    assert twice_exponential(scores)[0].item() == pytest.approx(powers[0] / sum(powers))


@pytest.mark.parametrize("d_k", [4, 64])
def test_row_6_scores_spread_with_the_root(d_k: int) -> None:
    found = spread(d_k)
    assert found.raw == pytest.approx(math.sqrt(d_k), rel=0.1)
    assert found.scaled == pytest.approx(found.raw / math.sqrt(d_k), rel=1e-12)
    assert found.top_scaled < found.top_raw


def test_row_7_scores_112_and_96() -> None:
    found, fused = worked_scores()
    assert found["scores"][0, 0].tolist() == [112, 96]
    assert found["scaled"][0, 0].tolist() == [14, 12]
    exact = 1 / (1 + math.exp(-2))
    weights = found["weights"][0, 0].tolist()
    assert weights == pytest.approx([exact, 1 - exact], abs=1e-15)
    assert [round(weight, 2) for weight in weights] == [0.88, 0.12]
    assert found["context"][0, 0, :3].tolist() == pytest.approx([exact, 1 - exact, 0], abs=1e-15)
    assert gap(fused, found["output"]) < 1e-14
    assert "112 14" in said(7)
    assert "96 12" in said(7)
    assert "0.88 and 0.12" in said(7)


@pytest.mark.parametrize("scaled", [True, False])
def test_row_8_loop_and_three_forms_are_the_module(scaled: bool) -> None:
    module, others = forms(scaled)
    assert len(others) == 4
    for other in others.values():
        assert gap(other, module) < 1e-12
    assert gap(forms(True)[0], forms(False)[0]) > 0.01


def test_row_9_a_loud_query_is_a_dictionary() -> None:
    unit = torch.eye(4, dtype=DOUBLE)
    assert look_up(0 * unit[2])["output"][0, 0].item() == pytest.approx(25)
    share = math.e / (math.e + 3)
    assert look_up(unit[2])["weights"][0, 0, 2].item() == pytest.approx(share)
    assert look_up(40 * unit[2])["output"][0, 0].item() == pytest.approx(30)


def test_row_10_heads_sum_to_the_output() -> None:
    found = multi_head()
    assert found.contributions.shape == (8, 5, 64)
    assert found.output.dtype == DOUBLE
    assert gap(found.contributions.sum(dim=0) + found.bias, found.output) < 1e-12
    assert torch.allclose(found.weights.sum(dim=-1), torch.ones(8, 5, dtype=DOUBLE))
    assert gap(found.contributions.sum(dim=0), found.output) > 1e-3  # the bias counts


def test_row_11_switched_off_attention_lets_the_input_through() -> None:
    assert "Input + sublayer against the sum, for all words: they differ by 0." in said(11)
    assert "the input comes through changed by 0:" in said(11)


def test_row_12_batch_norm_reaches_along_columns_and_layer_norm_along_rows() -> None:
    x = torch.randn(4, 6, generator=torch.Generator().manual_seed(0), dtype=DOUBLE)
    column, row = torch.zeros(4, 6, dtype=torch.bool), torch.zeros(4, 6, dtype=torch.bool)
    column[:, 2], row[1] = True, True
    assert torch.equal(reach(batch_norm, x, (1, 2)) > 0, column)
    assert torch.equal(reach(layer_norm(6), x, (1, 2)) > 0, row)


def test_row_12_norms_centre_by_axis() -> None:
    x = torch.randn(2, 3, 3, 4, generator=torch.Generator().manual_seed(0), dtype=DOUBLE)
    assert batch_norm(x).mean(dim=(0, 1, 2)).abs().max() < 1e-12
    assert layer_norm(4)(x).mean(dim=-1).abs().max() < 1e-12
    assert batch_norm(x).mean(dim=-1).abs().max() > 0.01
    assert "one per pixel: 18" in said(12)


def test_row_13_layer_norm_by_its_own_formula() -> None:
    found = worked_norm()
    assert found["mean"].flatten().tolist() == [2, 1]
    assert [round(value, 4) for value in found["variance"].sqrt().flatten().tolist()] == [4.8132, 2.4495]
    assert [round(value, 4) for value in found["output"][0].tolist()] == [-0.3116, -1.0388, 1.3505]
    assert [round(value, 4) for value in found["output"][1].tolist()] == [-1.2247, 1.2247, 0]
    for shown_vector in ("(-0.3116, -1.0388, 1.3505)", "(-1.2247, 1.2247, 0.0000)"):
        assert shown_vector in said(13)


def test_row_14_one_word_at_a_time_is_the_same() -> None:
    errors = re.findall(r"(?:one word at a time|turned back) (\S+)", said(14))
    assert len(errors) == 2
    assert all(float(error) < 1e-12 for error in errors)


def test_row_15_each_layer_reads_the_one_below() -> None:
    assert re.search(r"0 enc\.sum .* 1 enc\.0\.norm2\.output .* 2 enc\.1\.norm2\.output .* 3 enc\.2\.", said(15))


def test_row_16_the_future_changes_nothing_earlier() -> None:
    *earlier, last = future()
    assert earlier == [0.0] * 5
    assert last > 0.01
    assert min(future(skip("dec.*.self.masked"))) > 0.01
    assert "self → add1 → norm1 → cross → add2 → norm2 → ff → add3 → norm3" in said(16)


def test_row_17_keys_and_values_once_a_sentence() -> None:
    notebook, same = projections(6)
    assert same
    for layer in range(2):
        counts = [notebook.times(f"dec.{layer}.cross.{name}") for name in ("k", "v", "q")]
        assert counts == [1, 1, 6]
        assert notebook.times(f"dec.{layer}.self.k") == 6


def test_row_18_probabilities_sum_to_1() -> None:
    error = re.search(r"the largest error is (\S+)\. ", said(18))
    assert error is not None
    assert float(error[1]) < 1e-12


def test_row_19_both_start_tokens() -> None:
    found = start_tokens()
    assert {name: token for name, (token, _) in found.items()} == {"bos": BOS, "eos": EOS}
    assert gap(found["bos"][1], found["eos"][1]) > 1e-3
    assert "start_token = 'bos' 2 <sos>" in said(19)
    assert "start_token = 'eos' 3 <eos>" in said(19)


def test_row_20_greedy_and_beam() -> None:
    found = search()
    assert found.greedy.ended.all()
    assert found.beam.tokens.shape[:2] == (1, 4)
    assert found.steps.sum().item() == pytest.approx(found.greedy.log_probs.item(), abs=1e-12)
    assert gap(found.beam.log_probs[0], found.asked_again) < 1e-12
    assert found.beam.log_probs[0, 0] > found.greedy.log_probs[0, 0]
    assert not found.cut.ended.any()
    assert found.cut.tokens.shape == (1, 1, 2)


def test_row_21_one_pass_is_the_sum_of_the_steps() -> None:
    found = loss_both_ways()
    assert len(found.steps) == 6
    assert abs(found.one_pass - sum(found.steps)) < 1e-10
    assert f"{found.one_pass:.6f}" in said(21)


def test_row_21_both_were_timed_and_shown() -> None:
    timings = time_both((4, 16), seconds=0.1)
    assert [timing.length for timing in timings] == [4, 16]
    assert all(timing.gru > 0 and timing.attention > 0 for timing in timings)
    assert len(re.findall(r"^ +\d+ +GRU +\d+\.\d\d +\d+", drawn(21), re.MULTILINE)) == 4
    assert len(re.findall(r"^ +attention +\d+\.\d\d +1\b", drawn(21), re.MULTILINE)) == 4


def test_row_22_pocket_is_one_layer_without_norm_or_feed_forward() -> None:
    vocab = len(LEXICON)
    assert count(Transformer, preset("pocket", vocab=vocab)) == vocab * 16 + 3 * (4 * 16**2 + 4 * 16)
    assert "none belongs to: norm, ff. It starts with <eos>." in said(22)


def test_row_23_the_papers_sizes() -> None:
    assert count(Transformer, preset("base")) == 63_082_496
    assert count(Transformer, preset("big")) == 214_245_376
    assert "63,082,496 65 million" in said(23)
    assert "214,245,376 213 million" in said(23)


def test_counting_makes_no_numbers() -> None:
    with torch.device("meta"):
        attention = MultiHeadAttention(ModelConfig())
    assert attention.projection.weight.is_meta
    tiny = preset("tiny", vocab=50)
    assert count(Transformer, tiny) == sum(parameter.numel() for parameter in Transformer(tiny).parameters())


def test_the_tour_shows_five_rows() -> None:
    result = CliRunner().invoke(app, ["notes", "--tour"])
    assert result.exit_code == 0
    assert len(TOUR) == 5
    found = {
        row for row in NUMBERS if re.search(rf"^{row}  {re.escape(NOTES[row].title)} ", result.stdout, re.MULTILINE)
    }
    assert found == set(TOUR)


def test_one_row_on_the_command_line() -> None:
    result = CliRunner().invoke(app, ["notes", "7"])
    assert result.exit_code == 0
    assert result.stdout.strip().startswith(f"7  {NOTES[7].title}")
    assert f"8  {NOTES[8].title}" not in result.stdout


def test_all_rows_on_the_command_line() -> None:
    result = CliRunner().invoke(app, ["notes"])
    assert result.exit_code == 0
    starts = [result.stdout.index(f"\n{row}  {NOTES[row].title} ") for row in NUMBERS]
    assert starts == sorted(starts)


def test_a_row_and_the_tour_exclude_each_other() -> None:
    result = CliRunner().invoke(app, ["notes", "3", "--tour"])
    assert isinstance(result.exception, UsageError)
    assert "row 3 and --tour" in str(result.exception)


def test_a_row_that_does_not_exist() -> None:
    with pytest.raises(UsageError, match="no row 25"):
        show([25], Console(file=io.StringIO()))


def test_an_ascii_terminal_can_show_a_row() -> None:
    result = subprocess.run(
        [sys.executable, "-m", "glassformer", "notes", "13"],
        env={**os.environ, "PYTHONIOENCODING": "ascii"},
        capture_output=True,
        check=True,
    )
    text = result.stdout.decode("ascii")
    assert "sigma1 = 4.8132" in text
    assert "?" not in text
