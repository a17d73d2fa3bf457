"""The special ids, in one place: every tokenizer, model and search uses these."""

from typing import Final

PAD: Final = 0
UNK: Final = 1
BOS: Final = 2
EOS: Final = 3

SPECIAL: Final = {"pad": PAD, "unk": UNK, "bos": BOS, "eos": EOS}
# Private-use characters that stand for what is not language: tags, URLs, format strings.
PLACEHOLDERS: Final = tuple(map(chr, range(0xE000, 0xE00C)))
PIECES: Final = {PAD: "<pad>", UNK: "<unk>", BOS: "<s>", EOS: "</s>"}
