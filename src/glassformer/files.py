"""Files that are there when all of them is, and not before."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any, BinaryIO

from glassformer.errors import DataError


def check_place(path: Path) -> None:
    """See, before the work, that there is a folder to write a file into."""
    if not path.absolute().parent.is_dir():
        raise DataError(f"{path}: cannot be written: there is no folder {path.parent}")


@contextmanager
def whole_file(path: Path) -> Iterator[BinaryIO]:
    """Open a file to write, which takes its place at the end; pipes and devices are written directly."""
    is_device = path.exists() and not path.is_file()
    draft = path if is_device else path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        with draft.open("wb") as file:
            yield file
        if not is_device:
            os.replace(draft, path)
    except OSError as error:
        raise DataError(f"{path}: cannot be written: {error.strerror or error}") from None
    finally:
        if not is_device:
            with suppress(OSError):
                draft.unlink()


def write_text(path: str | Path, text: str) -> None:
    """Write a text file, whole or not at all."""
    with whole_file(Path(path)) as file:
        file.write(text.encode("utf-8"))


def sync(file: IO[Any]) -> None:
    """Wait until what was written to a file is on the disk."""
    file.flush()
    os.fsync(file.fileno())


def sync_folder(folder: Path) -> None:
    """Wait until the names in a folder are on the disk."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
