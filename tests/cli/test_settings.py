"""Settings as words of the command line, and errors that name the nearest one."""

from __future__ import annotations

from pathlib import Path

import pytest

from glassformer.cli.settings import describe_settings, parse_words
from glassformer.errors import UsageError
from glassformer.training.recipe import list_settings


def test_words_of_the_command_line() -> None:
    words = ["r.toml", "--max-updates", "7", "--lr=0.5", "--train", "a.tsv", "--train", "b.tsv@2", "--compile", "true"]
    path, changes = parse_words([*words, "--noise.lower", "0.1", "--preset", "tiny", "--dropout", "0.3"])
    assert path == Path("r.toml")
    assert changes == {
        "training.max_updates": 7,
        "training.lr": 0.5,
        "train": ["a.tsv", "b.tsv@2"],
        "training.compile": True,
        "reader.noise.lower": 0.1,
        "preset": "tiny",
        "model.dropout": 0.3,
    }


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--max-update", "7"], "unknown setting --max-update; did you mean max-updates?"),
        (["--max-length", "7"], "--max-length is ambiguous: use --reader.max-length or --search.max-length"),
        (["--lr"], "--lr needs a value"),
        (["--lr", "--seed", "1"], "--lr needs a value"),
        (["a.toml", "b.toml"], "'b.toml': expected one recipe"),
    ],
)
def test_wrong_words(words: list[str], message: str) -> None:
    with pytest.raises(UsageError, match="^" + message.replace("?", r"\?").replace(".", r"\.")):
        parse_words(words)


def test_every_setting_is_a_line() -> None:
    lines = {line.split()[0]: line for line in describe_settings()}
    assert lines.keys() == {f"--{name.replace('_', '-')}" for name in list_settings()}
    assert lines["--training.schedule"].endswith("(paper, inverse-sqrt, cosine, linear, constant) [inverse-sqrt]")
    assert lines["--model.d-model"].endswith("[256]")


def test_folders_are_taken_as_they_stand() -> None:
    assert parse_words(["--out", "2025-01-02"])[1] == {"out": "2025-01-02"}
