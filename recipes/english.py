"""List the English sentences that have no French side, one a line, for the model of tatoeba-en-fr.toml to translate.

    mkdir -p runs && python recipes/english.py > runs/english.txt

They are those of $GLASSFORMER_DATA/tatoeba.train.de-en.tsv.gz that are, whatever their case and punctuation, neither in
the French training pairs nor in the sentences that we measure on.
"""

from __future__ import annotations

import os
import random
import re
from pathlib import Path

from glassformer.config import CorpusConfig
from glassformer.evaluation.evaluation import read_test

KNOWN = ("train.fr-en.tsv.gz", "dev.fr-en.tsv", "devtest.fr-en.tsv")


def english(name: str) -> list[str]:
    """Read the English of a file of pairs."""
    path = Path(os.environ.get("GLASSFORMER_DATA", "")) / f"tatoeba.{name}"
    return [pair.tgt for pair in read_test(CorpusConfig(path=path), "skip")]


def key(sentence: str) -> str:
    """Reduce a sentence to its words in lower case."""
    return " ".join(re.findall(r"\w+", sentence.lower()))


def main() -> None:
    """Print each sentence once, in an order that tells nothing."""
    new = {key(sentence): sentence for sentence in english("train.de-en.tsv.gz")}
    for name in KNOWN:
        for sentence in english(name):
            new.pop(key(sentence), None)
    new.pop("", None)
    sentences = list(new.values())
    random.Random(0).shuffle(sentences)
    print(*sentences, sep="\n")


if __name__ == "__main__":
    main()
