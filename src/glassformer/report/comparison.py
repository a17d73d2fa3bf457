"""Two systems side by side as one HTML page: scores, and every sentence with what differs coloured."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from difflib import SequenceMatcher
from html import escape
from typing import Final

from glassformer.data.pair import Pair
from glassformer.evaluation.evaluation import Evaluation
from glassformer.evaluation.scores import Comparison, sentence_scores
from glassformer.report.page import print_page

_STYLE: Final = """
body { max-width: 72rem; }
table { max-width: 44rem; }
h1 { margin-bottom: 1rem; }
small { overflow-wrap: anywhere; margin: .6rem 0; }
details { background: none; border: 0; }
h1 i { font-style: normal; } .one { color: var(--source); } .two { color: var(--target); }
.bar { position: sticky; top: 0; background: var(--paper); padding: .6rem 0;
  display: flex; flex-wrap: wrap; gap: .6rem; }
.bar label { color: var(--soft); font-size: .9rem; }
select, input { font: inherit; color: inherit; background: var(--card); border: 1px solid var(--line);
  border-radius: .3rem; padding: .2rem .4rem; max-width: 100%; }
article { background: var(--card); border: 1px solid var(--line); border-radius: .5rem; padding: .8rem 1rem;
  margin: .6rem 0; }
article p { margin: .15rem 0; overflow-wrap: anywhere; }
.pair { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(20rem, 100%), 1fr)); gap: .4rem 1.2rem; }
.pair p { border-inline-start: 3px solid; padding-inline-start: .6rem; }
.pair p:first-child { border-color: var(--source); } .pair p:last-child { border-color: var(--target); }
mark { color: inherit; border-radius: .2rem; padding: 0 .1em; text-decoration: underline; text-underline-offset: .2em;
  text-decoration-thickness: 1px; }
p:first-child mark { background: color-mix(in srgb, var(--source) 15%, transparent); }
p:last-child mark { background: color-mix(in srgb, var(--target) 15%, transparent); }
.number { float: inline-end; color: var(--soft); font-size: .85rem; font-variant-numeric: tabular-nums; }
"""

_SCRIPT: Final = """
const list = document.getElementById("sentences"), all = [...list.children];
const order = document.getElementById("order"), find = document.getElementById("find");
const keys = {
  differ: a => -Math.abs(a.dataset.two - a.dataset.one), worse: a => a.dataset.two - a.dataset.one,
  better: a => a.dataset.one - a.dataset.two, place: a => +a.dataset.place,
  low: a => Math.min(a.dataset.one, a.dataset.two),
};
function show() {
  const words = find.value.toLowerCase(), key = keys[order.value];
  all.sort((a, b) => key(a) - key(b) || a.dataset.place - b.dataset.place);
  for (const a of all) a.hidden = words && !a.textContent.toLowerCase().includes(words);
  list.replaceChildren(...all);
}
order.addEventListener("change", show); find.addEventListener("input", show);
"""


def draw_comparison(
    first: Evaluation, other: Evaluation, comparisons: Sequence[Comparison], test: Sequence[Pair]
) -> str:
    """Draw the page; sentences come in the order of how much their chrF differs."""
    references = [pair.tgt for pair in test]
    one, two = (sentence_scores(system.hypotheses, references) for system in (first, other))
    order = sorted(range(len(test)), key=lambda i: -abs(two[i] - one[i]))
    articles = (_article(i, test[i], first.hypotheses[i], other.hypotheses[i], one[i], two[i]) for i in order)
    n_same = sum(a == b for a, b in zip(first.hypotheses, other.hypotheses, strict=True))
    names = f'<i class="one">{escape(first.name)}</i> and <i class="two">{escape(other.name)}</i>'
    body = f"""<h1>{names}</h1>
{_table(comparisons)}
<p class="soft">{len(test):,} sentences, {n_same:,} of them translated alike.</p>
<div class="bar"><label>Order <select id="order">
<option value="differ">how much they differ</option><option value="worse">the second is worse</option>
<option value="better">the second is better</option><option value="low">the hardest</option>
<option value="place">as in the test set</option></select></label>
<label>Find <input id="find" type="search"></label></div>
<div id="sentences">
{"".join(articles)}</div>"""
    return print_page(f"{first.name} and {other.name}", body, _STYLE, _SCRIPT)


def _table(comparisons: Sequence[Comparison]) -> str:
    rows = "".join(
        f'<tr><td>{c.metric}</td><td class="one">{c.first:.2f} <span class="soft">± {c.first_interval:.2f}</span></td>'
        f'<td class="two">{c.other:.2f} <span class="soft">± {c.other_interval:.2f}</span></td>'
        f"<td>{c.other - c.first:+.2f}</td><td>{c.p_value:.3f}{' *' if c.is_significant else ''}</td></tr>"
        for c in comparisons
    )
    signatures = "".join(f"<small>{c.metric}: {escape(c.signature)}</small>" for c in comparisons)
    head = "<tr><th>metric</th><th>first</th><th>second</th><th>difference</th><th>p (paired bootstrap)</th></tr>"
    note = "<small>* below 0.05: chance is an unlikely explanation. Of TER, less is better.</small>"
    return f"<table>{head}{rows}</table>{note}<details><summary>Signatures</summary>{signatures}</details>"


def _article(number: int, pair: Pair, one: str, two: str, score_one: float, score_two: float) -> str:
    marked_one, marked_two = _mark(one, two)
    return (
        f'<article data-place="{number}" data-one="{score_one:.3f}" data-two="{score_two:.3f}">'
        f'<span class="number">{number + 1} · chrF {score_one:.0f} → {score_two:.0f}</span>'
        f'<p dir="auto">{escape(pair.src)}</p><p class="soft" dir="auto">{escape(pair.tgt)}</p>'
        f'<div class="pair"><p dir="auto">{marked_one}</p><p dir="auto">{marked_two}</p></div></article>\n'
    )


def _mark(one: str, two: str) -> tuple[str, str]:
    """Mark the words that each has and the other has not."""
    words_one, words_two = one.split(), two.split()
    blocks = SequenceMatcher(None, words_one, words_two, autojunk=False).get_opcodes()
    return (
        " ".join(_runs(words_one, ((kind, start, end) for kind, start, end, _, _ in blocks))),
        " ".join(_runs(words_two, ((kind, start, end) for kind, _, _, start, end in blocks))),
    )


def _runs(words: Sequence[str], blocks: Iterator[tuple[str, int, int]]) -> Iterator[str]:
    for kind, start, end in blocks:
        text = escape(" ".join(words[start:end]))
        if text:
            yield text if kind == "equal" else f"<mark>{text}</mark>"
