"""`glassformer demo`: the model that ships, on the sentences of the notes and on the reader's own."""

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

_LONGEST_WORD: Final = 16  # of a row's name

_Ask = Callable[[], str]  # gives a line that somebody typed; an EOFError is the end


def run_demo(translator: Translator, page: Path, ask: _Ask | None = None) -> None:
    """Translate, show what was looked at, and write the explainer's page; `ask` gives sentences of the reader's own."""
    check_parent(page)
    console = Console(highlight=False)
    show(console, Text("French to English, by the model that comes with glassformer:\n", style="bold"))
    for found in _translate(translator, SENTENCES):
        _show(console, found)
    while ask is not None and (text := _asked(ask)):
        _show(console, _translate(translator, [text])[0])
    translator.explain(SENTENCES[0], name="fr-en").to_html(page)
    show(
        console,
        Text.assemble(
            ("Every number of the first translation is in ", ""),
            (f"{page}", "bold"),
            (".\nOpen it in a browser.\n\nWhat to try next:\n", ""),
            _activation(),
            "  echo 'Où est la gare ?' | glassformer translate   a line in, a line out\n"
            "  glassformer translate --interactive               type sentences\n"
            "  glassformer explain 'Où est la gare ?' --open     the live page\n"
            "  glassformer notes --tour                          how it works\n"
            "  glassformer models                                the model and its card",
        ),
    )


def _activation() -> str:
    """Say how the command comes onto the path, if it is not there and this is a virtual environment."""
    script = Path(sys.executable).with_name("activate")
    if shutil.which("glassformer") or not script.exists():
        return ""
    return f"  {f'source {os.path.relpath(script)}':<49} first: it is on your path then\n"


def looked_at(found: Translation, width: int = 76) -> Text:
    """Draw how much each word of a translation looked at each word of the source, `width` columns wide at most.

    The translation is of one sentence, and was asked for with its attention.
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
    show(console, Text.assemble((found.text, "bold"), (f"   {found.confidence:.0%} sure", "dim")))
    if len(found.sentences) == 1 and found.text.split():
        show(console, Padding(looked_at(found, console.width - 4), (1, 0, 1, 2)))


def _asked(ask: _Ask) -> str:
    try:
        return ask().strip()
    except EOFError:
        return ""
