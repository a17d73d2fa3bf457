"""Text to ids and back: nothing lost, nothing unknown, and other people's models too."""

from __future__ import annotations

import io
import pickle
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sentencepiece import SentencePieceNormalizer, SentencePieceProcessor, SentencePieceTrainer

from glassformer.config import TokenizerConfig
from glassformer.errors import ConfigError, DataError, ModelFileError
from glassformer.text.tokenizer import JOINT_MODEL, SRC_MODEL, TGT_MODEL, Tokenizer, Tokenizers, train_tokenizers
from glassformer.text.vocab import BOS, EOS, PAD, UNK

MODELS = ("unigram", "bpe")
SMALL = 420
SPECIAL = {PAD: "<pad>", UNK: "<unk>", BOS: "<s>", EOS: "</s>"}

# Everything that has a meaning somewhere in the machinery, and ordinary words between.
TROUBLE = [
    *" \t\n\r\0\v\x1f\x7f\x85\xa0▁▅\u2028\u3000\u200b\u200d\u200e\u202e\ufeff\ufffd\ufffe\ufdd0\ue000\U0010ffff",
    *"é\u0301\u0327ﬁ½Å日本😀🏳️‍🌈",
    "<pad>", "<unk>", "<s>", "</s>", "<0x41>", "<0xE2>", "▁▁", "  ", "the", " cat", "Été", "1984", "&amp;",
]  # fmt: skip
CHARACTERS = st.characters(exclude_categories=["Cs"])  # a lone surrogate is none
TEXTS = st.one_of(st.text(), st.lists(st.one_of(st.sampled_from(TROUBLE), CHARACTERS), max_size=20).map("".join))


def sentences(number: int, seed: int = 0) -> list[str]:
    """Make up sentences in a language of few syllables."""
    dice = random.Random(seed)
    syllables = ["ba", "de", "lo", "mi", "ran", "sté", "tu", "vok", "zi", "œx"]
    words = ["".join(dice.choices(syllables, k=dice.randint(1, 4))) for _ in range(300)]
    return [
        " ".join(dice.choices(words, k=dice.randint(2, 9))).capitalize() + dice.choice(".!?") for _ in range(number)
    ]


LINES = sentences(400)


def settings(**changes: Any) -> TokenizerConfig:
    return TokenizerConfig(**{"vocab_size": SMALL, **changes})


@pytest.fixture(scope="module", params=MODELS)
def ours(request: pytest.FixtureRequest) -> Tokenizer:
    return Tokenizer.train(LINES, settings(model=request.param))


@pytest.fixture(scope="module")
def folding() -> Tokenizer:
    return Tokenizer.train(LINES, settings(normalise="nfkc"))


def foreign_model(lines: list[str] = LINES, **options: Any) -> bytes:
    """Train as somebody else would, with sentencepiece's own defaults."""
    file = io.BytesIO()
    defaults: dict[str, Any] = {"vocab_size": 200, "model_type": "unigram", "minloglevel": 2, "hard_vocab_limit": False}
    SentencePieceTrainer.train(sentence_iterator=iter(lines), model_writer=file, **defaults | options)
    return file.getvalue()


class TestWithoutLoss:
    @given(text=TEXTS)
    def test_a_text_comes_back_as_it_was(self, ours: Tokenizer, text: str) -> None:
        ids = ours.encode(text)
        assert ours.decode(ids) == text
        assert all(EOS < token < ours.vocab_size for token in ids), "nothing is unknown, and nothing turns special"

    @pytest.mark.parametrize("text", [*TROUBLE, "", "▁", "▁ ▁", " ▁x", "x▁ ", "<s>▁</s>", "a" * 10_000, "▁" * 1000])
    def test_trouble_comes_back_as_it_was(self, ours: Tokenizer, text: str) -> None:
        for surrounded in (text, f"{text}x", f"x{text}", f" {text} ", text + text):
            ids = ours.encode(surrounded)
            assert ours.decode(ids) == surrounded
            assert all(token > EOS for token in ids)

    @given(text=TEXTS)
    def test_nfkc_is_sentencepieces(self, folding: Tokenizer, text: str) -> None:
        assert folding.decode(folding.encode(text)) == SentencePieceNormalizer(rule_name="nfkc").normalize(text)

    def test_nothing_is_normalised_unless_asked(self, ours: Tokenizer, folding: Tokenizer) -> None:
        text = "ﬁve  Ⅷ ｆｕｌｌ e\u0301 "
        assert ours.decode(ours.encode(text)) == text
        assert folding.decode(folding.encode(text)) == "five  VIII full é "

    @given(st.lists(st.one_of(TEXTS, st.sampled_from(LINES)), max_size=16))  # few ones, and many at once
    def test_a_batch_is_its_texts(self, ours: Tokenizer, texts: list[str]) -> None:
        assert ours.encode_batch(texts) == [ours.encode(text) for text in texts]

    @pytest.mark.parametrize("text", ["\ud800", "a\udfffb ▁\udc00", "\udc00\ud800"])
    def test_a_lone_surrogate_is_read_as_a_lost_character(self, ours: Tokenizer, text: str) -> None:
        clean = "".join("\ufffd" if "\ud800" <= c <= "\udfff" else c for c in text)
        assert ours.encode(text) == ours.encode(clean)
        assert ours.encode_batch([text]) == [ours.encode(clean)]
        assert ours.sample(text, 0.5, seed=1) == ours.sample(clean, 0.5, seed=1)
        assert ours.spans(text) == ours.spans(clean)
        assert ours.decode(ours.encode(text)) == clean


class TestIds:
    def test_special_ids_are_ours(self, ours: Tokenizer) -> None:
        assert ours.pieces(range(4)) == list(SPECIAL.values())
        assert ours.vocab_size == SMALL
        assert ours.theirs == tuple(range(SMALL))
        assert len(set(ours.pieces(range(SMALL)))) == SMALL

    @given(text=TEXTS, noise=st.lists(st.tuples(st.integers(0, 50), st.sampled_from([PAD, BOS, EOS]))))
    def test_special_ids_say_nothing(self, ours: Tokenizer, text: str, noise: list[tuple[int, int]]) -> None:
        ids = ours.encode(text)
        for place, token in noise:
            ids.insert(place, token)
        assert ours.decode(ids) == text

    def test_what_is_lost_is_seen(self, ours: Tokenizer) -> None:
        """A model may choose any id: UNK, and bytes that are no character."""
        (byte,) = (token for token in range(SMALL) if ours.pieces([token]) == ["<0xE2>"])
        assert ours.decode([UNK]) == ours.decode([byte]) == "\ufffd"
        assert ours.decode([byte, UNK, byte, byte]) == "\ufffd" * 4

    @pytest.mark.parametrize("wrong", [-1, SMALL, 10**9])
    def test_an_id_that_is_none(self, ours: Tokenizer, wrong: int) -> None:
        for read in (ours.decode, ours.pieces, ours.decode_spans):
            with pytest.raises(IndexError, match=f"^id {wrong} is not in this vocabulary of {SMALL}$"):
                read([5, wrong])

    def test_digits_stand_alone_unless_told_not_to(self) -> None:
        lines = [f"{line} In 1984." for line in LINES]
        for split in (True, False):
            tokenizer = Tokenizer.train(lines, settings(model="bpe", split_digits=split))
            pieces = tokenizer.pieces(tokenizer.encode("1984"))
            assert (pieces == ["▁", "1", "9", "8", "4"]) == split

    def test_ascii_has_ids_of_its_own_however_rare(self) -> None:
        tokenizer = Tokenizer.train([*LINES, "~ & é ÿ"], settings(character_coverage=0.99))
        assert tokenizer.pieces(tokenizer.encode("~ &ÿ")) == ["▁", "~", "▁", "&", "<0xC3>", "<0xBF>"]


class TestSpans:
    @given(text=TEXTS)
    def test_a_piece_is_what_stands_there(self, ours: Tokenizer, text: str) -> None:
        spans, pieces = ours.spans(text), ours.pieces(ours.encode(text))
        assert len(spans) == len(pieces)
        covered = 0
        for number, ((begin, end), piece) in enumerate(zip(spans, pieces, strict=True)):
            here = text[begin:end]
            if piece.startswith("<0x"):
                assert len(here) == 1
                assert int(piece[3:5], 16) in here.encode()
            else:
                there = piece.replace("▁", " ")
                assert here == there or (number == 0 and here == there.removeprefix(" "))
            assert begin <= covered <= end
            covered = end
        assert covered == len(text)

    @given(text=TEXTS)
    def test_spans_of_a_text_and_of_its_ids_agree(self, ours: Tokenizer, text: str) -> None:
        assert ours.decode_spans(ours.encode(text)) == ours.spans(text)

    @given(ids=st.lists(st.integers(0, SMALL - 1), max_size=20))
    def test_any_ids_have_spans(self, ours: Tokenizer, ids: list[int]) -> None:
        text, spans = ours.decode(ids), ours.decode_spans(ids)
        assert len(spans) == len(ids)
        covered = 0
        for token, (begin, end) in zip(ids, spans, strict=True):
            assert begin <= covered <= end
            assert token not in (PAD, BOS, EOS) or begin == end
            covered = end
        assert covered == len(text)

    @given(text=TEXTS)
    def test_spans_of_a_normalised_text_cover_it(self, folding: Tokenizer, text: str) -> None:
        spans = folding.spans(text)
        assert len(spans) == len(folding.encode(text))
        assert all(0 <= begin <= end <= len(text) for begin, end in spans)
        assert {i for begin, end in spans for i in range(begin, end)} == set(range(len(text)))

    def test_parts_of_a_character_stand_for_all_of_it(self, folding: Tokenizer) -> None:
        text = "b½e\u0301日"
        pieces, spans = folding.pieces(folding.encode(text)), folding.spans(text)
        fraction = ["<0x31>", "<0xE2>", "<0x81>", "<0x84>", "<0x32>"]  # 1⁄2, no character of which has an id
        assert pieces[-9:] == [*fraction, "é", "<0xE6>", "<0x97>", "<0xA5>"]
        assert spans[-9:] == [(1, 2)] * 5 + [(2, 4)] + [(4, 5)] * 3


class TestSampling:
    @given(text=TEXTS, alpha=st.sampled_from([0.1, 0.5, 1.0]), seed=st.integers(0, 2**70))
    def test_a_sample_says_the_same(self, ours: Tokenizer, text: str, alpha: float, seed: int) -> None:
        ids = ours.sample(text, alpha, seed)
        assert ours.decode(ids) == text
        assert all(token > EOS for token in ids)

    def test_it_depends_on_the_seed_alone(self, ours: Tokenizer) -> None:
        first = [ours.sample_batch(LINES[:20], 0.2, seed) for seed in (1, 2, 2**32 - 1)]
        again = [Tokenizer(ours.model_bytes).sample_batch(LINES[:20], 0.2, seed) for seed in (1, 2, 2**32 - 1)]
        assert first == again
        assert first[0] != first[1] != first[2]

    def test_another_process_draws_the_same(self, ours: Tokenizer, tmp_path: Path) -> None:
        ours.save(tmp_path / "tokenizer.model")
        code = "import sys; from glassformer.text.tokenizer import Tokenizer; "
        code += "print(Tokenizer.load(sys.argv[1]).sample_batch(sys.argv[2:], 0.2, 7))"
        command = [sys.executable, "-c", code, str(tmp_path / "tokenizer.model"), *LINES[:5]]
        said = {subprocess.run(command, capture_output=True, text=True, check=True).stdout for _ in range(2)}
        assert said == {f"{ours.sample_batch(LINES[:5], 0.2, 7)}\n"}

    def test_texts_of_a_batch_are_sampled_apart(self, ours: Tokenizer) -> None:
        assert len({tuple(ids) for ids in ours.sample_batch([LINES[0]] * 20, 0.2, seed=5)}) > 1

    def test_the_likelier_the_likelier(self) -> None:
        """The higher the power, the more of the probability has the best segmentation; at 0 all are alike."""
        unigram = Tokenizer.train(LINES, settings())
        assert unigram.sample_batch(LINES[:50], 1000.0, seed=1) == unigram.encode_batch(LINES[:50])
        lengths = [sum(map(len, unigram.sample_batch(LINES, alpha, seed=1))) for alpha in (0.0, 0.2, 1.0, 1000.0)]
        assert lengths == sorted(lengths, reverse=True)

    def test_without_dropout_merging_is_the_best_way(self) -> None:
        bpe = Tokenizer.train(LINES, settings(model="bpe"))
        assert bpe.sample_batch([*LINES, *TROUBLE], 0.0, seed=1) == bpe.encode_batch([*LINES, *TROUBLE])

    def test_with_full_dropout_nothing_is_merged(self) -> None:
        bpe = Tokenizer.train(LINES, settings(model="bpe"))
        word = LINES[0].split()[0]
        assert len(bpe.sample(word, 1.0, seed=1)) == len(word) + 1  # the space in front

    def test_a_long_text_without_spaces_takes_no_longer_than_a_short_one_many_times(self, ours: Tokenizer) -> None:
        text = "".join(LINES).replace(" ", "")
        assert len(text) > 10_000
        assert ours.decode(ours.sample(text, 0.1, seed=1)) == text


class TestTraining:
    @pytest.mark.parametrize("model", MODELS)
    def test_the_same_lines_give_the_same_bytes(self, ours: Tokenizer, model: str) -> None:
        first = Tokenizer.train(iter(LINES), settings(model=model))
        assert Tokenizer.train(LINES, settings(model=model)) == first
        assert Tokenizer.train(LINES, settings(model=model, vocab_size=SMALL - 1)) != first

    def test_too_many_lines_are_sampled_and_the_seed_chooses(self) -> None:
        few = settings(vocab_size=350, max_sentences=100)
        assert Tokenizer.train(LINES, few) == Tokenizer.train(LINES, few)
        assert Tokenizer.train(LINES, few) != Tokenizer.train(LINES, few.model_copy(update={"seed": 1}))
        enough = settings(max_sentences=len(LINES))
        assert Tokenizer.train(LINES, enough) == Tokenizer.train(LINES, enough.model_copy(update={"seed": 1}))

    @pytest.mark.parametrize("model", MODELS)
    def test_it_is_quiet(self, model: str, capfd: pytest.CaptureFixture[str]) -> None:
        Tokenizer.train(LINES, settings(model=model))
        with pytest.raises(ConfigError):
            Tokenizer.train(LINES, settings(model=model, vocab_size=9999))
        with pytest.raises(ModelFileError):
            Tokenizer(b"nonsense")
        assert capfd.readouterr() == ("", "")

    @pytest.mark.parametrize("model", MODELS)
    @pytest.mark.parametrize("size", [262, 9999])
    def test_a_size_that_does_not_fit_the_text_comes_with_one_that_does(self, model: str, size: int) -> None:
        with pytest.raises(ConfigError, match=rf"^vocab_size={size}: .*\d+; use at (?:most|least) that, or ") as caught:
            Tokenizer.train(LINES, settings(model=model, vocab_size=size))
        assert "\n" not in str(caught.value)
        advised = int(str(caught.value).split("; use at")[0].split()[-1])
        assert Tokenizer.train(LINES, settings(model=model, vocab_size=advised)).vocab_size == advised

    @pytest.mark.parametrize("lines", [[], [""], ["\n", "\t▁"], ["  ", "\u3000"]])
    def test_there_must_be_text(self, lines: list[str]) -> None:
        with pytest.raises(DataError, match=r"^no text to learn a vocabulary from$"):
            Tokenizer.train(lines, settings())

    @pytest.mark.parametrize("model", MODELS)
    @pytest.mark.parametrize(
        "line",
        [
            "{}" + " Kkwq" * 1500,
            "{}" + "Kkwq" * 1500,
            "{} Kkwq ▅",
            "▁{} Kkwq\tKkwq\nKkwq\r\n",
            "{} Kkwq\0Kkwq",
            "\ud800{} Kkwq \ufffe\ufdd0",
            "<s>{} Kkwq</s><0x41><unk><pad>",
        ],
        ids=range(7),
    )
    def test_no_line_is_left_out(self, model: str, line: str) -> None:
        """sentencepiece leaves out long lines and some others, and says nothing."""
        lines = [line.format(other) for other in LINES[: 60 if len(line) < 99 else 1]]
        tokenizer = Tokenizer.train([*LINES, *lines], settings(model=model))
        assert any("Kkwq" in piece for piece in tokenizer.pieces(range(SMALL)))
        ids = tokenizer.encode(line)
        assert tokenizer.decode(ids) == line.replace("\ud800", "\ufffd")
        assert min(ids) > EOS

    @pytest.mark.parametrize("model", MODELS)
    def test_a_line_counts_once(self, model: str) -> None:
        """Twenty times the same text would keep sentencepiece busy for minutes, a thousand times for weeks."""
        config = settings(model=model)
        assert Tokenizer.train([*LINES * 20, "end"], config) == Tokenizer.train([*LINES, "end"], config)

    @pytest.mark.parametrize("model", MODELS)
    def test_a_text_without_spaces_keeps_those_it_is_given(self, model: str) -> None:
        """The space has an id even where it is rarer than the characters that coverage drops."""
        dice = random.Random(0)
        lines = ["".join(dice.choices("日本語文字", k=1000)) for _ in range(20)]
        tokenizer = Tokenizer.train(lines, settings(model=model, vocab_size=300, character_coverage=0.9))
        assert tokenizer.decode(tokenizer.encode(" 日 本 ")) == " 日 本 "
        assert "▁" in tokenizer.pieces(range(300))

    @pytest.mark.parametrize(
        ("name", "value"),
        [
            ("model", "word"),
            ("vocab_size", 260),
            ("vocab_size", 10**9),
            ("normalise", "nfc"),
            ("character_coverage", 0.5),
            ("character_coverage", 1.1),
            ("max_sentences", 0),
            ("seed", -1),
        ],
    )
    def test_settings_have_limits(self, name: str, value: object) -> None:
        with pytest.raises(ConfigError, match=f"^here: {name}="):
            TokenizerConfig.parse({name: value}, "here")


FOREIGN: dict[str, dict[str, Any]] = {
    "sentencepiece's defaults, like XLM and mBART": {},
    "T5": {"pad_id": 0, "eos_id": 1, "unk_id": 2, "bos_id": -1},
    "Marian": {"eos_id": 0, "unk_id": 1, "bos_id": -1, "pad_id": -1},
    "Llama": {"model_type": "bpe", "byte_fallback": True, "vocab_size": 460, "normalization_rule_name": "identity"}
    | {"remove_extra_whitespaces": False, "unk_id": 0, "bos_id": 1, "eos_id": 2, "pad_id": -1},
    "ours, in another order": {"byte_fallback": True, "vocab_size": 460, "eos_id": 0, "bos_id": 1, "pad_id": 2}
    | {"unk_id": 3, "normalization_rule_name": "identity", "remove_extra_whitespaces": False},
    "special ids at the end": {"unk_id": 199, "bos_id": 198, "eos_id": 197, "pad_id": 196, "hard_vocab_limit": True},
    "symbols": {"user_defined_symbols": ["<sep>", "<pad>"], "control_symbols": [">>fra<<"]},
    "no space in front": {"add_dummy_prefix": False},
    "space behind": {"treat_whitespace_as_suffix": True},
    "characters": {"model_type": "char"},
    "words": {"model_type": "word"},
}


@pytest.fixture(scope="module")
def llama() -> Tokenizer:
    return Tokenizer(foreign_model(**FOREIGN["Llama"]))


@pytest.fixture(scope="module", params=FOREIGN)
def foreign(request: pytest.FixtureRequest) -> Tokenizer:
    return Tokenizer(foreign_model(**FOREIGN[request.param]))


class TestOtherPeoplesModels:
    def test_special_ids_become_ours_and_the_others_follow(self, foreign: Tokenizer) -> None:
        tokenizer, theirs = foreign, SentencePieceProcessor(model_proto=foreign.model_bytes)
        specials = (theirs.pad_id(), theirs.unk_id(), theirs.bos_id(), theirs.eos_id())
        assert tokenizer.theirs[:4] == specials
        assert list(tokenizer.theirs[4:]) == [i for i in range(len(theirs)) if i not in specials]
        assert tokenizer.vocab_size == len(theirs) + specials.count(-1)
        assert tokenizer.pieces(range(4)) == list(SPECIAL.values())
        assert tokenizer.pieces(range(4, tokenizer.vocab_size)) == [theirs.id_to_piece(i) for i in tokenizer.theirs[4:]]

    @given(text=TEXTS.filter(lambda text: "▁" not in text))
    def test_it_reads_and_writes_as_they_do(self, foreign: Tokenizer, text: str) -> None:
        tokenizer, theirs = foreign, SentencePieceProcessor(model_proto=foreign.model_bytes)
        ids = tokenizer.encode(text)
        assert [tokenizer.theirs[token] for token in ids] == theirs.encode(text)
        assert not {PAD, BOS, EOS} & set(ids)
        assert tokenizer.decode(ids) == theirs.decode(theirs.encode(text))
        assert tokenizer.decode([BOS, *ids, EOS, PAD]) == tokenizer.decode(ids)
        assert tokenizer.encode_batch([text, "▁", text]) == [ids, tokenizer.encode("▁"), ids]

    @given(text=TEXTS, seed=st.integers(0, 99))
    def test_a_sample_says_what_the_best_way_says(self, foreign: Tokenizer, text: str, seed: int) -> None:
        assert foreign.decode(foreign.sample(text, 0.3, seed)) == foreign.decode(foreign.encode(text))

    @given(text=TEXTS)
    def test_spans_lie_in_the_text(self, foreign: Tokenizer, text: str) -> None:
        tokenizer = foreign
        ids = tokenizer.encode(text)
        for spans, length in (
            (tokenizer.spans(text), len(text)),
            (tokenizer.decode_spans(ids), len(tokenizer.decode(ids))),
        ):
            assert len(spans) == len(ids)
            assert all(0 <= begin <= end <= length for begin, end in spans)
            assert spans == sorted(spans)

    @pytest.mark.parametrize("model", MODELS)
    def test_symbols_stay_whole(self, model: str) -> None:
        tokenizer = Tokenizer(foreign_model(model_type=model, user_defined_symbols=["<sep>"]))
        (symbol,) = (token for token in range(tokenizer.vocab_size) if tokenizer.pieces([token]) == ["<sep>"])
        text = f"{LINES[0]}<sep>{LINES[1]}"
        for ids in (tokenizer.encode(text), *(tokenizer.sample(text, 0.5, seed) for seed in range(20))):
            assert ids.count(symbol) == 1

    def test_without_bytes_a_character_may_be_unknown(self) -> None:
        tokenizer = Tokenizer(foreign_model())
        assert not tokenizer.has_bytes
        assert UNK in tokenizer.encode("日")

    @given(text=TEXTS)
    def test_with_bytes_nothing_is_lost(self, llama: Tokenizer, text: str) -> None:
        assert llama.has_bytes
        assert llama.decode(llama.encode(text)) == text


class TestFiles:
    def test_it_is_a_value(self, ours: Tokenizer, folding: Tokenizer, tmp_path: Path) -> None:
        path = tmp_path / "new" / "any.model"
        ours.save(path)
        copies = [Tokenizer.load(path), Tokenizer.load(str(path)), pickle.loads(pickle.dumps(ours))]
        copies.append(Tokenizer(ours.model_bytes))
        for copy in copies:
            assert copy == ours
            assert hash(copy) == hash(ours)
            assert copy.sha256 == ours.sha256
            assert copy.encode(LINES[0]) == ours.encode(LINES[0])
        assert ours != folding
        assert ours != ours.model_bytes
        assert [file.name for file in path.parent.iterdir()] == ["any.model"]
        assert f"vocab_size={SMALL}" in repr(ours)

    def test_a_model_that_is_none(self, ours: Tokenizer, tmp_path: Path) -> None:
        def fault(path: Path) -> str:
            with pytest.raises(ModelFileError) as caught:
                Tokenizer.load(path)
            assert "\n" not in str(caught.value)
            return str(caught.value)

        path = tmp_path / "x.model"
        assert fault(path) == f"{path}: no such tokenizer; train one first"
        assert fault(tmp_path) == f"{tmp_path} cannot be read: Is a directory"
        damaged = ours.model_bytes.replace(b"<0x41>", b"<0x\xe41>")
        nonsense = (b"", b"\0" * 100, b"text\n" * 100, b"PK\x03\x04" + bytes(range(256)), b"\n\x02\n\x00")
        for content in (*nonsense, damaged):
            path.write_bytes(content)
            assert fault(path).startswith(f"{path} is not a sentencepiece model, or incomplete; ")

    def test_a_model_cut_short_is_never_taken_for_a_whole_one(self, llama: Tokenizer) -> None:
        for model in (llama.model_bytes, foreign_model(normalization_rule_name="identity")):
            for length in range(len(model)):
                with pytest.raises(ModelFileError, match=r"^tokenizer is .*; copy or train it again$"):
                    Tokenizer(model[:length])

    def test_a_place_that_cannot_be_written(self, ours: Tokenizer, tmp_path: Path) -> None:
        (tmp_path / "file").touch()
        with pytest.raises(ModelFileError, match=r"x\.model cannot be written: "):
            ours.save(tmp_path / "file" / "x.model")


class TestBothSides:
    PAIRS = tuple(zip(LINES, sentences(len(LINES), seed=1), strict=True))

    def test_a_joint_vocabulary_is_one(self, tmp_path: Path) -> None:
        both = train_tokenizers(iter(self.PAIRS), settings())
        assert both.joint
        assert both.src is both.tgt
        assert both.src == Tokenizer.train([line for pair in self.PAIRS for line in pair], settings())
        both.save(tmp_path / "model")
        assert [path.name for path in (tmp_path / "model").iterdir()] == [JOINT_MODEL]
        loaded = Tokenizers.load(tmp_path / "model")
        assert loaded == both
        assert loaded.src is loaded.tgt

    def test_separate_vocabularies_are_two(self, tmp_path: Path) -> None:
        config = settings(joint=False)
        both = train_tokenizers(iter(self.PAIRS), config)
        assert not both.joint
        for tokenizer, lines in zip(both, zip(*self.PAIRS, strict=True), strict=True):
            assert tokenizer == Tokenizer.train(lines, config)
        both.save(tmp_path)
        assert {path.name for path in tmp_path.iterdir()} == {SRC_MODEL, TGT_MODEL}
        assert Tokenizers.load(tmp_path) == both

    def test_saving_leaves_no_others_behind(self, ours: Tokenizer, folding: Tokenizer, tmp_path: Path) -> None:
        for both in (Tokenizers(ours, folding), Tokenizers(ours, ours), Tokenizers(folding, ours)):
            both.save(tmp_path)
            assert Tokenizers.load(tmp_path) == both

    @pytest.mark.parametrize(
        ("there", "said"),
        [
            ([], "none of them"),
            ([SRC_MODEL], SRC_MODEL),
            ([JOINT_MODEL, TGT_MODEL], f"{JOINT_MODEL} and {TGT_MODEL}"),
        ],
    )
    def test_a_folder_without_or_with_too_many(
        self, ours: Tokenizer, tmp_path: Path, there: list[str], said: str
    ) -> None:
        for name in there:
            ours.save(tmp_path / name)
        with pytest.raises(ModelFileError) as caught:
            Tokenizers.load(tmp_path)
        wanted = f"either {JOINT_MODEL} or {SRC_MODEL} and {TGT_MODEL}"
        assert str(caught.value) == f"{tmp_path} needs {wanted}, but contains {said}"

    def test_a_fault_of_one_side_names_it(self) -> None:
        config = settings(joint=False, vocab_size=SMALL)
        with pytest.raises(DataError, match=r"^target side: no text"):
            train_tokenizers([(line, "") for line in LINES], config)
        with pytest.raises(ConfigError, match=r"^source side: vocab_size="):
            train_tokenizers([("ab", line) for line in LINES], config)
