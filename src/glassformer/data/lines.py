"""Read the bytes and lines of a corpus file, plain, .gz or .zst; lines end at LF only.

Decompression is by hand where the libraries accept a truncated or empty file as complete.
"""

from __future__ import annotations

import gzip
import io
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO, Final

import zstandard

from glassformer.errors import DataError

MAX_LINE: Final = 1 << 20  # bytes; sentences are a thousand times shorter
_BUFFER: Final = 1 << 17

# A kilobyte of zstd expands to at most 32 MB, so that a malicious file cannot exhaust memory.
_ZSTD_CHUNK: Final = 1 << 10

_SIGNATURES: Final = {
    b"\x1f\x8b": "is gzip: rename it to .gz",
    b"\x28\xb5\x2f\xfd": "is zstd: rename it to .zst",
    b"PK\x03\x04": "is a zip archive: unpack it",
    b"\xff\xfe": "is UTF-16, but UTF-8 is required: convert it with iconv -f UTF-16 -t UTF-8",
    b"\xfe\xff": "is UTF-16, but UTF-8 is required: convert it with iconv -f UTF-16 -t UTF-8",
}

# What reading raises if a file is missing, truncated, damaged or not what its name says.
UNREADABLE: Final = (OSError, EOFError, zlib.error, zstandard.ZstdError)

Watch = Callable[[int], None]  # called with the number of bytes read from disk


def no_watch(n_bytes: int) -> None:
    """Ignore progress."""


def open_bytes(path: Path, watch: Watch = no_watch) -> BinaryIO:
    """Open a file, and decompress it if its name ends in .gz or .zst."""
    plain = io.BufferedReader(_Watched(path, watch), _BUFFER)
    start = plain.peek(4)
    match path.suffix.lower():
        case ".gz":
            if not start:  # gzip accepts an empty file as an empty archive
                plain.close()
                raise EOFError
            return io.BufferedReader(_GzipBytes(plain), _BUFFER)
        case ".zst":
            return io.BufferedReader(_ZstdBytes(plain), _BUFFER)
    for signature, advice in _SIGNATURES.items():
        if start.startswith(signature):
            plain.close()
            raise DataError(f"{path} {advice}")
    return plain


def read_lines(path: Path, watch: Watch = no_watch) -> Iterator[tuple[int, bytes]]:
    """Yield each line with its number, from 1, and its line end; lines are truncated after MAX_LINE bytes.

    Raise a DataError that names the last line if the file cannot be read further.
    """
    number = 0
    try:
        with open_bytes(path, watch) as stream:
            while raw := stream.readline(MAX_LINE + 1):
                number += 1
                rest = raw
                while len(rest) > MAX_LINE and not rest.endswith(b"\n"):
                    rest = stream.readline(MAX_LINE + 1)
                yield number, raw
    except UNREADABLE as error:
        raise DataError(explain_unreadable(error, path, number)) from error


def explain_unreadable(error: BaseException, path: Path, line: int) -> str:
    """Return an error message for a file that cannot be read beyond a line."""
    after = f" after line {line:,}" if line else ""
    match error:
        case FileNotFoundError():
            return f"{path}: no such file"
        case EOFError():
            return f"{path}: the compressed file is truncated{after}; download or compress it again"
        case gzip.BadGzipFile():
            return f"{path}: {'damaged' if line else 'not gzip'}{after} ({error})"
        case zlib.error() | zstandard.ZstdError():
            return f"{path}: the compressed file is damaged{after} ({error})"
        case OSError():
            return f"{path}: cannot be read{after}: {error.strerror or error}"
    raise AssertionError(f"unexpected {error!r}")


class _Watched(io.FileIO):
    """A file that reports how much of it was read."""

    def __init__(self, path: Path, watch: Watch) -> None:
        super().__init__(path)
        self._watch = watch

    def readinto(self, buffer: object) -> int:
        n_bytes = super().readinto(buffer)  # type: ignore[arg-type]
        self._watch(n_bytes)
        return n_bytes


class _GzipBytes(gzip.GzipFile):
    """A gzip archive that closes its file, too."""

    def __init__(self, packed: BinaryIO) -> None:
        super().__init__(fileobj=packed, mode="rb")
        self._packed = packed

    def close(self) -> None:
        super().close()
        self._packed.close()


class _ZstdBytes(io.RawIOBase):
    """Concatenated zstd frames; the library's own reader accepts a truncated file as complete."""

    def __init__(self, packed: BinaryIO) -> None:
        self._packed = packed
        self._frame: zstandard.ZstdDecompressionObj | None = None
        self._surplus = b""  # compressed, after the end of a frame
        self._ready = memoryview(b"")  # decompressed, not yet read

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: object) -> int:
        assert isinstance(buffer, memoryview)
        while not self._ready:
            packed = self._surplus or self._packed.read(_ZSTD_CHUNK)
            if not packed and self._frame is None and self._packed.tell():
                return 0
            if not packed:
                raise EOFError
            if self._frame is None:
                self._frame = zstandard.ZstdDecompressor().decompressobj()
            self._ready = memoryview(self._frame.decompress(packed))
            self._surplus = self._frame.unused_data
            if self._frame.eof:
                self._frame = None
        n_bytes = min(len(buffer), len(self._ready))
        buffer[:n_bytes] = self._ready[:n_bytes]
        self._ready = self._ready[n_bytes:]
        return n_bytes

    def close(self) -> None:
        self._packed.close()
        super().close()
