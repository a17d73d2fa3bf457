"""The paper that our reports are printed on: one HTML file that needs no other, one palette, light and dark."""

from __future__ import annotations

from html import escape
from typing import Final

_STYLE: Final = """
:root {
  color-scheme: light dark;
  --paper: #fbfaf8; --card: #fff; --ink: #22252a; --soft: #646a73; --line: #e4e1db;
  --source: #2f6fb0; --target: #c2702a; --plain: #4f8068; --out: #a33a3a;
}
@media (prefers-color-scheme: dark) {
  :root {
    --paper: #16181c; --card: #1e2126; --ink: #e3e5e8; --soft: #9aa1ab; --line: #30343b;
    --source: #74aee6; --target: #e3a06a; --plain: #86b89e; --out: #e58080;
  }
}
* { box-sizing: border-box; }
body {
  margin: 0 auto; padding: 2rem 1rem 4rem; max-width: 62rem;
  background: var(--paper); color: var(--ink); font: 16px/1.55 system-ui, sans-serif;
}
h1 { font-size: 1.5rem; font-weight: 600; margin: 0; overflow-wrap: anywhere; }
h2 { font-size: 1.15rem; font-weight: 600; margin: 2.5rem 0 .8rem; }
p { margin: .4rem 0; overflow-wrap: anywhere; }
small { color: var(--soft); font-size: .85rem; display: block; }
.soft { color: var(--soft); }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; width: 100%; }
th { text-align: start; font-weight: 500; color: var(--soft); font-size: .85rem; }
th, td { padding: .35rem .8rem .35rem 0; border-bottom: 1px solid var(--line); }
.numbers { display: grid; grid-template-columns: repeat(auto-fit, minmax(8.5rem, 1fr)); gap: .8rem; }
.numbers { margin-top: 1.2rem; }
.numbers div, figure, details, .card { background: var(--card); border: 1px solid var(--line); border-radius: .5rem; }
.numbers div { padding: .8rem 1rem; }
.numbers b { display: block; font-size: 1.35rem; font-weight: 600; white-space: nowrap; }
.meter { height: .35rem; margin-top: 1rem; border-radius: .2rem; background: var(--line); }
.meter i { display: block; height: 100%; border-radius: .2rem; background: var(--plain); }
"""


def print_page(title: str, body: str, style: str = "", script: str = "") -> str:
    """Put a body on paper, with what its own style adds to ours."""
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(title)}</title>\n<style>{_STYLE}{style}</style>\n</head>\n<body>\n<main>\n{body}\n</main>\n"
        f"{f'<script>{script}</script>' if script else ''}\n</body>\n</html>\n"
    )
