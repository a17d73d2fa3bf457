"""Text to ids and back, by sentencepiece with our special ids.

With a vocabulary that was learnt here, `decode(encode(text)) == text` for every text, unless it normalises.
"""

from __future__ import annotations

import hashlib
import io
import random
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, Final, NamedTuple, Self

from sentencepiece import SentencePieceNormalizer, SentencePieceProcessor, SentencePieceTrainer

from glassformer.config import TokenizerConfig
from glassformer.errors import ConfigError, DataError, ModelFileError
from glassformer.files import atomic_file
from glassformer.text.sampling import BpeCutter, Cutter, UnigramCutter, Vocabulary
from glassformer.text.vocab import BOS, EOS, PAD, PIECES, SPECIAL, UNK

Span = tuple[int, int]

JOINT_MODEL: Final = "tokenizer.model"
SRC_MODEL: Final = "tokenizer.src.model"
TGT_MODEL: Final = "tokenizer.tgt.model"

_SILENT: Final = frozenset({PAD, BOS, EOS})
_MARK: Final = "\u2581"  # a space inside a piece
_LOST: Final = "\ufffd"  # replaces an invalid character
_SURROGATE: Final = re.compile("[\ud800-\udfff]")

# sentencepiece silently skips lines that are long or contain U+2585, and gives the other characters a special meaning:
# so lines are cut there, and none exceeds its limit of 4192 bytes.
_CUT: Final = re.compile("[\0\t\n\r\u2581\u2585]|<(?:pad|unk|/?s|0x[0-9A-F]{2})>")
_LONGEST_LINE: Final = 1000  # characters
_FEW: Final = 8  # texts, for which starting threads takes longer than encoding
_THREADS: Final = 16  # fixed, because the vocabulary depends on it
_ONLY_ERRORS: Final = 2

_WORD: Final = re.compile(f"{_MARK}*[^{_MARK}]+|{_MARK}+")


class Tokenizer:
    """One side's vocabulary; a value, equal to any other with the same bytes, and pickled as them.

    Special ids are ours, whatever those of the sentencepiece model: PAD 0, UNK 1, BOS 2, EOS 3, then all its other
    pieces in order. A lone surrogate is read as U+FFFD.
    """

    def __init__(self, model_bytes: bytes, where: str = "tokenizer") -> None:
        """Parse the bytes of a sentencepiece model; `where` names their origin in errors."""
        self.model_bytes = model_bytes
        self._processor = sp = _read(model_bytes, where)
        specials = [sp.pad_id(), sp.unk_id(), sp.bos_id(), sp.eos_id()]
        others = sorted(set(range(sp.get_piece_size())).difference(specials))
        self.theirs: Final = (*specials, *others)  # their id for each of ours, -1 where they have none
        ours = {their: our for our, their in enumerate(self.theirs)}
        same = specials == [PAD, UNK, BOS, EOS]
        self._cutters: dict[float, Cutter] = {}  # by alpha; they cache words
        self._ours = None if same else [ours[their] for their in range(sp.get_piece_size())]

    @classmethod
    def train(cls, lines: Iterable[str], config: TokenizerConfig) -> Self:
        """Learn a vocabulary from `lines`, which are read once; the same lines and settings give the same bytes.

        A repeated line counts once.
        """
        sample = _Reservoir(config)
        for line in lines:
            sample.add(line)
        return cls(_train(sample.lines, config))

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Read a sentencepiece model, whoever trained it.

        Without byte fallback, a character that is not in the vocabulary becomes UNK; with normalisation, texts are
        decoded in normalised form.
        """
        try:
            return cls(Path(path).read_bytes(), str(path))
        except FileNotFoundError:
            raise ModelFileError(f"{path}: no such tokenizer; train one first") from None
        except OSError as error:
            raise ModelFileError(f"{path} cannot be read: {error.strerror}") from None

    def save(self, path: str | Path) -> None:
        """Write the sentencepiece model atomically; the folder is created if needed."""
        path = Path(path)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise ModelFileError(f"{path} cannot be written: {error.strerror}") from None
        with atomic_file(path, error=ModelFileError) as file:
            file.write(self.model_bytes)

    @property
    def vocab_size(self) -> int:
        """Number of ids, special ones included."""
        return len(self.theirs)

    @cached_property
    def sha256(self) -> str:
        """SHA-256 of the model bytes."""
        return hashlib.sha256(self.model_bytes).hexdigest()

    @property
    def has_bytes(self) -> bool:
        """Whether characters without an id are encoded as bytes, as in all vocabularies learnt here."""
        return bool(self._bytes)

    def encode(self, text: str) -> list[int]:
        """Return the ids of a text, without BOS and EOS."""
        return self._to_ours(self._encode(_without_surrogates(text)))

    def encode_batch(self, texts: Sequence[str]) -> list[list[int]]:
        """Return the ids of each text."""
        if len(texts) < _FEW:
            return [self.encode(text) for text in texts]
        clean = [_without_surrogates(text) for text in texts]
        batch: list[list[int]] = self._processor.encode(clean, num_threads=1)
        if self.has_bytes:
            batch = [self._encode(text) if _MARK in text else ids for text, ids in zip(clean, batch, strict=True)]
        return batch if self._ours is None else [self._to_ours(ids) for ids in batch]

    def sample(self, text: str, alpha: float, seed: int) -> list[int]:
        """Return a random segmentation of a text; see `sample_batch`."""
        return self.sample_batch([text], alpha, seed)[0]

    def sample_batch(self, texts: Sequence[str], alpha: float, seed: int) -> list[list[int]]:
        """Return random segmentations, for subword regularisation (Kudo 2018) or BPE dropout (Provilkov et al. 2020).

        With unigram, segmentations are sampled by their probability to the power of `alpha`; with BPE, each merge is
        skipped with probability `alpha`. The result depends only on the arguments, in any process, so that a resumed
        run is identical.
        """
        draws = random.Random(seed)  # noqa: S311 - no secret
        if alpha not in self._cutters:
            self._cutters[alpha] = (UnigramCutter if self._is_unigram else BpeCutter)(self._vocabulary, alpha)
        cutter = self._cutters[alpha]
        return [self._to_ours(self._sample(_without_surrogates(text), cutter, draws)) for text in texts]

    def decode(self, ids: Iterable[int]) -> str:
        """Return the text of ids; PAD, BOS and EOS are skipped, UNK and broken bytes are U+FFFD in our vocabularies."""
        text: str = self._processor.decode(self._to_theirs(token for token in ids if token not in _SILENT))
        return text

    def pieces(self, ids: Iterable[int]) -> list[str]:
        """Return readable pieces: `▁the` starts a word, `<0xE2>` is a byte."""
        theirs = [(token, self.theirs[token]) for token in self._checked(ids)]
        return [self._processor.id_to_piece(their) if their >= 0 else PIECES[token] for token, their in theirs]

    def is_byte(self, token: int) -> bool:
        """Return whether an id is one byte of a character without an id."""
        return self.theirs[token] in self._byte_ids

    def spans(self, text: str) -> list[Span]:
        """Return for each id of `encode(text)` the span of characters of `text` that it covers.

        Each byte of a character covers all of it, and so does each part of one that was normalised into several. A
        leading `▁` that is not in the text has an empty span.
        """
        spans: list[Span] = []
        start = 0
        for part in self._parts(_without_surrogates(text)):
            if start:
                spans += [(start - 1, start)] * len(self._spell(_MARK))
            spans += [(start + begin, start + end) for begin, end in self._spans(part, prefix=start == 0)]
            start += len(part) + 1
        return spans

    def decode_spans(self, ids: Sequence[int]) -> list[Span]:
        """Return for each id the span of characters of `decode(ids)` that comes from it, for any ids."""
        audible = [token for token in ids if token not in _SILENT]
        found: dict[str, Any] = {"offsets": []}
        if audible:
            found = self._processor.decode(self._to_theirs(audible), return_type="offset_mapping")
        offsets: list[Span] = found["offsets"]
        for i in reversed(range(len(offsets) - 1)):
            begin, end = offsets[i]
            if begin == end and self.theirs[audible[i]] in self._byte_ids:  # only a character's last byte has its span
                offsets[i] = (begin, offsets[i + 1][1])
        spans: list[Span] = []
        remaining = iter(offsets)
        for token in ids:
            here = spans[-1][1] if spans else 0
            spans.append((here, here) if token in _SILENT else next(remaining))
        return spans

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Tokenizer) and self.model_bytes == other.model_bytes

    def __hash__(self) -> int:
        return hash(self.model_bytes)

    def __repr__(self) -> str:
        return f"Tokenizer(vocab_size={self.vocab_size}, sha256={self.sha256[:12]}…)"

    def __reduce__(self) -> tuple[type[Self], tuple[bytes]]:
        return type(self), (self.model_bytes,)

    @cached_property
    def _bytes(self) -> dict[int, int]:
        """Their id of each byte; empty without byte fallback."""
        ids = {byte: self._processor.piece_to_id(f"<0x{byte:02X}>") for byte in range(256)}
        return {byte: their for byte, their in ids.items() if self._processor.is_byte(their)}

    @cached_property
    def _byte_ids(self) -> frozenset[int]:
        return frozenset(self._bytes.values())

    @cached_property
    def _bare(self) -> SentencePieceProcessor:
        """The same model without a leading space, for text that does not start a sentence."""
        bare = SentencePieceProcessor(model_proto=self.model_bytes)
        bare.override_normalizer_spec(add_dummy_prefix=False)
        return bare

    def _parts(self, text: str) -> list[str]:
        return text.split(_MARK) if self.has_bytes else [text]

    def _encode(self, text: str) -> list[int]:
        first, *others = self._parts(text)
        ids: list[int] = self._processor.encode(first)
        for part in others:
            ids += self._spell(_MARK)  # sentencepiece would read it as a space
            ids += self._bare.encode(part)
        return ids

    def _spell(self, character: str) -> list[int]:
        """Return the ids of a character without a piece."""
        return [self._bytes[byte] for byte in character.encode()] if self.has_bytes else [self._processor.unk_id()]

    def _sample(self, text: str, cutter: Cutter, draws: random.Random) -> list[int]:
        ids: list[int] = []
        for number, part in enumerate(self._parts(text)):
            if number:
                ids += self._spell(_MARK)
            normal: str = (self._bare if number else self._processor).normalize(part)
            for word in _WORD.findall(normal) if self._has_words else [normal]:
                ids += cutter.cut(word, draws)
        unk = self._processor.unk_id()
        return ids if self.has_bytes else [i for n, i in enumerate(ids) if not n or i != unk or ids[n - 1] != unk]

    @cached_property
    def _is_unigram(self) -> bool:
        try:
            self._processor.nbest_encode("a", nbest_size=2)
        except RuntimeError:  # other models have no second-best segmentation
            return False
        return True

    @cached_property
    def _has_words(self) -> bool:
        """Whether no piece spans several words, so that each word can be segmented by itself."""
        return all(_WORD.fullmatch(piece) for piece in self._vocabulary.pieces)

    @cached_property
    def _vocabulary(self) -> Vocabulary:
        sp = self._processor
        apart = (sp.is_control, sp.is_unknown, sp.is_byte, sp.is_unused)
        ids = [i for i in range(sp.get_piece_size()) if not any(is_apart(i) for is_apart in apart)]
        plain = SentencePieceProcessor(model_proto=self.model_bytes)
        plain.override_normalizer_spec(add_dummy_prefix=False, remove_extra_whitespaces=False)
        return Vocabulary({sp.id_to_piece(i): (i, sp.get_score(i)) for i in ids}, self._spell, plain.encode)

    def _spans(self, text: str, prefix: bool) -> Iterator[Span]:
        """Follow the normalised text, which records the origin of each character."""
        normal, origins = self._bare.normalize(text, with_offsets=True)
        processor = self._processor if prefix else self._bare
        at = -1 if processor.normalize(text) == _MARK + normal else 0  # -1 with a leading space
        found = processor.encode(text, return_type="offset_mapping")
        n_bytes = 0
        for their, piece in zip(found["ids"], found["pieces"], strict=True):
            is_byte = their in self._byte_ids
            end = min(at + (1 if is_byte else len(piece)), len(normal))  # some models put the space after a word
            behind = max(end, 0)
            while 0 < behind < len(normal) and origins[behind] == origins[end - 1]:
                behind += 1  # one character that was normalised into several
            yield origins[max(at, 0)], origins[behind]
            if is_byte:
                n_bytes += 1
                if n_bytes < len((normal[at] if at >= 0 else _MARK).encode()):
                    continue
                n_bytes = 0
            at = end

    def _to_ours(self, ids: list[int]) -> list[int]:
        ours = self._ours
        return ids if ours is None else [ours[their] for their in ids]

    def _to_theirs(self, ids: Iterable[int]) -> list[int]:
        return [self.theirs[token] for token in self._checked(ids)]

    def _checked(self, ids: Iterable[int]) -> list[int]:
        ids, size = list(ids), self.vocab_size
        if ids and not 0 <= min(ids) <= max(ids) < size:
            wrong = next(token for token in ids if not 0 <= token < size)
            raise IndexError(f"id {wrong} is not in this vocabulary of {size}")
        return ids


class Tokenizers(NamedTuple):
    """The vocabularies of the two sides; the same one if they share it."""

    src: Tokenizer
    tgt: Tokenizer

    @property
    def joint(self) -> bool:
        """Whether both sides share one vocabulary."""
        return self.src == self.tgt

    @staticmethod
    def found_in(folder: Path) -> set[str]:
        """Return the names of the tokenizer files in a folder."""
        return {name for name in (JOINT_MODEL, SRC_MODEL, TGT_MODEL) if (folder / name).exists()}

    @classmethod
    def load(cls, folder: str | Path) -> Self:
        """Read the tokenizers of a model folder, or one file for both sides."""
        folder = Path(folder)
        found = cls.found_in(folder)
        if folder.is_file() or found == {JOINT_MODEL}:
            joint = Tokenizer.load(folder / JOINT_MODEL if found else folder)
            return cls(joint, joint)
        if found == {SRC_MODEL, TGT_MODEL}:
            return cls(Tokenizer.load(folder / SRC_MODEL), Tokenizer.load(folder / TGT_MODEL))
        wanted = f"either {JOINT_MODEL} or {SRC_MODEL} and {TGT_MODEL}"
        raise ModelFileError(f"{folder} needs {wanted}, but contains {' and '.join(sorted(found)) or 'none of them'}")

    def save(self, folder: str | Path) -> None:
        """Write them into `folder`, which is created if needed, and delete other tokenizers there."""
        folder = Path(folder)
        files = {JOINT_MODEL: self.src} if self.joint else {SRC_MODEL: self.src, TGT_MODEL: self.tgt}
        for name, tokenizer in files.items():
            tokenizer.save(folder / name)
        for name in {JOINT_MODEL, SRC_MODEL, TGT_MODEL} - files.keys():
            (folder / name).unlink(missing_ok=True)


def train_tokenizers(pairs: Iterable[tuple[str, str]], config: TokenizerConfig) -> Tokenizers:
    """Learn the vocabularies of both sides from (source, target) pairs, which are read once."""
    if config.joint:
        joint = Tokenizer.train((line for pair in pairs for line in pair), config)
        return Tokenizers(joint, joint)
    samples = {"source": _Reservoir(config), "target": _Reservoir(config)}
    for pair in pairs:
        for sample, line in zip(samples.values(), pair, strict=True):
            sample.add(line)
    trained = []
    for side, sample in samples.items():
        try:
            trained.append(Tokenizer(_train(sample.lines, config)))
        except (ConfigError, DataError) as error:
            raise type(error)(f"{side} side: {error}") from None
    return Tokenizers(*trained)


class _Reservoir:
    """A uniform sample of lines in bounded memory (reservoir sampling)."""

    def __init__(self, config: TokenizerConfig) -> None:
        self.lines: list[str] = []
        self._limit = config.max_sentences
        self._seen = 0
        self._random = random.Random(config.seed)  # noqa: S311 - no secret

    def add(self, text: str) -> None:
        """Add a text, cut into lines that sentencepiece can learn from."""
        for part in _CUT.split(_without_surrogates(text)):
            for start in range(0, len(part), _LONGEST_LINE):
                line = part[start : start + _LONGEST_LINE]
                if len(self.lines) < self._limit:
                    self.lines.append(line)
                elif (place := self._random.randrange(self._seen + 1)) < self._limit:
                    self.lines[place] = line
                self._seen += 1


def _train(lines: list[str], config: TokenizerConfig) -> bytes:
    # Each line once: sentencepiece takes quadratic time for repeated passages.
    lines = list(dict.fromkeys(lines))
    if not any(map(str.strip, lines)):
        raise DataError("no text to learn a vocabulary from")
    file = io.BytesIO()
    specials: dict[str, Any] = {f"{name}_id": token for name, token in SPECIAL.items()}
    specials |= {f"{name}_piece": PIECES[token] for name, token in SPECIAL.items()}
    try:
        SentencePieceTrainer.train(
            sentence_iterator=iter(_without_rare(lines, config.character_coverage)),
            model_writer=file,
            model_type=config.model,
            vocab_size=config.vocab_size,
            **specials,
            unk_surface=_LOST,
            byte_fallback=True,
            character_coverage=1.0,  # of what is left
            normalization_rule_name={"none": "identity", "nfkc": "nfkc"}[config.normalise],
            remove_extra_whitespaces=False,
            allow_whitespace_only_pieces=True,
            split_digits=config.split_digits,
            num_threads=_THREADS,
            minloglevel=_ONLY_ERRORS,
        )
    except RuntimeError as error:
        raise ConfigError(_explain(str(error), config)) from None
    return file.getvalue()


def _without_rare(lines: list[str], coverage: float) -> list[str]:
    """Cut lines at characters that are too rare for an id; sentencepiece would drop even the space."""
    counts: Counter[str] = Counter()
    for line in lines:
        counts.update(line)
    covered, enough = 0, coverage * counts.total()
    rare = []
    for character, count in counts.most_common():
        if covered >= enough and not character.isascii():
            rare.append(character)
        covered += count
    if not rare:
        return lines
    cut = re.compile(f"[{re.escape(''.join(rare))}]")
    return [part for line in lines for part in cut.split(line) if part]


def _explain(fault: str, config: TokenizerConfig) -> str:
    """Return why sentencepiece could not learn, and what to change."""
    if most := re.search(r"Vocabulary size too high \(\d+\)\. Please set it to a value <= (\d+)", fault):
        return f"vocab_size={config.vocab_size}: the text suffices for {most[1]}; use at most that, or more text"
    if least := re.search(r"smaller than required_chars\. \d+ vs (\d+)", fault):
        remedy = f"use at least that, or lower character_coverage={config.character_coverage}"
        return f"vocab_size={config.vocab_size}: special ids, bytes and single characters take {least[1]}; {remedy}"
    return f"sentencepiece cannot learn from this text: {' '.join(fault.split())}"


def _read(model_bytes: bytes, where: str) -> SentencePieceProcessor:
    processor = SentencePieceProcessor()
    try:
        processor.load_from_serialized_proto(model_bytes)
        normaliser = SentencePieceNormalizer(model_proto=model_bytes).serialized_normalizer_spec()
    except (RuntimeError, UnicodeDecodeError):  # the latter if its error message quotes broken bytes
        raise ModelFileError(f"{where} is not a sentencepiece model, or incomplete; copy or train it again") from None
    if not normaliser.startswith((b"\n", b"\x12")):  # its name or its rules; it comes last in the file
        raise ModelFileError(f"{where} is a truncated sentencepiece model; copy or train it again")
    return processor


def _without_surrogates(text: str) -> str:
    try:
        text.encode()
    except UnicodeEncodeError:
        return _SURROGATE.sub(_LOST, text)
    return text
