"""Model folders in the terminal and as a page."""

from __future__ import annotations

import io
import re
from pathlib import Path

import pytest
from rich.console import Console

from glassformer.report.info import info_html, show_info, show_models
from glassformer.store.folder import CARD, load_model, save_model
from glassformer.store.registry import find_model
from tests.report.test_run import Page


@pytest.fixture
def bare(tmp_path: Path) -> Path:
    """A model folder without a card."""
    folder = tmp_path / "<b> model"
    save_model(load_model("fr-en"), folder)
    return folder


def test_the_models_are_listed_with_paths_that_can_be_taken() -> None:
    file = io.StringIO()
    show_models(Console(file=file, width=40))
    row = file.getvalue().splitlines()[1]
    assert row.split() == ["fr-en", "fr", "to", "en", "15.2", "MB", str(find_model("fr-en"))]
    assert row.startswith("fr-en   fr to en")


def test_settings_and_parts_in_the_terminal() -> None:
    file = io.StringIO()
    show_info("fr-en", Console(file=file, width=40))
    rows = {line.split()[0]: line.split()[1] for line in file.getvalue().splitlines() if len(line.split()) == 2}
    assert (rows["all"], rows["d_model"], rows["norm"]) == ("7,604,992", "256", "pre")


def test_the_page_shows_everything_that_is_known_of_a_model() -> None:
    page = info_html("fr-en")
    text = " ".join(Page(page).text.split())
    assert "<h1>fr-en</h1>" in page
    for words in ("fr → en", "7,604,992", "15.2 MB", "glassformer translate", "tatoeba.devtest", "CC-BY 2.0 FR",
                  "n_encoder_layers", "length_penalty", "validation BLEU", "4 h 21", "8cfefffb69d9"):  # fmt: skip
        assert words in text
    assert not {"script", "link", "img", "iframe"} & set(Page(page).tags)
    assert not re.search(r"url\(|@import", page)


def test_a_model_without_a_card_has_a_page(bare: Path) -> None:
    page = Page(info_html(bare))
    assert "<b> model" in page.text
    assert f"glassformer translate '{bare}' < input.txt" in page.text
    assert "Training run" not in page.text


def test_what_a_card_hides_stays_hidden_and_what_it_holds_is_text(bare: Path) -> None:
    card = "---\nlicense: mit\n---\n# My title\n\nIt <script>x</script> translates.\n<!-- written by x -->\n"
    (bare / CARD).write_text(card, encoding="utf-8")
    page = Page(info_html(bare))
    assert "It <script>x</script> translates." in page.text
    assert "script" not in page.tags
    for hidden in ("license", "My title", "written by"):
        assert hidden not in page.text
