"""The texts: every command and every Python block in them runs, and prints what it is said to print."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch

from glassformer.training.recipe import Recipe

ROOT = Path(__file__).parents[1]
DOCUMENTS = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
SHELL = ("sh", "console")
SET_UP = ("make",)  # commands that make the environment in which this test already runs
ENVIRONMENT = {**os.environ, "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}

_BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
_PRINT = re.compile(r"^print\(.*\)  # (.+)$", re.MULTILINE)


class Block(NamedTuple):
    """A fenced block of code."""

    language: str
    code: str


def blocks(text: str) -> list[Block]:
    return [Block(*found) for found in _BLOCK.findall(text)]


def commands(block: Block) -> Iterator[str]:
    """Give the commands of a shell block: each line, or after a prompt where output is shown too."""
    for line in block.code.replace("\\\n", "").splitlines():
        if block.language == "sh" and line.strip():
            yield line
        elif line.startswith("$ "):
            yield line[2:]


def run_command(command: str, folder: Path) -> None:
    """Run one command line of a text; whatever a test must do otherwise than a reader is done here."""
    if command.split()[0] in SET_UP:
        return
    if re.search("glassformer (train|distill) ", command) and "--settings" not in command:
        command += " --max-updates 2"  # the last one counts
    if command.startswith("glassformer plan "):
        command += " --seconds 0.5"
    bash = ["bash", "-o", "pipefail", "-c", command]
    answer = subprocess.run(bash, cwd=folder, env=ENVIRONMENT, capture_output=True, text=True, check=False)
    assert answer.returncode == 0, f"{command}\n{answer.stdout}\n{answer.stderr}"


def run_python(code: str, namespace: dict[str, Any], capture: pytest.CaptureFixture[str]) -> None:
    """Run a Python block; each line that prints says in a comment what it prints."""
    capture.readouterr()
    exec(compile(code, "<text>", "exec"), namespace)
    assert capture.readouterr().out.splitlines() == _PRINT.findall(code)


def run_text(text: str, folder: Path, capture: pytest.CaptureFixture[str]) -> None:
    """Run the blocks of a text in order: one folder, one namespace."""
    namespace: dict[str, Any] = {}
    with torch.random.fork_rng():
        for block in blocks(text):
            if block.language == "python":
                run_python(block.code, namespace, capture)
            elif block.language == "toml":
                (folder / "recipe.toml").write_text(block.code, encoding="utf-8")
                Recipe.read(folder / "recipe.toml", {})
            elif block.language in SHELL:
                for command in commands(block):
                    run_command(command, folder)


@pytest.mark.long
@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.name)
def test_code_in_the_texts_runs(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "recipes").symlink_to(ROOT / "recipes")  # a reader is in a clone
    run_text(path.read_text(encoding="utf-8"), tmp_path, capsys)


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.name)
def test_blocks_have_a_known_language(path: Path) -> None:
    """A block that would be neither run nor meant as a drawing is a slip of the pen."""
    text = path.read_text(encoding="utf-8")
    assert len(blocks(text)) * 2 == text.count("```")
    assert {block.language for block in blocks(text)} <= {"", "python", "toml", *SHELL}


def test_the_readme_has_something_to_run() -> None:
    languages = [block.language for block in blocks((ROOT / "README.md").read_text(encoding="utf-8"))]
    assert {"python", "sh"} <= set(languages)


def test_make_has_the_targets_that_the_texts_name() -> None:
    targets = set(re.findall(r"^(\w+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    for path in DOCUMENTS:
        assert set(re.findall(r"(?:^|`)make (\w+)", path.read_text(encoding="utf-8"), re.MULTILINE)) <= targets


@pytest.mark.parametrize("name", ["README.md", "docs/architecture.md"])
def test_every_room_has_a_line(name: str) -> None:
    text = (ROOT / name).read_text(encoding="utf-8")
    listed = {
        room for line in re.findall(r"^\| (`[^|]+) \|", text, re.MULTILINE) for room in re.findall(r"`([^`]+)`", line)
    }
    package = ROOT / "src" / "glassformer"
    rooms = {path.stem for path in package.iterdir() if path.suffix == ".py" or (path / "__init__.py").is_file()}
    assert {room for room in rooms if not room.startswith("_")} - listed == set()


@pytest.mark.parametrize("path", [*DOCUMENTS, ROOT / "CHANGELOG.md"], ids=lambda path: path.name)
def test_links_lead_somewhere(path: Path) -> None:
    for target in re.findall(r"\]\((?!https?:)([^)#]+)", path.read_text(encoding="utf-8")):
        assert (path.parent / target).exists()


@pytest.mark.parametrize(
    "text",
    [
        "```sh\nfalse\n```\n",
        "```sh\nfalse | true\n```\n",
        "```console\n$ true\noutput\n$ false\n```\n",
        "```python\nassert False\n```\n",
        "```python\nx = 1\n```\n```python\nassert x == 2\n```\n",
        "```python\nprint(1)  # 2\n```\n",
        "```python\nprint(1)\n```\n",
    ],
)
def test_the_check_catches_a_text_that_is_wrong(text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(AssertionError):
        run_text(text, tmp_path, capsys)


def test_state_is_shared_in_order(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = (
        "```console\n$ echo hello > a\n```\n```sh\nmake nothing\ncat a |\\\n  grep hello\n```\n"
        "```python\nx = 1\n```\n```python\nprint(x)  # 1\n```\n"
    )
    run_text(text, tmp_path, capsys)
    assert (tmp_path / "a").read_text() == "hello\n"
