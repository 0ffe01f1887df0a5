"""Recorded traffic as rows for `loads.Trace`."""

from __future__ import annotations

import csv
from datetime import datetime
from typing import TYPE_CHECKING

from forebay.errors import ConfigError
from forebay.sim.server import Size

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


def azure(path: Path, *, most_tokens: int | None = None) -> Iterator[tuple[float, Size]]:
    """Read a trace of the Azure LLM inference dataset, row by row.

    Columns: TIMESTAMP, ContextTokens, GeneratedTokens (github.com/Azure/AzurePublicDataset). Its
    rows are in order of time, its fractions of a second have seven digits.

    Args:
        path: the CSV file.
        most_tokens: requests that are longer, input and output together, are left out: no engine
            whose KV cache is smaller could take them.

    Yields:
        Seconds since the first row, and the size.

    Raises:
        ConfigError: the file cannot be read or has other columns; the message names the line.
    """
    try:
        with path.open(newline="", encoding="utf-8") as file:
            yield from _rows(csv.DictReader(file), most_tokens)
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise ConfigError(f"{path}: {error}") from error


def _rows(reader: csv.DictReader[str], most: int | None) -> Iterator[tuple[float, Size]]:
    begin: datetime | None = None
    for row in reader:
        try:
            at = datetime.fromisoformat(row["TIMESTAMP"][:26])
            size = Size(int(row["ContextTokens"]), int(row["GeneratedTokens"]))
        except (KeyError, TypeError, ValueError) as error:
            raise ValueError(
                f"line {reader.line_num}: expected TIMESTAMP, ContextTokens and GeneratedTokens, "
                f"got {dict(row)}"
            ) from error
        begin = begin or at
        if size.input_tokens < 1 or size.output_tokens < 1:
            continue  # a request that failed
        if most is None or size.input_tokens + size.output_tokens <= most:
            yield (at - begin).total_seconds(), size
