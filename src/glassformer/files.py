"""Atomic writes: a file or folder appears under its name when all of it is on disk, and not before."""

from __future__ import annotations

import errno
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any, BinaryIO

from glassformer.errors import DataError, GlassformerError


def check_parent(path: Path) -> None:
    """Raise, before hours of work, if the folder that `path` is to be written into does not exist."""
    if not path.absolute().parent.is_dir():
        raise DataError(f"{path} cannot be written: the folder {path.parent} does not exist")


@contextmanager
def atomic_file(path: Path, *, durable: bool = False, error: type[GlassformerError] = DataError) -> Iterator[BinaryIO]:
    """Open a file that replaces `path` when the block ends without an exception.

    Pipes and devices are written directly. `durable` waits until the content is on disk. An OSError becomes an `error`.
    """
    is_device = path.exists() and not path.is_file()
    draft = path if is_device else path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        with draft.open("wb") as file:
            yield file
            if durable and not is_device:
                sync(file)
        if not is_device:
            os.replace(draft, path)
            if durable:
                sync_folder(path.parent)
    except OSError as problem:
        raise error(f"{path} cannot be written: {problem.strerror or problem}") from None
    finally:
        if not is_device:
            with suppress(OSError):
                draft.unlink()


def write_text(
    path: str | Path, text: str, *, durable: bool = False, error: type[GlassformerError] = DataError
) -> None:
    """Write a UTF-8 text file atomically."""
    with atomic_file(Path(path), durable=durable, error=error) as file:
        file.write(text.encode("utf-8"))


@contextmanager
def atomic_folder(
    folder: Path,
    *,
    durable: bool = False,
    error: type[GlassformerError] = DataError,
    is_same: Callable[[Path, Path], bool] | None = None,
) -> Iterator[Path]:
    """Yield an empty draft folder that replaces `folder` when the block ends without an exception.

    Several processes may write one folder at the same time: each finds a complete one there afterwards. Where
    `is_same(draft, folder)` holds, the folder that is there stays. An OSError becomes an `error`.
    """
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=f".{folder.name}.", dir=folder.parent) as scratch:
            draft = Path(scratch) / folder.name
            draft.mkdir()
            yield draft
            if durable:
                sync_folder(draft)
            _put(draft, folder, Path(scratch), is_same)
            if durable:
                sync_folder(folder.parent)
    except OSError as problem:
        raise error(f"{folder} cannot be written: {problem.strerror or problem}") from None


def _put(draft: Path, folder: Path, scratch: Path, is_same: Callable[[Path, Path], bool] | None) -> None:
    while True:
        try:
            draft.rename(folder)
        except OSError as problem:
            if problem.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                raise
            if is_same is not None and is_same(draft, folder):
                return
            with suppress(FileNotFoundError):  # another process has just moved it away
                folder.rename(Path(tempfile.mkdtemp(dir=scratch)) / folder.name)
        else:
            return


def remove(path: Path) -> None:
    """Delete a file or a folder with everything in it, if it exists."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def sync(file: IO[Any]) -> None:
    """Wait until what was written to a file is on disk."""
    file.flush()
    os.fsync(file.fileno())


def sync_folder(folder: Path) -> None:
    """Wait until the names in a folder are on disk."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
