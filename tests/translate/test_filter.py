"""The filter: as many lines out as in, whatever they hold, at once if they come slowly."""

from __future__ import annotations

import gzip
import io
import json
import os
import random
import shlex
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from glassformer.cli import app
from glassformer.config import SearchConfig, TranslateOptions
from glassformer.errors import DataError, GlassformerError
from glassformer.files import atomic_file
from glassformer.store.folder import About, save_model
from glassformer.text.vocab import BOS, EOS, PAD, UNK
from glassformer.translate.engines.engine import IdHypothesis, Request, Source
from glassformer.translate.filter import converse, open_input, peek, read_batches, run_filter, translate_lines
from glassformer.translate.translator import Translator
from tests.models import build
from tests.translate.fakes import Answer, FakeEngine, echo, tokenizers

N_HOSTILE = 100_000
N_REAL = 300
PATIENCE = 60  # seconds
ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1"}
ALPHABET = [
    *"aàM1 .,;!?«»\"'()\t\r\x0b\x0c\x1c\x85\0\u00a0\u2028\u2029\u3000。\u200b\u200f\ufeff\u0301\u2581",
    "שלום",
    "مرحبا",
    "👩‍👩‍👧",
    "🇫🇷",
    "chat ",
    "<s>",
]
BYTES = [b"\xff", b"\xc3", b"\xed\xa0\x80", b"\xf0\x9f", b"\x80", b"\xc0\xaf"]


def hostile_lines(count: int, seed: int = 0) -> list[bytes]:
    """Make lines that break programs: bad UTF-8, NUL, half characters, many scripts, every line end but LF."""
    draws = random.Random(seed)
    lines = []
    for _ in range(count):
        parts = [draws.choice(ALPHABET).encode() for _ in range(draws.randrange(12))]
        if draws.random() < 0.2:
            parts.insert(draws.randrange(len(parts) + 1), draws.choice(BYTES))
        if draws.random() < 0.1:
            parts.append(chr(draws.choice([draws.randrange(32, 0xD800), draws.randrange(0xE000, 0x110000)])).encode())
        lines.append(b"".join(parts))
    return lines


def fake(answer: Answer = echo) -> Translator:
    return Translator(FakeEngine(answer), tokenizers(), About(src_lang="fr"), search=SearchConfig(max_length=256))


def run(lines: bytes, translator: Translator, as_json: bool = False, **options: Any) -> bytes:
    output = io.BytesIO()
    translate_lines(translator, io.BytesIO(lines).read, output, TranslateOptions(**options), as_json=as_json)
    return output.getvalue()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("model")
    size = tokenizers().src.vocab_size
    model = build(dtype=torch.float32, src_vocab=size, tgt_vocab=size, max_positions=40)
    save_model(model, path, About(src_lang="fr", tgt_lang="en", search=SearchConfig(max_length=20)))
    tokenizers().save(path)
    return path


def test_hostile_lines_come_out_one_for_one() -> None:
    lines = hostile_lines(N_HOSTILE)
    lines[7] = b"chat \xff" * 50_000
    lines[8] = b"a" * 1_000_000
    found = run(b"\n".join(lines) + b"\n", fake()).split(b"\n")
    assert found.pop() == b""
    assert len(found) == len(lines)
    for line, answer in zip(lines, found, strict=True):
        assert answer.decode() == line.decode("utf-8", "replace")


def test_a_real_model_takes_hostile_lines(folder: Path) -> None:
    lines = [*hostile_lines(N_REAL, seed=1), b"chien " * 200, b""]
    with Translator.load(folder, engine="torch") as translator:
        found = run(b"\n".join(lines) + b"\n", translator)
    assert found.count(b"\n") == len(lines)
    found.decode()


@given(st.lists(st.binary(max_size=30).map(lambda line: line.replace(b"\n", b"")), min_size=1, max_size=8))
def test_any_bytes_come_out_one_for_one(lines: list[bytes]) -> None:
    assert run(b"\n".join(lines) + b"\n", fake()).count(b"\n") == len(lines)


def test_a_model_may_write_any_token() -> None:
    """A line stays a line when the model writes line breaks, broken bytes or marks."""
    breaks = [token for token in range(tokenizers().tgt.vocab_size) if token not in (PAD, UNK, BOS, EOS)]

    def anything(source: Source, request: Request) -> list[IdHypothesis]:
        return [IdHypothesis(random.Random(len(source.tokens)).sample(breaks, 40), -1.0, -1.0, True)]

    assert run(b"chat\nchien noir\n", fake(anything)).count(b"\n") == 2
    for settings in ({"n_best": 2}, {"as_json": True}):
        lines = run(b"chat\n", fake(anything), **settings).split(b"\n")
        assert len(lines) == 2


@pytest.mark.parametrize(("lines", "count"), [(b"", 0), (b"\n", 1), (b"a", 1), (b"a\n", 1), (b"a\n\nb", 3)])
def test_the_last_line_end_is_not_needed(lines: bytes, count: int) -> None:
    assert run(lines, fake()).count(b"\n") == count


def test_white_space_stays() -> None:
    lines = b" chat.  Le chien\r\n\t\n\xe2\x80\xa8x\n"
    assert run(lines, fake()) == lines
    assert run(b"\xef\xbb\xbfchat\n", fake()) == b"chat\n"


def test_slow_lines_are_answered_at_once() -> None:
    """The second line is not read before the first is answered."""
    is_answered = threading.Event()
    chunks = [b"chat\nch", b"ien\n", b""]

    class Output(io.BytesIO):
        def flush(self) -> None:
            is_answered.set()

    def read(n_bytes: int) -> bytes:
        if len(chunks) < 3:
            assert is_answered.wait(PATIENCE)
        return chunks.pop(0)

    output = Output()
    translate_lines(fake(), read, output, TranslateOptions())
    assert output.getvalue() == b"chat\nchien\n"


def test_fast_lines_are_taken_together() -> None:
    batches = list(read_batches(io.BytesIO(b"chat\n" * 10_000).read))
    assert sum(map(len, batches)) == 10_000
    assert len(batches[0]) <= 64  # the first answers come soon
    assert max(map(len, batches)) > 1000


def test_json_holds_everything() -> None:
    (line,) = run(b"Le chat dort. Il est noir.\n", fake(), as_json=True, n_best=2).splitlines()
    facts = json.loads(line)
    assert facts["source"] == facts["translation"] == "Le chat dort. Il est noir."
    assert facts["n_best"] == [facts["translation"]] * 2
    assert [sentence["src_span"] for sentence in facts["sentences"]] == [[0, 13], [14, 26]]
    for sentence in facts["sentences"]:
        assert sentence["tokens"][0]["probability"] == pytest.approx(0.904837)
        assert len(sentence["hypotheses"]) == 2
        assert sentence["alignment"]


def test_alignment_counts_words() -> None:
    assert run(b"le chat  dort\n", fake(), alignment=True) == b"le chat  dort\t0-0 1-1 2-2\n"


def test_n_best_numbers_its_lines() -> None:
    lines = run(b"chat\n\nchien\n", fake(), n_best=2).decode().splitlines()
    assert [line.split("\t")[::2] for line in lines] == [["1", "chat"]] * 2 + [["2", ""]] + [["3", "chien"]] * 2


def test_a_conversation_shows_what_is_known() -> None:
    typed = iter(["le chat", ""])

    def ask() -> str:
        try:
            return next(typed)
        except StopIteration:
            raise EOFError from None

    shown: list[str] = []
    converse(fake(), ask, shown.append, TranslateOptions())
    assert shown == ["le chat", "   90% sure   le→le chat→chat", ""]


def test_a_file_is_written_whole_or_not(tmp_path: Path) -> None:
    path = tmp_path / "out.txt"
    path.write_text("old")
    with pytest.raises(TypeError), atomic_file(path) as file:
        file.write("text is no bytes")  # type: ignore[call-overload]
    assert path.read_text() == "old"
    with atomic_file(path) as file:
        file.write(b"new")
    assert path.read_text() == "new"
    assert list(tmp_path.iterdir()) == [path]
    (tmp_path / "file").touch()
    with pytest.raises(DataError, match="cannot be written"), atomic_file(tmp_path / "file" / "out.txt"):
        pass
    with pytest.raises(DataError, match="cannot be written"), atomic_file(tmp_path / "none" / "out.txt"):
        pass


def test_files_may_be_packed(tmp_path: Path) -> None:
    path, output, done = tmp_path / "in.txt.gz", tmp_path / "out.txt", list[int]()
    path.write_bytes(gzip.compress(b"chat\nchien\n"))
    with open_input(path) as read:
        run_filter(fake(), read, output, TranslateOptions(), watch=done.append)
    assert output.read_bytes() == b"chat\nchien\n"
    assert sum(done) == output.stat().st_size
    path.write_bytes(path.read_bytes()[:-9])
    with pytest.raises(DataError, match="truncated"), open_input(path) as read:
        run_filter(fake(), read, output, TranslateOptions())
    with pytest.raises(DataError, match="no such file"), open_input(tmp_path / "none"):
        pass


def test_peeking_takes_nothing_away() -> None:
    chunks = iter([b"un chat\nd\xc3", b"\xa9s", b""])
    beginning, read = peek(lambda _: next(chunks))
    assert beginning == "un chat\nd\ufffd"
    assert [read(9), read(9), read(9)] == [b"un chat\nd\xc3", b"\xa9s", b""]


def command(*words: str | Path) -> list[str]:
    return [sys.executable, "-m", "glassformer", *map(str, words)]


def test_the_command_answers_a_pipe_line_by_line(folder: Path) -> None:
    """A program that waits for each answer gets it; when it leaves, the filter leaves quietly."""
    words = command("translate", folder, "--engine", "torch")
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "env": ENVIRONMENT}
    with subprocess.Popen(words, **pipes) as process:  # type: ignore[call-overload]
        for line in (b"Le chat dort.\n", b"\n", b"\xff\x00\n"):
            process.stdin.write(line)
            process.stdin.flush()
            assert process.stdout.readline().endswith(b"\n")
        process.stdout.close()
        process.stdin.write(b"chat\n" * 10)
        process.stdin.close()
        assert process.wait(PATIENCE) == 128 + signal.SIGPIPE
        assert process.stderr.read() == b""


@pytest.mark.parametrize(("number", "word"), [(signal.SIGINT, b"glassformer: stopped\n"), (signal.SIGTERM, b"")])
def test_the_command_stops_when_it_is_told_to(number: int, word: bytes, folder: Path, tmp_path: Path) -> None:
    words = command("translate", folder, "--engine", "torch", "--output", tmp_path / "out.txt")
    pipes = {"stdin": subprocess.PIPE, "stderr": subprocess.PIPE, "env": ENVIRONMENT}
    with subprocess.Popen(words, **pipes) as process:  # type: ignore[call-overload]
        process.stdin.write(b"chat\n")
        process.stdin.flush()
        while not any(draft.stat().st_size for draft in tmp_path.iterdir()):  # it has answered, and waits for more
            assert process.poll() is None
            time.sleep(0.05)
        process.send_signal(number)
        assert process.wait(PATIENCE) == 128 + number
        assert process.stderr.read() == word
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("redirected", "complaint"),
    [
        ("> /dev/full", "standard output: No space left on device"),
        (">&-", "standard output is closed"),
        ("<&-", "standard input is closed"),
    ],
)
def test_a_closed_or_full_pipe_is_one_line(redirected: str, complaint: str, folder: Path) -> None:
    words = f"echo chat | {shlex.join(command('translate', folder, '--engine', 'torch'))} {redirected}"
    answer = subprocess.run(["bash", "-c", words], env=ENVIRONMENT, capture_output=True, text=True, check=False)
    assert (answer.returncode, answer.stderr) == (2, f"glassformer: {complaint}\n")


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["no-such-model"], "no such model folder"),
        (["{}", "--engine", "torhc"], "did you mean torch?"),
        (["{}", "--search", "widht=3", "--engine", "torch"], "did you mean width?"),
        (["{}", "--input", "no-such-file", "--engine", "torch"], "no such file"),
        (["{}", "--attention"], "--attention needs --json"),
        (["{}", "--alignment", "--nbest", "2"], "--alignment with --nbest needs --json"),
        (["{}", "--interactive", "--output", "x"], "--interactive cannot be combined with"),
        (["{}", "--compute", "int9"], "unknown quantization int9"),
        (["{}", "--compute", "int8", "--engine", "torch"], "compute=int8 is for ctranslate2"),
        (["{0},{0}", "--compute", "float32"], "CTranslate2 cannot run this model: an ensemble"),
    ],
)
def test_a_mistake_is_explained(words: list[str], complaint: str, folder: Path) -> None:
    answer = CliRunner().invoke(app, ["translate", *(word.format(folder) for word in words)])
    assert isinstance(answer.exception, GlassformerError)
    assert complaint in str(answer.exception)
    assert answer.stdout == ""
