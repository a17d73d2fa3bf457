"""The command line: quick to answer, honest about mistakes, completed by the shell."""

from __future__ import annotations

import logging
import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

import glassformer
from glassformer.cli import app, with_options
from glassformer.config import ModelConfig

PATIENCE = 0.5  # seconds
ENVIRONMENT = {
    **os.environ,
    "COLUMNS": "200",
    "TERM": "dumb",
    "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
}
LIGHT_WORK = {
    "import": ["-c", "import glassformer"],
    "help": ["-m", "glassformer", "--help"],
    "version": ["-m", "glassformer", "--version"],
}


def run(*words: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run a command as a person would, with `glassformer` on the path."""
    return subprocess.run(words, env=ENVIRONMENT | variables, capture_output=True, text=True, check=False)


def seconds(words: list[str]) -> float:
    """Give the processor time that a command takes: what a clock says when nothing else runs."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, *words], env=ENVIRONMENT, capture_output=True, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


@pytest.fixture(scope="module")
def pocket(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("models") / "pocket"
    glassformer.save_model(glassformer.Transformer(glassformer.preset("pocket", vocab=20)), folder)
    return folder


@pytest.mark.parametrize("words", LIGHT_WORK.values(), ids=LIGHT_WORK.keys())
def test_answers_at_once(words: list[str]) -> None:
    """The best of five, so that a busy machine has to be busy five times."""
    assert min(seconds(words) for _ in range(5)) < PATIENCE


@pytest.mark.parametrize("words", LIGHT_WORK.values(), ids=LIGHT_WORK.keys())
def test_does_not_wait_for_torch(words: list[str]) -> None:
    imported = run(sys.executable, "-X", "importtime", *words).stderr
    names = {line.rpartition("|")[2].strip().split(".")[0] for line in imported.splitlines()}
    assert "glassformer" in names
    assert "torch" not in names


def test_version() -> None:
    answer = run("glassformer", "--version")
    assert (answer.returncode, answer.stdout) == (0, f"glassformer {glassformer.__version__}\n")


def test_help_names_every_command() -> None:
    for answer in (run("glassformer", "--help"), run(sys.executable, "-m", "glassformer", "--help")):
        assert answer.returncode == 0
        assert {"info", "notes"} <= set(answer.stdout.split())


@pytest.mark.parametrize(
    ("typed", "completed"), [("no", ["notes"]), ("i", ["info"]), ("--vers", ["--version"]), ("x", [])]
)
def test_bash_completes(typed: str, completed: list[str]) -> None:
    """Load the script that `--show-completion` prints and press Tab, as far as a script can."""
    script = f"""
        eval "$(glassformer --show-completion)"
        function=$(complete -p glassformer | sed 's/.*-F \\([^ ]*\\).*/\\1/')
        COMP_WORDS=(glassformer {typed}) COMP_CWORD=1
        "$function" glassformer
        printf '%s\\n' "${{COMPREPLY[@]}}"
    """
    answer = run("bash", "-c", script)
    assert (answer.returncode, answer.stderr) == (0, "")
    assert answer.stdout.split() == completed


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_each_shell_has_a_completion_script(shell: str) -> None:
    answer = run("glassformer", _GLASSFORMER_COMPLETE=f"source_{shell}")
    assert answer.returncode == 0
    assert f"complete_{shell}" in answer.stdout


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["translat"], "'translat'"),
        (["--verbos"], "--verbos"),
        (["info", "--verbos"], "--verbos"),
        (["info"], "MODEL"),
        (["notes", "25"], "ROW"),
        (["notes", "seven"], "ROW"),
        (["info", "no-such-folder"], "glassformer: no-such-folder: no such model folder"),
    ],
)
def test_a_mistake_is_explained_and_ends_with_2(words: list[str], complaint: str) -> None:
    answer = run("glassformer", *words)
    assert (answer.returncode, answer.stdout) == (2, "")
    assert complaint in answer.stderr
    assert "Traceback" not in answer.stderr


@pytest.mark.parametrize(
    ("message", "said"),
    [
        (
            "x was started with other settings: lr; continue with the new ones (accept_changes=True), start over "
            "(fresh=True), or set another out",
            "x was started with other settings: lr; continue with the new ones (--accept-changes), start over "
            "(--fresh), or set another --out",
        ),
        ("recipe: train is not set: name a training corpus", "recipe: --train is not set: name a training corpus"),
        ("out is not set: name the run folder", "--out is not set: name the run folder"),
        (
            "a.tsv is not a recipe; if it is a corpus, set train to it",
            "a.tsv is not a recipe; if it is a corpus, set --train to it",
        ),
        ("out/fresh: no such folder, as it were out", "out/fresh: no such folder, as it were out"),
    ],
)
def test_remedies_are_options(message: str, said: str) -> None:
    assert with_options(message) == said


def test_a_run_without_corpora_names_the_option() -> None:
    answer = run("glassformer", "train", "--out", "x")
    assert (answer.returncode, answer.stdout) == (2, "")
    assert answer.stderr.startswith("glassformer: ")
    assert "--train" in answer.stderr
    assert len(answer.stderr.splitlines()) == 1


def test_what_the_library_logs_is_printed_on_stderr(monkeypatch: pytest.MonkeyPatch) -> None:
    def log() -> None:
        logging.getLogger("glassformer.training").info("checkpoint %d", 7)
        logging.getLogger("glassformer").debug("not said")

    monkeypatch.setattr("glassformer.report.info.show_models", lambda *_: log())
    logger = logging.getLogger("glassformer")
    before = logger.handlers[:]
    answer = CliRunner().invoke(app, ["models"])
    assert (answer.exit_code, answer.stdout, answer.stderr) == (0, "", "glassformer: checkpoint 7\n")
    assert logger.handlers == before


def test_info_tells_settings_and_sizes(pocket: Path) -> None:
    answer = run("glassformer", "info", str(pocket))
    assert (answer.returncode, answer.stderr) == (0, "")
    told = dict(line.rsplit(maxsplit=1) for line in answer.stdout.splitlines() if len(line.split()) == 2)
    settings = glassformer.preset("pocket", vocab=20)
    for name in ModelConfig.model_fields:
        assert told[name] == str(getattr(settings, name))
    width = settings.d_model
    attention = 4 * (width * width + width)  # W_Q, W_K, W_V, W_O and their biases
    assert told["src_embedding"] == f"{20 * width:,}"  # one table, counted once
    assert told["encoder"] == f"{attention:,}"
    assert told["decoder"] == f"{2 * attention:,}"
    assert told["all"] == f"{20 * width + 3 * attention:,}"


def test_info_can_be_a_page(pocket: Path, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    answer = run("glassformer", "info", str(pocket), "--html", str(page))
    assert (answer.returncode, answer.stdout, answer.stderr) == (0, "", f"glassformer: wrote {page}\n")
    assert "d_model" in page.read_text(encoding="utf-8")


def test_info_of_a_damaged_folder_is_a_mistake(pocket: Path, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_bytes((pocket / "config.json").read_bytes()[:100])
    answer = run("glassformer", "info", str(tmp_path))
    assert (answer.returncode, answer.stdout) == (2, "")
    assert answer.stderr.startswith(f"glassformer: {tmp_path / 'config.json'} is not JSON")
    assert len(answer.stderr.splitlines()) == 1


def test_without_a_model_the_one_that_ships_translates(tmp_path: Path) -> None:
    answer = subprocess.run(
        ["glassformer", "translate", "--engine", "torch"],
        input="Je suis étudiant.\nJane visite l'Afrique en septembre.\n",
        env=ENVIRONMENT,
        capture_output=True,
        text=True,
        check=True,
    )
    student, jane = answer.stdout.splitlines()
    assert student in ("I am a student.", "I'm a student.")
    assert jane == "Jane visits Africa in September."
    listed = run("glassformer", "models").stdout
    assert "fr-en" in listed
    assert "fr to en" in listed
    assert "8000" in run("glassformer", "info", "fr-en").stdout


def test_a_model_folder_is_exported_in_half_the_size(tmp_path: Path) -> None:
    words = ("glassformer", "export", "fr-en", "--to", "folder")
    done = run(*words, "--quantization", "bfloat16", "--out", f"{tmp_path}/b")
    assert done.returncode == 0, done.stderr
    assert {file.name for file in (tmp_path / "b").iterdir()} == {
        "README.md",
        "config.json",
        "examples.txt",
        "model.safetensors",
        "tokenizer.src.model",
        "tokenizer.tgt.model",
    }
    refused = run(*words)
    assert refused.returncode == 2
    assert "needs --out FOLDER" in refused.stderr
