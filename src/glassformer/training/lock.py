"""One process at a time trains into a run folder."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import IO, Final

from glassformer.errors import RunError

LOCK: Final = "run.lock"


@contextmanager
def lock_run(out: Path) -> Iterator[None]:
    """Hold `out`, which is created if necessary, for as long as the block lasts; raise if another process holds it.

    The system releases the lock of a process that is killed, so no stale lock is left. A folder that stays empty is
    removed again.
    """
    path = out / LOCK
    try:
        file = _open_locked(path)
    except BlockingIOError:
        holder = path.read_text(encoding="utf-8").strip() if path.exists() else ""
        by = f"process {holder}" if holder else "another process"
        raise RunError(f"{out} is in use: {by} is training into it; wait for it or set another out") from None
    except OSError as error:
        raise RunError(f"{error.filename or out}: {error.strerror}; the run needs a writable folder") from None
    with file:
        try:
            yield
        finally:
            with suppress(OSError):  # the folder may be gone
                path.unlink()
                out.rmdir()  # fails, as it should, if the folder is not empty


def _open_locked(path: Path) -> IO[str]:
    while True:
        path.parent.mkdir(parents=True, exist_ok=True)
        with suppress(FileNotFoundError), ExitStack() as stack:  # the process that held it has just deleted it
            file = stack.enter_context(path.open("a", encoding="utf-8"))
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if path.stat().st_ino == os.fstat(file.fileno()).st_ino:
                file.truncate(0)
                file.write(f"{os.getpid()}\n")
                file.flush()
                stack.pop_all()
                return file
