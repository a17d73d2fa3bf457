"""The forecast in the terminal."""

from __future__ import annotations

import io

from rich.console import Console

from glassformer.report.plan import show_forecast
from glassformer.training.plan import extrapolate
from tests.training.test_plan import FOUND, WHOLE, with_training


def test_what_is_printed() -> None:
    found = extrapolate(with_training(max_updates=1000), FOUND, WHOLE, 10**9, ["a [note]"])
    file = io.StringIO()
    show_forecast(found, Console(file=file))
    for words in ("largest max_tokens", "total", "34 min", "note: a [note]"):
        assert words in file.getvalue()
