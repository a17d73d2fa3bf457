"""How well a model translates: scores on test sets, and on dev as people type it.

    python benchmarks/quality.py [--model fr-en] [--beam 5] [--json FILE]

Test sets come from $GLASSFORMER_DATA. Variants of dev change the source only, except for names and numbers, which
are replaced on both sides, names by real ones and by invented ones: those count the sentences that have any, and how
many kept them all.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

from glassformer.config import CorpusConfig, SearchConfig
from glassformer.data.augment import drop_accents, drop_stop, join_texts, rename, respace, swap_apostrophes
from glassformer.data.pair import Pair
from glassformer.evaluation.evaluation import read_test
from glassformer.evaluation.scores import measure
from glassformer.translate.translator import Translator

# In no training sentence of the model that ships, on either side.
NAMES: Final = """
Jane Amélie Baptiste Benoît Camille Cécile Clément Élodie Émilie Gaëlle Inès Jérôme Joséphine Laëtitia Léa
Loïc Ludovic Manon Mathilde Maxime Mélanie Noémie Océane Quentin Rémi Sandrine Sébastien Solène Sylvie Théo
Thibault Virginie Zoé Mehmet Giulia Björn Ingrid Oksana Dmitri Priya Rajesh Kwame Aisha Yuki Carlos Beatriz
Thiago Olga Svetlana Leila Nadia Omar Samir Ngozi Lars Freya Aoife Duncan Gareth Brenda Gladys Norman Wendy
Yolanda Zachary Abigail Caleb Isabella Logan Natalie Olivia Tyler Lyon Toulouse Lille Nairobi Lagos
""".split()  # noqa: SIM905
TEST_SETS: Final = ("flores.dev", "news.dev", "tatoeba.dev", "tatoeba.devtest", "l10n.dev")
VARIANTS: Final[dict[str, Callable[[str], str]]] = {
    "as it stands": lambda text: text,
    "without the final stop": drop_stop,
    "in lower case": str.lower,
    "IN CAPITALS": str.upper,
    "’ for '": swap_apostrophes,
    "no space before ? !": lambda text: respace(text, ""),
    "a hard space before ? !": lambda text: respace(text, "\u00a0"),
    "accents missing": drop_accents,
}


def bleu(translator: Translator, pairs: Sequence[tuple[str, str]], search: SearchConfig) -> tuple[float, list[str]]:
    """Translate sources and score them against their references."""
    found = translator.translate([src for src, _ in pairs], search=search)
    return measure(found, [tgt for _, tgt in pairs])["BLEU"].value, found


def variants(translator: Translator, dev: Sequence[Pair], search: SearchConfig) -> list[dict[str, Any]]:
    """Measure dev in each variant beside the same sentences as they stand."""
    rows: list[dict[str, Any]] = []
    clean = [(pair.src, pair.tgt) for pair in dev]
    for name, change in VARIANTS.items():
        score, _ = bleu(translator, [(change(src), tgt) for src, tgt in clean], search)
        rows.append(
            {"variant": name, "sentences": len(clean), "bleu": score, "clean": rows[0]["bleu"] if rows else score}
        )
    joined = [
        (join_texts([a.src, b.src]), join_texts([a.tgt, b.tgt])) for a, b in zip(dev[::2], dev[1::2], strict=False)
    ]
    score, _ = bleu(translator, joined, search)
    rows.append({"variant": "two in a line", "sentences": len(joined), "bleu": score, "clean": rows[0]["bleu"]})
    for name, is_kind, known in (
        ("names never seen", str.isalpha, NAMES),
        ("names that nobody has", str.isalpha, ()),
        ("other numbers", str.isdecimal, ()),
    ):
        before, after, wanted = [], [], []
        for number, (src, tgt) in enumerate(clean):
            new = rename(src, tgt, number / len(clean), known)
            names = {w for w in re.findall(r"\w+", new[1]) if w not in re.findall(r"\w+", tgt) and is_kind(w)}
            if names:
                before.append((src, tgt))
                after.append(new)
                wanted.append(names)
        if not after:
            continue
        score, found = bleu(translator, after, search)
        kept = sum(names <= {*re.findall(r"\w+", text)} for names, text in zip(wanted, found, strict=True))
        row = {"variant": name, "sentences": len(after), "bleu": score, "clean": bleu(translator, before, search)[0]}
        rows.append({**row, "kept": kept / len(after)})
    return rows


def main() -> None:
    """Print both tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="fr-en")
    parser.add_argument("--beam", type=int, default=5)
    parser.add_argument("--engine", default="auto")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--scores-only", action="store_true", help="leave the variants out")
    options = parser.parse_args()
    data = Path(os.environ.get("GLASSFORMER_DATA", ""))
    if not (data / f"{TEST_SETS[0]}.fr-en.tsv").exists():
        sys.exit(f"{TEST_SETS[0]}.fr-en.tsv is missing: set GLASSFORMER_DATA to the folder that has it")
    tests = {name: read_test(CorpusConfig(path=data / f"{name}.fr-en.tsv")) for name in TEST_SETS}
    facts: dict[str, Any] = {"model": options.model, "beam": options.beam}
    with Translator.load(options.model, engine=options.engine, split=False) as translator:
        search = translator.search.model_copy(update={"width": options.beam})
        print(f"{options.model}, beam {options.beam}, {translator.engine}\n")
        print("| test set | sentences | BLEU | chrF | TER |\n|---|---|---|---|---|")
        for name, test in tests.items():
            found = translator.translate([pair.src for pair in test], search=search)
            scores = measure(found, [pair.tgt for pair in test])
            facts[name] = {metric: score._asdict() for metric, score in scores.items()}
            values = " | ".join(f"{scores[metric].value:.2f}" for metric in ("BLEU", "chrF", "TER"))
            print(f"| {name} | {len(test):,} | {values} |", flush=True)
        for metric, score in scores.items():
            print(f"{metric}: {score.signature}")
    if not options.scores_only:
        with Translator.load(options.model, engine=options.engine) as translator:
            facts["variants"] = variants(translator, tests["tatoeba.dev"], search)
        print("\n| dev, typed | sentences | BLEU | beside the clean ones | kept |\n|---|---|---|---|---|")
        for row in facts["variants"]:
            kept = f"{row['kept']:.0%}" if "kept" in row else ""
            change = f"{row['bleu'] - row['clean']:+.2f}"
            print(f"| {row['variant']} | {row['sentences']:,} | {row['bleu']:.2f} | {change} | {kept} |")
    if options.json:
        options.json.write_text(json.dumps(facts, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
