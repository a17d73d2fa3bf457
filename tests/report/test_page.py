"""The paper of all reports."""

from __future__ import annotations

import pytest

from glassformer.report import charts as curves
from glassformer.report import comparison as comparison_page
from glassformer.report import doctor_page as checkup_page
from glassformer.report import run as report
from glassformer.report.page import print_page


def test_a_title_is_text() -> None:
    assert "<title>&lt;b&gt;</title>" in print_page("<b>", "")


@pytest.mark.parametrize(
    "style", [comparison_page._STYLE, checkup_page._STYLE, report._STYLE, curves.STYLE, print_page("", "")]
)
def test_styles_are_whole(style: str) -> None:
    """A brace too few, and a browser leaves out all that follows."""
    assert style.count("{") == style.count("}")
