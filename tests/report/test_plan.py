"""The forecast of a run, printed."""

from __future__ import annotations

import json

import pytest

from glassformer.report.plan import print_forecast
from glassformer.training.plan import extrapolate
from tests.training.test_plan import FOUND, WHOLE, with_training


def test_what_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    found = extrapolate(with_training(max_updates=1000), FOUND, WHOLE, 10**9, ["a [note]"])
    print_forecast(found, as_json=True)
    printed = json.loads(capsys.readouterr().out)
    assert printed == json.loads(json.dumps(found._asdict()))
    print_forecast(found, as_json=False)
    table = capsys.readouterr().out
    for words in ("largest max_tokens", "to the end", "34 min", "note: a [note]"):
        assert words in table
