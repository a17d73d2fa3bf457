"""The report of a training run as a page, `report.html`."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from glassformer.errors import RunError
from glassformer.files import write_text
from glassformer.report.charts import Chart, curve, draw_curves
from glassformer.report.page import render
from glassformer.report.terminal import duration
from glassformer.training.history import History, own_settings
from glassformer.training.observer import Observer
from glassformer.training.run import flat
from glassformer.training.validation import SCORES, score_of

REPORT: Final = "report.html"

_OLDER: Final = 12  # validations whose samples are kept, besides the latest
_BACKS: Final = 50  # roll-backs that are listed
_PATIENCE: Final = 600  # seconds without news, beyond the usual, after which a run has probably stopped


class HtmlReport(Observer):
    """Writes `report.html` into the run folder after each validation and at the end."""

    def validated(self, out: Path) -> None:
        """Write the report so far."""
        write_report(out)

    finished = validated


def write_report(out: Path) -> None:
    """Write the report of the run in `out`, as far as the run has come."""
    write_text(out / REPORT, _page(out.absolute().name, History.read(out), time.time()), durable=True, error=RunError)


def _page(name: str, history: History, now: float) -> str:
    config, step = history.recipe.training, history.step
    steps = [0, *(entry["step"] for entry in history.dev)]
    usual = (history.pace or 0.0) * max(steps[-1] - steps[-2] if len(steps) > 1 else 0, config.validate_every)
    everything = dict(flat(history.recipe.model_dump(mode="json")))
    files = {side: ", ".join(map(_corpus, everything[side])) for side in ("train", "dev")}
    return render(
        "run.html.j2",
        name=name,
        history=history,
        recipe=history.recipe,
        now=now,
        when=time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(now)),
        due=2 * usual + _PATIENCE,
        percent=100 if history.ends else min(100 * step / config.max_updates, 100),
        tiles=dict(_tiles(history)),
        charts=[draw_curves(chart) for chart in _charts(history)],
        rollbacks=history.rollbacks[-_BACKS:],
        latest=next((entry for entry in reversed(history.dev) if entry["samples"]), None),
        samples=_samples(history),
        own=files | own_settings(history.recipe),
        everything=everything | files,
    )


def _tiles(history: History) -> Iterator[tuple[str, str]]:
    config, step = history.recipe.training, history.step
    field = score_of(history.recipe.training.metric)
    yield f"of {config.max_updates:,} updates", f"{step:,}"
    if history.train:
        yield f"of training, epoch {history.train[-1]['epoch'] + 1}", duration(history.seconds)
    if history.pace is not None and not history.ends:
        yield "left, without validation", duration(history.pace * (config.max_updates - step))
    if shown := history.chosen or history.best:
        of = f"{shown['weights']} weights" if history.chosen else f"best, update {shown['step']:,}"
        if field in shown:
            yield f"validation {SCORES[field]}, {of}", f"{shown[field]:.1f}"
        yield f"validation perplexity, {of}", f"{shown['perplexity']:,.2f}"
    elif history.train:
        yield "training loss", f"{history.train[-1]['loss']:.2f}"


def _charts(history: History) -> Iterator[Chart]:
    train, dev, last, best = history.train, history.dev, max(history.step, 1), history.best
    field = score_of(history.recipe.training.metric)
    backs = tuple(back["bad_step"] for back in history.rollbacks if back["bad_step"] <= last)[-_BACKS:]
    smoothed = " (smoothed)" if history.recipe.training.label_smoothing else ""
    yield Chart(
        "Loss per target token",
        "",
        (curve(f"training{smoothed}", "first", train, "loss"), curve("validation", "second", dev, "loss")),
        last,
        log_too=True,
        backs=backs,
        span="long tall",
    )

    def alone(title: str, about: str, lines: list[dict[str, Any]], field: str, **how: Any) -> Chart:
        return Chart(title, about, (curve("", "alone", lines, field),), last, **how)

    mark = (best["step"], best[field]) if best is not None and field in best else None
    about = "" if mark is None else f"best {mark[1]:.2f} after update {mark[0]:,}"
    yield alone(f"Validation {SCORES[field]}", about, dev, field, from_zero=True, mark=mark)
    about = "how many tokens the model hesitates between"
    yield alone("Validation perplexity", about, dev, "perplexity", log_too=True)
    yield alone("Learning rate", history.recipe.training.schedule, train, "lr", from_zero=True)
    yield alone("Gradient norm", "before clipping", train, "norm", from_zero=True, log_too=True, backs=backs)
    about = "source and target, excluding validation"
    yield alone("Tokens per second", about, train, "tokens_per_s", from_zero=True, span="long")


def _samples(history: History) -> list[tuple[dict[str, str], list[tuple[int, str]]]]:
    """Pair each sample of the latest validation with its earlier translations, the newest first."""
    *before, latest = [entry for entry in history.dev if entry["samples"]] or [{"samples": []}]
    older = [before[i * len(before) // _OLDER] for i in range(_OLDER)] if len(before) > _OLDER else before
    return [
        (
            sample,
            [
                (entry["step"], entry["samples"][number]["hypothesis"])
                for entry in reversed(older)
                if number < len(entry["samples"]) and entry["samples"][number]["src"] == sample["src"]
            ],
        )
        for number, sample in enumerate(latest["samples"])
    ]


def _corpus(corpus: dict[str, Any]) -> str:
    paths = " + ".join(filter(None, (corpus["path"], corpus["target_path"])))
    return paths if corpus["weight"] == 1 else f"{paths} (weight {corpus['weight']:g})"
