"""A run folder has one trainer at a time, and a killed one leaves no lock behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from glassformer.errors import RunError
from glassformer.training.run import LOCK, lock_run

HOLD = """
import sys, time
from pathlib import Path
from glassformer.training.run import lock_run
with lock_run(Path(sys.argv[1])):
    print("held", flush=True)
    time.sleep(600)
"""


@contextmanager
def holder(out: Path) -> Iterator[subprocess.Popen[str]]:
    """Hold the lock in another process."""
    with subprocess.Popen([sys.executable, "-c", HOLD, str(out)], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        try:
            yield process
        finally:
            process.kill()


def test_the_second_is_refused_and_told_who_holds_it(tmp_path: Path) -> None:
    with holder(tmp_path / "run") as process:
        message = rf"run is in use: process {process.pid} is training into it; wait for it or set another out"
        with pytest.raises(RunError, match=message), lock_run(tmp_path / "run"):
            pass
        assert (tmp_path / "run" / LOCK).exists()


def test_a_killed_process_leaves_no_lock(tmp_path: Path) -> None:
    with holder(tmp_path) as process:
        process.send_signal(signal.SIGKILL)
        process.wait()
        assert (tmp_path / LOCK).exists()
        with lock_run(tmp_path):
            assert (tmp_path / LOCK).read_text() == f"{os.getpid()}\n"
        assert not (tmp_path / LOCK).exists()


def test_one_after_the_other(tmp_path: Path) -> None:
    for _ in range(3):
        with lock_run(tmp_path / "run"):
            (tmp_path / "run" / "file").touch()
            with pytest.raises(RunError, match=f"process {os.getpid()}"), lock_run(tmp_path / "run"):
                pass
    assert [path.name for path in (tmp_path / "run").iterdir()] == ["file"]


def test_a_folder_that_stays_empty_is_removed(tmp_path: Path) -> None:
    with pytest.raises(KeyError), lock_run(tmp_path / "a/b"):
        raise KeyError
    assert not (tmp_path / "a/b").exists()


def test_a_folder_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(RunError, match="the run needs a writable folder"), lock_run(tmp_path / "file" / "run"):
        pass
