"""Commands that measure quality: evaluate, calibrate."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Annotated

import typer

from glassformer.cli import options
from glassformer.errors import UsageError

app = typer.Typer()

_log = logging.getLogger(__name__)


@app.command()
def evaluate(
    system: Annotated[
        str, typer.Argument(help="Model folder or name, or a file with one translation per line.", metavar="MODEL")
    ],
    test: Annotated[str, typer.Option(metavar="FILE", help="File of pairs, or SOURCE,TARGET for two parallel files.")],
    compare: Annotated[
        str | None,
        typer.Option(metavar="MODEL", help="Second system: adds a significance test and a side-by-side page."),
    ] = None,
    html: Annotated[
        Path | None, typer.Option(metavar="FILE", help="With --compare: the page to write (default: comparison.html).")
    ] = None,
    output: Annotated[Path | None, typer.Option(metavar="FILE", help="Write the translations to FILE.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print all figures as JSON.")] = False,
    tokenize: Annotated[
        str, typer.Option(metavar="NAME", help="sacreBLEU tokenizer; none for tokenized text.")
    ] = "13a",
    comet: Annotated[
        str | None, typer.Option(metavar="FILE", help="COMET checkpoint to score with (needs unbabel-comet).")
    ] = None,
    beam: options.Beam = None,
    search: options.Search = None,
    file_format: options.Format = "auto",
    languages: options.Languages = None,
    fields: options.Fields = "src,tgt",
    swap: options.Swap = False,
    engine: options.Engine = "auto",
    threads: options.Threads = 0,
) -> None:
    """Evaluate a model on a test set: BLEU, chrF, TER, perplexity and speed; or compare two."""
    from rich.console import Console

    from glassformer.evaluation.evaluation import comet_score, read_test
    from glassformer.evaluation.evaluation import evaluate as evaluate_system
    from glassformer.evaluation.scores import check_tokenize
    from glassformer.evaluation.scores import compare as compare_systems
    from glassformer.files import check_parent, write_text
    from glassformer.report.evaluation import comparison_html, show_evaluations

    if html is not None and compare is None:
        raise UsageError("--html needs --compare: the page shows two systems side by side")
    check_tokenize(tokenize)
    changes = options.search_changes(search, beam)
    for path in filter(None, (output, html)):
        check_parent(path)
    (corpus,) = options.corpora([test], file_format=file_format, swap=swap, fields=fields, languages=languages)
    pairs = read_test(corpus)
    found = []
    for name in filter(None, (system, compare)):
        _log.info("%s: %s sentences", name, f"{len(pairs):,}")
        evaluation = evaluate_system(name, pairs, tokenize=tokenize, engine=engine, search=changes, threads=threads)
        if comet is not None:
            score = comet_score(comet, pairs, evaluation.hypotheses)
            evaluation = evaluation._replace(scores={**evaluation.scores, "COMET": score})
        found.append(evaluation)
    comparisons = []
    if compare is not None:
        first, other = found
        comparisons = compare_systems(first.hypotheses, other.hypotheses, [pair.tgt for pair in pairs], tokenize)
        html = html or Path("comparison.html")
        write_text(html, comparison_html(first, other, comparisons, pairs))
        _log.info("wrote %s", html)
    if output is not None:
        write_text(output, "".join(" ".join(text.split("\n")) + "\n" for text in found[0].hypotheses))
    if as_json:
        facts = {"systems": [e.entry() for e in found], "comparison": [c._asdict() for c in comparisons]}
        typer.echo(json.dumps(facts, ensure_ascii=False))
    else:
        show_evaluations(found, comparisons, Console())


@app.command()
def calibrate(
    model: options.Model,
    dev: Annotated[str, typer.Option("--dev", metavar="FILE", help="File of pairs to fit on.")],
    test: Annotated[
        str | None,
        typer.Option("--test", metavar="FILE", help="File of pairs to measure on (default: every third of --dev)."),
    ] = None,
    html: Annotated[
        Path | None, typer.Option("--html", metavar="FILE", help="Write the reliability diagrams as a page.")
    ] = None,
    file_format: options.Format = "auto",
    languages: options.Languages = None,
    fields: options.Fields = "src,tgt",
    swap: options.Swap = False,
    engine: options.Engine = "auto",
) -> None:
    """Fit how confidence follows from probability, and write it into the model folder."""
    from rich.console import Console

    from glassformer.evaluation.calibration import calibrate as calibrate_model
    from glassformer.evaluation.evaluation import read_test
    from glassformer.files import check_parent, write_text
    from glassformer.report.calibration import calibration_html, show_calibration

    if html is not None:
        check_parent(html)
    words = [dev] if test is None else [dev, test]
    corpora = options.corpora(words, file_format=file_format, swap=swap, fields=fields, languages=languages)
    sets = [read_test(corpus) for corpus in corpora]
    if test is None:  # what is measured on must not be fitted on
        sets = [[pair for number, pair in enumerate(sets[0]) if number % 3], sets[0][::3]]
    result = calibrate_model(model, *sets, engine=engine)
    if html is not None:
        write_text(html, calibration_html(Path(model).name, result))
        _log.info("wrote %s", html)
    show_calibration(result, Console())
