"""A calibration in the terminal, and its reliability diagrams as a page."""

from __future__ import annotations

from rich.console import Console

from glassformer.evaluation.calibration import CalibrationResult
from glassformer.report.charts import draw_reliability
from glassformer.report.page import render
from glassformer.report.terminal import show, table


def show_calibration(result: CalibrationResult, console: Console) -> None:
    """Print confidence and quality of sentences of similar confidence, before and after, and the errors."""
    header = ("sentences", "probability", "quality", "confidence", "quality")
    rows = [
        (f"{one.n_sentences:,}", *(f"{value:.2f}" for value in (*one[1:], *other[1:])))
        for one, other in zip(result.before.bins, result.after.bins, strict=True)
    ]
    errors = ("error", f"{result.before.error:.3f}", "", f"{result.after.error:.3f}", "")
    show(console, table(header, [*rows, errors], right=range(5)), wrap=False)


def calibration_html(name: str, result: CalibrationResult) -> str:
    """Return the reliability diagrams as a page."""
    charts = [
        draw_reliability("Probability, as the model gives it", result.before),
        draw_reliability("Confidence, calibrated", result.after),
    ]
    return render("calibration.html.j2", name=name, charts=charts, calibration=result.calibration)
