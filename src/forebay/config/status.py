"""What is so at one instant, as plain values: ``/forebay/status`` and the library's `status`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from forebay.core.binding import binding

if TYPE_CHECKING:
    from collections.abc import Mapping

    from forebay.adapters.engines.scraper import Scraper
    from forebay.config.plan import Plan, PlannedGroup
    from forebay.core.admission import Admission
    from forebay.core.endpoint import EndpointState
    from forebay.core.model import Signal

Json = dict[str, Any]
# How the reason of a limit begins that is not reached.
_NOT_IN_USE = "held: not in use"


def status(plan: Plan, admission: Admission, scrapers: Mapping[str, Scraper], now: float) -> Json:
    """Everything, read in one go: the members' in-flight counts add up to their group's.

    Args:
        plan: the configuration.
        admission: what decides.
        scrapers: one for each endpoint, by its id.
        now: on the clock of both.
    """
    states = admission.states
    on_gpus: dict[str, list[EndpointState]] = {name: [] for name in plan.groups}
    for state in states.values():  # those that drain are in the plan no more
        on_gpus.setdefault(state.endpoint.gpu_group, []).append(state)
    return {
        "groups": {name: _group(plan.groups.get(name), on, now) for name, on in on_gpus.items()},
        "endpoints": {id_: _endpoint(state, scrapers[id_], now) for id_, state in states.items()},
        "models": {
            model.id: {
                "endpoints": list(model.endpoints),
                "capacity": sum(_capacity(states[e], now) for e in model.endpoints if e in states),
            }
            for model in plan.models.values()
        },
    }


def _group(group: PlannedGroup | None, states: list[EndpointState], now: float) -> Json:
    queues = {member.queue: None for s in states for member in s.members if member.waiting}
    queued = {"interactive": 0, "best_effort": 0}
    for queue in queues:
        queued[queue.service_class] += len(queue)
    return {
        "budget": group.budget if group else states[0].native.room.budget,
        "source": group.source if group else "none",
        "reserved": group.reserved if group else 0,
        "inflight": sum(state.inflight for state in states),
        "queued": queued,
        "members": {state.endpoint.id: state.inflight_by_class for state in states},
        "protection": _protection(states, now),
    }


def _protection(states: list[EndpointState], now: float) -> Json | None:
    """What chat's guard does; None where nothing guards it."""
    guard = next((state.native.room.guard for state in states), None)
    if guard is None:
        return None
    return {
        "state": guard.state(now),
        "share": round(guard.share, 3),
        "ratio": None if guard.ratio is None else round(guard.ratio, 3),
        "target": guard.settings.target,
        "reason": guard.reason,
    }


def _endpoint(state: EndpointState, scraper: Scraper, now: float) -> Json:
    endpoint = state.endpoint
    limit, limit_reason = _limit(state, now)
    waits_for = _waits_for(state, now)
    if limit_reason.startswith(_NOT_IN_USE) and waits_for:
        limit_reason += f"; what waits, waits for: {', '.join(dict.fromkeys(waits_for.values()))}"
    return {
        "model": endpoint.model,
        "base_url": endpoint.base_url,
        "gpu_group": endpoint.gpu_group,
        "role": endpoint.role,
        "class": endpoint.service_class,
        "floor": state.native.floor,
        "ceiling": endpoint.ceiling,
        "limit": limit,
        "limit_reason": limit_reason,
        "ramp": _ramp(state, now),
        "inflight": state.inflight,
        "draining": state.draining,
        "queued": _queued(state),
        "waits_for": waits_for,
        "breaker": breaker_json(state, now),
        "engine": scraper.engine.name,
        "signal": _signal(scraper.latest(now), now),
        "signal_failure": scraper.failure,
        "latency": {"service_s": round(state.service_s, 6) if state.service_s else None},
    }


def _limit(state: EndpointState, now: float) -> tuple[int, str]:
    """The in-flight limit, and why it is that.

    Not `state.limit`: while nobody asks, nobody looks how far a ramp has come.
    """
    decision, ramp = state.law.decision, state.ramp(now)
    if ramp is not None and ramp.cap < decision.limit:
        return ramp.cap, "ramp: after outage"
    return decision.limit, decision.reason


def _ramp(state: EndpointState, now: float) -> Json | None:
    """How far the endpoint is back after an outage; None where nothing holds it back for that."""
    ramp = state.ramp(now)
    if ramp is None:
        return None
    return {
        "cap": ramp.cap,
        "fraction": round(ramp.cap / state.ceiling, 3),
        "ends_in_s": round(ramp.left_s, 3),
    }


def _queued(state: EndpointState) -> Json:
    """The requests that could run there, by class."""
    queued = {"interactive": 0, "best_effort": 0}
    for member in state.members:
        if member.waiting:
            queued[member.queue.service_class] += len(member.queue)
    return queued


def _waits_for(state: EndpointState, now: float) -> dict[str, str]:
    """What keeps those waiting that could run there, by class; empty if none waits."""
    bound: dict[str, str] = {}
    for member in state.members:
        binds = binding(member, now)
        if binds is not None:
            bound.setdefault(member.queue.service_class, binds)
    return bound


def breaker_json(state: EndpointState, now: float) -> Json:
    """What an endpoint's breaker is like."""
    breaker = state.breaker.snapshot(now)
    return {
        "state": breaker.state,
        "failures": breaker.failures,
        "cooldown_remaining_s": round(breaker.remaining_s, 3),
        "probe_in_flight": breaker.probe_in_flight,
        "trips": breaker.trips,
        "recoveries": breaker.recoveries,
    }


def _signal(signal: Signal | None, now: float) -> Json | None:
    """What the engine said last; None when that is unknown or too old to rely on."""
    if signal is None:
        return None
    return {
        "age_s": round(now - signal.at, 3),
        "state": signal.state,
        "running": signal.running,
        "waiting": signal.waiting,
        "waiting_unit": signal.waiting_unit,
        "waiting_capacity": signal.waiting_capacity,
        "kv_usage": signal.kv_usage,
        "preemptions": signal.preemptions,
        "saturated": signal.saturated,
    }


def _capacity(state: EndpointState, now: float) -> int:
    """Requests of its own class that admission would allow there, if nothing else ran."""
    most = state.native.room.most(state.native)
    limit = _limit(state, now)[0] if state.usable else 0
    return limit if most is None else max(0, min(limit, most))
