"""Corpus files to pairs: each format and packing, each fault with its place, and no crash on hostile bytes."""

from __future__ import annotations

import gzip
import json
import random
import tracemalloc
import unicodedata
from collections.abc import Callable, Sequence
from itertools import islice
from pathlib import Path
from typing import Any
from xml.sax.saxutils import escape

import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from glassformer.config import CorpusConfig
from glassformer.data.formats import RULE, FaultKind, Faults, OnFault, corpus_size, open_corpora, open_corpus
from glassformer.data.lines import MAX_LINE
from glassformer.data.pair import Pair, excerpt
from glassformer.data.tmx import closeness
from glassformer.errors import ConfigError, DataError

PACKINGS: dict[str, Callable[[bytes], bytes]] = {"": bytes, ".gz": gzip.compress, ".zst": zstandard.compress}
LANGUAGES = {"src_lang": "fr", "tgt_lang": "en"}
HEAD = '<?xml version="1.0" encoding="UTF-8"?>\n<tmx version="1.4">\n<header srclang="en"/>\n<body>\n'


def write(path: Path, data: bytes | str) -> Path:
    data = data.encode() if isinstance(data, str) else data
    path.write_bytes(PACKINGS[path.suffix if path.suffix in PACKINGS else ""](data))
    return path


def read(path: Path, on_fault: OnFault = "skip", **settings: Any) -> tuple[list[tuple[str, str]], Faults]:
    """Read a file, and hold that every line of it was counted."""
    faults = Faults()
    pairs = list(open_corpus(CorpusConfig(path=path, **settings), faults, on_fault))
    assert faults.n_lines == faults.n_pairs + faults.n_skipped
    assert faults.n_pairs == len(pairs)
    return [(pair.src, pair.tgt) for pair in pairs], faults


def read_bytes(folder: Path, data: bytes | str, name: str = "a.tsv", **settings: Any) -> tuple[list[Any], Faults]:
    return read(write(folder / name, data), **settings)


def read_moses(folder: Path, source: bytes, target: bytes) -> tuple[list[tuple[str, str]], Faults]:
    return read(write(folder / "a.fr", source), target_path=write(folder / "a.en", target))


def unit(texts: dict[str, str]) -> str:
    variants = (f'<tuv xml:lang="{lang}"><seg>{text}</seg></tuv>' for lang, text in texts.items())
    return f"<tu>{''.join(variants)}</tu>\n"


def tmx(*units: str) -> str:
    return HEAD + "".join(units) + "</body></tmx>\n"


def complaint(path: Path, **settings: Any) -> str:
    with pytest.raises(DataError) as caught:
        read(path, **settings)
    assert "\n" not in str(caught.value)
    return str(caught.value)


class TestFormats:
    """The same two pairs, however they are written down."""

    pairs = (("Ça va ?", "How are you?"), ("« Oui » & <non>", 'Yes & "no"'))

    @pytest.mark.parametrize("packing", PACKINGS)
    @pytest.mark.parametrize("swap", [False, True])
    def test_tsv(self, tmp_path: Path, packing: str, swap: bool) -> None:
        text = "".join(f"{src}\t{tgt}\n" for src, tgt in self.pairs)
        assert read_bytes(tmp_path, text, f"a.TSV{packing}", swap=swap)[0] == self.turned(swap)

    @pytest.mark.parametrize("packing", PACKINGS)
    @pytest.mark.parametrize("swap", [False, True])
    def test_moses(self, tmp_path: Path, packing: str, swap: bool) -> None:
        source = write(tmp_path / f"a.fr{packing}", "".join(src + "\n" for src, _ in self.pairs))
        target = write(tmp_path / f"a.en{packing}", "".join(tgt + "\n" for _, tgt in self.pairs))
        assert read(source, target_path=target, swap=swap)[0] == self.turned(swap)

    @pytest.mark.parametrize("packing", PACKINGS)
    @pytest.mark.parametrize("swap", [False, True])
    def test_jsonl(self, tmp_path: Path, packing: str, swap: bool) -> None:
        text = "".join(json.dumps({"tgt": tgt, "src": src, "id": [1]}) + "\n" for src, tgt in self.pairs)
        assert read_bytes(tmp_path, text, f"a.jsonl{packing}", swap=swap)[0] == self.turned(swap)

    def test_jsonl_with_other_fields(self, tmp_path: Path) -> None:
        text = "".join(json.dumps({"from": src, "to": tgt}) + "\n" for src, tgt in self.pairs)
        assert read_bytes(tmp_path, text, "a.jsonl", src_field="from", tgt_field="to")[0] == list(self.pairs)

    @pytest.mark.parametrize("codes", [("fr", "en"), ("fr-CA", "EN_us"), ("FR", "en")])
    def test_jsonl_by_language(self, tmp_path: Path, codes: tuple[str, str]) -> None:
        rows = ({"translation": {"de": "Ja", **dict(zip(codes, pair, strict=True))}} for pair in self.pairs)
        text = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
        assert read_bytes(tmp_path, text, "a.jsonl", **LANGUAGES)[0] == list(self.pairs)

    @pytest.mark.parametrize("packing", PACKINGS)
    @pytest.mark.parametrize("swap", [False, True])
    def test_tmx(self, tmp_path: Path, packing: str, swap: bool) -> None:
        text = tmx(*(unit({"en-GB": escape(tgt), "de": "Ja", "FR": escape(src)}) for src, tgt in self.pairs))
        assert read_bytes(tmp_path, text, f"a.tmx{packing}", swap=swap, **LANGUAGES)[0] == self.turned(swap)

    def test_several_corpora_one_after_the_other(self, tmp_path: Path) -> None:
        paths = [write(tmp_path / name, "a\tb\n\n") for name in ("one.tsv", "two.tsv")]
        corpora = [CorpusConfig(path=path, weight=weight) for path, weight in zip(paths, (1, 0.5), strict=True)]
        faults = Faults()
        pairs = list(open_corpora(corpora, faults))
        assert [(pair.file, pair.line) for pair in pairs] == [(str(path), 1) for path in paths]
        assert (faults.n_lines, faults.n_pairs, faults.n_skipped) == (4, 2, 2)

    def turned(self, swap: bool) -> list[tuple[str, str]]:
        return [(tgt, src) for src, tgt in self.pairs] if swap else list(self.pairs)


class TestWords:
    """Words of the command line."""

    @pytest.mark.parametrize(
        ("word", "values"),
        [
            ("a.tsv", {"path": "a.tsv", "kind": "tsv"}),
            ("a.tsv.gz@2.5", {"path": "a.tsv.gz", "kind": "tsv", "weight": 2.5}),
            ("data@home/a.jsonl.zst", {"path": "data@home/a.jsonl.zst", "kind": "jsonl"}),
            ("a.fr,b.en", {"path": "a.fr", "target_path": "b.en", "kind": "moses"}),
            ("a.fr.gz,b.en.gz@3", {"path": "a.fr.gz", "target_path": "b.en.gz", "kind": "moses", "weight": 3}),
        ],
    )
    def test_words(self, word: str, values: dict[str, object]) -> None:
        corpus = CorpusConfig.parse_word(word)
        for name, value in values.items():
            found = getattr(corpus, name)
            assert (str(found) if isinstance(found, Path) else found) == value

    def test_settings_of_all_words(self) -> None:
        corpus = CorpusConfig.parse_word("a.txt", format="tmx", swap=True, **LANGUAGES)
        assert (corpus.kind, corpus.swap, corpus.src_lang) == ("tmx", True, "fr")

    @pytest.mark.parametrize(
        ("word", "settings", "said"),
        [
            ("a.fr", {}, "a.fr: unknown file extension (expected .tsv, .jsonl or .tmx"),
            ("a", {}, "SOURCE,TARGET"),
            ("a,b,c", {}, "'a,b,c': expected FILE or SOURCE,TARGET"),
            ("a.fr,", {}, "'a.fr,': expected"),
            ("", {}, "'': expected"),
            ("a.tsv@0", {}, "weight='0'"),
            ("a.tsv", {"format": "moses"}, "format moses takes two files"),
            ("a.fr,b.en", {"format": "tsv"}, "format tsv takes one file"),
            ("a.tsv", {"format": "xliff"}, "format='xliff'"),
            ("a.tmx", {}, "set src_lang and tgt_lang"),
            ("a.tmx", {"src_lang": "fr"}, "set both src_lang and tgt_lang"),
        ],
    )
    def test_wrong_words(self, word: str, settings: dict[str, Any], said: str) -> None:
        with pytest.raises(ConfigError) as caught:
            CorpusConfig.parse_word(word, **settings)
        assert said in str(caught.value)


class TestLines:
    """Where a line ends, and where it does not."""

    @pytest.mark.parametrize("end", ["\n", "\r\n"])
    @pytest.mark.parametrize("inside", ["\u2028", "\u2029", "\u0085", "\f", "\v", "\x1c", "\x1d", "\x1e", "\r"])
    def test_only_lf_ends_a_line(self, tmp_path: Path, end: str, inside: str) -> None:
        text = f"a{inside}b\tc{inside}d{end}e\tf{end}"
        expected = [(f"a{inside}b", f"c{inside}d"), ("e", "f")]
        assert read_bytes(tmp_path, text)[0] == expected
        assert read_moses(tmp_path, f"a{inside}b{end}e".encode(), f"c{inside}d{end}f{end}".encode())[0] == expected
        rows = "".join(json.dumps({"src": s, "tgt": t}, ensure_ascii=False) + end for s, t in expected)
        assert read_bytes(tmp_path, rows, "a.jsonl")[0] == expected

    def test_the_last_line_needs_no_end(self, tmp_path: Path) -> None:
        assert read_bytes(tmp_path, "a\tb\nc\td")[0] == [("a", "b"), ("c", "d")]

    def test_white_space_around_a_sentence_is_no_part_of_it(self, tmp_path: Path) -> None:
        assert read_bytes(tmp_path, " a\u00a0 \t  b c \r\r\n")[0] == [("a", "b c")]

    @pytest.mark.parametrize("packing", PACKINGS)
    def test_a_file_without_lines_has_no_pairs(self, tmp_path: Path, packing: str) -> None:
        assert read_bytes(tmp_path, "", f"a.tsv{packing}")[0] == []

    @pytest.mark.parametrize("name", ["a.tsv", "a.jsonl"])
    def test_a_byte_order_mark_is_left_out_and_counted(self, tmp_path: Path, name: str) -> None:
        line = "a\tb\n" if name == "a.tsv" else '{"src": "a", "tgt": "b"}\n'
        pairs, faults = read_bytes(tmp_path, "\ufeff" + line, name, on_fault="fail")
        assert pairs == [("a", "b")]
        assert faults.counts == {FaultKind.BYTE_ORDER_MARK: 1}

    def test_byte_order_marks_of_two_files(self, tmp_path: Path) -> None:
        pairs, faults = read_moses(tmp_path, "\ufeffa\n".encode(), "\ufeffb\n".encode())
        assert pairs == [("a", "b")]
        assert [fault.file for fault in faults.examples[FaultKind.BYTE_ORDER_MARK]] == [
            str(tmp_path / "a.fr"),
            str(tmp_path / "a.en"),
        ]

    @pytest.mark.parametrize("extra", [0, 1])
    def test_a_very_long_line_is_a_fault_and_the_next_is_read(self, tmp_path: Path, extra: int) -> None:
        long = b"x" * (MAX_LINE - 3 + extra) + b"\tb\n"
        pairs, faults = read_bytes(tmp_path, b"a\tb\n" + long + b"x" * (3 * MAX_LINE) + b"\nc\td\n")
        assert (len(pairs), pairs[-1]) == (3 - extra, ("c", "d"))
        places = [fault.line for fault in faults.examples[FaultKind.TOO_LONG]]
        assert places == ([2, 3] if extra else [3])


FAULTS: list[tuple[str, bytes, FaultKind, str]] = [
    ("a.tsv", b"no tab here", FaultKind.NO_TAB, "no tab here"),
    ("a.tsv", b"a\tb\tc", FaultKind.EXTRA_TAB, "a\\tb\\tc"),
    ("a.tsv", b"", FaultKind.EMPTY, ""),
    ("a.tsv", b"a\t \xc2\xa0", FaultKind.EMPTY, "a"),
    ("a.tsv", b"\tb", FaultKind.EMPTY, "b"),
    ("a.tsv", b"caf\xe9\tb", FaultKind.BAD_UTF8, "byte 4 is 0xe9"),
    ("a.tsv", b"a\tb\xc3", FaultKind.BAD_UTF8, "byte 4 is 0xc3"),
    ("a.tsv", b"a\xed\xa0\x80\tb", FaultKind.BAD_UTF8, "byte 2 is 0xed"),
    ("a.tsv", b"a\0\tb", FaultKind.NUL, "a\\x00"),
    ("a.jsonl", b"a\tb", FaultKind.BAD_JSON, "a\\tb"),
    ("a.jsonl", b'["a", "b"]', FaultKind.BAD_JSON, '["a", "b"]'),
    ("a.jsonl", b"[" * 100_000, FaultKind.BAD_JSON, "[[["),
    ("a.jsonl", b'{"src": "a"}', FaultKind.NO_TEXT, "tgt in"),
    ("a.jsonl", b'{"src": 3, "tgt": "b"}', FaultKind.NO_TEXT, "src in"),
    ("a.jsonl", b'{"src": "a", "tgt": null}', FaultKind.NO_TEXT, "tgt in"),
    ("a.jsonl", b'{"src": "a", "tgt": " "}', FaultKind.EMPTY, "src"),
    ("a.jsonl", b'{"src": "a\\ud800", "tgt": "b"}', FaultKind.LONE_SURROGATE, "ud800"),
    ("a.jsonl", b'{"src": "a\\u0000", "tgt": "b"}', FaultKind.NUL, "u0000"),
    ("a.jsonl", b"", FaultKind.EMPTY, ""),
]


class TestFaults:
    """What is wrong is named with file and line, counted, and skipped or fatal."""

    @pytest.mark.parametrize(("name", "line", "kind", "shown"), FAULTS)
    def test_a_line_with_a_fault(self, tmp_path: Path, name: str, line: bytes, kind: FaultKind, shown: str) -> None:
        good = b"a\tb\n" if name == "a.tsv" else b'{"src": "a", "tgt": "b"}\n'
        path = write(tmp_path / name, good + line + b"\n" + good)
        pairs, faults = read(path)
        assert pairs == [("a", "b")] * 2
        assert faults.counts == {kind: 1}
        (fault,) = faults.examples[kind]
        assert (fault.file, fault.line) == (str(path), 2)
        assert shown in fault.text
        report = "\n".join(faults.report())
        assert f"1 × {kind}\n    {path}:2" in report
        assert RULE in report
        said = complaint(path, on_fault="fail")
        assert said.startswith(f"{path}:2")
        assert f"({kind})" in said

    @pytest.mark.parametrize(("wrong", "other"), [("a.fr", "a.en"), ("a.en", "a.fr")])
    @pytest.mark.parametrize(
        ("line", "kind"), [(b"\xff", FaultKind.BAD_UTF8), (b"a\0", FaultKind.NUL), (b" ", FaultKind.EMPTY)]
    )
    def test_either_of_two_files(self, tmp_path: Path, wrong: str, other: str, line: bytes, kind: FaultKind) -> None:
        write(tmp_path / wrong, b"1\n" + line + b"\n3\n")
        write(tmp_path / other, b"1\n2\n3\n")
        pairs, faults = read(tmp_path / "a.fr", target_path=tmp_path / "a.en")
        assert pairs == [("1", "1"), ("3", "3")]
        (fault,) = faults.examples[kind]
        assert fault.line == 2
        if kind is not FaultKind.EMPTY:
            assert fault.file == str(tmp_path / wrong)

    @pytest.mark.parametrize(("n_source", "n_target", "longer"), [(3, 5, "a.en"), (4, 1, "a.fr"), (0, 2, "a.en")])
    def test_different_line_counts_are_fatal(self, tmp_path: Path, n_source: int, n_target: int, longer: str) -> None:
        with pytest.raises(DataError) as caught:
            read_moses(tmp_path, b"x\n" * n_source, b"x\n" * n_target)
        short, long = sorted((n_source, n_target))
        assert str(caught.value).startswith(f"{tmp_path / longer}:{short + 1}: no parallel line")
        assert f"{short} lines" in str(caught.value)
        assert f"{longer} {long};" in str(caught.value)

    @pytest.mark.parametrize("row", [{"translation": {"fr": "a"}}, {"translation": {"fr": "a", "eng": "b"}}])
    def test_a_language_that_jsonl_lacks(self, tmp_path: Path, row: object) -> None:
        _, faults = read_bytes(tmp_path, json.dumps(row), "a.jsonl", **LANGUAGES)
        (fault,) = faults.examples[FaultKind.NO_LANGUAGE]
        assert fault.text.startswith("en is not among fr")

    @pytest.mark.parametrize("row", [{}, {"translation": "a"}, {"fr": "a", "en": "b"}])
    def test_jsonl_without_translation(self, tmp_path: Path, row: object) -> None:
        _, faults = read_bytes(tmp_path, json.dumps(row), "a.jsonl", **LANGUAGES)
        assert faults.counts == {FaultKind.NO_TEXT: 1}

    def test_tabs_and_line_breaks_inside_a_text_become_spaces(self, tmp_path: Path) -> None:
        row = json.dumps({"src": "a\n  b\r\nc", "tgt": "d\te  f"})
        pairs, faults = read_bytes(tmp_path, row, "a.jsonl", on_fault="fail")
        assert pairs == [("a b c", "d e f")]
        assert faults.counts == {FaultKind.FOLDED: 1}
        pairs, faults = read_moses(tmp_path, b"a\tb\n", b"c\n")
        assert (pairs, faults.counts) == ([("a b", "c")], {FaultKind.FOLDED: 1})

    def test_only_the_first_places_are_remembered_and_all_are_counted(self, tmp_path: Path) -> None:
        _, faults = read_bytes(tmp_path, "x\n" * 1000)
        assert faults.counts[FaultKind.NO_TAB] == faults.n_skipped == 1000
        assert [fault.line for fault in faults.examples[FaultKind.NO_TAB]] == [1, 2, 3]

    def test_a_clean_file_has_a_report_of_one_line(self, tmp_path: Path) -> None:
        assert read_bytes(tmp_path, "a\tb\n")[1].report() == ["1 lines, 1 pairs, 0 skipped"]

    def test_each_fault_that_costs_a_pair_is_heard(self, tmp_path: Path) -> None:
        heard: list[int] = []
        faults = Faults(hear=lambda fault: heard.append(fault.line))
        corpus = CorpusConfig(path=write(tmp_path / "a.tsv", "\ufeffa\tb\nx\n\nc\td\n"))
        assert len(list(open_corpus(corpus, faults))) == 2
        assert heard == [2, 3]

    def test_what_a_terminal_might_obey_is_escaped(self) -> None:
        assert excerpt("\x1b[31mred\u202e\x07") == "\\x1b[31mred\\u202e\\x07"
        assert excerpt("1\u00a0000 « é »") == "1\u00a0000 « é »"
        assert excerpt("a" * 100, 10) == "a" * 10 + "…"


class TestTmx:
    """Translation memories: their languages, their inline codes, and documents that are refused."""

    @pytest.mark.parametrize(
        ("code", "wanted", "fits"),
        [
            ("fr", "fr", 2),
            ("FR", "fr", 2),
            ("fr_CA", "fr-ca", 2),
            ("fr-CA", "fr", 1),
            ("fr", "fr-CA", 1),
            ("fr-FR", "fr-CA", 0),
            ("fro", "fr", 0),
            ("", "fr", 0),
        ],
    )
    def test_closeness(self, code: str, wanted: str, fits: int) -> None:
        assert closeness(code, wanted) == fits

    def test_the_closest_language_is_taken(self, tmp_path: Path) -> None:
        text = tmx(unit({"fr-CA": "char", "fr": "voiture", "fr-BE": "auto", "en": "car"}))
        pairs, faults = read_bytes(tmp_path, text, "a.tmx", **LANGUAGES)
        assert (pairs, faults.counts) == ([("voiture", "car")], {FaultKind.SPARE: 1})

    def test_two_regions_of_one_language(self, tmp_path: Path) -> None:
        text = tmx(unit({"en-GB": "colour", "en-US": "color"}))
        assert read_bytes(tmp_path, text, "a.tmx", src_lang="en-us", tgt_lang="en-gb")[0] == [("color", "colour")]

    def test_lines_are_those_of_the_units(self, tmp_path: Path) -> None:
        path = write(
            tmp_path / "a.tmx", tmx(unit({"fr": "a", "en": "b"}), unit({"fr": "c"}), unit({"fr": "d", "en": " "}))
        )
        faults = Faults()
        (pair,) = open_corpus(CorpusConfig(path=path, **LANGUAGES), faults)
        assert pair == Pair("a", "b", str(path), 5)
        assert [fault.line for fault in faults.examples[FaultKind.NO_LANGUAGE]] == [6]
        assert [fault.line for fault in faults.examples[FaultKind.EMPTY]] == [7]

    def test_inline_codes_are_left_out_and_counted(self, tmp_path: Path) -> None:
        text = unit(
            {
                "fr": 'Un <bpt i="1">&lt;b></bpt><hi>mot</hi><ept i="1">&lt;/b></ept>',
                "en": "A <ph>x<sub>y</sub></ph>word",
            }
        )
        pairs, faults = read_bytes(tmp_path, tmx(text), "a.tmx", on_fault="fail", **LANGUAGES)
        assert pairs == [("Un mot", "A word")]
        assert faults.counts == {FaultKind.INLINE_CODES: 1}

    def test_a_document_type_that_points_elsewhere_is_common(self, tmp_path: Path) -> None:
        text = tmx(unit({"fr": "a", "en": "b"})).replace("<tmx", '<!DOCTYPE tmx SYSTEM "tmx14.dtd">\n<tmx', 1)
        assert read_bytes(tmp_path, text, "a.tmx", **LANGUAGES)[0] == [("a", "b")]

    @pytest.mark.parametrize(
        ("change", "said"),
        [
            (
                ("<tmx", '<!DOCTYPE tmx [<!ENTITY a "b">]><tmx'),
                ":2: declarations inside <!DOCTYPE ...> are not allowed",
            ),
            (("<tmx", '<!DOCTYPE tmx [<!ENTITY % a SYSTEM "file:///etc/passwd">]><tmx'), ":2: declarations"),
            (("<seg>a", "<seg>&a;"), ":5: broken XML: undefined entity"),
            (("UTF-8", "ISO-8859-1"), ":1: declared as 'ISO-8859-1'"),
            (("UTF-8", "Shift_JIS"), ":1: declared as 'Shift_JIS'"),
            (("</tu>", ""), "broken XML"),
            (("</tmx>", ""), "broken XML"),
            (("tmx", "html"), ":2: not a TMX file: the root element is <html>"),
            (("<tu>", "<tu><tu>"), ":5: <tu> inside <tu>"),
            (("<tuv", "<tuv><tuv"), ":5: <tuv> that is not directly inside a <tu>"),
            (("<tu>", "<seg>a</seg><tu>"), ":5: <seg> that is not inside a <tuv>"),
            (("<seg>", "<seg><seg>"), ":5: <seg> inside <seg>"),
            (("<seg>a", "<seg>a\x08"), ":5: broken XML"),
            (("<body>", "<body><!--" + "x" * (5 * MAX_LINE)), "unterminated tag or comment"),
        ],
        ids=range(14),
    )
    def test_documents_that_are_refused(self, tmp_path: Path, change: tuple[str, str], said: str) -> None:
        path = write(tmp_path / "a.tmx", tmx(unit({"fr": "a", "en": "b"})).replace(*change))
        assert said in complaint(path, **LANGUAGES)

    def test_an_entity_that_another_file_may_declare_is_not_dropped(self, tmp_path: Path) -> None:
        text = tmx(unit({"fr": "a&nbsp;b", "en": "b"})).replace("<tmx", '<!DOCTYPE tmx SYSTEM "tmx14.dtd">\n<tmx', 1)
        assert ":6: unknown entity &nbsp;" in complaint(write(tmp_path / "a.tmx", text), **LANGUAGES)

    def test_a_bad_byte_is_fatal(self, tmp_path: Path) -> None:
        data = tmx(unit({"fr": "caf?", "en": "b"})).encode().replace(b"caf?", b"caf\xe9")
        assert ":5: broken XML" in complaint(write(tmp_path / "a.tmx", data), **LANGUAGES)

    def test_entities_cannot_unfold_to_fill_the_memory(self, tmp_path: Path) -> None:
        laughs = '<!ENTITY a "ha">' + "".join(
            f'<!ENTITY {b} "{f"&{a};" * 10}">' for a, b in zip("abcdefgh", "bcdefghi", strict=True)
        )
        text = tmx(unit({"fr": "&i;", "en": "b"})).replace("<tmx", f"<!DOCTYPE tmx [{laughs}]><tmx", 1)
        tracemalloc.start()
        complaint(write(tmp_path / "a.tmx", text), **LANGUAGES)
        assert tracemalloc.get_traced_memory()[1] < 5e6
        tracemalloc.stop()

    def test_a_long_text_is_a_fault_and_the_next_unit_is_read(self, tmp_path: Path) -> None:
        long = unit({"fr": "x" * (MAX_LINE + 1), "en": "b"})
        pairs, faults = read_bytes(tmp_path, tmx(long, unit({"fr": "c", "en": "d"})), "a.tmx", **LANGUAGES)
        assert (pairs, faults.counts) == ([("c", "d")], {FaultKind.TOO_LONG: 1})


class TestUnreadable:
    """Files that are missing, cut off, damaged or not what their name says."""

    text = "".join(f"source {i} {i * i}\ttarget {i}\n" for i in range(20_000)).encode()

    @pytest.mark.parametrize("packing", [".gz", ".zst"])
    @pytest.mark.parametrize("name", ["a.tsv", "a.jsonl"])
    def test_cut_off(self, tmp_path: Path, name: str, packing: str) -> None:
        path = tmp_path / (name + packing)
        packed = PACKINGS[packing](self.text)
        for cut in (len(packed) - 1, len(packed) // 2, 5):
            path.write_bytes(packed[:cut])
            assert complaint(path).startswith(f"{path}: the compressed file is truncated")
        path.write_bytes(packed[: len(packed) // 2])
        line = int(complaint(path).partition("after line ")[2].partition(";")[0].replace(",", ""))
        assert 1 < line < 20_000

    @pytest.mark.parametrize("packing", [".gz", ".zst"])
    def test_empty(self, tmp_path: Path, packing: str) -> None:
        (tmp_path / f"a.tsv{packing}").touch()
        assert "truncated" in complaint(tmp_path / f"a.tsv{packing}")

    @pytest.mark.parametrize("packing", [".gz", ".zst"])
    def test_not_packed(self, tmp_path: Path, packing: str) -> None:
        path = tmp_path / f"a.tsv{packing}"
        path.write_bytes(self.text)
        assert str(path) in complaint(path)

    def test_damaged(self, tmp_path: Path) -> None:
        packed = bytearray(gzip.compress(self.text))
        packed[5000:5010] = bytes(10)
        path = tmp_path / "a.tsv.gz"
        path.write_bytes(packed)
        assert "damaged" in complaint(path)

    def test_something_behind_the_end(self, tmp_path: Path) -> None:
        path = tmp_path / "a.tsv.gz"
        path.write_bytes(gzip.compress(self.text) + b"and then?")
        assert "damaged after line" in complaint(path)

    @pytest.mark.parametrize("packing", [".gz", ".zst"])
    def test_several_archives_in_one_file(self, tmp_path: Path, packing: str) -> None:
        path = tmp_path / f"a.tsv{packing}"
        path.write_bytes(PACKINGS[packing](self.text) * 2)
        assert read(path)[1].n_pairs == 40_000

    @pytest.mark.parametrize(
        ("data", "said"),
        [
            (gzip.compress(b"a\tb\n", mtime=0), "is gzip: rename it to .gz"),
            (zstandard.compress(b"a\tb\n"), "is zstd: rename it to .zst"),
            ("a\tb\n".encode("utf-16"), "is UTF-16"),
            ("a\tb\n".encode("utf-16-be"), None),
            (b"PK\x03\x04", "is a zip archive"),
        ],
    )
    def test_a_name_that_says_something_else(self, tmp_path: Path, data: bytes, said: str | None) -> None:
        path = tmp_path / "a.tsv"
        path.write_bytes(data)
        if said is None:  # nothing at its start gives it away, but every line holds NUL
            assert read(path)[1].counts == {FaultKind.NUL: 1}
        else:
            assert said in complaint(path)

    def test_missing(self, tmp_path: Path) -> None:
        assert complaint(tmp_path / "a.tsv") == f"{tmp_path / 'a.tsv'}: no such file"

    def test_a_folder(self, tmp_path: Path) -> None:
        (tmp_path / "a.tsv").mkdir()
        assert "Is a directory" in complaint(tmp_path / "a.tsv")

    @pytest.mark.parametrize("packing", PACKINGS)
    def test_watch_hears_of_every_byte_on_the_disk(self, tmp_path: Path, packing: str) -> None:
        source, target = (write(tmp_path / f"{name}{packing}", self.text) for name in ("a", "b"))
        corpus = CorpusConfig(path=source, target_path=target)
        heard: list[int] = []
        assert len(list(open_corpus(corpus, Faults(), watch=heard.append))) == 20_000
        assert sum(heard) == corpus_size(corpus) == source.stat().st_size + target.stat().st_size


@given(
    st.lists(
        st.tuples(
            *[st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0\t\n")).map(str.strip)] * 2
        ).filter(all)
    ),
    st.sampled_from(["\n", "\r\n"]),
)
def test_any_pairs_survive_each_format(
    tmp_path_factory: pytest.TempPathFactory, pairs: list[tuple[str, str]], end: str
) -> None:
    """A text is what was written, without white space around it: tabs, line ends and NUL cannot be in it."""
    pairs = [pair for pair in pairs if not pair[0].startswith("\ufeff")]
    folder = tmp_path_factory.mktemp("pairs")
    assert read_bytes(folder, "".join(f"{s}\t{t}{end}" for s, t in pairs))[0] == pairs
    source = write(folder / "a.fr", "".join(s + end for s, _ in pairs))
    target = write(folder / "a.en", "".join(" " + t + end for _, t in pairs))
    assert read(source, target_path=target)[0] == pairs
    for ascii_only in (True, False):
        rows = (json.dumps({"src": s, "tgt": t}, ensure_ascii=ascii_only) + end for s, t in pairs)
        assert read_bytes(folder, "".join(rows), "a.jsonl")[0] == pairs


@given(st.lists(st.binary(max_size=40)))
def test_counts_add_up_for_any_bytes(tmp_path_factory: pytest.TempPathFactory, lines: list[bytes]) -> None:
    data = b"x\ty\n" + b"".join(line.replace(b"\n", b"") + b"\n" for line in lines)
    _, faults = read_bytes(tmp_path_factory.mktemp("bytes"), data)
    assert faults.n_lines == len(lines) + 1


def test_memory_does_not_grow_with_the_file(tmp_path: Path) -> None:
    path = tmp_path / "a.tsv.gz"
    with gzip.open(path, "wt") as stream:
        stream.writelines(f"a source sentence, number {i}\ta target sentence\n" for i in range(60_000))

    def peak(n_pairs: int) -> int:
        tracemalloc.start()
        for _ in islice(open_corpus(CorpusConfig(path=path), Faults()), n_pairs):
            pass
        _, highest = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        return highest

    assert peak(60_000) < peak(5_000) + 100_000


def test_a_zstd_bomb_does_not_fill_the_memory(tmp_path: Path) -> None:
    path = tmp_path / "a.tsv.zst"
    path.write_bytes(zstandard.ZstdCompressor(level=19).compress(bytes(300 * 2**20)))
    tracemalloc.start()
    assert read(path)[1].counts == {FaultKind.TOO_LONG: 1}
    assert tracemalloc.get_traced_memory()[1] < 100e6
    tracemalloc.stop()


SCRAPS: Sequence[bytes] = [
    b"\t", b"\t\t", b"\n", b"\r", b"\r\n", b"\0", b" ", b"", b"a", "é".encode(), "\u2028".encode(), "\u0085".encode(),
    b"\xff", b"\xc3", b"\xe2\x80", b"\xf0\x9f\x98", b"\xed\xa0\x80", b"\xef\xbb\xbf", b"\xc0\xaf", "😀".encode(),
    b'{"src": "a", "tgt": "b"}', b'{"src":', b'"tgt": "', b"\\ud800", b"\\u0000", b"\\", b'"', b"{", b"}", b"[", b"]",
    b'{"translation": {"fr": "a", "en": "b"}}', b'{"translation": ', b'{"fr": ', b"null", b"1e999", b"NaN", b"9" * 30,
    b"<tmx>", b"</tmx>", b"<body>", b"</body>", b"<tu>", b"</tu>", b'<tuv xml:lang="fr">', b'<tuv lang="en">',
    b"</tuv>", b"<seg>", b"</seg>", b"<ph>", b"</ph>", b"<!--", b"-->", b"<![CDATA[", b"]]>", b"&amp;", b"&x;", b"&#0;",
    b"&#xd800;", b"<!DOCTYPE tmx>", b'<!DOCTYPE tmx [<!ENTITY x "y">]>', b'<?xml version="1.0"?>',
    b'<?xml encoding="x"?>', b"<?x?>", b'{"src": "\\ud800", "tgt": "b"}',
    b"\x1f\x8b", b"\x28\xb5\x2f\xfd", b"\xff\xfe", b"\x0c", b"\x1b[2J", b"a" * 200,
]  # fmt: skip


def hostile(rng: random.Random, n_scraps: int) -> bytes:
    data = b"".join(rng.choices(SCRAPS, k=n_scraps))
    return data if rng.random() < 0.7 else data + rng.randbytes(rng.randrange(12))


def spoiled(rng: random.Random, data: bytes) -> bytes:
    """Cut, flip or repeat some of it."""
    place = rng.randrange(len(data) + 1)
    match rng.randrange(4):
        case 0:
            return data[:place]
        case 1:
            return data[:place] + rng.randbytes(1) + data[place + 1 :]
        case 2:
            return data[:place] + data[place // 2 :]
    return data


def test_hostile_files(tmp_path: Path) -> None:
    """100,000 lines in some thousand files, none of which a reader may do more than refuse in our own words."""
    rng = random.Random(20_17)
    valid = tmx(unit({"fr": "a", "en": "b"}), unit({"fr-CA": "c", "en": "d"})).encode()
    n_lines = n_pairs = 0
    refusals: list[str] = []
    kinds: set[FaultKind] = set()
    while n_lines < 100_000:
        name = rng.choice(["a.tsv", "a.jsonl", "a.jsonl", "a.tmx", "a.tsv,b.tsv"])
        packing = rng.choice(["", "", "", ".gz", ".zst"])
        paths = [tmp_path / f"{word}{packing}" for word in name.split(",")]
        for path in paths:
            if name == "a.tmx" and rng.random() < 0.6:
                data = spoiled(rng, valid)
            else:
                data = b"\n".join(hostile(rng, rng.randrange(6)) for _ in range(rng.randrange(60)))
            packed = PACKINGS[packing](data)
            path.write_bytes(spoiled(rng, packed) if packing and rng.random() < 0.5 else packed)
            n_lines += data.count(b"\n") + 1
        target = {"target_path": paths[1], "format": "moses"} if len(paths) > 1 else {}
        languages = LANGUAGES if name == "a.tmx" or rng.random() < 0.5 else {}
        faults = Faults()
        try:
            for pair in open_corpus(CorpusConfig.parse({"path": paths[0], **target, **languages}, name), faults):
                assert pair.src == pair.src.strip() != ""
                assert pair.tgt == pair.tgt.strip() != ""
                assert not {"\t", "\n", "\0"} & {*pair.src, *pair.tgt}
                (pair.src + pair.tgt).encode()
                n_pairs += 1
        except DataError as error:
            refusals.append(str(error))
        assert faults.n_lines == faults.n_pairs + faults.n_skipped
        for line in faults.report():
            assert all(character.isprintable() or unicodedata.category(character) == "Zs" for character in line)
        kinds |= faults.counts.keys()
    assert n_pairs > 1000
    assert len(refusals) > 100
    assert all(str(tmp_path) in refusal for refusal in refusals)
    assert kinds >= set(FaultKind) - {FaultKind.TOO_LONG, FaultKind.INLINE_CODES, FaultKind.SPARE}
