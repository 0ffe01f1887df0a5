"""A report as a table for the terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.table import Table

if TYPE_CHECKING:
    from forebay.demo.report import Percentiles, Report


def report_table(report: Report) -> Table:
    """The figures of a run, one column for each way of running the load."""
    alone, direct, governed = report.alone, report.direct, report.governed
    table = Table(
        title="Chat beside a storm of bulk generation and embeddings",
        caption="Times: p50 / p95, ms (p95 against chat alone). Rates: (against the storm straight).",
    )
    table.add_column(no_wrap=True)
    for heading in ("chat alone", "storm straight", "through Forebay"):
        table.add_column(heading, justify="right")

    for label, base, *others in (
        ("first token", alone.first_token, direct.first_token, governed.first_token),
        ("each token", alone.output_token, direct.output_token, governed.output_token),
        ("whole answer", alone.answer, direct.answer, governed.answer),
    ):
        cells = (_against(base, other) for other in others)
        table.add_row(label, _milliseconds(base), *cells)
    table.add_row(
        "in each round",
        "",
        _range(report.slowdown_by_round(direct)),
        _range(report.slowdown_by_round(governed)),
        end_section=True,
    )
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
    counts = {
        "answers timed": [alone.answers, direct.answers, governed.answers],
        "told to come back later": [alone.refused, direct.refused, governed.refused],
        "failed": [alone.failed, direct.failed, governed.failed],
    }
    for label, values in counts.items():
        if any(values):
            table.add_row(label, *(str(value) for value in values))
    return table


def _milliseconds(times: Percentiles) -> str:
    return f"{_three_digits(times.p50_s * 1e3)} / {_three_digits(times.p95_s * 1e3)}"


def _against(base: Percentiles, times: Percentiles) -> str:
    return f"{_milliseconds(times)} ({times.p95_s / base.p95_s:.1f}x)"


def _range(slowdowns: tuple[float, ...]) -> str:
    return f"{min(slowdowns):.1f}x to {max(slowdowns):.1f}x"


def _three_digits(value: float) -> str:
    return f"{value:.1f}" if value < 100 else f"{value:.0f}"  # noqa: PLR2004 - three digits
