"""The data doctor: each check finds what was planted and leaves clean pairs alone; nothing is lost on the way."""

from __future__ import annotations

import gzip
import json
import os
import random
import subprocess
import sys
import time
import tracemalloc
from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from glassformer.config import CorpusConfig, DoctorConfig
from glassformer.data.checks import (
    REMOVED_BY_DEFAULT,
    Finding,
    Kind,
    check_control,
    check_copy,
    check_length,
    check_markup,
    check_mojibake,
    check_numbers,
    check_odd_spaces,
    check_placeholders,
    check_ratio,
    check_wordless,
    normal_form,
)
from glassformer.data.clean import CleanCorpus
from glassformer.data.doctor import Diagnosis, examine, what_to_remove
from glassformer.data.fingerprints import Fingerprints, fingerprint
from glassformer.data.formats import Faults, open_corpus
from glassformer.data.languages import MIN_PAIRS
from glassformer.data.lengths import Shape
from glassformer.errors import DataError, UsageError

Texts = tuple[str, str]

FRENCH = {
    "le": "the", "la": "the", "un": "a", "chat": "cat", "chien": "dog", "maison": "house", "jardin": "garden",
    "mange": "eats", "regarde": "watches", "cherche": "seeks", "trouve": "finds", "oublie": "forgets", "rouge": "red",
    "petit": "small", "vieux": "old", "tranquille": "quiet", "demain": "tomorrow", "souvent": "often", "dans": "in",
    "sous": "under", "devant": "before", "avec": "with", "pomme": "apple", "fromage": "cheese", "voiture": "car",
    "boulanger": "baker", "voisine": "neighbour", "écolier": "pupil", "fenêtre": "window", "rivière": "river",
}  # fmt: skip
SENTENCE = ("le", "A", "N", "V", "la", "N", "P", "un", "A", "N", "et", "demain", "V", "N", "P", "la", "N")
CHOICES = {
    "N": (
        "chat",
        "chien",
        "maison",
        "jardin",
        "pomme",
        "fromage",
        "voiture",
        "boulanger",
        "voisine",
        "écolier",
        "fenêtre",
    ),
    "V": ("mange", "regarde", "cherche", "trouve", "oublie"),
    "A": ("rouge", "petit", "vieux", "tranquille"),
    "P": ("dans", "sous", "devant", "avec"),
}


def sentence(rng: random.Random) -> Texts:
    """Make a French sentence and its English word by word: one that nobody would say, and that no check minds."""
    words = [rng.choice(CHOICES[word]) if word in CHOICES else word for word in SENTENCE]
    return " ".join(words).capitalize() + ".", " ".join(FRENCH.get(word, "and") for word in words).capitalize() + "."


def sentences(n: int, seed: int = 0) -> list[Texts]:
    rng = random.Random(seed)
    pairs: dict[str, Texts] = {}
    while len(pairs) < n:
        pair = sentence(rng)
        pairs[normal_form(pair[0])] = pair
    return list(pairs.values())


def write(path: Path, pairs: Iterable[Texts]) -> CorpusConfig:
    path.write_text("".join(f"{src}\t{tgt}\n" for src, tgt in pairs), encoding="utf-8", newline="\n")
    return CorpusConfig(path=path)


def found(diagnosis: Diagnosis) -> dict[str, int]:
    return {str(kind): n for kind, n in diagnosis.counts.items() if n}


CLEAN: list[Texts] = [
    ("Il fait 30 °C à 15 h 30.", "It is 30 °C at 3:30 pm."),
    ("Prix : 1 234,50 €", "Price: €1,234.50"),
    ("Ouvrez <b>%s</b> avec {name} ou ${HOME}.", "Open <b>%s</b> with {name} or ${HOME}."),
    ("50 % des cas, 100 % sûr", "50% of cases, 100% sure"),
    ("Le fichier <fichier> est lu.", "The file <file> is read."),
    ("Si a < b et b > c, alors stop.", "If a < b and b > c, then stop."),
    ("DÉJÀ VU… « CAFÉ » — L’ÉTÉ’S", "ALREADY SEEN… “CAFÉ” — L’ÉTÉ’S"),
    ("Ä–Ö: «GRÜẞE» und Å", "Ä–Ö: “Greetings” and Å"),
    ("Le produit x⋅y vaut 2⋅3 = 6, ou x ⋅ y.", "The product x⋅y is 2⋅3 = 6, or x ⋅ y."),
    ("R&D, AT&T; et C&A", "R&D, AT&T; and C&A"),
    ("Trois fichiers", "3 files"),
    ("Il a 3 chats.", "He has three cats."),
    ("हिन्दी में लिखा", "written in Hindi"),
    ("日本語の文です。", "A sentence in Japanese."),
    ("שלום\u200f עולם, می\u200cخواهم", "Hello\u00ad world, I want"),
    ("Oui", "Yes, of course"),
    ("Imprimer la page", "Print page"),
]


@pytest.mark.parametrize(("src", "tgt"), CLEAN)
@pytest.mark.parametrize(
    "check",
    [
        check_control,
        check_markup,
        check_mojibake,
        check_numbers,
        check_odd_spaces,
        check_placeholders,
        check_wordless,
        lambda src, tgt: check_ratio(src, tgt, 1.0, DoctorConfig()),
        lambda src, tgt: check_length(src, tgt, DoctorConfig()),
        lambda src, tgt: check_copy((normal_form(src), normal_form(tgt)), DoctorConfig()),
    ],
)
def test_clean_pairs_pass(check: Callable[[str, str], Finding | None], src: str, tgt: str) -> None:
    finding = check(src, tgt)
    allowed = {("Il fait 30 °C à 15 h 30.", Kind.NUMBERS)}  # 15 h is 3 pm, and only people know
    assert finding is None or (src, finding.kind) in allowed


@pytest.mark.parametrize(
    ("text", "detail"),
    [
        ("Il peut Ãªtre supprimÃ©.", "Ãªtre for être, supprimÃ©. for supprimé."),
        ("l\u2019Ã©tÃ© dernier", "l’Ã©tÃ© for l’été"),
        ("C'est Ã\u00a0 moi", "Ã for à"),
        ("sâ€™agit", "sâ€™agit for s’agit"),
        ("sâ\u0080\u0099agit", "sâ\\x80\\x99agit for s’agit"),
        ("du cÅ“ur", "cÅ“ur for cœur"),
        ("10Â €", None),
        ("suivantsÂ :", "suivantsÂ for suivants"),
        ("„Ich vergaß“, sagte er.", None),
        ("Ð¿Ñ€Ð¸Ð²ÐµÑ‚", "Ð¿Ñ€Ð¸Ð²ÐµÑ‚ for привет"),
        ("a \ufffd b", "1 × \ufffd"),
    ],
)
@pytest.mark.parametrize("side", [0, 1])
def test_mojibake(text: str, detail: str | None, side: int) -> None:
    finding = check_mojibake(*((text, "fine") if side == 0 else ("fine", text)))
    assert (finding and finding.detail) == detail


@given(st.text(st.characters(min_codepoint=0xE0, max_codepoint=0xFF), min_size=1))
def test_letters_that_were_read_as_latin_1_are_found(letters: str) -> None:
    assert check_mojibake(letters.encode().decode("latin-1"), "fine") is not None
    assert check_mojibake("x", letters) is None or len(letters) > 1


@pytest.mark.parametrize(
    "character", ["\x19", "\x00", "\r", "\x7f", "\x85", "\u2028", "\ufeff", "\ue000", "\uffff", "\U0010fffd"]
)
def test_control_characters(character: str) -> None:
    finding = check_control("a", f"b{character}c{character}")
    assert finding == Finding(Kind.CONTROL, f"U+{ord(character):04X}", 2)


@pytest.mark.parametrize("text", ["gérées⋅: oui", "–⋅paquet", "«⋅mot⋅»", "GTK+⋅est", "Qt⋅5 est", "un␣mot", "64⋅bits"])
def test_odd_spaces(text: str) -> None:
    assert check_odd_spaces(text, "fine") is not None


@pytest.mark.parametrize(
    ("src", "tgt", "detail"),
    [
        ("%s", "text", "%s only in source"),
        ("text", "%d files", "%d only in target"),
        ("%s and %s", "%s", "%s only in source"),
        ("%1$s", "%2$s", "%1$s only in source, %2$s only in target"),
        ("%(name)s", "%(nom)s", "%(name)s only in source, %(nom)s only in target"),
        ("{name}", "{nom}", "{name} only in source, {nom} only in target"),
        ("{0} {1}", "{1}", "{0} only in source"),
        ("${HOME}", "$HOME", "${HOME} only in source"),
        ("{{ count }}", "count", "{{ count }} only in source"),
        ("%{path}", "path", "%{path} only in source"),
        ("%APPDATA%", "AppData", "%APPDATA% only in source"),
        ("%-5.2f %lu", "%-5.2f", "%lu only in source"),
    ],
)
def test_placeholders(src: str, tgt: str, detail: str) -> None:
    assert check_placeholders(src, tgt) == Finding(Kind.PLACEHOLDER, detail, detail.count("only"))
    assert check_placeholders(src, src) is None


@pytest.mark.parametrize(
    ("src", "tgt", "detail"),
    [
        ("<b>mot</b>", "word", "<b> </b> only in source"),
        ("<b>mot</b>", "<b>word<b>", "</b> only in source, <b> only in target"),
        ("<b>mot</b>", "<i>word</i>", "<b> </b> only in source, <i> </i> only in target"),
        ("<a href='x'>mot</a>", "<a>word</a>", None),
        ("un<br/>mot", "a<br>word", None),
        ("<g id='1'>mot</g>", "word", "<g> </g> only in source"),
        ("<b><i>mot</b></i>", "<b><i>word</i></b>", "unbalanced </b> <b>"),
        ("</b>mot<b>", "</b>word<b>", None),
        ("&eacute;t&eacute;", "summer", "&eacute; &eacute; only in source"),
        ("A &amp; B", "A &amp; B", None),
        ("ltEntréegt", "Enter", "ltEntréegt: remains of <...>"),
    ],
)
def test_markup(src: str, tgt: str, detail: str | None) -> None:
    finding = check_markup(src, tgt)
    assert (finding and finding.detail) == detail


@pytest.mark.parametrize(
    ("src", "tgt", "detail"),
    [
        ("en 1998", "in 1989", None),  # the digits agree, and their order is not looked at
        ("en 1998", "in 1997", "1998 only in source, 1997 only in target"),
        ("10 000", "10000", None),
        ("1,5 et 2", "1.5 and 2", None),
        ("2 chats", "3 cats", "2 only in source, 3 only in target"),
        ("quinze", "15", "15 only in target"),
        ("deux", "2", None),
        ("٣ قطط", "3 cats", None),
    ],
)
def test_numbers(src: str, tgt: str, detail: str | None) -> None:
    finding = check_numbers(src, tgt)
    assert (finding and finding.detail) == detail


def test_lengths_and_ratios() -> None:
    config = DoctorConfig(max_length=100, max_ratio=2.0)
    assert check_length("a" * 100, "b" * 100, config) is None
    assert check_length("a", "b" * 101, config) == Finding(Kind.LENGTH, "101 characters", 101)
    assert check_ratio("a" * 80, "b" * 40, 1.0, config) is None
    assert check_ratio("a" * 81, "b" * 40, 1.0, config) == Finding(
        Kind.RATIO, "source 2.0 times longer than usual", 2.025
    )
    assert check_ratio("a" * 40, "b" * 90, 1.0, config) is not None
    assert check_ratio("a" * 40, "b" * 90, 0.5, config) is None, "usual for this corpus"
    assert check_ratio("a", "b" * 15, 1.0, config) is None, "too short to mean anything"


@pytest.mark.parametrize(
    ("src", "tgt", "kind"),
    [
        ("This was never translated.", "This was never translated!", Kind.COPY),
        ("THIS was never  translated", "This was never translated", Kind.COPY),
        ("Debian GNU Linux ;", "Debian GNU/Linux", Kind.SHORT_COPY),
        ("Un chat", "A cat", None),
        ("…", "!", None),
    ],
)
def test_copies(src: str, tgt: str, kind: Kind | None) -> None:
    finding = check_copy((normal_form(src), normal_form(tgt)), DoctorConfig())
    assert (finding and finding.kind) == kind


@pytest.mark.parametrize(("src", "tgt", "sides"), [("1234", "----", 2), ("a", "…", 1), ("١٢", "b", 1), ("字", "b", 0)])
def test_wordless(src: str, tgt: str, sides: int) -> None:
    finding = check_wordless(src, tgt)
    assert (finding.severity if finding else 0) == sides


@given(st.text(), st.text())
def test_checks_take_any_text(src: str, tgt: str) -> None:
    for check in (check_control, check_markup, check_mojibake, check_numbers, check_odd_spaces, check_placeholders):
        finding = check(src, tgt)
        assert finding is None or (finding.severity > 0 and "\n" not in finding.detail)
    assert check_placeholders(src, src) is check_numbers(src, src) is check_markup(src, src) is None


@pytest.mark.parametrize(
    "scrap",
    ["<a ", "<a", "{", "{{", "{a:", "%", "%(", "&a", "lt", "ltagt", "Ã", "é€", "⋅", "0", "a ", "\u0301", "% d", "</b>"],
)
def test_no_text_makes_a_check_slow(scrap: str) -> None:
    """What grows with the square of a text takes minutes here, and milliseconds else."""
    text = scrap * (200_000 // len(scrap))
    begun = time.process_time()
    for check in (check_control, check_markup, check_mojibake, check_numbers, check_odd_spaces, check_placeholders):
        check(text, "a")
    check_copy((normal_form(text), "a"), DoctorConfig())
    assert time.process_time() - begun < 5


@given(st.text(st.characters(max_codepoint=0x24F)))
def test_a_normal_form_is_its_own(text: str) -> None:
    form = normal_form(text)
    assert normal_form(form) == form == form.strip()
    assert "  " not in form
    assert normal_form(text.upper()) == normal_form(text.upper().lower())


def test_normal_forms() -> None:
    assert normal_form("  L’ÉTÉ, c'est_bien : № 5 !") == "l été c est bien no 5"
    assert normal_form("Straße ﬁn") == "strasse fin"
    assert normal_form("हिन्दी") == "हिन्दी"
    assert normal_form("—!?") == ""


class TestFingerprints:
    """A set in sorted arrays is a set."""

    @given(st.lists(st.lists(st.integers(-20, 20), min_size=1)))
    def test_it_is_a_set(self, batches: list[list[int]]) -> None:
        ours, theirs = Fingerprints(), set[int]()
        for batch in batches:
            expected = []
            for value in batch:
                expected.append(value in theirs)
                theirs.add(value)
            assert ours.add(np.array(batch, np.int64)).tolist() == expected
        assert len(ours) == len(theirs)
        probe = np.arange(-25, 25)
        assert ours.contains(probe).tolist() == [value in theirs for value in probe.tolist()]

    def test_it_takes_eight_bytes_each(self) -> None:
        prints = Fingerprints()
        rng = np.random.default_rng(0)
        for _ in range(100):
            prints.add(rng.integers(-(2**63), 2**63 - 1, 1000))
        assert prints.n_bytes == 8 * len(prints) == 8 * 100_000
        assert len(prints._runs) < 12

    def test_texts(self) -> None:
        one, two, again = fingerprint(["a", "b", "a"])
        assert one == again != two


class TestShape:
    """Histograms hold every pair once."""

    @given(st.lists(st.tuples(st.integers(1, 20_000), st.integers(1, 20_000)), min_size=1))
    def test_every_pair_is_in_a_bar(self, lengths: list[tuple[int, int]]) -> None:
        shape = Shape()
        for part in (lengths[: len(lengths) // 2], lengths[len(lengths) // 2 :]):
            if part:
                shape.add(np.array(part).T)
        source, target = shape.lengths()
        assert sum(source.counts) == sum(target.counts) == sum(shape.ratios().counts) == len(lengths)
        assert sum(map(sum, shape.joint())) == len(lengths)
        assert source.starts == target.starts
        assert len(source.starts) == len(source.counts) <= 20
        assert shape.longest(0) == max(length for length, _ in lengths)

    def test_bars(self) -> None:
        shape = Shape()
        shape.add(np.array([[5, 15, 15, 90], [10, 30, 15, 10]]))
        source, target = shape.lengths()
        assert source.starts[:3] == (0, 5, 10)
        assert source.counts[:4] == (0, 1, 0, 2)
        assert target.counts[2] == 2
        assert shape.quantile(0, 0.5) == 15
        ratios = dict(zip(*shape.ratios(), strict=True))
        assert (ratios[0.5], ratios[1.0], ratios[4.0]) == (2, 1, 1)


class TestLanguages:
    """A side in another language than usual is found, whatever the two languages are."""

    german = "der Hund ist nicht in dem Haus und das Kind war auf der alten Brücke"

    def test_planted_pairs_are_found_and_no_others(self, tmp_path: Path) -> None:
        pairs = sentences(3000)
        strangers = ("где же мой старый друг и что он там делает", "Where is my old friend and what does he do there?")
        planted: dict[int, tuple[Texts, Kind, str]] = {
            100: ((pairs[100][1], pairs[100][0]), Kind.SWAPPED, "each side"),
            200: ((pairs[7][1], pairs[200][1]), Kind.WRONG_LANGUAGE, "source looks like en, not fr"),
            300: ((pairs[300][0], pairs[8][0]), Kind.WRONG_LANGUAGE, "target looks like fr, not en"),
            400: ((self.german, pairs[400][1]), Kind.WRONG_LANGUAGE, "source looks like de, not fr"),
            500: (strangers, Kind.WRONG_LANGUAGE, "source looks like ru, not fr"),
        }
        for place, (texts, _, _) in planted.items():
            pairs[place] = texts
        diagnosis = examine([write(tmp_path / "a.tsv", pairs)])
        assert diagnosis.are_languages_judged
        assert found(diagnosis) == {"swapped": 1, "wrong-language": 4}
        shown = {e.pair.line - 1: e.finding for kind in diagnosis.examples for e in diagnosis.examples[kind]}
        for place, (_, kind, detail) in planted.items():
            assert shown[place].kind == kind
            assert shown[place].detail.startswith(detail)

    def test_a_tenth_of_the_pairs_may_be_swapped(self, tmp_path: Path) -> None:
        pairs = [(tgt, src) if i % 10 == 0 else (src, tgt) for i, (src, tgt) in enumerate(sentences(3000))]
        assert found(examine([write(tmp_path / "a.tsv", pairs)])) == {"swapped": 300}

    def test_names_that_both_sides_share_are_in_no_language(self, tmp_path: Path) -> None:
        pairs = sentences(2000)
        name = "The House of the Quiet Neighbour and the Old Baker with the Red Cheese"
        pairs[50] = (f"Le livre : {name}", f"The book: {name}")
        assert found(examine([write(tmp_path / "a.tsv", pairs)])) == {}

    def test_one_language_is_not_judged(self, tmp_path: Path) -> None:
        english = [tgt for _, tgt in sentences(4000)]
        diagnosis = examine([write(tmp_path / "a.tsv", zip(english[:2000], english[2000:], strict=True))])
        assert diagnosis.languages == "not judged: both sides look like en"
        assert not diagnosis.was_looked_for(Kind.SWAPPED)

    def test_a_mixture_of_languages_is_not_judged(self, tmp_path: Path) -> None:
        mixture = [text for pair in sentences(300) for text in (*pair, self.german)]
        diagnosis = examine([write(tmp_path / "a.tsv", pairwise(mixture))])
        assert diagnosis.languages == "not judged: the texts of a side are in no one language"

    def test_short_texts_are_not_judged(self, tmp_path: Path) -> None:
        pairs = [*sentences(200), ("the house", "la maison"), ("Das Haus", "House")]
        assert found(examine([write(tmp_path / "a.tsv", pairs)])) == {}

    def test_a_small_corpus_is_not_judged(self, tmp_path: Path) -> None:
        pairs = [(tgt, src) if i % 10 == 0 else (src, tgt) for i, (src, tgt) in enumerate(sentences(MIN_PAIRS - 1))]
        diagnosis = examine([write(tmp_path / "a.tsv", pairs)])
        assert diagnosis.languages == "not judged: fewer than 100 pairs"
        assert found(diagnosis) == {}


def plant(pairs: Sequence[Texts]) -> tuple[list[Texts], dict[str, int]]:
    """Put one or more of each kind of fault into a corpus, and say how many findings that makes."""
    spoiled = list(pairs)
    spoiled += [pairs[0], pairs[0]]
    spoiled += [(pairs[1][0].upper(), pairs[1][1] + "!")]
    spoiled += [("Voici l'année 1999.", "This is the year 1999."), ("Voici l'année 2001 !", "This is the year 2001!")]
    spoiled += [("Never translated at all", "Never translated at all"), ("Debian", "Debian")]
    spoiled += [("Le chÃ¢teau", "The castle"), ("Le\x19 chat noir", "The black cat"), ("Oui⋅!", "Yes!")]
    spoiled += [("<b>gras</b>", "bold"), ("%s fichiers", "files"), ("En 1917", "In 1918"), ("1234", "5678 !")]
    spoiled += [
        ("a" * 30 + " et " + "b" * 3000, "too long"),
        ("Oui, mais seulement après la fin des vacances d'été", "Yes"),
    ]
    return spoiled, {
        "duplicate": 2, "near-duplicate": 2, "copy": 1, "short-copy": 1, "mojibake": 1, "control": 1, "odd-space": 1,
        "markup": 1, "placeholder": 1, "numbers": 2, "wordless": 1, "length": 1, "ratio": 1,
    }  # fmt: skip


class TestExamination:
    """The whole, on a corpus with one of everything."""

    def test_each_kind_is_found_where_it_was_planted(self, tmp_path: Path) -> None:
        pairs, expected = plant(sentences(500))
        diagnosis = examine([write(tmp_path / "a.tsv", pairs)])
        assert found(diagnosis) == expected
        for kind, examples in diagnosis.examples.items():
            assert len(examples) == min(expected[kind], len({example.pair.src for example in examples}))
            for example in examples:
                assert (example.pair.src, example.pair.tgt) == pairs[example.pair.line - 1]
                assert example.pair.line > 500
        assert diagnosis.n_removed == sum(expected[kind] for kind in REMOVED_BY_DEFAULT if kind in expected)

    def test_a_clean_corpus_has_no_findings(self, tmp_path: Path) -> None:
        diagnosis = examine([write(tmp_path / "a.tsv", sentences(1500))])
        assert found(diagnosis) == {}
        assert diagnosis.n_kept == diagnosis.n_pairs == 1500
        assert 0.5 < diagnosis.usual_ratio < 2

    def test_the_worst_examples_come_first(self, tmp_path: Path) -> None:
        pairs = [*sentences(100), *(("x" * n, "y") for n in range(100, 130))]
        examples = examine([write(tmp_path / "a.tsv", pairs)]).examples[Kind.RATIO]
        assert [len(example.pair.src) for example in examples] == [129, 128, 127, 126, 125]

    def test_duplicates_across_files_and_batches(self, tmp_path: Path) -> None:
        pairs = sentences(3000)
        corpora = [write(tmp_path / f"{name}.tsv", pairs) for name in "ab"]
        diagnosis = examine(corpora)
        assert found(diagnosis) == {"duplicate": 3000}
        assert diagnosis.n_kept == 3000
        assert {example.pair.file for example in diagnosis.examples[Kind.DUPLICATE]} == {str(tmp_path / "b.tsv")}

    def test_overlap_with_dev_and_test(self, tmp_path: Path) -> None:
        pairs = sentences(100)
        dev = write(tmp_path / "dev.tsv", [(pairs[3][0].upper(), "Something else"), ("…", "!")])
        test = write(tmp_path / "test.tsv", [("Autre chose", pairs[5][1]), (pairs[7][0] + " !", pairs[7][1])])
        pairs += [("?!", "Only marks")]
        diagnosis = examine([write(tmp_path / "a.tsv", pairs)], [dev], [test])
        assert found(diagnosis) == {"overlap": 3, "wordless": 1}
        details = {e.pair.line: e.finding.detail for e in diagnosis.examples[Kind.OVERLAP]}
        assert details == {4: "source in dev", 6: "target in test", 8: "source and target in test"}
        assert diagnosis.was_looked_for(Kind.OVERLAP)
        assert not examine([write(tmp_path / "a.tsv", pairs)]).was_looked_for(Kind.OVERLAP)

    def test_weird_pairs_do_not_stop_it(self, tmp_path: Path) -> None:
        rng = random.Random(3)
        alphabet = "aé字\u0301\u200b⋅%s{}<b>/&;\x1b\ufffd0٣ßﬁ\U0001f600"
        pairs = [
            ("x" + "".join(rng.choices(alphabet, k=rng.randrange(60))), "y" + "".join(rng.choices(alphabet, k=20)))
            for _ in range(2000)
        ]
        diagnosis = examine([write(tmp_path / "a.tsv", pairs)])
        assert diagnosis.n_pairs == 2000

    def test_what_is_not_a_pair_is_reported(self, tmp_path: Path) -> None:
        path = tmp_path / "a.tsv"
        path.write_bytes(b"un\tone\nno tab\n\xff\tb\ndeux\ttwo\n")
        diagnosis = examine([CorpusConfig(path=path)])
        assert (diagnosis.n_pairs, diagnosis.faults.n_skipped) == (2, 2)
        with pytest.raises(DataError, match=r"a\.tsv:2"):
            examine([CorpusConfig(path=path)], on_fault="fail")

    def test_no_pairs_is_a_mistake(self, tmp_path: Path) -> None:
        path = tmp_path / "a.tsv"
        path.write_text("no tab\n")
        with pytest.raises(DataError, match=r"no pairs in 1 lines: .*no tab"):
            examine([CorpusConfig(path=path)])

    def test_what_is_gone_when_read_is_a_mistake(self) -> None:
        with pytest.raises(DataError, match="not a regular file"):
            examine([CorpusConfig(path=Path("/dev/stdin"), format="tsv")])

    def test_figures_are_json(self, tmp_path: Path) -> None:
        pairs, expected = plant(sentences(50))
        figures = json.loads(json.dumps(examine([write(tmp_path / "a.tsv", pairs)]).as_dict()))
        assert {kind: n for kind, n in figures["findings"].items() if n} == expected
        assert figures["pairs"] == figures["kept"] + figures["removed"] == len(pairs)

    def test_memory_grows_by_two_fingerprints_a_pair(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("glassformer.data.doctor._SAMPLE", 256)
        rng = random.Random(0)
        words = ["".join(rng.choices("abcdefghij", k=6)) for _ in range(5000)]
        pairs = [(" ".join(rng.choices(words, k=3)), " ".join(rng.choices(words, k=2))) for _ in range(8000)]
        small, large = write(tmp_path / "a.tsv", pairs[:4000]), write(tmp_path / "b.tsv", pairs)
        del pairs

        def peak(corpus: CorpusConfig) -> tuple[int, int]:
            tracemalloc.start()
            diagnosis = examine([corpus])
            _, highest = tracemalloc.get_traced_memory()
            tracemalloc.stop()
            return highest, diagnosis.n_fingerprint_bytes

        (few, few_bytes), (many, many_bytes) = peak(small), peak(large)
        assert (few_bytes, many_bytes) == (16 * 4000, 16 * 8000)
        assert many - few < 3e5


class TestWhatToRemove:
    """The rule and its changes."""

    def test_the_rule_can_be_changed(self) -> None:
        assert what_to_remove([], []) == REMOVED_BY_DEFAULT
        assert what_to_remove(["copy", "numbers"], ["markup"]) == REMOVED_BY_DEFAULT - {Kind.COPY} | {Kind.MARKUP}
        assert what_to_remove([*Kind], []) == frozenset()

    @pytest.mark.parametrize(
        ("keep", "remove", "said"),
        [
            (["duplicat"], [], "unknown kind of finding duplicat; did you mean duplicate?"),
            ([], ["xyz"], "known: control"),
            (["copy"], ["copy"], "copy: cannot both keep and remove"),
        ],
    )
    def test_wrong_kinds(self, keep: list[str], remove: list[str], said: str) -> None:
        with pytest.raises(UsageError) as caught:
            what_to_remove(keep, remove)
        assert said in str(caught.value)

    def test_every_kind_says_what_it_means(self) -> None:
        assert all(kind.meaning for kind in Kind)


class TestCleanCorpus:
    """What is kept and what is taken out are, together, everything."""

    @pytest.mark.parametrize(
        ("word", "removed"),
        [
            ("out.tsv", "out.removed.tsv"),
            ("out.tsv.gz", "out.removed.tsv.gz"),
            ("out.jsonl.zst", "out.removed.tsv.zst"),
            ("out.fr,out.en", "out.fr.removed.tsv"),
            ("out.fr.gz,out.en.gz", "out.fr.removed.tsv.gz"),
        ],
    )
    @pytest.mark.parametrize("languages", [{}, {"src_lang": "fr", "tgt_lang": "en"}])
    def test_kept_and_removed_are_all(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, word: str, removed: str, languages: dict[str, Any]
    ) -> None:
        monkeypatch.chdir(tmp_path)
        pairs, _ = plant(sentences(60))
        corpus = write(Path("a.tsv"), pairs)
        with open(corpus.path, "ab") as stream:
            stream.write(b"no tab\nbad \xff\tbyte\n")
        with CleanCorpus(CorpusConfig.parse_word(word, **languages)) as clean:
            diagnosis = examine([corpus], clean=clean)
        assert sorted(path.name for path in tmp_path.iterdir()) == sorted(["a.tsv", *word.split(","), removed])

        kept = [pair[:2] for pair in open_corpus(CorpusConfig.parse_word(word, **languages), Faults())]
        assert len(kept) == diagnosis.n_kept
        header, *rows = self.rows(tmp_path / removed)
        assert header == ["reasons", "file", "line", "source", "target"]
        rows.sort(key=lambda row: int(row[2]))
        *removed_rows, no_tab, bad_byte = rows
        taken_out = {int(line): (src, tgt) for _, _, line, src, tgt in removed_rows}
        assert len(taken_out) == len(removed_rows) == diagnosis.n_removed
        assert kept == [pair for line, pair in enumerate(pairs, 1) if line not in taken_out]
        assert all(pairs[line - 1] == pair for line, pair in taken_out.items())
        reasons = {reason for row in removed_rows for reason in row[0].split(",")}
        assert reasons == {str(kind) for kind in diagnosis.examples if kind in diagnosis.remove}
        n_lines = len(pairs) + 2
        assert no_tab == ["no tab between source and target", "a.tsv", str(n_lines - 1), "no tab", ""]
        assert bad_byte[:3] == ["bytes that are not UTF-8", "a.tsv", str(n_lines)]

    def test_a_cleaned_corpus_is_clean(self, tmp_path: Path) -> None:
        pairs, _ = plant(sentences(200))
        everything = frozenset(Kind)
        out = CorpusConfig(path=tmp_path / "out.tsv")
        with CleanCorpus(out) as clean:
            examine([write(tmp_path / "a.tsv", pairs)], remove=everything, clean=clean)
        assert found(examine([out])) == {}

    def test_nothing_is_left_of_a_run_that_fails(self, tmp_path: Path) -> None:
        corpus = write(tmp_path / "a.tsv", [*sentences(10), ("", "")])
        with pytest.raises(DataError), CleanCorpus(CorpusConfig(path=tmp_path / "out.tsv")) as clean:
            examine([corpus], on_fault="fail", clean=clean)
        assert [path.name for path in tmp_path.iterdir()] == ["a.tsv"]

    def test_what_is_read_is_not_overwritten(self, tmp_path: Path) -> None:
        corpus = write(tmp_path / "a.tsv", sentences(10))
        for word in ("a.tsv", "b.fr,a.tsv"):
            with pytest.raises(UsageError, match="is an input file"):
                CleanCorpus(
                    CorpusConfig.parse_word(",".join(str(tmp_path / name) for name in word.split(",")))
                ).refuse_to_overwrite([corpus])

    def test_where_nothing_can_be_written(self, tmp_path: Path) -> None:
        with (
            pytest.raises(DataError, match="cannot be written"),
            CleanCorpus(CorpusConfig(path=tmp_path / "no" / "a.tsv")),
        ):
            pass

    def test_tmx_is_not_written(self, tmp_path: Path) -> None:
        with pytest.raises(UsageError, match="TMX can be read but not written"):
            CleanCorpus(CorpusConfig(path=tmp_path / "a.tmx", src_lang="fr", tgt_lang="en"))

    def test_the_same_corpus_gives_the_same_bytes(self, tmp_path: Path) -> None:
        corpus = write(tmp_path / "a.tsv", plant(sentences(60))[0])
        written = []
        for name in ("one", "two"):
            (tmp_path / name).mkdir()
            with CleanCorpus(CorpusConfig(path=tmp_path / name / "out.tsv.gz")) as clean:
                examine([corpus], clean=clean)
            written.append([path.read_bytes() for path in sorted((tmp_path / name).iterdir())])
        assert written[0] == written[1]

    def rows(self, path: Path) -> list[list[str]]:
        data = path.read_bytes()
        if path.suffix == ".gz":
            data = gzip.decompress(data)
        elif path.suffix == ".zst":
            import zstandard

            data = zstandard.ZstdDecompressor().decompressobj().decompress(data)
        return [line.split("\t") for line in data.decode().split("\n")[:-1]]


def test_the_outcome_does_not_depend_on_the_seed_of_hashes(tmp_path: Path) -> None:
    """Fingerprints differ from process to process; what they find does not."""
    corpus = write(tmp_path / "a.tsv", plant(sentences(1200))[0])
    code = (
        "import sys, json; from pathlib import Path; from glassformer.config import CorpusConfig; "
        "from glassformer.data.doctor import examine; corpus = CorpusConfig(path=Path(sys.argv[1])); "
        "found = examine([corpus]).as_dict(); del found['seconds']; print(json.dumps(found))"
    )
    answers = {
        subprocess.run(
            [sys.executable, "-c", code, str(corpus.path)],
            env={"PYTHONHASHSEED": seed},
            capture_output=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    }
    assert len(answers) == 1


@pytest.mark.slow
@pytest.mark.skipif("GLASSFORMER_DATA" not in os.environ, reason="GLASSFORMER_DATA names no folder of corpora")
def test_a_real_corpus(tmp_path: Path) -> None:
    """Program documentation: what is known to be wrong in it, and what was planted, nearly all and little else."""
    folder = Path(os.environ["GLASSFORMER_DATA"])
    corpus = CorpusConfig(path=folder / "l10n.train.fr-en.tsv.gz")
    dev = CorpusConfig(path=folder / "l10n.dev.fr-en.tsv")
    diagnosis = examine([corpus], [dev])
    assert (
        found(diagnosis).items() >= {"copy": 643, "mojibake": 4, "control": 3, "odd-space": 2665, "markup": 13}.items()
    )
    assert not {Kind.DUPLICATE, Kind.OVERLAP, Kind.SWAPPED} & diagnosis.examples.keys()
    assert diagnosis.counts[Kind.WRONG_LANGUAGE] < 20

    pairs = [(pair.src, pair.tgt) for pair in open_corpus(corpus, Faults())]
    swapped = [i for i in range(0, len(pairs), 200) if min(map(len, pairs[i])) > 25]
    for i in swapped:
        pairs[i] = pairs[i][1], pairs[i][0]
    diagnosis = examine([write(tmp_path / "a.tsv", pairs)])
    n_found = diagnosis.counts[Kind.SWAPPED] + diagnosis.counts[Kind.WRONG_LANGUAGE]
    assert 0.95 * len(swapped) < n_found < 1.03 * len(swapped)
