"""How long a server asks to be left alone.

Source: RFC 9110 §10.2.3 (Retry-After) and §5.6.7 (the three date forms that a recipient must
accept), and the ``retry-after-ms`` header of OpenAI-compatible services. Nothing here raises:
what cannot be understood is None, and the caller uses its own back-off.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from forebay.adapters.engines.reply import header

if TYPE_CHECKING:
    from collections.abc import Mapping

DEFAULT_CAP_S = 120.0

_DECIMAL = re.compile(r"[0-9]+(?:\.[0-9]+)?")
_CLOCK = r"(?P<hour>\d\d):(?P<minute>\d\d):(?P<second>\d\d)"
_DATES = (
    re.compile(rf"[A-Za-z]{{3}}, (?P<day>\d\d) (?P<month>\w{{3}}) (?P<year>\d{{4}}) {_CLOCK} GMT"),
    re.compile(rf"[A-Za-z]{{6,9}}, (?P<day>\d\d)-(?P<month>\w{{3}})-(?P<year>\d\d) {_CLOCK} GMT"),
    re.compile(rf"[A-Za-z]{{3}} (?P<month>\w{{3}}) (?P<day>[ \d]\d) {_CLOCK} (?P<year>\d{{4}})"),
)
_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")


def retry_after_s(
    headers: Mapping[str, str], *, now: datetime, cap_s: float = DEFAULT_CAP_S
) -> float | None:
    """The delay that a response asks for, in seconds; None when it asks for none.

    Args:
        headers: the response's headers, in any case.
        now: the present, aware; dates count from the response's own Date where it has one, so
            that a clock that differs from the server's does not matter.
        cap_s: no delay is longer than this.
    """
    milliseconds = _decimal(header(headers, "retry-after-ms"))
    if milliseconds is not None:
        return min(milliseconds / 1000, cap_s)
    value = header(headers, "retry-after").strip()
    seconds = _decimal(value)
    if seconds is None:
        until = http_date(value)
        if until is None:
            return None
        reference = http_date(header(headers, "date")) or now
        seconds = max(0.0, (until - reference).total_seconds())
    return min(seconds, cap_s)


def http_date(value: str) -> datetime | None:
    """An HTTP date in any of its three forms; None when it is not one."""
    match = next((found for form in _DATES if (found := form.fullmatch(value.strip()))), None)
    if match is None:
        return None
    month = match["month"].lower()
    if month not in _MONTHS:
        return None
    year = int(match["year"])
    if len(match["year"]) == 2:  # noqa: PLR2004 - the obsolete form, in use until about 1995
        year += 2000
    try:
        return datetime(
            year,
            _MONTHS.index(month) + 1,
            int(match["day"]),
            int(match["hour"]),
            int(match["minute"]),
            int(match["second"]),
            tzinfo=UTC,
        )
    except ValueError:
        return None


def _decimal(value: str) -> float | None:
    value = value.strip()
    return float(value) if _DECIMAL.fullmatch(value) else None
