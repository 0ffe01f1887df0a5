"""A report as a table for the terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.markup import escape
from rich.table import Table

if TYPE_CHECKING:
    from forebay.demo.report import Percentiles, Report

_CAPTION = "Times: p50 / p95, ms (p95 against alone). Rates: (against straight)."


def report_table(report: Report) -> Table:
    """The figures of a run, one column for each way of running the load."""
    table = Table(title="Chat beside a storm of bulk generation and embeddings", caption=_CAPTION)
    table.add_column(no_wrap=True)
    for heading in ("chat alone", "storm straight", "through Forebay"):
        table.add_column(heading, justify="right")
    _add_times(table, report)
    _add_rates(table, report)
    _add_counts(table, report)
    return table


def _add_times(table: Table, report: Report) -> None:
    alone, direct, governed = report.alone, report.direct, report.governed
    for label, base, *others in (
        ("first token", alone.first_token, direct.first_token, governed.first_token),
        ("each token", alone.output_token, direct.output_token, governed.output_token),
        ("whole answer", alone.answer, direct.answer, governed.answer),
    ):
        cells = (f"{_times(other)} ({other.p95_s / base.p95_s:.1f}x)" for other in others)
        table.add_row(label, _times(base), *cells)
    by_round = [report.slowdown_by_round(direct), report.slowdown_by_round(governed)]
    ranges = (f"{min(slowdowns):.1f}x to {max(slowdowns):.1f}x" for slowdowns in by_round)
    table.add_row("in each round", "", *ranges, end_section=True)


def _add_rates(table: Table, report: Report) -> None:
    direct, governed = report.direct, report.governed
    table.add_row(
        "bulk tokens / s",
        "",
        f"{direct.bulk_tokens_per_s:.0f}",
        f"{governed.bulk_tokens_per_s:.0f} ({report.bulk_kept:.0%})",
    )
    table.add_row(
        "embeddings / s",
        "",
        f"{direct.embeddings_per_s:.1f}",
        f"{governed.embeddings_per_s:.1f} ({report.embeddings_kept:.0%})",
        end_section=True,
    )


def _add_counts(table: Table, report: Report) -> None:
    ways = (report.alone, report.direct, report.governed)
    table.add_row("answers timed", *(str(way.answers) for way in ways))
    if any(way.refused for way in ways):
        table.add_row("told to come back", *(str(way.refused) for way in ways))
    if any(way.failed for way in ways):
        table.add_row("failed", *(str(way.failed) for way in ways))
        reasons = [way.last_failure for way in ways if way.last_failure is not None]
        table.caption = f"{_CAPTION}\nLast failure: {escape(reasons[-1])}"


def _times(times: Percentiles) -> str:
    return f"{_three_digits(times.p50_s * 1e3)} / {_three_digits(times.p95_s * 1e3)}"


def _three_digits(value: float) -> str:
    return f"{value:.1f}" if value < 100 else f"{value:.0f}"  # noqa: PLR2004 - three digits
