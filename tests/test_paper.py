"""The paper of all reports."""

from __future__ import annotations

import pytest

from glassformer.evaluate import comparison_page
from glassformer.explain import checkup_page
from glassformer.paper import print_page
from glassformer.training import curves, report


def test_a_title_is_text() -> None:
    assert "<title>&lt;b&gt;</title>" in print_page("<b>", "")


@pytest.mark.parametrize(
    "style", [comparison_page._STYLE, checkup_page._STYLE, report._STYLE, curves.STYLE, print_page("", "")]
)
def test_styles_are_whole(style: str) -> None:
    """A brace too few, and a browser leaves out all that follows."""
    assert style.count("{") == style.count("}")
