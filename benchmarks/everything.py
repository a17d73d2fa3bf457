"""Run every benchmark in turn and write docs/performance.md.

    GLASSFORMER_DATA=... python benchmarks/everything.py [--hf PYTHON] [--peer 'NAME=COMMAND' ...]    half an hour
    ... python benchmarks/everything.py --short                                                       some minutes

--short measures one short round of each: enough to see that everything runs, too noisy to quote. It writes no file
unless --out names one. --hf and --peer are passed to benchmarks/translate.py, and --hf to benchmarks/train.py as well;
--other is a model with 3 + 3 layers to compare the shipped model with.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

import ctranslate2
import torch

from glassformer import __version__
from glassformer.config import CorpusConfig
from glassformer.evaluation.evaluation import read_test
from glassformer.model.fast.device import cpu_name
from glassformer.store.registry import find_model

HERE: Final = Path(__file__).parent
PAGE: Final = HERE.parent / "docs" / "performance.md"
DEVTEST: Final = "tatoeba.devtest.fr-en.tsv"
SHAPES: Final = ("float32-1x2", "float32-2x1")  # workers and threads of each
OTHERS: Final = {
    "other bare": "3 + 3 layers in CTranslate2, bare, our int8 where it is accurate",
    "other bare-float32-2x1": "3 + 3 layers in CTranslate2, bare, float32",
}
FLOOR: Final = {"tatoeba.dev": 45.7, "tatoeba.devtest": 27.5, "l10n.dev": 2.6}  # a plain loop of 42 minutes, greedy
PEERS: Final = {"torch": "torch.nn.Transformer in a plain loop", "hf": "Hugging Face MarianMT", "sockeye": "Sockeye 3"}


class Row(NamedTuple):
    """A figure beside its peer."""

    what: str
    ours: str
    beside: str
    ratio: str
    command: str


def run(script: str, *words: str) -> Any:
    """Run a benchmark, show its output and return the figures it wrote."""
    with tempfile.TemporaryDirectory() as name:
        figures = Path(name) / "figures.json"
        print(f"\n$ python benchmarks/{script} {shlex.join(words)}", flush=True)
        subprocess.run([sys.executable, HERE / script, *words, "--json", str(figures)], check=True)
        return json.loads(figures.read_text())


def fastest(found: Mapping[str, Mapping[str, float]], figure: str, ours: str, best: str = "max") -> tuple[str, float]:
    """Return the name and figure of the best peer that runs on PyTorch."""
    peers = {name: facts[figure] for name, facts in found.items() if name in PEERS and name != ours}
    name = (max if best == "max" else min)(peers, key=lambda peer: peers[peer])
    return PEERS[name], peers[name]


def training(found: Mapping[str, Mapping[str, float]]) -> list[Row]:
    """Return the rows of the trainer."""
    ours, command = found["glassformer"], "benchmarks/train.py"
    name, rate = fastest(found, "tokens_per_s", "glassformer")
    lean, memory = fastest(found, "mb", "glassformer", "min")
    return [
        Row(
            "training, tokens/s",
            f"{ours['tokens_per_s']:,.0f}",
            f"{rate:,.0f} ({name})",
            f"{ours['tokens_per_s'] / rate:.2f}",
            command,
        ),
        Row(
            "training, peak memory, MB",
            f"{ours['mb']:,.0f}",
            f"{memory:,.0f} ({lean})",
            f"{ours['mb'] / memory:.2f}",
            command,
        ),
    ]


def translating(found: Mapping[str, Mapping[str, Mapping[str, float]]]) -> list[Row]:
    """Return the rows of both engines."""
    rows, command = [], "benchmarks/translate.py"
    for beam, name in (("1", "greedy"), ("5", "beam 5")):
        each = found[beam]
        pairs = [
            ("torch-64", "bare-float32-1x2", "CTranslate2 float32, one worker"),
            ("ctranslate2-float32-2x1", "bare-float32-2x1", "CTranslate2 called bare"),
        ]
        for ours, theirs, title in pairs:
            a, b = each[ours]["sentences_per_s"], each[theirs]["sentences_per_s"]
            engine = ours.split("-")[0]
            rows.append(
                Row(f"{engine} engine, {name}, sentences/s", f"{a:.0f}", f"{b:.0f} ({title})", f"{a / b:.2f}", command)
            )
        if any(peer in PEERS and peer != "torch" for peer in each):  # here torch is our own engine
            for figure, title, best in (
                ("sentences_per_s", "sentences/s", "max"),
                ("ms", "ms for one sentence", "min"),
            ):
                peer, value = fastest(each, figure, "torch", best)
                own = each["torch"][figure]
                rows.append(
                    Row(
                        f"torch engine, {name}, {title}",
                        f"{own:.1f}",
                        f"{value:.1f} ({peer})",
                        f"{own / value:.2f}",
                        command,
                    )
                )
        rows.append(
            Row(
                f"torch engine, {name}, memory, MB",
                f"{each['torch']['mb']:.0f}",
                f"{each['bare-float32-1x2']['mb']:.0f} (CTranslate2)",
                f"{each['torch']['mb'] / each['bare-float32-1x2']['mb']:.2f}",
                command,
            )
        )
    return rows


def text(found: Mapping[str, Mapping[str, Mapping[str, float]]]) -> list[Row]:
    """Return the rows of the model that ships, text in and text out."""
    rows, command = [], "benchmarks/translate.py --model"
    for beam, name in (("1", "greedy"), ("5", "beam 5")):
        for shape in SHAPES:
            ours, bare = (found[beam][f"{kind}-{shape}"]["sentences_per_s"] for kind in ("text", "bare"))
            what = f"ctranslate2 engine, text in, text out, {name}, {shape}, sentences/s"
            beside = f"{bare:.0f} (CTranslate2 called bare, on tokens)"
            rows.append(Row(what, f"{ours:.0f}", beside, f"{ours / bare:.2f}", command))
        own = found[beam]["text"]["sentences_per_s"]
        for kind, title in OTHERS.items():
            if kind in found[beam]:
                theirs = found[beam][kind]["sentences_per_s"]
                what = f"fr-en as it ships, text in, text out, {name}, sentences/s"
                rows.append(Row(what, f"{own:.0f}", f"{theirs:.0f} ({title})", f"{own / theirs:.2f}", command))
    return rows


def quality(found: Mapping[str, Any]) -> list[Row]:
    """Return the quality rows of the model that ships."""
    command = f"benchmarks/quality.py --model {found['model']}"
    rows = []
    for name, floor in FLOOR.items():
        ours, beside = found[name]["BLEU"]["value"], f"{floor} (a plain training loop of 42 minutes, not run again)"
        rows.append(Row(f"{found['model']}, {name}, BLEU", f"{ours:.1f}", beside, f"{ours / floor:.2f}", command))
    return rows


def machine() -> str:
    """Name what the figures depend on."""
    return f"{cpu_name()}, 2 threads, torch {torch.__version__}, CTranslate2 {ctranslate2.__version__}"


def page(rows: list[Row]) -> str:
    """Return docs/performance.md."""
    table = "\n".join(f"| {row.what} | {row.ours} | {row.beside} | {row.ratio} | `{row.command}` |" for row in rows)
    return f"""# Performance

All figures are from one run of `make benchmarks`, which measures glassformer and a peer in turn with the script in the
last column. Machines differ and are noisy, so compare the ratio (ours divided by theirs).

glassformer {__version__}, {machine()}.

| what | glassformer | beside | ratio | made by |
|---|---|---|---|---|
{table}

Lower is better for memory and milliseconds, higher for everything else. What was measured:

- Training: preset `small`, a vocabulary of 8,000, Multi30k.
- Translation: the same model with random weights, 16 tokens for each of 1,000 sentences.
- Text in, text out: the model that ships, 1,000 sentences of tatoeba.devtest, including tokenization and sentence
  splitting; 1x2 is one worker with two threads.
- Memory over 1,000,000 lines: a file with one word per line.

More on quality is in [experiments](experiments.md).
"""


def main() -> None:
    """Run everything."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--short", action="store_true")
    parser.add_argument("--hf", metavar="PYTHON")
    parser.add_argument("--peer", action="append", default=[], metavar="NAME=COMMAND")
    parser.add_argument("--other", metavar="FOLDER")
    parser.add_argument("--rounds", type=int, help="rounds of measurement (default: 3, or 1 with --short)")
    parser.add_argument("--lines", type=int, help="lines of the long file (default: 1,000,000, or 20,000 with --short)")
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    hf = ["--hf", args.hf] if args.hf else []
    peers = [word for peer in args.peer for word in ("--peer", peer)]
    rounds = ["--rounds", str(args.rounds or (1 if args.short else 3))]
    rows = training(run("train.py", *hf, *rounds, *(["--seconds", "8"] if args.short else [])))
    some = ["--n", "200", "--latency", "5"] if args.short else []
    rows += translating(run("translate.py", *hf, *peers, *rounds, *some))
    with tempfile.TemporaryDirectory() as name:
        sources = Path(name) / "sources.txt"
        devtest = read_test(CorpusConfig(path=Path(os.environ.get("GLASSFORMER_DATA", "")) / DEVTEST))
        sources.write_text("".join(f"{pair.src}\n" for pair in devtest), encoding="utf-8")
        contest = ["text", *(f"{kind}-{shape}" for shape in SHAPES for kind in ("text", "bare"))]
        model = ["--model", str(find_model("fr-en")), "--text", str(sources), "--only", *contest]
        model += ["--other", args.other] if args.other else []
        rows += text(run("translate.py", *model, *rounds, *some))
    count = args.lines or (20_000 if args.short else 1_000_000)
    facts = run("translate.py", "--lines", str(count))
    command = f"benchmarks/translate.py --lines {count}"
    rows.append(Row(f"memory over {count:,} lines, MB", f"{facts['mb']:.0f}", "", "", command))
    rows += quality(run("quality.py", *(["--scores-only", "--beam", "1"] if args.short else [])))
    out = args.out or (None if args.short else PAGE)
    if out:
        out.write_text(page(rows), encoding="utf-8")
    print(f"\n{page(rows)}")


if __name__ == "__main__":
    main()
