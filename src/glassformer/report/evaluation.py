"""What `glassformer evaluate` says: a table for people, JSON for machines, a page to look through."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table

from glassformer.config import CorpusConfig, SearchConfig
from glassformer.errors import UsageError
from glassformer.evaluation.evaluation import Evaluation, comet_score, evaluate, read_test
from glassformer.evaluation.scores import METRICS, Comparison, check_tokenize, compare
from glassformer.files import check_parent, write_text
from glassformer.report.comparison import draw_comparison
from glassformer.translate.filter import search_settings


def evaluate_systems(
    systems: Sequence[str],
    corpus: CorpusConfig,
    tokenize: str,
    engine: str,
    search: Sequence[str],
    threads: int,
    comet: str | None,
    output: Path | None,
    html: Path | None,
    as_json: bool,
    say: Callable[[str], None],
) -> None:
    """Evaluate one system, or compare two of them, and print what came of it."""
    if html is not None and len(systems) == 1:
        raise UsageError("--html shows two systems side by side: give --compare OTHER")
    check_tokenize(tokenize)
    search_settings(search, SearchConfig())  # words that are wrong are found before the work
    words = (word.partition("=") for word in search)
    changes = {name.strip().replace("-", "_"): value.strip() for name, _, value in words}
    for path in filter(None, (output, html)):
        check_parent(path)
    test = read_test(corpus)
    found = []
    for system in systems:
        say(f"{system}: {len(test):,} sentences")
        evaluation = evaluate(system, test, tokenize=tokenize, engine=engine, search=changes, threads=threads)
        if comet is not None:
            score = comet_score(comet, test, evaluation.hypotheses)
            evaluation = evaluation._replace(scores={**evaluation.scores, "COMET": score})
        found.append(evaluation)
    comparisons = []
    if len(found) == 2:
        comparisons = compare(found[0].hypotheses, found[1].hypotheses, [pair.tgt for pair in test], tokenize)
        html = html or Path("comparison.html")
        write_text(html, draw_comparison(found[0], found[1], comparisons, test))
        say(f"{html} shows the sentences side by side")
    if output is not None:
        write_text(output, "".join(" ".join(text.split("\n")) + "\n" for text in found[0].hypotheses))
    console = Console()
    if as_json:
        facts = {"systems": [e.entry() for e in found], "comparison": [c._asdict() for c in comparisons]}
        console.out(json.dumps(facts, ensure_ascii=False), highlight=False)
    else:
        console.print(_table(found, comparisons))
        for name, score in found[0].scores.items():
            console.print(f"{name}: {score.signature}", style="dim", highlight=False, soft_wrap=True)


def _table(found: Sequence[Evaluation], comparisons: Sequence[Comparison]) -> Table:
    table = Table("", *(evaluation.name for evaluation in found), box=None)
    if comparisons:
        table.add_column("difference", justify="right")
        table.add_column("p", justify="right")
    versus = {c.metric: (f"{c.other - c.first:+.2f}", f"{c.p_value:.3f}{' *' * c.is_significant}") for c in comparisons}
    for name in found[0].scores:
        places = 2 if name in METRICS else 4
        table.add_row(name, *(f"{e.scores[name].value:.{places}f}" for e in found), *versus.get(name, ()))
    table.add_row("length ratio", *(f"{e.length_ratio:.3f}" for e in found))
    if any(e.engine for e in found):
        speeds = [e.sentences_per_second for e in found]
        table.add_row("perplexity", *("" if e.perplexity is None else f"{e.perplexity:.3f}" for e in found))
        table.add_row("sentences/s", *("" if speed is None else f"{speed:.1f}" for speed in speeds))
        table.add_row("engine", *(e.engine for e in found))
    for title, counts in (("cut off", [e.n_cut_off for e in found]), ("looped", [e.n_looped for e in found])):
        if any(counts):
            table.add_row(title, *map(str, counts))
    return table
