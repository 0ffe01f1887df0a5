"""Plain values that travel through the core.

Times are seconds on one monotonic clock that the caller chooses; the core never reads a clock.
What is made for every request is a named tuple, or not frozen: freezing costs more than the rest.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple


class ServiceClass(StrEnum):
    """How a request is treated when there is not room for all."""

    INTERACTIVE = "interactive"
    BEST_EFFORT = "best_effort"


class Outcome(StrEnum):
    """How a request ended, as far as limits and breakers are concerned."""

    OK = "ok"
    CONGESTION = "congestion"  # the endpoint is alive and sheds load
    TIMEOUT = "timeout"  # no answer in time: a failure, and a latency of "at least this long"
    FAILURE = "failure"  # the endpoint is broken: connection, protocol, 5xx
    CLIENT_ERROR = "client_error"  # the request is wrong; says nothing about the endpoint
    CONFIGURATION = "configuration"  # wrong key, path or model name: an operator must act
    LOADING = "loading"  # the endpoint starts; not a failure
    CANCELLED = "cancelled"  # the caller went away


class Reason(StrEnum):
    """Why a request was refused. Values are metric labels and part of error bodies."""

    QUEUE_FULL = "queue_full"
    DEADLINE = "deadline"
    UNAVAILABLE = "unavailable"  # every endpoint's breaker is open, or being probed
    LOADING = "loading"
    ASLEEP = "asleep"
    NO_ROOM = "no_room"  # the reserved floors leave nothing that this class could ever use
    UNKNOWN_MODEL = "unknown_model"
    SHUTTING_DOWN = "shutting_down"


@dataclass(frozen=True, slots=True)
class Endpoint:
    """One base URL that serves one model id.

    Args:
        id: stable and unique, e.g. ``bge-m3@gpu-b.lan:7997``.
        model: the served model's id.
        base_url: where its API lives, without a trailing slash, e.g. ``http://gpu-b.lan:7997/v1``.
        gpu_group: the physical GPU that it shares, case-folded.
        role: chat, generator, embedding, …
        service_class: the class of requests that do not ask for another one.
        floor: slots that it can always reach, ≥ 1.
        ceiling: slots that it never exceeds, ≥ floor.
        slot_weight: slots that one request takes, at least, ≥ 1.
        tokens_per_slot: tokens of a request that take one slot, ≥ 1; None: size does not count.
        fallback_of: id of the model that it is there to stand in for; None: it serves its own.
        also_for: ids of further models that it stands in for.
    """

    id: str
    model: str
    base_url: str
    gpu_group: str
    role: str
    service_class: ServiceClass
    floor: int
    ceiling: int
    slot_weight: int = 1
    tokens_per_slot: int | None = None
    fallback_of: str | None = None
    also_for: tuple[str, ...] = ()

    @property
    def serves(self) -> tuple[tuple[str, bool], ...]:
        """The models whose requests it takes, and whether it only stands in for them."""
        main = (self.fallback_of or self.model, self.fallback_of is not None)
        return (main, *((model, True) for model in self.also_for))

    @property
    def part(self) -> tuple[str, ServiceClass, str | None, tuple[str, ...]]:
        """What it is to the models that it serves. With another part it would be another one."""
        return self.model, self.service_class, self.fallback_of, self.also_for

    def slots_for(self, ticket: Ticket) -> int:
        """The slots that a request takes here, if there are as many."""
        if ticket.weight:
            return ticket.weight
        if self.tokens_per_slot is None:
            return self.slot_weight
        return max(self.slot_weight, -(-ticket.size_tokens // self.tokens_per_slot))


@dataclass(slots=True, eq=False)
class Ticket:
    """One request that asks for a slot. Never changed once made; equal only to itself.

    Args:
        model: id of the model that it is for.
        service_class: the class in which it asks.
        asked_at: when it arrived, seconds.
        deadline: when it must have been answered, seconds; it leaves the queue then.
        weight: slots that it takes; 0 leaves it to the endpoint: see `Endpoint.slots_for`.
        size_bytes: what it occupies in memory while it waits.
        size_tokens: roughly what it makes an engine read; 0 where that is not known.
        affinity: requests with the same key prefer the same endpoint; None: whichever is freest.
        avoid: ids of endpoints where this request failed already, or must not go.
        attempt: which one this is; whoever had a slot before goes before those that had none.
    """

    model: str
    service_class: ServiceClass
    asked_at: float
    deadline: float = float("inf")
    weight: int = 0
    size_bytes: int = 0
    size_tokens: int = 0
    affinity: str | None = None
    avoid: frozenset[str] = frozenset()
    attempt: int = 1


@dataclass(frozen=True, slots=True)
class Refusal:
    """A ticket that will not be served: it never entered the queue, or has left it."""

    ticket: Ticket
    reason: Reason
    retry_after_s: float | None = None


class TimingKind(StrEnum):
    """What a latency reading measures, hence what it may be compared with."""

    FIRST_TOKEN = "first_token"  # noqa: S105 - no secret. Size: uncached prompt tokens
    OUTPUT_TOKEN = "output_token"  # noqa: S105 - no secret. Seconds per token; size: 1
    WORK = "work"  # a whole request; size: input tokens (or characters / 4)


class Timing(NamedTuple):
    """One latency reading and the size that it is judged against."""

    kind: TimingKind
    seconds: float
    size: float


class Ending(NamedTuple):
    """How one admitted request ended.

    Args:
        outcome: see `Outcome`.
        timings: the readings it gave; empty unless the outcome is ``ok``.
        retry_after_s: how long the endpoint asked to be left alone, if it did.
        work: what was done, in tokens generated, or read where none are; 0 while not known.
    """

    outcome: Outcome
    timings: tuple[Timing, ...] = ()
    retry_after_s: float | None = None
    work: float = 0.0


@dataclass(frozen=True, slots=True)
class Decision:
    """A limit and why it is what it is."""

    limit: int
    reason: str


class EngineState(StrEnum):
    """Whether an engine can serve at all."""

    AWAKE = "awake"
    ASLEEP = "asleep"
    LOADING = "loading"


@dataclass(frozen=True, slots=True)
class Signal:
    """What an engine says about itself. None means unknown, which is never zero.

    Args:
        engine: the adapter's name (vllm, llamacpp, infinity, …, unknown).
        at: when it was read, seconds.
        state: awake unless the engine says otherwise.
        running: requests being computed.
        waiting: queued in the engine, counted in `waiting_unit`.
        waiting_unit: ``requests`` or ``inputs``.
        waiting_capacity: the part of `waiting` that waits for capacity, where engines tell.
        waiting_deferred: the part that waits for something else (adapters, transfers).
        kv_usage: fullest engine's KV cache, 0 to 1.
        slots: requests that the engine can compute at once, where it tells.
        preemptions: cumulative count of preempted or swapped requests.
        rejections: cumulative count of requests that the engine refused for load.
        queue_seconds: cumulative time that requests waited in the engine.
        queued: cumulative count of the requests that `queue_seconds` adds up over.
        resident: share of the model that is in GPU memory, 0 when it is not loaded.
        saturated: the engine queues for capacity; None when that cannot be told.
        warnings: lines of the exposition that could not be read.
    """

    engine: str
    at: float
    state: EngineState = EngineState.AWAKE
    running: float | None = None
    waiting: float | None = None
    waiting_unit: str = "requests"
    waiting_capacity: float | None = None
    waiting_deferred: float | None = None
    kv_usage: float | None = None
    slots: int | None = None
    preemptions: float | None = None
    rejections: float | None = None
    queue_seconds: float | None = None
    queued: float | None = None
    resident: float | None = None
    saturated: bool | None = None
    warnings: int = 0
