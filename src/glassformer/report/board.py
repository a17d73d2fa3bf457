"""TensorBoard event files of a training run, if the package tensorboard is installed."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from glassformer.training.observer import Observer
from glassformer.training.validation import SCORES

if TYPE_CHECKING:
    from torch.utils.tensorboard.writer import SummaryWriter


TENSORBOARD: Final = "tensorboard"

_FIGURES: Final = ("loss", "lr", "tokens_per_s", "norm", "epoch", "perplexity", *SCORES)


class TensorBoard(Observer):
    """Writes the lines of metrics.jsonl as event files into `tensorboard/`; does nothing if it is not installed."""

    def __init__(self) -> None:
        """Write nothing yet, and import nothing."""
        self._is_installed = find_spec("tensorboard") is not None
        self._folder = Path()
        self._writer: SummaryWriter | None = None

    def start(self, out: Path, max_updates: int) -> None:
        """Remember the folder."""
        self._folder = out / TENSORBOARD

    def record(self, kind: str, entry: Mapping[str, Any]) -> None:
        """Write an entry; updates that an interrupted or rolled-back run makes again replace the earlier ones."""
        if not self._is_installed:
            return
        step = entry["step"]
        if kind == "rollback":
            self.close()
            self._open(step + 1)
        writer = self._writer or self._open(step)
        folder = f"{kind}/{entry['weights']}" if kind == "end" else kind
        for name in _FIGURES:
            if name in entry:
                writer.add_scalar(f"{folder}/{name}", entry[name], step)
        if kind == "dev":
            for number, sample in enumerate(entry["samples"], 1):
                writer.add_text(f"sample {number}", _markdown(sample), step)
            writer.flush()

    def close(self) -> None:
        """Finish the file."""
        if self._writer is not None:
            self._writer.close()
            self._writer = None

    def _open(self, step: int) -> SummaryWriter:
        from torch.utils.tensorboard.writer import SummaryWriter

        self._writer = SummaryWriter(str(self._folder), purge_step=step)
        return self._writer


def _markdown(sample: Mapping[str, str]) -> str:
    """Write a sample as code blocks, in which no markup is interpreted."""
    return "\n\n".join(f"    {sample[name]}" for name in ("src", "hypothesis", "reference"))
