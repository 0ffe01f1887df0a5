"""What leads from one plan to the next while requests run. Pure: nothing happens here.

The order of the steps keeps every promise in between: floors never add up to more than a budget.
Endpoints that leave go first, and those that move to another GPU, where they have no floor at
first. Then floors fall, budgets move, floors rise, and who is new comes last. After the floors fell
each is the smaller of both plans' floors or none, so they fit the old budgets and the new ones.

An endpoint keeps what it is to its models (`Endpoint.part`) as long as it stays: its class, whether
it is a fallback. Its queues and what runs are counted by that.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from pydantic import BaseModel

from forebay.live.words import moved, told

if TYPE_CHECKING:
    from collections.abc import Iterator

    from forebay.config.plan import Plan, PlannedEndpoint
    from forebay.core.model import Endpoint


@dataclass(frozen=True, slots=True)
class Drain:
    """Start nothing more there, and let go of it when what runs has ended."""

    planned: PlannedEndpoint


@dataclass(frozen=True, slots=True)
class Move:
    """The endpoint is on another GPU, with what it runs. An `Update` gives it a floor there."""

    planned: PlannedEndpoint


@dataclass(frozen=True, slots=True)
class Update:
    """The endpoint stays what it is, with other numbers: floor, ceiling, sizes."""

    planned: PlannedEndpoint


@dataclass(frozen=True, slots=True)
class SetBudget:
    """The joint budget of a GPU; None: there is none from now on."""

    group: str
    budget: int | None


@dataclass(frozen=True, slots=True)
class Add:
    """A new endpoint."""

    planned: PlannedEndpoint


@dataclass(frozen=True, slots=True)
class Reconnect:
    """Another way to reach an endpoint: key, path, engine. It keeps all that is known of it."""

    planned: PlannedEndpoint


Step = Drain | Move | Update | SetBudget | Add | Reconnect

# Of the planned endpoint: what its client is made from.
_CLIENT = (
    "kind",
    "model_key",
    "url",
    "api_key",
    "engine",
    "metrics_url",
    "piece_tokens",
    "batch_limits",
    "first_byte_s",
)
_CLIENT_SETTINGS = frozenset({"forebay.timeouts.connect_s", "forebay.scrape_interval_s"})
# What makes a law, a breaker or a guard; those that run keep theirs until a restart.
UNTIL_RESTART = (
    "MODEL_LATENCY_GRADIENT_TARGET",
    "MODEL_AUTOSCALE_WINDOW",
    "MODEL_CIRCUIT_BREAKER",
    "MODEL_BREAKER_",
    "forebay.limit",
    "forebay.max_overtakes",
    "forebay.protection",
    "forebay.identity",
    "forebay.breaker",
    "forebay.timeouts.probe_s",
)
# What endpoints and groups are made from: their own changes tell.
_ELSEWHERE = ("chat_models", "embedding_models", "rerank_models", "GPU_", "MODEL_MAX_", "$schema")


@dataclass(frozen=True, slots=True)
class Diff:
    """From one plan to the next.

    Args:
        steps: what to do, in this order.
        settings: keys whose new value is in force at once.
        words: what changes, for people; see `forebay.live.words`.
    """

    steps: tuple[Step, ...]
    settings: tuple[str, ...]
    words: tuple[str, ...]

    def __bool__(self) -> bool:
        return bool(self.steps or self.settings or self.words)

    def __str__(self) -> str:
        """What changes, in one line without secrets."""
        return "; ".join(self.words) or "nothing changed"


def diff(before: Plan, after: Plan) -> Diff:
    """Find what leads from `before` to `after`."""
    old = {planned.endpoint.id: planned for planned in before.endpoints}
    new = {planned.endpoint.id: planned for planned in after.endpoints}
    changed = {
        key: (one, other) for key, one, other in _changed_settings(before.config, after.config)
    }
    keys = changed.keys()
    reconnect_all = not _CLIENT_SETTINGS.isdisjoint(keys)
    stays = [(old[id_], planned) for id_, planned in new.items() if id_ in old]
    moves = [b for a, b in stays if a.endpoint.gpu_group != b.endpoint.gpu_group]
    updates = [(a, b) for a, b in stays if a.endpoint != _as_part_of(a, b)]
    falls = [b for a, b in updates if b.endpoint.floor < a.endpoint.floor and b not in moves]
    steps: list[Step] = [Drain(planned) for id_, planned in old.items() if id_ not in new]
    steps += map(Move, moves)
    steps += map(Update, falls)
    steps += _budget_steps(before, after)
    steps += [Update(b) for _, b in updates if b not in falls]
    steps += [Reconnect(b) for a, b in stays if reconnect_all or _client(a) != _client(b)]
    steps += [Add(planned) for id_, planned in new.items() if id_ not in old]
    settings = {
        key: moved(key, *values)
        for key, values in changed.items()
        if not key.startswith(UNTIL_RESTART)
    }
    for id_, model in after.models.items():
        if id_ in before.models and before.models[id_].routing != model.routing:
            settings[f"routing of {id_}"] = f"routing of {id_} {model.routing}"
    return Diff(tuple(steps), tuple(settings), told(before, after, tuple(settings.values())))


def until_restart(first: Plan, now: Plan) -> tuple[str, ...]:
    """The keys whose value in `now` is not in force where `first` was, when it started."""
    changed = _changed_settings(first.config, now.config)
    return tuple(key for key, *_ in changed if key.startswith(UNTIL_RESTART))


def _as_part_of(a: PlannedEndpoint, b: PlannedEndpoint) -> Endpoint:
    """The endpoint of `b` with the part that it has in `a`, which it keeps."""
    kept = a.endpoint
    return replace(
        b.endpoint,
        service_class=kept.service_class,
        fallback_of=kept.fallback_of,
        also_for=kept.also_for,
    )


def _client(planned: PlannedEndpoint) -> tuple[object, ...]:
    return tuple(getattr(planned, name) for name in _CLIENT)


def _budget_steps(before: Plan, after: Plan) -> Iterator[SetBudget]:
    old, new = before.budgets, after.budgets
    for name in {**old, **new}:
        if old.get(name) != new.get(name):
            yield SetBudget(name, new.get(name))


def _changed_settings(
    before: BaseModel, after: BaseModel, prefix: str = ""
) -> Iterator[tuple[str, object, object]]:
    """The settings that differ: each key, as the file has it, and its two values."""
    for name, field in type(after).model_fields.items():
        key = prefix + (field.alias or name)
        old, new = getattr(before, name), getattr(after, name)
        if old == new or key.startswith(_ELSEWHERE):
            continue
        if isinstance(old, BaseModel) and isinstance(new, BaseModel):
            yield from _changed_settings(old, new, f"{key}.")
        else:
            yield key, old, new
