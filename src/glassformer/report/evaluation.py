"""Evaluations in the terminal, and two systems side by side as a page."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from difflib import SequenceMatcher

from rich.console import Console
from rich.text import Text

from glassformer.data.pair import Pair
from glassformer.evaluation.evaluation import Evaluation
from glassformer.evaluation.scores import METRICS, Comparison, sentence_scores
from glassformer.report.page import render
from glassformer.report.terminal import show, table

_Runs = list[tuple[str, bool]]  # words of a text, and whether the other system has them too


def show_evaluations(evaluations: Sequence[Evaluation], comparisons: Sequence[Comparison], console: Console) -> None:
    """Print the scores of one or two systems, and what tells the two apart, with the signatures of the scores."""
    versus = {c.metric: (f"{c.other - c.first:+.2f}", f"{c.p_value:.3f}{' *' * c.is_significant}") for c in comparisons}
    blank = ("", "") if comparisons else ()
    header = "", *(e.name for e in evaluations), *(("difference", "p") if comparisons else ())
    rows = [(name, *cells, *versus.get(name, blank)) for name, cells in _figures(evaluations)]
    show(console, table(header, rows, right=range(1, len(header))), wrap=False)
    for name, score in evaluations[0].scores.items():
        show(console, Text(f"{name}: {score.signature}", style="dim"), wrap=False)


def _figures(evaluations: Sequence[Evaluation]) -> Iterator[tuple[str, list[str]]]:
    for name in evaluations[0].scores:
        yield name, [f"{e.scores[name].value:.{2 if name in METRICS else 4}f}" for e in evaluations]
    yield "length ratio", [f"{e.length_ratio:.3f}" for e in evaluations]
    if any(e.engine for e in evaluations):
        speeds = [e.sentences_per_second for e in evaluations]
        yield "perplexity", ["" if e.perplexity is None else f"{e.perplexity:.3f}" for e in evaluations]
        yield "sentences/s", ["" if speed is None else f"{speed:.1f}" for speed in speeds]
        yield "engine", [e.engine for e in evaluations]
    failures = {"cut off": [e.n_cut_off for e in evaluations], "looped": [e.n_looped for e in evaluations]}
    yield from ((name, [*map(str, counts)]) for name, counts in failures.items() if any(counts))


def comparison_html(
    first: Evaluation, other: Evaluation, comparisons: Sequence[Comparison], test: Sequence[Pair]
) -> str:
    """Return two systems side by side as a page; sentences whose chrF differs most come first."""
    references = [pair.tgt for pair in test]
    scores = [sentence_scores(system.hypotheses, references) for system in (first, other)]
    sentences = [
        {"place": place, "pair": pair, "one": one, "two": two, "texts": _differences(a, b)}
        for place, (pair, a, b, one, two) in enumerate(
            zip(test, first.hypotheses, other.hypotheses, *scores, strict=True)
        )
    ]
    return render(
        "comparison.html.j2",
        first=first.name,
        other=other.name,
        comparisons=comparisons,
        n_same=sum(a == b for a, b in zip(first.hypotheses, other.hypotheses, strict=True)),
        sentences=sorted(sentences, key=lambda sentence: -abs(sentence["two"] - sentence["one"])),
    )


def _differences(one: str, two: str) -> tuple[_Runs, _Runs]:
    """Split two texts into runs of words that both have and runs that only one has."""
    words = one.split(), two.split()
    runs: tuple[_Runs, _Runs] = [], []
    for kind, *ends in SequenceMatcher(None, *words, autojunk=False).get_opcodes():
        for side in (0, 1):
            if text := " ".join(words[side][slice(*ends[2 * side : 2 * side + 2])]):
                runs[side].append((text, kind == "equal"))
    return runs
