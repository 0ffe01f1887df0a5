"""What a run of the demonstration showed, computed from that run's samples alone."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from forebay.demo.asking import Answer
    from forebay.demo.load import PhaseResult

_NOTHING_TO_PROTECT = 1.2  # a storm that slows chat less than this is within ordinary noise


def percentile(samples: Iterable[float], share: float) -> float:
    """The smallest sample that at least `share` of all samples do not exceed (nearest rank).

    Raises:
        ValueError: there are no samples, or `share` is not in (0, 1].
    """
    ordered = sorted(samples)
    if not ordered or not 0 < share <= 1:
        raise ValueError(f"no percentile {share} of {len(ordered)} samples")
    return ordered[math.ceil(share * len(ordered)) - 1]


@dataclass(frozen=True, slots=True)
class Percentiles:
    """Median and 95th percentile, seconds."""

    p50_s: float
    p95_s: float

    @classmethod
    def of(cls, samples: Sequence[float]) -> Percentiles:
        """Both, exactly, from samples."""
        return cls(percentile(samples, 0.5), percentile(samples, 0.95))


@dataclass(frozen=True, slots=True)
class Measured:
    """One way of running the load, all its rounds together.

    Args:
        answers: chat answers that were timed.
        first_token: from asking to the first token.
        output_token: per token after the first, as a mean of each answer.
        answer: from asking to the end.
        answer_p95_by_round_s: 95th percentile of `answer` in each round, to show the spread.
        bulk_tokens_per_s: what bulk generation got, mean of the rounds.
        embeddings_per_s: texts embedded, mean of the rounds.
        refused: requests that were told to come back later (429), and did.
        failed: requests that failed in any other way.
        last_failure: why the last of them did.
    """

    answers: int
    first_token: Percentiles
    output_token: Percentiles
    answer: Percentiles
    answer_p95_by_round_s: tuple[float, ...]
    bulk_tokens_per_s: float
    embeddings_per_s: float
    refused: int
    failed: int
    last_failure: str | None

    @classmethod
    def of(cls, rounds: Sequence[PhaseResult]) -> Measured:
        """The figures of the rounds of one phase; each has at least one answer."""
        answers = [answer for result in rounds for answer in result.answers]
        failures = [failure for result in rounds for failure in result.failures]

        def percentiles(value: Callable[[Answer], float]) -> Percentiles:
            return Percentiles.of([value(answer) for answer in answers])

        return cls(
            answers=len(answers),
            first_token=percentiles(lambda answer: answer.first_token_s),
            output_token=percentiles(lambda answer: answer.output_token_s),
            answer=percentiles(lambda answer: answer.total_s),
            answer_p95_by_round_s=tuple(
                percentile((answer.total_s for answer in result.answers), 0.95) for result in rounds
            ),
            bulk_tokens_per_s=_mean([result.bulk_tokens_per_s for result in rounds]),
            embeddings_per_s=_mean([result.embeddings_per_s for result in rounds]),
            refused=sum(result.refused for result in rounds),
            failed=len(failures),
            last_failure=failures[-1] if failures else None,
        )


@dataclass(frozen=True, slots=True)
class Report:
    """The comparison.

    Args:
        alone: chat without a storm.
        direct: with the storm straight at the engines.
        governed: with the same storm through Forebay.
    """

    alone: Measured
    direct: Measured
    governed: Measured

    def slowdown(self, measured: Measured) -> float:
        """How many times as long chat's answers take as alone, at the 95th percentile."""
        return measured.answer.p95_s / self.alone.answer.p95_s

    def slowdown_by_round(self, measured: Measured) -> tuple[float, ...]:
        """The same in each round, against chat alone in that round."""
        return tuple(
            storm_s / alone_s
            for storm_s, alone_s in zip(
                measured.answer_p95_by_round_s, self.alone.answer_p95_by_round_s, strict=True
            )
        )

    @property
    def inflation_cut(self) -> float:
        """By how many times Forebay made smaller what the storm adds to chat's answers.

        Infinite where nothing is left of it.
        """
        left = self.slowdown(self.governed) - 1
        return (self.slowdown(self.direct) - 1) / left if left > 0 else math.inf

    @property
    def bulk_kept(self) -> float:
        """The share of bulk generation's tokens per second that it keeps through Forebay."""
        return self.governed.bulk_tokens_per_s / self.direct.bulk_tokens_per_s

    @property
    def embeddings_kept(self) -> float:
        """The share of the embeddings per second that are kept through Forebay."""
        return self.governed.embeddings_per_s / self.direct.embeddings_per_s

    @property
    def sentence(self) -> str:
        """The outcome in one plain sentence, whatever it is."""
        direct, governed = self.slowdown(self.direct), self.slowdown(self.governed)
        kept = (
            f"bulk generation kept {self.bulk_kept:.0%} of its tokens per second and embeddings "
            f"{self.embeddings_kept:.0%} of theirs"
        )
        if direct < _NOTHING_TO_PROTECT:
            return (
                f"This run shows nothing to protect: the storm made chat's answers only "
                f"{direct:.1f} times as slow (p95), and {governed:.1f} times through Forebay; "
                f"{kept}."
            )
        if governed >= direct:
            return (
                f"This run shows no improvement: the storm made chat's answers {direct:.1f} times "
                f"as slow (p95) straight at the engines and {governed:.1f} times through Forebay; "
                f"{kept}."
            )
        return (
            f"The storm made chat's answers {direct:.1f} times as slow (p95) straight at the "
            f"engines and {governed:.1f} times through Forebay, where {kept}."
        )

    def as_dict(self) -> dict[str, Any]:
        """All figures, as plain values for JSON; null stands for an infinite one."""
        cut = self.inflation_cut
        return {
            "alone": asdict(self.alone),
            "direct": asdict(self.direct),
            "governed": asdict(self.governed),
            "slowdown_direct": self.slowdown(self.direct),
            "slowdown_direct_by_round": self.slowdown_by_round(self.direct),
            "slowdown_governed": self.slowdown(self.governed),
            "slowdown_governed_by_round": self.slowdown_by_round(self.governed),
            "inflation_cut": cut if math.isfinite(cut) else None,
            "bulk_kept": self.bulk_kept,
            "embeddings_kept": self.embeddings_kept,
            "sentence": self.sentence,
        }


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)
