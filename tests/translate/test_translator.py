"""The Translator: texts come back whole and in order, whatever they are and however long."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from itertools import islice, pairwise
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from glassformer.config import SearchConfig, TranslateOptions
from glassformer.errors import ConfigError, ModelFileError
from glassformer.store.folder import About, save_model
from glassformer.text.vocab import EOS
from glassformer.translate.engines.engine import IdHypothesis, Request, Source
from glassformer.translate.engines.torch import TorchEngine
from glassformer.translate.retries import is_loop
from glassformer.translate.translator import Keywords, Translator
from tests.models import build
from tests.translate.fakes import Answer, FakeEngine, echo, tokenizers

HOSTILE = st.text("aM1. ,;!?…«»\"'\n\r\t\x0b\x85\0\u00a0\u2028\u3000。\u200b\ufeff\u0301😀", max_size=80)
TEXT = "Un chien court. Le chat dort !\n\n  La souris mange, et le chien court dans la rue.  "


def fake(answer: Answer = echo, **settings: object) -> Translator:
    return Translator(FakeEngine(answer), tokenizers(), About(src_lang="fr"), **settings)  # type: ignore[arg-type]


def asked(translator: Translator) -> list[tuple[list[Source], Request]]:
    assert isinstance(translator._engines.first, FakeEngine)
    return translator._engines.first.asked


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("model")
    size = tokenizers().src.vocab_size
    model = build(dtype=torch.float32, src_vocab=size, tgt_vocab=size, max_positions=40)
    fingerprints = tuple(tokenizer.sha256 for tokenizer in tokenizers())
    save_model(model, path, About(src_lang="fr", tgt_lang="en", tokenizer_sha256=fingerprints))
    tokenizers().save(path)
    return path


@given(st.one_of(HOSTILE, st.text(max_size=80)), st.sampled_from([7, 20, 200]))
def test_an_echo_gives_every_text_back(text: str, max_length: int) -> None:
    """White space, line breaks and sentences that are too long: all of it is put back."""
    assert fake(search=SearchConfig(max_length=max_length)).translate(text) == text


def test_texts_keep_their_type_and_order() -> None:
    texts = [f"Le chat {number}. Il dort.\n" for number in range(50)]
    translator = fake()
    assert translator.translate(texts[0]) == texts[0]
    assert translator.translate(texts) == texts
    stream = translator.translate(iter(texts))
    assert isinstance(stream, Iterator)
    assert list(stream) == texts


def test_an_engine_that_is_thread_safe_gets_shares_of_similar_length() -> None:
    texts = [f"{'chat ' * (1 + number % 7)}{number}" for number in range(300)]
    engine = FakeEngine(is_thread_safe=True)
    assert Translator(engine, tokenizers()).translate(texts) == texts
    sizes = [sorted(len(source.tokens) for source in sources) for sources, _ in engine.asked]
    assert sum(map(len, sizes)) == len(texts)
    assert len(sizes) == 4
    sizes.sort()
    assert all(a[-1] <= b[0] + 4 for a, b in pairwise(sizes))  # by characters, so almost in order
    few = FakeEngine(is_thread_safe=True)
    Translator(few, tokenizers()).translate(texts[:100])
    assert len(few.asked) == 1


def test_what_may_go_to_another_engine_is_not_shared() -> None:
    """A loop is searched once more: where the engine cannot, another does, and only one thread at a time."""
    engine = FakeEngine(cannot=lambda request: "that" if request.search.no_repeat_ngram else None, is_thread_safe=True)
    Translator(engine, tokenizers(), fallback=FakeEngine).translate(["chat"] * 300)
    assert len(engine.asked) == 1


def test_a_stream_is_read_as_it_is_needed() -> None:
    def endless() -> Iterator[str]:
        number = 0
        while True:
            yield f"chat {number}"
            number += 1

    assert list(islice(fake().translate(endless()), 10)) == [f"chat {number}" for number in range(10)]


@pytest.mark.parametrize("text", ["", " ", "\n", " \t\u2028\x85 "])
def test_nothing_stays_nothing(text: str) -> None:
    translator = fake()
    found = translator.results(text)
    assert (found.text, found.sentences, found.ended, found.looped) == (text, (), True, False)
    assert asked(translator) == []


def test_several_sentences_are_translated_one_by_one() -> None:
    translator = fake()
    found = translator.results(TEXT)
    sentences = [TEXT[slice(*sentence.src_span)] for sentence in found.sentences]
    assert sentences == [
        "Un chien court.",
        "Le chat dort !",
        "La souris mange, et le chien court dans la rue.",
    ]
    ((sources, _),) = asked(translator)
    assert [tokenizers().src.decode(source.tokens) for source in sources] == sentences


def test_no_source_is_longer_than_the_limit() -> None:
    translator = fake(max_positions=12)
    text = "le chien court dans la rue, et le chat mange la souris; " * 20
    assert translator.translate(text) == text
    lengths = [len(source.tokens) for sources, _ in asked(translator) for source in sources]
    assert max(lengths) < 12
    assert all(request.search.max_length <= 12 for _, request in asked(translator))


def test_what_is_cut_off_is_cut_in_two_and_translated_again() -> None:
    """A translation twice as long as its source: none of it is lost at the length limit."""

    def twice(source: Source, request: Request) -> list[IdHypothesis]:
        return echo(Source([token for token in source.tokens for _ in "12"]), request)

    text = "le chien court dans la rue et le chat mange la souris et il dort"
    n_tokens = len(tokenizers().src.encode(text))
    translator = fake(twice, search=SearchConfig(max_length=n_tokens + 2))
    found = translator.results(text)
    assert found.ended
    assert len(found.sentences) > 1
    assert sum(sentence.hypotheses[0].n_tokens - 1 for sentence in found.sentences) >= 2 * n_tokens - 4


def test_the_shortest_limit_leaves_something() -> None:
    found = fake(search=SearchConfig(max_length=1)).results("le chat")
    assert not found.ended
    assert len(found.sentences) == len("lechat")  # each character by itself, and none can be cut in two


def test_details_are_where_they_say() -> None:
    found = fake().results(TEXT, token_probabilities=True, attention=True, n_best=3)
    for sentence in found.sentences:
        for token, piece in zip(sentence.tokens, sentence.src_tokens, strict=True):
            assert token.piece == piece.piece
            assert found.text[slice(*token.span)] == TEXT[slice(*piece.span)]
            assert token.probability == pytest.approx(0.904837)
        assert "".join(found.text[slice(*token.span)] for token in sentence.tokens) == found.text[slice(*sentence.span)]
        assert sentence.attention is not None
        assert sentence.attention.shape == (len(sentence.tokens), len(sentence.src_tokens))
    assert len(found.sentences[0].hypotheses) == 3
    assert found.n_best == (TEXT,) * 3
    assert found.log_prob == pytest.approx(-0.1 * (len(found.tokens) + len(found.sentences)))
    assert found.confidence == pytest.approx(0.904837)


def test_n_best_widens_the_search() -> None:
    translator = fake(search=SearchConfig(width=2, groups=2))
    translator.results("chat", n_best=3)
    ((_, request),) = asked(translator)
    assert (request.n_best, request.search.width) == (3, 4)


def test_capitals_are_read_as_lower_case_where_the_model_says_so() -> None:
    read: list[str] = []

    def note(source: Source, request: Request) -> list[IdHypothesis]:
        read.append(tokenizers().src.decode(source.tokens))
        return echo(source, request)

    def translator(lower: bool) -> Translator:
        return Translator(FakeEngine(note), tokenizers(), About(src_lang="fr", lower_capitals=lower))

    texts = ["LE CHAT DORT.", "Le CHAT dort.", "OTAN", "A 1"]
    translator(True).translate(texts)
    assert sorted(read) == sorted(["le chat dort.", *texts[1:]])
    read.clear()
    translator(False).translate(texts)
    assert sorted(read) == sorted(texts)
    found = translator(True).results("LE CHAT DORT.")
    assert found.src == "LE CHAT DORT."


def test_a_prefix_begins_the_text_only() -> None:
    translator = fake()
    assert translator.translate("Un chien court. Il dort.", prefix="Oh ") == "Oh Un chien court. Il dort."
    with pytest.raises(ConfigError, match="leaves no room"):
        translator.translate("chat", prefix="chien " * 300)


def test_required_words_go_to_the_engine_once_a_text() -> None:
    translator = fake(max_positions=12)
    text = "Le chien court dans la rue. Il dort, et le chat mange la souris. "
    assert translator.translate(text, require=["cat"]) == text
    required = [request.required for _, request in asked(translator)]
    assert [words for words in required if words] == [(tuple(tokenizers().tgt.encode("cat")),)]


def test_a_required_word_that_is_missing_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    assert fake().translate("chat", require=["dog"]) == "chat"
    assert ["dog" in message for message in caplog.messages] == [True]


def spelt(*ways: list[str]) -> Answer:
    """Answer with the first way to spell that holds no suppressed sequence."""
    pieces = {tokenizers().tgt.pieces([token])[0]: token for token in range(tokenizers().tgt.vocab_size)}

    def answer(source: Source, request: Request) -> list[IdHypothesis]:
        for way in ways:
            tokens = [pieces[piece] for piece in way]
            held = {tuple(tokens[start:end]) for start in range(len(tokens)) for end in range(start, len(tokens) + 1)}
            if not held & set(request.suppressed):
                return [IdHypothesis(tokens, -1.0, -1.0, True)]
        return []

    return answer


def test_a_suppressed_word_is_found_however_it_is_spelt() -> None:
    ways = (
        ["▁the", "▁c", "a", "t"],
        ["▁the", "▁", "c", "a", "t"],
        ["▁the", "▁", "<0x63>", "a", "t"],
        ["▁the", "▁do", "g"],
    )
    known = set(tokenizers().tgt.pieces(range(tokenizers().tgt.vocab_size)))
    possible = [way for way in ways if set(way) <= known]
    assert len(possible) >= 3
    translator = fake(spelt(*possible))
    assert translator.translate("x") == "the cat"
    assert translator.translate("x", suppress=["cat"]) == "the dog"
    assert translator.translate("x", suppress=["at"]) == "the cat"  # a word is not a part of one


def test_suppressed_words_are_words() -> None:
    for words in ({"suppress": [" "]}, {"require": [""]}, {"suppress": ["a"], "require": ["a"]}):
        with pytest.raises(ConfigError):
            fake().translate("chat", **words)  # type: ignore[call-overload]


def test_a_loop_is_decoded_once_more_and_flagged() -> None:
    def circle(source: Source, request: Request) -> list[IdHypothesis]:
        if request.search.no_repeat_ngram:
            return echo(source, request)
        return [IdHypothesis([300, 301, 302] * 20, -1.0, -1.0, False)]

    found = fake(circle).results(TEXT)
    assert (found.text, found.looped) == (TEXT, True)


def test_a_loop_of_the_source_is_none() -> None:
    text = "chat chien " * 30
    found = fake().results(text)
    assert (found.text, found.looped) == (text, False)


def test_a_random_model_that_loops_is_mended() -> None:
    """Random weights say the same thing for ever, and a real search with the rule against it does not."""
    size = tokenizers().src.vocab_size
    model = build(3, torch.float32, src_vocab=size, tgt_vocab=size, max_positions=64)
    with torch.no_grad():
        model.output.weight[EOS] = 0  # so that it does not end at once
    search = SearchConfig(max_length=40)
    engine = TorchEngine([model])
    sources = [Source(tokenizers().src.encode(text)) for text in ("Le chat dort.", "Un chien court.", "Il est noir.")]
    plain = [found[0].tokens for _, found in sorted(engine.translate(sources, Request(search)))]
    loops = [is_loop(tokens, source.tokens) for tokens, source in zip(plain, sources, strict=True)]
    assert any(loops)
    translator = Translator(engine, tokenizers(), search=search, max_positions=64)
    results = translator.results(["Le chat dort.", "Un chien court.", "Il est noir."], token_probabilities=True)
    assert [found.looped for found in results] == loops
    for found in results:
        pieces = [token.piece for token in found.tokens]
        ngrams = list(zip(pieces, pieces[1:], pieces[2:], strict=False))
        assert not found.looped or len(ngrams) == len(set(ngrams))


def test_mbr_takes_the_draw_that_others_agree_with() -> None:
    draws = ["a black cat", "the dog", "the dog", "the dog", "mouse"]

    def draw(source: Source, request: Request) -> list[IdHypothesis]:
        assert (request.search.method, request.n_best) == ("mbr", 5)
        return [IdHypothesis(tokenizers().tgt.encode(text), -1.0, -1.0, True) for text in draws]

    found = fake(draw).results("x", search=SearchConfig(method="mbr", width=5), n_best=2)
    assert found.text == "the dog"
    assert len(found.sentences[0].hypotheses) == 2
    assert found.score > 50


def test_what_an_engine_refuses_goes_to_the_other_with_one_remark(caplog: pytest.LogCaptureFixture) -> None:
    first = FakeEngine(cannot=lambda request: "required words" if request.required else None)
    second = FakeEngine()
    translator = Translator(first, tokenizers(), fallback=lambda: second)
    with translator:
        translator.translate("chat")
        for _ in range(3):
            translator.translate("chat", require=["chat"])
    assert (len(first.asked), len(second.asked)) == (1, 3)
    assert caplog.messages == ["fake does not support required words; falling back to fake"]
    assert first.closed
    assert second.closed
    with pytest.raises(ConfigError, match="required words"):
        Translator(first, tokenizers()).translate("chat", require=["dog"])


def test_a_folder_translates(folder: Path) -> None:
    with Translator.load(folder, engine="torch", search=SearchConfig(width=2)) as translator:
        assert translator.engine == "torch"
        texts = [TEXT, "", "chien " * 100]
        assert translator.translate(texts) == [translator.translate(text) for text in texts]


def test_auto_is_ctranslate2_where_it_can(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    texts = [TEXT, "", "chien " * 100, "Il est noir."]
    search = SearchConfig(width=2, max_length=20)
    with (
        Translator.load(folder, search=search, threads=1) as fast,
        Translator.load(folder, engine="torch", search=search) as plain,
    ):
        assert fast.engine == "ctranslate2"
        assert [record for record in caplog.records if record.levelno > logging.INFO] == []
        # Random weights loop, and what loops is searched by torch in both.
        assert fast.translate(texts) == plain.translate(texts)
        assert fast.translate("chat", require=["dog"]) == plain.translate("chat", require=["dog"])
        assert "ctranslate2 does not support required words; falling back to torch" in caplog.messages


def test_one_that_is_closed_or_of_another_process_says_so(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with Translator.load(folder, engine="torch") as translator:
        translator.translate("chat")
        monkeypatch.setattr(os, "getpid", lambda: -1)  # as after a fork, in which its threads would be missing
        with pytest.raises(ConfigError, match="load one in each process"):
            translator.translate("chat")
        monkeypatch.undo()
        translator.translate("chat")
    with pytest.raises(ConfigError, match="is closed"):
        translator.translate("chat")


def test_keywords_override_options(folder: Path) -> None:
    translator, options = fake(), TranslateOptions(prefix="Oh", n_best=2)
    assert translator.translate("Il dort.", options) == "Oh Il dort."
    assert translator.translate("Il dort.", options, prefix="Ah") == "Ah Il dort."
    found = translator.results(["Il dort."], options, n_best=3)
    assert [len(one.n_best) for one in found] == [3]
    with pytest.raises(ConfigError, match="unknown setting sufix; did you mean prefix"):
        translator.translate("x", sufix="y")  # type: ignore[call-overload]
    assert Keywords.__annotations__.keys() == TranslateOptions.model_fields.keys()
    with pytest.deprecated_call(match="logger"):
        Translator.load(folder, engine="torch", say=print).close()


def test_what_makes_no_sense_is_refused(folder: Path) -> None:
    with Translator.load([folder, folder], engine="torch") as translator:
        with pytest.raises(ConfigError, match="expected a text, a list of texts or an iterator of texts"):
            translator.translate(5)  # type: ignore[call-overload]
        with pytest.raises(ConfigError, match="n_best=0"):
            translator.results("chat", n_best=0)
        with pytest.raises(ConfigError, match="load one model"):
            translator.explain("chat")
        with pytest.raises(ConfigError, match="min_length"):
            SearchConfig.parse({"min_length": 9, "max_length": 9}, "search")


def test_auto_is_torch_where_ctranslate2_cannot(tmp_path: Path, folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    size = tokenizers().src.vocab_size
    save_model(build(dtype=torch.float32, src_vocab=size, tgt_vocab=size, norm="none"), tmp_path)
    tokenizers().save(tmp_path)
    for model in (tmp_path, [folder, folder]):
        caplog.clear()
        with Translator.load(model) as translator:
            assert translator.engine == "torch"
        assert [message.startswith("CTranslate2 cannot run this model (") for message in caplog.messages] == [True]
        with pytest.raises(ConfigError, match="CTranslate2 cannot run this model"):
            Translator.load(model, engine="ctranslate2")


def test_several_folders_translate_together(folder: Path) -> None:
    one, both = (Translator.load(model, engine="torch") for model in (folder, [folder, folder]))
    assert one.translate(TEXT) == both.translate(TEXT)


def test_a_wrong_vocabulary_is_a_mistake(folder: Path, tmp_path: Path) -> None:
    size = tokenizers().src.vocab_size
    model = build(dtype=torch.float32, src_vocab=size, tgt_vocab=size)
    save_model(model, tmp_path, About(tokenizer_sha256=("0" * 64, "0" * 64)))
    tokenizers().save(tmp_path)
    with pytest.raises(ModelFileError, match="not the one that the model was trained with"):
        Translator.load(tmp_path, engine="torch")
    save_model(build(dtype=torch.float32), tmp_path)
    with pytest.raises(ModelFileError, match="do not belong together"):
        Translator.load(tmp_path, engine="torch")


def test_an_unknown_name_is_a_mistake() -> None:
    with pytest.raises(ModelFileError, match="no model of that name"):
        Translator.load("opus-fr-en")
    with pytest.raises(ConfigError, match="name a model folder"):
        Translator.load([])
