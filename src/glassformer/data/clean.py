"""A cleaned corpus on disk: what is kept, and beside it what was taken out, with the reasons."""

from __future__ import annotations

import gzip
import io
import json
import os
from collections.abc import Iterable
from contextlib import ExitStack, suppress
from pathlib import Path
from types import TracebackType
from typing import BinaryIO, Final, Self, TextIO

import zstandard

from glassformer.config import CorpusConfig
from glassformer.data.formats import Fault
from glassformer.data.pair import Pair
from glassformer.errors import DataError, UsageError

_HEADER: Final = ("reasons", "file", "line", "source", "target")
_GZIP_LEVEL: Final = 6


class CleanCorpus:
    """Writes pairs that are kept to `out`, and the others to a TSV file of that name with `.removed` in it.

    Both appear whole when the `with` block ends well, and not at all when it does not. Each line of the corpus
    that was read is in one of the two.
    """

    def __init__(self, out: CorpusConfig) -> None:
        if out.kind == "tmx":
            raise UsageError(f"{out.path}: TMX is read, not written; write .tsv, .jsonl or two files SOURCE,TARGET")
        self.paths = [out.path] if out.target_path is None else [out.path, out.target_path]
        self.removed_path = _removed_path(out)
        self._out = out
        self._stack = ExitStack()
        self._files: list[TextIO] = []

    def refuse_to_overwrite(self, corpora: Iterable[CorpusConfig]) -> None:
        """Raise a UsageError if a file that is to be written is one that is to be read."""
        read = {path.resolve() for corpus in corpora for path in (corpus.path, corpus.target_path) if path is not None}
        for path in (*self.paths, self.removed_path):
            if path.resolve() in read:
                raise UsageError(f"{path} is read: write the cleaned corpus to another file")

    def __enter__(self) -> Self:
        try:
            for path in (*self.paths, self.removed_path):
                self._files.append(self._stack.enter_context(_open_packed(_unfinished(path), path.suffix.lower())))
        except OSError as error:
            self._give_up()
            raise DataError(f"{path}: cannot be written: {error.strerror or error}") from error
        self._files[-1].write("\t".join(_HEADER) + "\n")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self._stack.close()
            if error is None:
                for path in (*self.paths, self.removed_path):
                    os.replace(_unfinished(path), path)
        except OSError as failure:
            error = failure
        if error is not None:
            self._give_up()
            if isinstance(error, OSError):  # of what can fail here, only writing is not yet an error of ours
                raise DataError(f"{self.paths[0]}: cannot be written: {error.strerror or error}") from error

    def _give_up(self) -> None:
        with suppress(OSError):
            self._stack.close()
        for path in (*self.paths, self.removed_path):
            _unfinished(path).unlink(missing_ok=True)

    def keep(self, pair: Pair) -> None:
        """Write a pair to the cleaned corpus."""
        if self._out.kind == "moses":
            self._files[0].write(pair.src + "\n")
            self._files[1].write(pair.tgt + "\n")
        elif self._out.kind == "tsv":
            self._files[0].write(f"{pair.src}\t{pair.tgt}\n")
        else:
            self._files[0].write(json.dumps(self._as_object(pair), ensure_ascii=False) + "\n")

    def remove(self, pair: Pair, reasons: Iterable[str]) -> None:
        """Write a pair to what was taken out."""
        row = (",".join(reasons), pair.file, str(pair.line), pair.src, pair.tgt)
        self._files[-1].write("\t".join(row) + "\n")

    def remove_fault(self, fault: Fault) -> None:
        """Write a line that gave no pair to what was taken out, as an excerpt: it may be no text at all."""
        row = (str(fault.kind), fault.file, str(fault.line), fault.text, "")
        self._files[-1].write("\t".join(row) + "\n")

    def _as_object(self, pair: Pair) -> dict[str, object]:
        if self._out.src_lang is not None and self._out.tgt_lang is not None:
            return {"translation": {self._out.src_lang: pair.src, self._out.tgt_lang: pair.tgt}}
        return {self._out.src_field: pair.src, self._out.tgt_field: pair.tgt}


def _removed_path(out: CorpusConfig) -> Path:
    packing = out.path.suffix if out.path.suffix.lower() in (".gz", ".zst") else ""
    name = out.path.name.removesuffix(packing)
    if out.kind != "moses":
        name = Path(name).stem
    return out.path.with_name(f"{name}.removed.tsv{packing}")


def _unfinished(path: Path) -> Path:
    return path.with_name(f".{path.name}.part")


def _open_packed(path: Path, packing: str) -> TextIO:
    """Open a text file for writing, packed as its final name will say; the same text gives the same bytes."""
    plain = open(path, "wb")  # noqa: SIM115 - closed with what is laid around it
    packed: BinaryIO = plain
    if packing == ".gz":
        packed = _Gzip(plain)  # type: ignore[assignment]
    elif packing == ".zst":
        packed = zstandard.ZstdCompressor(write_checksum=True).stream_writer(plain)
    return io.TextIOWrapper(packed, encoding="utf-8", newline="\n")


class _Gzip(gzip.GzipFile):
    """A gzip archive without a date that closes its file too."""

    def __init__(self, plain: BinaryIO) -> None:
        super().__init__(fileobj=plain, mode="wb", filename="", mtime=0, compresslevel=_GZIP_LEVEL)
        self._plain = plain

    def close(self) -> None:
        super().close()
        self._plain.close()
