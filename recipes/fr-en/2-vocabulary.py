"""Stage 2: learn one vocabulary of French and English, reserve placeholder symbols in it, and narrow it per language.

    python recipes/fr-en/2-vocabulary.py runs/fr-en/data runs/fr-en/vocabulary

Of 16,000 pieces French uses 10,816 and English 8,960, counting invented names: a narrower target side makes every
output step cheaper. Both directions share the joint vocabulary, so that one can start from the other's weights.
Needs protobuf (`pip install 'glassformer[train]'`) and $GLASSFORMER_DATA. Three minutes.
"""

from __future__ import annotations

import gzip
import os
import random
import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from sentencepiece import sentencepiece_model_pb2

from glassformer.config import TokenizerConfig
from glassformer.data.augment import rename
from glassformer.text.tokenizer import Tokenizer, Tokenizers
from glassformer.text.vocab import PLACEHOLDERS

SIZE: Final = 16_000
SHARES: Final = {"tatoeba": 1.0, "tatoeba-extra": 1.0, "games": 1.0, "l10n": 0.1, "europarl": 0.15}
MONOLINGUAL: Final = ("mono.commonvoice.fr.txt.gz", "mono.commonvoice.en.txt.gz")
MULTIPLE: Final = 64  # pieces: tables of such sizes multiply fastest
LEAST: Final = 30  # times that a piece must come to be kept for a language
N_NAMES: Final = 40_000  # invented names, each of whose pieces counts as frequent
NORMAL: Final = sentencepiece_model_pb2.ModelProto.SentencePiece.NORMAL  # type: ignore[attr-defined]


def lines(path: Path, share: float) -> Iterator[str]:
    """Read a random share of the lines of a file, the same ones each time."""
    draws = random.Random(0)
    with gzip.open(path, "rt", encoding="utf-8", newline="\n") as file:
        yield from (line.rstrip("\n") for line in file if draws.random() < share)


def parse(tokenizer: Tokenizer) -> sentencepiece_model_pb2.ModelProto:  # type: ignore[name-defined]
    """Read a sentencepiece model as something that can be edited."""
    return sentencepiece_model_pb2.ModelProto.FromString(tokenizer.model_bytes)  # type: ignore[attr-defined]


def reserve(tokenizer: Tokenizer) -> Tokenizer:
    """Replace the rarest pieces by two per placeholder: at the beginning of a word and within one."""
    model = parse(tokenizer)
    added = [text for symbol in PLACEHOLDERS for text in (symbol, "\u2581" + symbol)]
    normal = [piece for piece in model.pieces if piece.type == NORMAL]
    score = sum(piece.score for piece in normal) / len(model.pieces)
    spare = [piece for piece in normal if len(piece.piece) > 1][-len(added) :]
    for piece, text in zip(spare, added, strict=True):
        piece.piece, piece.score = text, score
    return Tokenizer(model.SerializeToString())


def narrow(tokenizer: Tokenizer, counts: Mapping[int, int]) -> Tokenizer:
    """Keep the frequent pieces, all single characters, placeholders, special pieces and bytes."""
    model = parse(tokenizer)
    frequent = set(tokenizer.pieces([token for token, count in counts.items() if count >= LEAST]))
    must = {
        piece.piece
        for piece in model.pieces
        if piece.type != NORMAL or len(piece.piece) == 1 or set(piece.piece) & set(PLACEHOLDERS)
    }
    others = [piece.piece for piece in model.pieces if piece.piece not in frequent | must]
    kept_too = others[: -(len(model.pieces) - len(others)) % MULTIPLE]
    kept = [piece for piece in model.pieces if piece.piece in frequent | must | set(kept_too)]
    del model.pieces[:]
    model.pieces.extend(kept)
    model.trainer_spec.vocab_size = len(kept)
    return Tokenizer(model.SerializeToString())


def main(data: Path, out: Path) -> None:
    """Write joint.model, and the pairs of vocabularies of both directions."""
    sides: tuple[list[str], list[str]] = ([], [])
    for name, share in SHARES.items():
        for line in lines(data / f"{name}.clean.tsv.gz", share):
            for side, text in zip(sides, line.split("\t"), strict=True):
                side.append(text)
    for side, name in zip(sides, MONOLINGUAL, strict=True):
        side.extend(lines(Path(os.environ["GLASSFORMER_DATA"]) / name, 0.5))
    everything = [*sides[0], *sides[1]]
    random.Random(0).shuffle(everything)
    joint = reserve(Tokenizer.train(everything, TokenizerConfig(vocab_size=SIZE, max_sentences=1_000_000)))
    joint.save(out / "joint.model")
    names = joint.encode_batch([rename("Tom", "Tom", number / N_NAMES)[1] for number in range(N_NAMES)])
    invented = Counter({token: LEAST for ids in names for token in ids})
    french, english = (
        narrow(joint, Counter(token for ids in joint.encode_batch(side) for token in ids) + invented) for side in sides
    )
    Tokenizers(french, english).save(out / "fr-en")
    Tokenizers(english, french).save(out / "en-fr")


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
