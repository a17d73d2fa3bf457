"""Narrow a model's target side to the pieces that its language needs: a shorter output layer, the same translations.

    python recipes/narrow.py MODEL OUT CORPUS...

Two languages that share a vocabulary share few of its pieces: of 8,000, French and English, English writes 5,000. The
source keeps all of them. The target keeps those of the corpora's target side and of invented names, special pieces and
bytes, and gets tables of its own. Needs protobuf (`pip install 'glassformer[train]'`).
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Final

from sentencepiece import sentencepiece_model_pb2

from glassformer.config import CorpusConfig
from glassformer.data.augment import rename
from glassformer.evaluation.evaluation import read_test
from glassformer.model.transformer import Transformer
from glassformer.store.folder import load_model, read_config, save_model
from glassformer.text.tokenizer import Tokenizer, Tokenizers
from glassformer.text.vocab import SPECIAL

N_NAMES: Final = 40_000
MULTIPLE: Final = 64  # pieces: tables of such sizes are multiplied fastest
NORMAL: Final = sentencepiece_model_pb2.ModelProto.SentencePiece.NORMAL  # type: ignore[attr-defined]


def needed(tokenizer: Tokenizer, corpora: list[str]) -> set[int]:
    """Give the ids that the targets of the corpora have, and invented names."""
    texts = [rename("Tom", "Tom", number / N_NAMES)[1] for number in range(N_NAMES)]
    texts += [pair.tgt for path in corpora for pair in read_test(CorpusConfig(path=Path(path)), "skip")]
    return {token for ids in tokenizer.encode_batch(texts) for token in ids}


def narrowed(tokenizer: Tokenizer, keep: set[int]) -> Tokenizer:
    """Make a tokenizer of some of the pieces, and of all that are no plain text."""
    model = sentencepiece_model_pb2.ModelProto.FromString(tokenizer.model_bytes)  # type: ignore[attr-defined]
    wanted = set(tokenizer.pieces(keep))
    others = [piece.piece for piece in model.pieces if piece.type == NORMAL and piece.piece not in wanted]
    wanted.update(others[: -(len(model.pieces) - len(others)) % MULTIPLE])
    kept = [piece for piece in model.pieces if piece.type != NORMAL or piece.piece in wanted]
    del model.pieces[:]
    model.pieces.extend(kept)
    model.trainer_spec.vocab_size = len(kept)
    return Tokenizer(model.SerializeToString())


def main(source: str, out: str, *corpora: str) -> None:
    """Write the narrowed model."""
    tokenizer = Tokenizers.load(source).src
    target = narrowed(tokenizer, needed(tokenizer, list(corpora)))
    ids = {piece: number for number, piece in enumerate(tokenizer.pieces(range(tokenizer.vocab_size)))}
    special = len(SPECIAL)
    rows = [*range(special), *(ids[piece] for piece in target.pieces(range(special, target.vocab_size)))]
    wide, about = load_model(source), read_config(source).about
    model = Transformer(wide.config.model_copy(update={"tgt_vocab": target.vocab_size, "tie": "target"}))
    weights = wide.state_dict()
    for name in ("tgt_embedding.table", "output.weight"):
        weights[name] = weights[name][rows]
    model.load_state_dict(weights)
    tokenizers = Tokenizers(tokenizer, target)
    prints = tuple(side.sha256 for side in tokenizers)
    save_model(model, out, about.model_copy(update={"tokenizer_sha256": prints}))
    tokenizers.save(out)
    print(f"{tokenizer.vocab_size:,} pieces are read, {target.vocab_size:,} written", file=sys.stderr)


if __name__ == "__main__":
    main(*sys.argv[1:])
