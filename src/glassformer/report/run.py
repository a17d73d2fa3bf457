"""The report of a run as one HTML page, `report.html`: nothing to fetch, readable on a phone and at night."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any, Final

from glassformer.data.pair import excerpt
from glassformer.errors import RunError
from glassformer.files import write_text
from glassformer.report import charts as curves
from glassformer.report.charts import Chart, curve, draw_chart
from glassformer.report.page import print_page
from glassformer.report.terminal import duration
from glassformer.training.history import History, own_settings
from glassformer.training.observer import BaseObserver
from glassformer.training.run import flat

REPORT: Final = "report.html"

_TEXT: Final = 600  # characters of a sample that are shown
_OLDER: Final = 12  # looks at dev whose samples are kept, besides the latest
_BACKS: Final = 50  # roll-backs that are listed
_PATIENCE: Final = 600  # seconds without a word, beyond the usual, until a run is called silent

_STYLE: Final = """
.bad { color: var(--out); }
.row { display: flex; justify-content: space-between; align-items: baseline; flex-wrap: wrap; gap: 0 1rem; }
.row label { font-size: .9rem; color: var(--soft); cursor: pointer; }
.charts { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(26rem, 100%), 1fr)); gap: .8rem; }
.charts .long { grid-column: 1 / -1; }
figure { margin: 0; padding: 1rem 1.2rem 1rem 1rem; min-width: 0; }
figcaption { font-size: .95rem; }
.card { padding: .8rem 1rem; margin: .6rem 0; overflow-x: auto; }
.card p { border-inline-start: 3px solid var(--line); padding-inline-start: .6rem; margin: .5rem 0; }
.card p.src { border-color: var(--source); } .card p.hyp { border-color: var(--target); }
.card p.ref { border-color: var(--plain); }
td { vertical-align: top; }
tr:last-child td { border-bottom: 0; }
td + td { overflow-wrap: anywhere; }
td.name, code { font: .85rem/1.5 ui-monospace, monospace; }
@media (max-width: 34rem) {
  .settings td { display: block; padding-inline-end: 0; } .settings td.name { border: 0; padding-bottom: 0; }
}
details { margin: .6rem 0; padding: .7rem 1rem; }
.card details { border: 0; padding: 0; }
summary { cursor: pointer; }
"""

# A page of a run that was killed cannot know it; whoever looks at it later can.
_SILENCE: Final = """
const state = document.getElementById("state"), age = Date.now() / 1000 - state.dataset.written;
if (age > state.dataset.due) {
  const words = age > 172800 ? Math.round(age / 86400) + " days" : age > 7200 ? Math.round(age / 3600) + " hours"
    : Math.round(age / 60) + " minutes";
  state.innerHTML = '<span class="bad">silent for ' + words + "</span>, so it has probably stopped; "
    + "the same command goes on from its last checkpoint";
}
"""


def write_report(out: Path) -> None:
    """Draw the run in `out` as `report.html`, as far as it has come."""
    history = History.read(out)
    write_text(out / REPORT, _page(out.absolute().name, history, time.time()), error=RunError)


class HtmlReport(BaseObserver):
    """Writes `report.html` into the run folder after each validation and at the end."""

    def validated(self, out: Path) -> None:
        """Write the report."""
        write_report(out)

    def finished(self, out: Path) -> None:
        """Write the report."""
        write_report(out)


def _page(name: str, history: History, now: float) -> str:
    recipe = history.recipe
    languages = f"{recipe.src_lang} → {recipe.tgt_lang}, " if recipe.src_lang and recipe.tgt_lang else ""
    scripts = curves.SCRIPT + ("" if history.ends else _SILENCE)
    body = "\n".join(
        [
            f"<h1>{escape(name)}</h1>",
            f'<p class="soft">{escape(languages)}preset {escape(recipe.preset)}</p>',
            _state(history, now),
            _numbers(history),
            '<div class="row"><h2>Curves</h2><label><input type="checkbox" id="scale"> logarithmic</label></div>',
            _charts(history),
            _rollbacks(history.rollbacks),
            _end(history),
            "<h2>Samples of dev</h2>",
            _samples(history),
            "<h2>Settings</h2>",
            _settings(history),
        ]
    )
    return print_page(f"{name}: training", body, _STYLE + curves.STYLE, scripts)


def _state(history: History, now: float) -> str:
    config, step = history.recipe.training, history.step
    when = time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(now))
    if not history.ends:
        looks = [0, *(look["step"] for look in history.dev)]
        usual = (history.pace or 0.0) * max(looks[-1] - looks[-2] if len(looks) > 1 else 0, config.validate_every)
        words = f'<span id="state" data-written="{now:.0f}" data-due="{2 * usual + _PATIENCE:.0f}">running</span>'
    elif step < config.max_updates:
        words = f"<span>finished early: no better look at dev for {config.patience} looks</span>"
    else:
        words = "<span>finished</span>"
    share = 100 if history.ends else min(100 * step / config.max_updates, 100)
    return (
        f"<p>{words}, as of {when}</p>"
        f'<div class="meter" role="progressbar" aria-label="updates made" aria-valuenow="{share:.0f}">'
        f'<i style="width:{share:.1f}%"></i></div>'
    )


def _numbers(history: History) -> str:
    config, step = history.recipe.training, history.step
    tiles = {f"of {config.max_updates:,} updates": f"{step:,}"}
    if history.train:
        tiles[f"of training, epoch {history.train[-1]['epoch'] + 1}"] = duration(history.seconds)
    if history.pace is not None and not history.ends:
        tiles["to go, without looks at dev"] = duration(history.pace * (config.max_updates - step))
    if shown := history.chosen or history.best:
        of = f"{shown['weights']} weights" if history.chosen else f"best, update {shown['step']:,}"
        tiles[f"BLEU on dev, {of}"] = f"{shown['bleu']:.1f}"
        tiles["perplexity on dev, same"] = f"{shown['perplexity']:,.2f}"
    elif history.train:
        tiles["training loss"] = f"{history.train[-1]['loss']:.2f}"
    cells = "".join(f"<div><b>{escape(value)}</b><small>{escape(name)}</small></div>" for name, value in tiles.items())
    return f'<div class="numbers">{cells}</div>'


def _charts(history: History) -> str:
    train, dev, last = history.train, history.dev, max(history.step, 1)
    backs = tuple(back["bad_step"] for back in history.rollbacks if back["bad_step"] <= last)[-_BACKS:]
    best = history.best
    at_best = "" if best is None else f"best {best['bleu']:.2f} after update {best['step']:,}"
    smoothed = " (smoothed)" if history.recipe.training.label_smoothing else ""
    charts = [
        Chart(
            "Loss per target token",
            "",
            (curve(f"train{smoothed}", "first", train, "loss"), curve("dev", "second", dev, "loss")),
            last,
            log_too=True,
            backs=backs,
            span="long tall",
        ),
        Chart(
            "BLEU on dev",
            at_best,
            (curve("", "alone", dev, "bleu"),),
            last,
            from_zero=True,
            mark=None if best is None else (best["step"], best["bleu"]),
        ),
        Chart(
            "Perplexity on dev",
            "how many tokens the model hesitates between",
            (curve("", "alone", dev, "perplexity"),),
            last,
            log_too=True,
        ),
        Chart(
            "Learning rate", history.recipe.training.schedule, (curve("", "alone", train, "lr"),), last, from_zero=True
        ),
        Chart(
            "Gradient norm",
            "before clipping",
            (curve("", "alone", train, "norm"),),
            last,
            from_zero=True,
            log_too=True,
            backs=backs,
        ),
        Chart(
            "Tokens per second",
            "source and target, looks at dev not counted",
            (curve("", "alone", train, "tokens_per_s"),),
            last,
            from_zero=True,
            span="long",
        ),
    ]
    return f'<div class="charts">{"".join(map(draw_chart, charts))}</div>'


def _rollbacks(backs: Sequence[Mapping[str, Any]]) -> str:
    if not backs:
        return ""
    lines = "".join(
        f"<p>Update {back['bad_step']:,} was no number ({escape(str(back['parameter']))}): back to update "
        f"{back['step']:,}, with {back['rate_cut']:g} times the learning rate.</p>"
        for back in backs[-_BACKS:]
    )
    return f'<h2>Roll-backs</h2><p class="soft">Dashed in the curves.</p><div class="card">{lines}</div>'


def _end(history: History) -> str:
    if not history.ends:
        return ""
    rows = "".join(
        f"<tr><td>{'<b>' if end['chosen'] else ''}{escape(end['weights'])}{'</b> ✓' if end['chosen'] else ''}</td>"
        f"<td>{end['bleu']:.2f}</td><td>{end['perplexity']:,.3f}</td></tr>"
        for end in history.ends
    )
    return (
        '<h2>The weights it ended with</h2><div class="card"><table><thead><tr><th>weights</th><th>BLEU on dev</th>'
        f"<th>perplexity on dev</th></tr></thead><tbody>{rows}</tbody></table>"
        f"<small>{escape(history.ends[0]['signature'])}</small></div>"
    )


def _samples(history: History) -> str:
    """Show the sentences that every look at dev translates: the latest, and folded, how they came to be."""
    looks = [look for look in history.dev if look["samples"]]
    if not looks:
        return '<p class="soft">Nothing yet.</p>'
    latest = looks[-1]
    before = looks[:-1]
    older = [before[i * len(before) // _OLDER] for i in range(_OLDER)] if len(before) > _OLDER else before
    cards = []
    for number, sample in enumerate(latest["samples"]):
        same = [
            (look["step"], look["samples"][number]["hypothesis"])
            for look in older
            if number < len(look["samples"]) and look["samples"][number]["src"] == sample["src"]
        ]
        rows = "".join(f"<tr><td>{step:,}</td><td>{_text(text)}</td></tr>" for step, text in reversed(same))
        folded = f"<details><summary>earlier</summary><table>{rows}</table></details>" if rows else ""
        cards.append(
            f'<div class="card"><p class="src">{_text(sample["src"])}<small>source</small></p>'
            f'<p class="hyp">{_text(sample["hypothesis"])}<small>after update {latest["step"]:,}</small></p>'
            f'<p class="ref">{_text(sample["reference"])}<small>reference</small></p>{folded}</div>'
        )
    return "".join(cards)


def _text(text: str) -> str:
    return f"<bdi>{escape(excerpt(text, _TEXT)) or '<i class=soft>nothing</i>'}</bdi>"


def _settings(history: History) -> str:
    everything = dict(flat(history.recipe.model_dump(mode="json")))
    corpora = {side: everything[side] for side in ("train", "dev")}
    files = {
        side: ", ".join(
            " + ".join(filter(None, (corpus["path"], corpus["target_path"])))
            + (f" (weight {corpus['weight']:g})" if corpus["weight"] != 1 else "")
            for corpus in found
        )
        for side, found in corpora.items()
    }
    return (
        f'<div class="card">{_table({**files, **own_settings(history.recipe)})}</div>'
        f"<details><summary>all of them</summary>{_table({**everything, **files})}</details>"
    )


def _table(values: Mapping[str, Any]) -> str:
    rows = "".join(
        f'<tr><td class="name">{escape(name)}</td><td>{escape("" if value is None else str(value))}</td></tr>'
        for name, value in values.items()
    )
    return f"<table class='settings'><tbody>{rows}</tbody></table>"
