"""Prometheus metrics. Names begin with ``forebay_``; labels come from the configuration only."""

from __future__ import annotations

from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry

from forebay.adapters.telemetry.counts import Counts, Durations
from forebay.adapters.telemetry.gauges import labels_of
from forebay.adapters.telemetry.requests import RequestObserver
from forebay.core.model import TimingKind

if TYPE_CHECKING:
    from prometheus_client.registry import Collector

    from forebay.core.breaker import Change
    from forebay.core.model import Decision, Ending, Endpoint, Outcome, Ticket

_OUTPUT_TOKEN = TimingKind.OUTPUT_TOKEN
_QUEUE_BUCKETS = (0.001, 0.005, 0.02, 0.1, 0.5, 1, 2, 5, 10, 30, 60, 120, 300)
_FIRST_TOKEN_BUCKETS = (0.01, 0.025, 0.05, 0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 12.8, 30, 60)
_OUTPUT_TOKEN_BUCKETS = (0.002, 0.005, 0.01, 0.02, 0.035, 0.05, 0.075, 0.1, 0.2, 0.4, 1)


class Metrics(RequestObserver):
    """Counts what happens; what *is* (in flight, limits) is read when scraped: see `gauges`."""

    def __init__(self) -> None:
        registry = self.registry = CollectorRegistry()
        of_model = ["model", "class"]
        of_endpoint = ["model", "endpoint", "gpu_group"]
        self._requests = Counts(
            registry,
            "forebay_requests",
            "Requests that were admitted, by how they ended",
            [*of_endpoint, "outcome"],
        )
        self._rejections = Counts(
            registry,
            "forebay_rejections",
            "Requests that were not admitted, by why",
            [*of_model, "reason"],
        )
        self._retries = Counts(
            registry,
            "forebay_retries",
            "Attempts at another endpoint, by how the one before ended",
            [*of_model, "reason"],
        )
        self._limit_changes = Counts(
            registry,
            "forebay_limit_changes",
            "Moves of in-flight limits, by why",
            [*of_endpoint, "reason"],
        )
        self._breaker_changes = Counts(
            registry,
            "forebay_breaker_changes",
            "Changes of a breaker's state",
            [*of_endpoint, "to"],
        )
        self._failovers = Counts(
            registry, "forebay_failovers", "Times that a model's fallback took over", ["model"]
        )
        self._recoveries = Counts(
            registry, "forebay_recoveries", "Times that a model's primary came back", ["model"]
        )
        self._queue_s = Durations(
            registry,
            "forebay_queue_seconds",
            "Time that admitted requests waited",
            of_model,
            _QUEUE_BUCKETS,
        )
        self._first_token_s = Durations(
            registry,
            "forebay_first_token_seconds",
            "Time from sending a streaming request to its first event",
            of_endpoint,
            _FIRST_TOKEN_BUCKETS,
        )
        self._output_token_s = Durations(
            registry,
            "forebay_output_token_seconds",
            "Time for each output token after the first",
            of_endpoint,
            _OUTPUT_TOKEN_BUCKETS,
        )

    def watch(self, collector: Collector) -> None:
        """Show what a collector reads, whenever somebody looks."""
        self.registry.register(collector)

    def forget(self, endpoint_id: str) -> None:
        """Drop the series of an endpoint that is gone: where they come and go there is no end."""
        for counted in (self._requests, self._limit_changes, self._breaker_changes):
            counted.forget("endpoint", endpoint_id)
        for timed in (self._first_token_s, self._output_token_s):
            timed.forget("endpoint", endpoint_id)

    def admitted(self, ticket: Ticket, queued_s: float) -> None:
        """A request has got its slot."""
        self._queue_s.add((ticket.model, ticket.service_class), queued_s)

    def rejected(self, ticket: Ticket | None, reason: str) -> None:
        """A request was refused; without a ticket it did not even ask."""
        model, service_class = (ticket.model, ticket.service_class) if ticket else ("", "")
        self._rejections.add((model, service_class, reason))

    def retried(self, ticket: Ticket, outcome: Outcome) -> None:
        """A request that ended like this at one endpoint asks for another one."""
        self._retries.add((ticket.model, ticket.service_class, outcome))

    def first_token(self, endpoint: Endpoint, seconds: float) -> None:
        """A stream's first event has come."""
        self._first_token_s.add(labels_of(endpoint), seconds)

    def ended(self, endpoint: Endpoint, ending: Ending) -> None:
        """An admitted request has ended."""
        self._requests.add((*labels_of(endpoint), ending.outcome))
        for timing in ending.timings:
            if timing.kind is _OUTPUT_TOKEN:
                self._output_token_s.add(labels_of(endpoint), timing.seconds)

    def limit_changed(self, endpoint: Endpoint, decision: Decision, now: float) -> None:
        """Count a move of a limit, by the stable part of its reason."""
        del now
        code = decision.reason.partition(":")[0]
        self._limit_changes.add((*labels_of(endpoint), code))

    def breaker_changed(self, endpoint: Endpoint, change: Change, now: float) -> None:
        """Count a breaker's change of state."""
        del now
        self._breaker_changes.add((*labels_of(endpoint), change.after))

    def stand_in_changed(self, model: str, now: float, *, serves: bool) -> None:
        """Count a failover, or a recovery."""
        del now
        (self._failovers if serves else self._recoveries).add((model,))
