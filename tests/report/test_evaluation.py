"""Evaluations in the terminal and as a page."""

from __future__ import annotations

import io
import math
import re
from html import unescape

from rich.console import Console

from glassformer.data.pair import Pair
from glassformer.evaluation.evaluation import Evaluation
from glassformer.evaluation.scores import Comparison, Score, compare
from glassformer.report.evaluation import comparison_html, show_evaluations


def shown(evaluations: list[Evaluation], comparisons: list[Comparison]) -> str:
    file = io.StringIO()
    show_evaluations(evaluations, comparisons, Console(file=file, width=40))
    return file.getvalue()


def test_one_system_in_the_terminal() -> None:
    scores = {"BLEU": Score(9.5, "a|b"), "COMET": Score(81.23456, "c")}
    text = shown([Evaluation("m", ["x"] * 10, scores, 1.0, 3.25, 2.0, "torch", n_looped=2)], [])
    rows = dict(line.split() for line in text.splitlines() if len(line.split()) == 2)
    assert rows == {"BLEU": "9.50", "COMET": "81.2346", "BLEU:": "a|b", "COMET:": "c", "perplexity": "3.250",
                    "sentences/s": "5.0", "engine": "torch", "looped": "2"}  # fmt: skip
    assert "cut off" not in text


def test_two_systems_in_the_terminal() -> None:
    first, other = (
        Evaluation(name, ["x"], {"BLEU": Score(value, "s" * 90)}, 1.0) for name, value in (("a", 1), ("b", 3))
    )
    text = shown([first, other], [Comparison("BLEU", 1, 3, 0.1, 0.1, 0.01, "s")])
    assert re.search(r"BLEU +1\.00 +3\.00 +\+2\.00 +0\.010 \*", text)
    assert "s" * 90 in text, "a signature can be copied whole"


def test_the_page_marks_what_differs_and_loses_no_word() -> None:
    test = [Pair("s <&", "r", "f", 1), Pair("s2", "the old red house", "f", 2)]
    first = Evaluation("a<b", ["one two three", "the old red house"], {}, math.nan)
    other = Evaluation("c&d", ["one 2 three four", "a <b>new</b> house"], {}, math.nan)
    comparisons = compare(first.hypotheses, other.hypotheses, [pair.tgt for pair in test])
    page = comparison_html(first, other, comparisons, test)
    texts = re.findall(r'<p class="quote (?:source|target)" dir="auto">(.*?)</p>', page)
    shown = list(zip(texts[::2], texts[1::2], strict=True))
    plain = [tuple(unescape(re.sub("</?mark>", "", text)) for text in pair) for pair in shown]
    assert sorted(plain) == sorted(zip(first.hypotheses, other.hypotheses, strict=True))
    assert ("one <mark>two</mark> three", "one <mark>2</mark> three <mark>four</mark>") in shown
    assert page.index("old red") < page.index("one <mark>")  # what differs most comes first
