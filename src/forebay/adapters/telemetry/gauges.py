"""Metrics that are read at the moment of a scrape, from what holds them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

from forebay.core.breaker import BreakerState

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from prometheus_client import Metric

    from forebay.core.admission import Admission
    from forebay.core.model import Endpoint

    # Model, endpoint, and whether that is fit for it.
    Fitness = Iterable[tuple[str, Endpoint, bool]]

_STATES = tuple(BreakerState)


def labels_of(endpoint: Endpoint) -> tuple[str, str, str]:
    """Its model, id and GPU group."""
    return (endpoint.model, endpoint.id, endpoint.gpu_group)


class AdmissionGauges(Collector):
    """What admission holds.

    Args:
        admission: what decides.
        clock: that it runs on.
    """

    def __init__(self, admission: Admission, clock: Callable[[], float]) -> None:
        self._admission = admission
        self._clock = clock

    def collect(self) -> Iterator[Metric]:
        """All of it."""
        of_member = ["model", "endpoint", "gpu_group", "class"]
        inflight = GaugeMetricFamily("forebay_inflight", "Slots in use", labels=of_member)
        limit = GaugeMetricFamily(
            "forebay_limit", "In-flight limit of an endpoint", labels=of_member[:3]
        )
        state = GaugeMetricFamily(
            "forebay_breaker_state", "1 for the state it is in", labels=[*of_member[:3], "state"]
        )
        now = self._clock()
        for each in self._admission.states.values():
            labels = labels_of(each.endpoint)
            for service_class, slots in each.inflight_by_class.items():
                inflight.add_metric([*labels, service_class], slots)
            limit.add_metric(labels, each.limit)
            current = each.breaker.state(now)
            for name in _STATES:
                state.add_metric([*labels, name], float(current is name))
        yield from (inflight, limit, state, self._queued(), self._budgets())
        yield from self._protection()

    def _queued(self) -> Metric:
        queued = GaugeMetricFamily(
            "forebay_queued", "Requests that wait", labels=["model", "class"]
        )
        for (model, service_class), queue in self._admission.queues.items():
            queued.add_metric([model, service_class], len(queue))
        return queued

    def _protection(self) -> tuple[Metric, Metric]:
        ratio = GaugeMetricFamily(
            "forebay_protection_ratio",
            "Chat's times over what they are without best-effort work, as judged last",
            labels=["gpu_group"],
        )
        share = GaugeMetricFamily(
            "forebay_best_effort_share",
            "Best-effort slots that chat bears; below 1 a part of the time",
            labels=["gpu_group"],
        )
        guards = {room.guard: None for room in self._admission.rooms.values() if room.guard}
        for guard in guards:
            share.add_metric([guard.group], guard.share)
            if guard.ratio is not None:
                ratio.add_metric([guard.group], guard.ratio)
        return ratio, share

    def _budgets(self) -> Metric:
        budget = GaugeMetricFamily("forebay_budget", "Joint budget of a GPU", labels=["gpu_group"])
        for room in self._admission.rooms.values():
            if room.budget is not None:
                budget.add_metric([room.name], room.budget)
        return budget


class FitnessGauge(Collector):
    """Which endpoints must not serve a model.

    Args:
        fitness: tells it of each endpoint whose vectors are compared.
    """

    def __init__(self, fitness: Callable[[], Fitness]) -> None:
        self._fitness = fitness

    def collect(self) -> Iterator[Metric]:
        """One series for each model and endpoint."""
        unfit = GaugeMetricFamily(
            "forebay_unfit",
            "1 while an endpoint must not serve a model, since its vectors are not the model's",
            labels=["model", "endpoint", "gpu_group"],
        )
        for model, endpoint, is_fit in self._fitness():
            unfit.add_metric([model, endpoint.id, endpoint.gpu_group], float(not is_fit))
        yield unfit


class Followed(Protocol):
    """A configuration that is followed while it is in force."""

    @property
    def reloads(self) -> Mapping[str, int]:
        """How often it was read anew, by what came of it."""
        ...

    @property
    def error(self) -> str | None:
        """Why what it says now is not in force."""
        ...

    @property
    def needs_restart(self) -> tuple[str, ...]:
        """What of it is in force after a restart only."""
        ...


class ConfigurationMetrics(Collector):
    """How the configuration is.

    Args:
        followed: the configuration.
    """

    def __init__(self, followed: Followed) -> None:
        self._followed = followed

    def collect(self) -> Iterator[Metric]:
        """What came of the edits so far, and of the last one."""
        followed = self._followed
        reloads = CounterMetricFamily(
            "forebay_config_reloads",
            "Times that the configuration was read anew, by what came of it",
            labels=["outcome"],
        )
        for outcome, count in followed.reloads.items():
            reloads.add_metric([outcome], count)
        yield reloads
        yield GaugeMetricFamily(
            "forebay_config_rejected",
            "1 while the configuration as it is now is not in force, but one before",
            float(followed.error is not None),
        )
        yield GaugeMetricFamily(
            "forebay_config_needs_restart",
            "Keys of the configuration that are in force after a restart only",
            len(followed.needs_restart),
        )
