"""How well a model aligns words: the alignment error rate (AER, Och and Ney 2003) on 100 pairs aligned by hand.

    python benchmarks/alignment.py MODEL [MODEL ...]

benchmarks/alignment.fr-en.tsv has source, target and links: `3-2` is sure, `3?2` possible, source word before target
word. The sentences were written for this purpose. A model that translates from English reads the file the other way
round. Each head of the last decoder layer is measured, and the one that the model folder names is marked.
"""

from __future__ import annotations

import argparse
import re
from pathlib import Path
from typing import Final, NamedTuple

from glassformer.store.folder import AttentionHead, load_model, read_config
from glassformer.store.registry import find_model
from glassformer.text.tokenizer import Tokenizers
from glassformer.translate.alignment import align_words

GOLD: Final = Path(__file__).with_name("alignment.fr-en.tsv")
Links = set[tuple[int, int]]


class Gold(NamedTuple):
    """A pair and its links; those that are sure are possible, too."""

    src: str
    tgt: str
    sure: Links
    possible: Links

    def turned(self) -> Gold:
        """Return it with source and target exchanged."""
        sure, possible = ({(t, s) for s, t in links} for links in (self.sure, self.possible))
        return Gold(self.tgt, self.src, sure, possible)


def read_gold() -> list[Gold]:
    """Read the pairs."""
    gold = []
    for line in GOLD.read_text(encoding="utf-8").splitlines():
        src, tgt, words = line.split("\t")
        links = [(int(s), mark, int(t)) for s, mark, t in re.findall(r"(\d+)([-?])(\d+)", words)]
        sure = {(s, t) for s, mark, t in links if mark == "-"}
        gold.append(Gold(src, tgt, sure, {(s, t) for s, _, t in links}))
    return gold


def main() -> None:
    """Measure every head of each model."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="+", metavar="MODEL")
    for name in parser.parse_args().models:
        folder = find_model(name)
        model, tokenizers, about = load_model(folder), Tokenizers.load(folder), read_config(folder).about
        pairs = [pair.turned() if about.src_lang == "en" else pair for pair in read_gold()]
        last = model.config.n_decoder_layers - 1
        for head in (AttentionHead(layer=last, head=number) for number in range(model.config.n_heads)):
            n_found = n_sure = hits = 0
            for pair in pairs:
                found = set(align_words(model, tokenizers, pair.src, pair.tgt, head))
                n_found, n_sure = n_found + len(found), n_sure + len(pair.sure)
                hits += len(found & pair.sure) + len(found & pair.possible)
            mark = "  <- the model's own" if head == about.alignment else ""
            print(f"{name}  layer {head.layer}, head {head.head}: AER {1 - hits / (n_found + n_sure):.3f}{mark}")


if __name__ == "__main__":
    main()
