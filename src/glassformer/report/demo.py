"""The demo: the shipped model on a few sentences and on the reader's own, with its attention."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from rich.console import Console
from rich.padding import Padding
from rich.text import Text

from glassformer.files import check_parent
from glassformer.report.terminal import heat_map, show
from glassformer.translate.alignment import word_pieces
from glassformer.translate.results import Translation
from glassformer.translate.translator import Translator

JANE: Final = "Jane visite l'Afrique en septembre."  # notes 001
SENTENCES: Final = (
    JANE,
    "Je suis étudiant.",  # notes 004
    "Il fait beau aujourd'hui, mais il pleuvra demain.",
)

_LONGEST_WORD: Final = 16  # characters of a row's name

_Ask = Callable[[], str]  # returns a line that the reader typed; raises EOFError at the end


def run_demo(translator: Translator, page: Path, ask: _Ask | None = None) -> None:
    """Translate, show the attention, and write the explainer's page; `ask` returns the reader's own sentences."""
    check_parent(page)
    console = Console()
    show(console, Text("French to English, by the model that comes with glassformer:\n", style="bold"))
    for found in _translate(translator, SENTENCES):
        _show(console, found)
    while ask is not None and (text := _asked(ask)):
        _show(console, _translate(translator, [text])[0])
    translator.explain(SENTENCES[0], name="fr-en").to_html(page)
    show(
        console,
        Text.assemble(
            ("Every number behind the first translation is in ", ""),
            (f"{page}", "bold"),
            (".\nOpen it in a browser.\n\nWhat to try next:\n", ""),
            _activation(),
            "  echo 'Où est la gare ?' | glassformer translate   one line in, one line out\n"
            "  glassformer translate --interactive               type sentences\n"
            "  glassformer explain 'Où est la gare ?' --open     the live page\n"
            "  glassformer notes --tour                          how it works\n"
            "  glassformer models                                the model and its card",
        ),
    )


def _activation() -> str:
    """Return how to activate the virtual environment, if there is one and the command is not on the path."""
    script = Path(sys.executable).with_name("activate")
    if shutil.which("glassformer") or not script.exists():
        return ""
    return f"  {f'source {os.path.relpath(script)}':<49} first: puts it on your path\n"


def looked_at(found: Translation, width: int = 76) -> Text:
    """Draw how much each word of a translation attended to each word of the source, at most `width` columns wide.

    The translation must be of one sentence, with its attention.
    """
    sentence = found.sentences[0]
    assert sentence.attention is not None
    src, tgt = (
        [(word, pieces) for word, pieces in zip(text.split(), word_pieces(text, spans), strict=True)]
        for text, spans in (
            (found.src, [piece.span for piece in sentence.src_tokens]),
            (found.text, [token.span for token in sentence.tokens]),
        )
    )
    weights = [
        [float(sentence.attention[first:end, begin:behind].sum(axis=1).mean()) for _, (begin, behind) in src]
        for _, (first, end) in tgt
    ]
    rows = [_shortened(word, _LONGEST_WORD) for word, _ in tgt]
    room = (width - max(map(len, rows)) - 1) // max(len(src), 1) - 1  # a column and the blank behind it
    return heat_map(weights, rows, [_shortened(word, max(room, 2)) for word, _ in src], low=0, high=1)


def _shortened(word: str, most: int) -> str:
    return word if len(word) <= most else word[: most - 1] + "…"


def _translate(translator: Translator, texts: Sequence[str]) -> list[Translation]:
    return translator.results(list(texts), attention=True, token_probabilities=True)


def _show(console: Console, found: Translation) -> None:
    show(console, Text(found.src, style="dim"))
    show(console, Text.assemble((found.text, "bold"), (f"   confidence {found.confidence:.0%}", "dim")))
    if len(found.sentences) == 1 and found.text.split():
        show(console, Padding(looked_at(found, console.width - 4), (1, 0, 1, 2)))


def _asked(ask: _Ask) -> str:
    try:
        return ask().strip()
    except EOFError:
        return ""
