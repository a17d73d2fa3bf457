"""Write a cleaned corpus: the pairs that are kept, and beside them those that were removed, with the reasons."""

from __future__ import annotations

import gzip
import io
import json
from collections.abc import Iterable
from contextlib import ExitStack
from pathlib import Path
from typing import Any, BinaryIO, Final, Self, TextIO

import zstandard

from glassformer.config import CorpusConfig
from glassformer.data.formats import Fault
from glassformer.data.pair import Pair
from glassformer.errors import UsageError
from glassformer.files import atomic_file

_HEADER: Final = ("reasons", "file", "line", "source", "target")
_GZIP_LEVEL: Final = 6


class CleanCorpus:
    """Writes kept pairs to `out`, and removed ones to a TSV file of that name with `.removed` in it.

    The files appear atomically when the `with` block ends without an exception. Every line of the corpus is in one of
    the two.
    """

    def __init__(self, out: CorpusConfig) -> None:
        if out.kind == "tmx":
            raise UsageError(
                f"{out.path}: TMX can be read but not written; write .tsv, .jsonl or two files SOURCE,TARGET"
            )
        self.paths, self.removed_path = out.paths, _removed_path(out)
        self._out = out
        self._files: list[TextIO] = []

    def refuse_to_overwrite(self, corpora: Iterable[CorpusConfig]) -> None:
        """Raise if an output file is also an input file."""
        read = {path.resolve() for corpus in corpora for path in corpus.paths}
        for path in (*self.paths, self.removed_path):
            if path.resolve() in read:
                raise UsageError(f"{path} is an input file: write the cleaned corpus to another file")

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            for path in (*self.paths, self.removed_path):
                file = stack.enter_context(atomic_file(path))
                self._files.append(stack.enter_context(_packed_text(file, path.suffix.lower())))
            self._files[-1].write("\t".join(_HEADER) + "\n")
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *error: Any) -> None:
        self._stack.__exit__(*error)

    def keep(self, pair: Pair) -> None:
        """Write a pair to the cleaned corpus."""
        if self._out.kind == "moses":
            for file, text in zip(self._files, (pair.src, pair.tgt), strict=False):
                file.write(f"{text}\n")
        elif self._out.kind == "tsv":
            self._files[0].write(f"{pair.src}\t{pair.tgt}\n")
        else:
            self._files[0].write(json.dumps(self._as_object(pair), ensure_ascii=False) + "\n")

    def remove(self, pair: Pair, reasons: Iterable[str]) -> None:
        """Write a pair to the removed ones."""
        row = (",".join(reasons), pair.file, str(pair.line), pair.src, pair.tgt)
        self._files[-1].write("\t".join(row) + "\n")

    def remove_fault(self, fault: Fault) -> None:
        """Write an excerpt of a line that gave no pair to the removed ones."""
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


def _packed_text(file: BinaryIO, packing: str) -> TextIO:
    """Write text to a file, compressed as its name says; the same text gives the same bytes."""
    packed: Any = file
    if packing == ".gz":
        packed = gzip.GzipFile(fileobj=file, mode="wb", filename="", mtime=0, compresslevel=_GZIP_LEVEL)
    elif packing == ".zst":
        packed = zstandard.ZstdCompressor(write_checksum=True).stream_writer(file)
    return io.TextIOWrapper(packed, encoding="utf-8", newline="\n")
