"""Noise and joining: what they change, and what they never touch."""

from __future__ import annotations

import re
import unicodedata
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from glassformer.config import NoiseConfig, ReaderConfig
from glassformer.data.augment import (
    N_DRAWS,
    add_noise,
    drop_accents,
    drop_stop,
    join_texts,
    mask,
    rename,
    respace,
    runs,
    swap_apostrophes,
)
from glassformer.errors import ConfigError
from glassformer.text.vocab import PLACEHOLDERS

KINDS = list(NoiseConfig.model_fields)
TEXTS = st.text(st.characters(exclude_categories=["Cs", "Cc"]), min_size=1).filter(str.strip)
DRAWS = st.lists(st.floats(0, 1, exclude_max=True), min_size=N_DRAWS, max_size=N_DRAWS)
SENTENCE = "L'été, où est Œdipe ? Ici : là-bas."


def always(*kinds: str) -> NoiseConfig:
    return NoiseConfig.parse(dict.fromkeys(kinds, 1.0), "test")


@given(TEXTS, DRAWS)
def test_noise_is_off_by_default(text: str, draws: list[float]) -> None:
    assert not NoiseConfig().is_on
    assert add_noise(text, draws, NoiseConfig()) == text


@given(TEXTS, DRAWS, st.sets(st.sampled_from(KINDS)).filter(lambda kinds: not {"lower", "upper"} <= kinds))
def test_noise_leaves_a_text(text: str, draws: list[float], kinds: set[str]) -> None:
    """A pair is never lost to noise, and what is drawn decides alone."""
    noisy = add_noise(text, draws, always(*kinds))
    assert noisy.strip()
    assert noisy == add_noise(text, draws, always(*kinds))


@pytest.mark.parametrize(
    ("kind", "noisy"),
    [
        ("no_stop", "L'été, où est Œdipe ? Ici : là-bas"),
        ("lower", "l'été, où est œdipe ? ici : là-bas."),
        ("upper", "L'ÉTÉ, OÙ EST ŒDIPE ? ICI : LÀ-BAS."),
        ("apostrophes", "L’été, où est Œdipe ? Ici : là-bas."),
        ("spaces", "L'été, où est Œdipe? Ici: là-bas."),
        ("no_accents", "L'ete, ou est OEdipe ? Ici : la-bas."),
    ],
)
def test_each_kind(kind: str, noisy: str) -> None:
    assert add_noise(SENTENCE, [0.0] * N_DRAWS, always(kind)) == noisy


@pytest.mark.parametrize("kind", KINDS)
def test_a_probability_is_how_often(kind: str) -> None:
    noise = NoiseConfig.parse({kind: 0.3}, "test")
    draws = np.random.default_rng(0).random((4000, N_DRAWS))
    changed = sum(add_noise(SENTENCE, row, noise) != SENTENCE for row in draws) / len(draws)
    expected = 0.3 * (3 / 4 if kind == "spaces" else 1)  # one of the four spaces is the one that is there
    assert changed == pytest.approx(expected, abs=0.03)


def test_a_sentence_has_one_case() -> None:
    noise = NoiseConfig(lower=0.5, upper=0.5)
    draws = np.random.default_rng(0).random((100, N_DRAWS))
    assert {add_noise("Ab", row, noise) for row in draws} == {"ab", "AB"}
    with pytest.raises(ConfigError, match=r"^test: lower=0\.6 and upper=0\.5 exclude each other"):
        NoiseConfig.parse({"lower": 0.6, "upper": 0.5}, "test")


@pytest.mark.parametrize(("name", "value"), [("lower", 1.1), ("spaces", -0.1), ("no_stop", float("nan"))])
def test_probabilities_have_limits(name: str, value: Any) -> None:
    with pytest.raises(ConfigError, match=f"^test: {name}="):
        NoiseConfig.parse({name: value}, "test")


def test_all_spaces_come_up() -> None:
    texts = {add_noise("Où ?", [0, 0, 0, draw, 0], always("spaces")) for draw in (0.1, 0.3, 0.6, 0.9)}
    assert texts == {"Où?", "Où ?", "Où\u00a0?", "Où\u202f?"}


@pytest.mark.parametrize("text", ["À 10:30", "http://a.b?c", "?", "; a", "a :-)", "Quoi ... ?"])
def test_spaces_move_only_before_a_mark_that_ends_a_word(text: str) -> None:
    assert respace(text, "") == text


@given(TEXTS, st.sampled_from(["", " ", "\u00a0", "\u202f"]))
def test_spaces_settle(text: str, space: str) -> None:
    once = respace(text, space)
    assert respace(once, space) == once
    assert [c for c in once if not c.isspace()] == [c for c in text if not c.isspace()]


@pytest.mark.parametrize(
    ("text", "without"),
    [("Oui.", "Oui"), ("Oui .", "Oui"), ("Oui. ", "Oui"), ("好。", "好"), ("हाँ।", "हाँ")]
    + [(text, text) for text in ("Oui...", "Oui…", "Oui ?", "Oui !", ".", "a. b")],
)
def test_only_a_full_stop_is_left_out(text: str, without: str) -> None:
    assert drop_stop(text) == without


@given(TEXTS)
def test_apostrophes_swap_back(text: str) -> None:
    assert swap_apostrophes(swap_apostrophes(text)) == text


@given(TEXTS)
def test_accents_are_gone_for_good(text: str) -> None:
    plain = drop_accents(text)
    assert drop_accents(plain) == plain
    assert drop_accents(unicodedata.normalize("NFD", text)) == plain


@given(st.text(st.characters(codec="ascii"), min_size=1))
def test_plain_letters_have_no_accents_to_lose(text: str) -> None:
    assert drop_accents(text) == text


@pytest.mark.parametrize("text", ["йод", "が", "हिन्दी", "สวัสดี", "שָׁלוֹם", "한국어"])
def test_other_scripts_keep_their_marks(text: str) -> None:
    assert drop_accents(text) == unicodedata.normalize("NFC", text)


@given(st.lists(TEXTS.map(str.strip), min_size=1))
def test_joined_texts_are_all_there(texts: list[str]) -> None:
    joined = join_texts(texts)
    assert joined.replace(" ", "") == "".join(texts).replace(" ", "")
    assert len(joined) <= sum(map(len, texts)) + len(texts) - 1


def test_a_script_without_spaces_is_joined_without() -> None:
    assert join_texts(["Oui.", "Non."]) == "Oui. Non."
    assert join_texts(["你好。", "再见。"]) == "你好。再见。"


@given(st.lists(st.booleans()))
def test_runs_cover_everything_once(glued: list[bool]) -> None:
    found = runs(np.array(glued, bool))
    assert [row for run in found for row in run] == list(range(len(glued)))
    assert all(glued[row] for run in found for row in run[1:])
    assert not any(glued[run[0]] for run in found[1:])


@pytest.mark.parametrize(
    ("src", "tgt"),
    [
        ("Tom a 30 ans.", "Tom is 30 years old."),
        ("D'où vient Marie ? De Paris.", "Where is Marie from? From Paris."),
        ("Tom et Tom", "Tom and Tom"),
    ],
)
def test_shared_names_and_numbers_are_replaced_alike(src: str, tgt: str) -> None:
    for draw in (0.0, 0.1, 0.25):
        new_src, new_tgt = rename(src, tgt, draw)
        shared = {"Tom", "30", "Marie", "Paris"} & {*re.findall(r"\w+", src)}
        assert not shared & {*re.findall(r"\w+", f"{new_src} {new_tgt}")}
        old, new = (re.findall(r"\w+", text) for text in (f"{src} {tgt}", f"{new_src} {new_tgt}"))
        names = {a: b for a, b in zip(old, new, strict=True) if a != b}
        assert names.keys() == shared
        assert [names.get(word, word) for word in old] == new  # the same one everywhere
        assert all(value.isdecimal() == name.isdecimal() for name, value in names.items())
        assert rename(src, tgt, draw) == (new_src, new_tgt)
    assert len({rename(src, tgt, draw) for draw in (0.0, 0.1, 0.25)}) == 3


def test_what_only_one_side_has_is_no_name() -> None:
    assert rename("Londres est grande.", "London is big.", 0.5) == ("Londres est grande.", "London is big.")
    assert rename("la 5e rue", "5th street", 0.5) == ("la 5e rue", "5th street")


SHARED = (
    "Voir https://example.org/ab?c=1 ou écrire à Marie (m@example.org) avant 2019, <b>merci</b> %s {nom}",
    "See https://example.org/ab?c=1 or write to Marie (m@example.org) before 2019, <b>thanks</b> %s {nom}",
)
KEPT = ("https://example.org/ab?c=1", "Marie", "m@example.org", "2019", "<b>", "</b>", "%s", "{nom}")


def symbols(text: str) -> list[str]:
    return [character for character in text if character in PLACEHOLDERS]


@given(st.floats(0, 1))
def test_both_sides_get_the_same_placeholders(draw: float) -> None:
    src, tgt = mask(*SHARED, draw)
    assert sorted(symbols(src)) == sorted(symbols(tgt))
    assert symbols(src), "something is masked whenever there is something to mask"
    assert len(set(symbols(src))) == len(symbols(src)), "each symbol stands for one thing"
    for text, before in ((src, SHARED[0]), (tgt, SHARED[1])):
        plain = "".join(character for character in text if character not in PLACEHOLDERS)
        missing = [word for word in KEPT if word not in text]
        assert len(plain.split()) >= len(before.split()) - len(missing)
    assert mask(*SHARED, draw) == (src, tgt)


def test_every_kind_is_masked_and_wrapped() -> None:
    masked, wrapped = set[str](), set[str]()
    for number in range(3000):
        text = mask(*SHARED, number / 3000)[0]
        masked |= {word for word in KEPT if word not in text}
        wrapped |= {word for word in KEPT if re.search(f"[\ue000-\ue00b]{re.escape(word)}[\ue000-\ue00b]", text)}
    assert masked == set(KEPT)
    assert wrapped == set(KEPT)


def test_what_is_there_twice_or_on_one_side_stays() -> None:
    for number in range(50):
        src, tgt = mask("Tom voit Tom et le chat", "Tom sees Tom and the chat", number / 50)
        assert (src.count("Tom"), tgt.count("Tom")) == (2, 2)
        assert "chat" in src
        assert len(symbols(src)) == len(symbols(tgt)) == 1, "alone, before or after the text"


def test_a_pair_is_renamed_or_masked() -> None:
    with pytest.raises(ConfigError, match=r"rename=0\.7 and mask=0\.5 exclude each other"):
        ReaderConfig(rename=0.7, mask=0.5)
    assert ReaderConfig(mask=0.1).is_random
