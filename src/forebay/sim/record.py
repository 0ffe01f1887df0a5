"""What happened in one run: every request, every move of a limit, and a sample each second."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import ceil, inf, nan
from typing import TYPE_CHECKING

from forebay.core.model import Outcome

if TYPE_CHECKING:
    from collections.abc import Sequence

    from forebay.core.model import Reason, ServiceClass
    from forebay.sim.server import Size


@dataclass(slots=True, eq=False)
class Request:
    """One request, from the moment of asking.

    Args:
        model: id of the model.
        service_class: the class that it asked in.
        size: what it asked for.
        asked_at: when it arrived, seconds.
        endpoint: id of the endpoint that it was sent to, the last one if it failed elsewhere
            before; None while it waits.
        attempts: endpoints that it was sent to.
        started_at: when it got its slot there.
        first_token_at: when its first token came, if it streams.
        ended_at: when it was over, for better or worse.
        outcome: how it ended at the endpoint; None if it never got there, or still runs.
        refused: why it never got there.
    """

    model: str
    service_class: ServiceClass
    size: Size
    asked_at: float
    endpoint: str | None = None
    attempts: int = 0
    started_at: float = nan
    first_token_at: float = nan
    ended_at: float = nan
    outcome: Outcome | None = None
    refused: Reason | None = None

    @property
    def ok(self) -> bool:
        """Whether it was answered."""
        return self.outcome is Outcome.OK

    @property
    def queued_s(self) -> float:
        """How long it waited for its slot."""
        return self.started_at - self.asked_at

    @property
    def first_token_s(self) -> float:
        """From asking to the first token, queue included: what a user sees."""
        return self.first_token_at - self.asked_at

    @property
    def output_token_s(self) -> float:
        """Mean time of each token after the first; NaN if there are none."""
        gaps = self.size.output_tokens - 1
        return (self.ended_at - self.first_token_at) / gaps if gaps > 0 else nan

    @property
    def total_s(self) -> float:
        """From asking to the end."""
        return self.ended_at - self.asked_at


@dataclass(frozen=True, slots=True)
class LimitMove:
    """A law moved a limit."""

    at: float
    endpoint: str
    limit: int
    reason: str


@dataclass(frozen=True, slots=True)
class ShareMove:
    """Protection moved the share of best-effort work on a GPU."""

    at: float
    group: str
    share: float
    ratio: float | None
    reason: str


@dataclass(frozen=True, slots=True)
class Sample:
    """One endpoint at one instant.

    Args:
        at: when, seconds.
        endpoint: its id.
        inflight: slots taken there.
        limit: its limit.
        waiting: requests in its own class that wait in front of it, in Forebay.
        engine_running: requests that the engine computes.
        engine_waiting: requests (or texts) that wait inside the engine.
        kv_usage: of the engine, 0 to 1, if it has a cache.
    """

    at: float
    endpoint: str
    inflight: int
    limit: int
    waiting: int
    engine_running: float
    engine_waiting: float
    kv_usage: float | None


@dataclass(slots=True)
class Record:
    """A whole run.

    Args:
        seconds: how long it lasted.
        requests: in the order in which they asked.
        limits: every move of every limit.
        shares: every move of every share of best-effort work.
        samples: one a second and endpoint.
        peak_inflight: the most slots that each GPU group ever had taken (an endpoint's id, where
            the group has no budget).
        preemptions: by endpoint.
        floor_violations: instants at which a priority request waited below its floor for
            something else than its own endpoint's limit.
    """

    seconds: float = 0.0
    requests: list[Request] = field(default_factory=list)
    limits: list[LimitMove] = field(default_factory=list)
    shares: list[ShareMove] = field(default_factory=list)
    samples: list[Sample] = field(default_factory=list)
    peak_inflight: dict[str, int] = field(default_factory=dict)
    preemptions: dict[str, int] = field(default_factory=dict)
    floor_violations: int = 0

    def select(
        self,
        model: str | None = None,
        service_class: ServiceClass | None = None,
        *,
        since: float = 0.0,
        until: float = inf,
    ) -> Selection:
        """The requests that ended in a span of time, of one model or class if given."""
        chosen = [
            request
            for request in self.requests
            if since <= request.ended_at < until
            and model in (None, request.model)
            and service_class in (None, request.service_class)
        ]
        return Selection(chosen, min(until, self.seconds) - since)

    def work_over_time(self, model: str | None = None, *, every_s: float = 5.0) -> list[float]:
        """Tokens a second (see `Selection.work_per_s`) in each span of `every_s`, from 0."""
        work = [0.0] * ceil(self.seconds / every_s)
        for request in self.requests:
            if request.ok and request.ended_at < self.seconds and model in (None, request.model):
                work[int(request.ended_at / every_s)] += request.size.work / every_s
        return work

    def samples_of(self, endpoint: str, *, since: float = 0.0, until: float = inf) -> list[Sample]:
        """The samples of one endpoint in a span of time."""
        return [s for s in self.samples if s.endpoint == endpoint and since <= s.at < until]


@dataclass(frozen=True, slots=True)
class Selection:
    """Requests that ended in some span of time.

    Args:
        requests: in the order in which they asked, refused ones included.
        seconds: length of the span.
    """

    requests: list[Request]
    seconds: float

    @property
    def answered(self) -> list[Request]:
        """Those that got their answer."""
        return [request for request in self.requests if request.ok]

    @property
    def requests_per_s(self) -> float:
        """Answers a second."""
        return len(self.answered) / self.seconds

    @property
    def work_per_s(self) -> float:
        """Tokens a second: generated ones, or input where nothing is generated (`Size.work`)."""
        return sum(request.size.work for request in self.answered) / self.seconds

    def first_token_s(self, share: float) -> float:
        """A percentile of the time from asking to the first token."""
        return percentile([r.first_token_s for r in self.answered], share)

    def output_token_s(self, share: float) -> float:
        """A percentile of the time per output token."""
        return percentile([r.output_token_s for r in self.answered], share)

    def total_s(self, share: float) -> float:
        """A percentile of the time from asking to the end."""
        return percentile([r.total_s for r in self.answered], share)

    def queued_s(self, share: float) -> float:
        """A percentile of the time until the slot was there."""
        return percentile([r.queued_s for r in self.answered], share)


def percentile(values: Sequence[float], share: float) -> float:
    """The nearest-rank percentile: the smallest value that `share` of all do not exceed.

    NaN is left out; of nothing, it is NaN.
    """
    known = sorted(value for value in values if value == value)  # noqa: PLR0124 - NaN
    return known[max(0, ceil(share * len(known)) - 1)] if known else nan


def jain(values: Sequence[float]) -> float:
    """Jain's fairness index: 1 when all get the same, 1 / n when one gets everything."""
    squares = sum(value * value for value in values)
    return sum(values) ** 2 / (len(values) * squares) if squares else nan
