"""The Prometheus text format and OpenMetrics, read tolerantly: a bad line never costs a scrape.

Formats: https://prometheus.io/docs/instrumenting/exposition_formats/ (0.0.4) and OpenMetrics 1.0.
Accepted beyond them, because servers and proxies do it: CRLF, a byte order mark, blanks and a
trailing comma inside braces, ``Nan`` and ``-nan``, and the whole page as one JSON string.

Names match exactly, never by prefix; what is absent is None, never zero; the order of lines never
changes a result.
"""

from __future__ import annotations

import math
import re
from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from forebay.adapters.engines.reply import parse_json
from forebay.errors import ScrapeFailed

if TYPE_CHECKING:
    from collections.abc import Mapping

# Possessive quantifiers throughout: no line, however hostile, costs more than linear time.
_LABEL_NAME = r"[a-zA-Z_][a-zA-Z0-9_]*+"
_LABEL_VALUE = r'(?:[^"\\]++|\\.)*+'
_LABEL = rf'{_LABEL_NAME}[ \t]*+=[ \t]*+"{_LABEL_VALUE}"[ \t]*+'
_LABELS = rf"\{{[ \t]*+((?:{_LABEL}(?:,[ \t]*+{_LABEL})*+(?:,[ \t]*+)?+)?+)\}}"
_NUMBER = (
    r"[+-]?(?:[0-9]++(?:\.[0-9]*+)?+|\.[0-9]++)(?:[eE][+-]?[0-9]++)?+"
    r"|[+-]?(?i:inf(?:inity)?+|nan)"
)
_FIND_LABEL = re.compile(rf'({_LABEL_NAME})[ \t]*+=[ \t]*+"({_LABEL_VALUE})"')
_SAMPLE = re.compile(
    r"([a-zA-Z_:][a-zA-Z0-9_:]*+)"
    rf"(?:[ \t]*+{_LABELS}[ \t]*+|[ \t]++)"
    rf"({_NUMBER})"
    r"(?:[ \t]++[-+0-9.eE]++)?+"  # timestamp
    r"(?:[ \t]++\#.*+)?+$"  # exemplar
)
_ESCAPE = re.compile(r"\\(.)")
_ESCAPED = {"\\": "\\", '"': '"', "n": "\n"}

# Labels that tell copies of one figure apart, not parts of a sum: API server processes, and the
# ranks of one tensor- or pipeline-parallel engine, which all compute the same requests.
_COPY_LABELS = frozenset({"pid", "tp_rank", "pp_rank", "moe_ep_rank"})
# No gauge or counter comes near it, and no number of them adds up to infinity.
_MOST = 1e100


@dataclass(frozen=True, slots=True)
class Sample:
    """One line: its labels and its value, which is always finite."""

    labels: Mapping[str, str]
    value: float


@dataclass(frozen=True, slots=True)
class Exposition:
    """The samples of one page.

    Args:
        samples: by exact name.
        warnings: lines that could not be read.
    """

    samples: Mapping[str, tuple[Sample, ...]] = field(default_factory=dict)
    warnings: int = 0

    def select(self, name: str, **labels: str) -> tuple[Sample, ...]:
        """The samples called `name` that carry all these labels."""
        return tuple(
            sample
            for sample in self.samples.get(name, ())
            if all(sample.labels.get(label) == value for label, value in labels.items())
        )

    def value(self, name: str, **labels: str) -> float | None:
        """The one value; None when there is none, or several that differ."""
        values = {sample.value for sample in self.select(name, **labels)}
        return values.pop() if len(values) == 1 else None

    def max(self, name: str, **labels: str) -> float | None:
        """The highest value; None when there is none."""
        return max((sample.value for sample in self.select(name, **labels)), default=None)

    def ratio(self, name: str, **labels: str) -> float | None:
        """The highest value from 0 to 1; None when there is none. Others are no ratios."""
        values = (sample.value for sample in self.select(name, **labels))
        return max((value for value in values if 0 <= value <= 1), default=None)

    def sum(self, name: str, **labels: str) -> float | None:
        """The sum over engines and ranks, copies of one figure counted once; None when empty."""
        parts: dict[frozenset[tuple[str, str]], float] = {}
        for sample in self.select(name, **labels):
            part = frozenset(item for item in sample.labels.items() if item[0] not in _COPY_LABELS)
            parts[part] = max(parts.get(part, -math.inf), sample.value)
        return math.fsum(parts.values()) if parts else None

    def mean(self, family: str, **labels: str) -> float | None:
        """The mean of a histogram or summary over all that it counted; None when it has none."""
        total = self.sum(f"{family}_sum", **labels)
        count = self.sum(f"{family}_count", **labels)
        return total / count if total is not None and count else None

    def for_model(self, label: str, model: str) -> Exposition:
        """Only what concerns `model`, judged family by family.

        A family that knows the model keeps its samples of it. One that knows a single other name
        is taken whole: servers are often reached by an alias. Among several others there is no
        telling, so the family is unknown.
        """

        def concerned(samples: tuple[Sample, ...]) -> tuple[Sample, ...]:
            names = {sample.labels.get(label) for sample in samples}
            if len(names) == 1:
                return samples
            return tuple(sample for sample in samples if sample.labels.get(label) == model)

        kept = {name: concerned(samples) for name, samples in self.samples.items()}
        return Exposition(kept, self.warnings)

    def without_prefix(self, *prefixes: str) -> Exposition:
        """The families that start with the first of these prefixes to be found, less the prefix."""
        for prefix in prefixes:
            found = {
                name.removeprefix(prefix): samples
                for name, samples in self.samples.items()
                if name.startswith(prefix)
            }
            if found:
                return Exposition(found, self.warnings)
        return Exposition({}, self.warnings)


def parse(text: str, wanted: frozenset[str] | None = None) -> Exposition:
    """Read a page.

    Every line's shape is checked, so that `warnings` does not depend on `wanted`. ``NaN`` is a
    lawful "no data": skipped, not counted. Infinite values, and those that would become so when
    added up, are no measurement: skipped and counted.

    Args:
        text: the page.
        wanted: the sample names to keep; None keeps all.

    Raises:
        ScrapeFailed: when it is not an exposition at all: HTML, or not one line that fits.
    """
    text = text.lstrip()
    if text.startswith("<"):
        raise ScrapeFailed("HTML in place of metrics: a login page or a proxy's error page")
    if text.startswith('"'):
        text = _unquoted(text)
    samples: defaultdict[str, list[Sample]] = defaultdict(list)
    warnings = 0
    understood = not text
    for raw in text.split("\n"):
        line = raw.strip(" \t\r")
        if not line or line[0] == "#":
            understood = understood or bool(line)
            continue
        match = _SAMPLE.match(line)
        if match is None:
            warnings += 1
            continue
        understood = True
        value = float(match[3])
        if abs(value) > _MOST:
            warnings += 1
        elif not math.isnan(value) and (wanted is None or match[1] in wanted):
            samples[match[1]].append(Sample(_labels(match[2]), value))
    if not understood:
        raise ScrapeFailed("neither metrics nor comments in the body")
    return Exposition({name: tuple(found) for name, found in samples.items()}, warnings)


def declares(text: str, *prefixes: str) -> bool:
    """Whether a page has a name, given or only declared, that starts with one of `prefixes`."""
    if text.startswith('"'):
        text = _unquoted(text)
    either = "|".join(re.escape(prefix) for prefix in prefixes)
    return re.search(rf"^(?:# (?:HELP|TYPE) )?(?:{either})", text, re.MULTILINE) is not None


def _unquoted(text: str) -> str:
    """The page inside a JSON string (some llama.cpp builds answer that way), decoded once."""
    decoded = parse_json(text)
    return decoded if isinstance(decoded, str) else text


def _labels(text: str | None) -> dict[str, str]:
    if not text:
        return {}
    return {
        name: _ESCAPE.sub(_unescape, value) if "\\" in value else value
        for name, value in _FIND_LABEL.findall(text)
    }


def _unescape(match: re.Match[str]) -> str:
    return _ESCAPED.get(match[1], match[0])
