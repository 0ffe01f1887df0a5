"""The table shows the figures of the report and nothing that did not happen."""

from __future__ import annotations

from rich.console import Console

from forebay.demo.asking import Answer
from forebay.demo.load import PhaseResult
from forebay.demo.report import Measured, Report
from forebay.demo.table import report_table


def measured(total_s: float, *failures: str) -> Measured:
    answer = Answer(total_s / 4, total_s / 100, total_s)
    return Measured.of(
        [PhaseResult((answer,), 100.0 / total_s, 10.0, refused=0, failures=failures)]
    )


def rendered(report: Report) -> str:
    console = Console(width=140, record=True, file=None, quiet=False)
    with console.capture() as capture:
        console.print(report_table(report))
    return capture.get()


def test_it_shows_times_slowdowns_and_shares() -> None:
    text = rendered(Report(measured(0.1), measured(1.0), measured(0.2)))
    assert "100 / 100" in text
    assert "1000 / 1000 (10.0x)" in text
    assert "200 / 200 (2.0x)" in text
    assert "500 (500%)" in text


def test_failures_are_shown_with_a_reason_if_there_were_any() -> None:
    assert "failed" not in rendered(Report(measured(0.1), measured(1.0), measured(0.2)))
    text = rendered(Report(measured(0.1), measured(1.0), measured(0.2, "no", "[502] gone")))
    assert "failed" in text
    assert "Last failure: [502] gone" in text
