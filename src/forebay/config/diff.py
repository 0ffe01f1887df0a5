"""What leads from one plan to the next while requests run. Pure: nothing happens here.

The order of the steps keeps every promise in between: floors never add up to more than a budget.
Endpoints that leave go first, then floors fall, budgets move, floors rise, and who is new comes
last. After the second step every floor is the smaller of both plans' floors, so they fit the old
budgets and the new ones.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pydantic import BaseModel

if TYPE_CHECKING:
    from collections.abc import Iterator

    from forebay.config.plan import Plan, PlannedEndpoint


@dataclass(frozen=True, slots=True)
class Drain:
    """Start nothing more there, and let go of it when what runs has ended."""

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
    """A new endpoint, or one that `Drain` sends away to come back on another GPU or as another."""

    planned: PlannedEndpoint


@dataclass(frozen=True, slots=True)
class Reconnect:
    """Another way to reach an endpoint: key, path, engine. It keeps all that is known of it."""

    planned: PlannedEndpoint


Step = Drain | Update | SetBudget | Add | Reconnect

# Of the endpoint: what it is to its GPU and its model. A change makes another endpoint of it.
_PLACE = ("gpu_group", "service_class", "fallback_of")
# Of the planned endpoint: what its client is made from.
_CLIENT = ("kind", "model_key", "url", "api_key", "engine", "metrics_url", "piece_tokens")
_CLIENT_SETTINGS = frozenset({"forebay.timeouts.connect_s", "forebay.scrape_interval_s"})
# What makes a law, a breaker or a guard; those that run keep theirs until a restart.
_UNTIL_RESTART = (
    "MODEL_LATENCY_GRADIENT_TARGET",
    "MODEL_AUTOSCALE_WINDOW",
    "MODEL_CIRCUIT_BREAKER",
    "MODEL_BREAKER_",
    "forebay.limit",
    "forebay.max_overtakes",
    "forebay.protection",
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
        until_restart: keys whose new value waits for a restart.
    """

    steps: tuple[Step, ...]
    settings: tuple[str, ...]
    until_restart: tuple[str, ...]

    def __str__(self) -> str:
        """What changes, in one line; keys of settings without their values, which may be secret."""
        added = {step.planned.endpoint.id for step in self.steps if isinstance(step, Add)}
        left = {step.planned.endpoint.id for step in self.steps if isinstance(step, Drain)}
        changed = {
            step.planned.endpoint.id for step in self.steps if isinstance(step, Update | Reconnect)
        }
        budgets = [
            f"budget of {step.group} {'none' if step.budget is None else step.budget}"
            for step in self.steps
            if isinstance(step, SetBudget)
        ]
        parts = [
            _listed("added", added - left),
            _listed("removed", left - added),
            _listed("changed", changed | (added & left)),
            ", ".join(budgets),
            _listed("set", self.settings),
            _listed("in force after a restart only:", self.until_restart),
        ]
        return "; ".join(part for part in parts if part) or "nothing changed"


def diff(before: Plan, after: Plan) -> Diff:
    """Find what leads from `before` to `after`."""
    old = {planned.endpoint.id: planned for planned in before.endpoints}
    new = {planned.endpoint.id: planned for planned in after.endpoints}
    keys = tuple(_changed_settings(before.config, after.config))
    reconnect_all = not _CLIENT_SETTINGS.isdisjoint(keys)
    stays = {
        id_: (old[id_], planned)
        for id_, planned in new.items()
        if id_ in old and _place(old[id_]) == _place(planned)
    }
    updates = [(a, b) for a, b in stays.values() if a.endpoint != b.endpoint]
    steps: list[Step] = [Drain(planned) for id_, planned in old.items() if id_ not in stays]
    steps += [Update(b) for a, b in updates if b.endpoint.floor < a.endpoint.floor]
    steps += _budget_steps(before, after)
    steps += [Update(b) for a, b in updates if b.endpoint.floor >= a.endpoint.floor]
    steps += [Reconnect(b) for a, b in stays.values() if reconnect_all or _client(a) != _client(b)]
    steps += [Add(planned) for id_, planned in new.items() if id_ not in stays]
    return Diff(
        steps=tuple(steps),
        settings=tuple(key for key in keys if not key.startswith(_UNTIL_RESTART)),
        until_restart=tuple(key for key in keys if key.startswith(_UNTIL_RESTART)),
    )


def _place(planned: PlannedEndpoint) -> tuple[object, ...]:
    return tuple(getattr(planned.endpoint, name) for name in _PLACE)


def _client(planned: PlannedEndpoint) -> tuple[object, ...]:
    return tuple(getattr(planned, name) for name in _CLIENT)


def _budget_steps(before: Plan, after: Plan) -> Iterator[SetBudget]:
    old, new = before.budgets, after.budgets
    for name in {**old, **new}:
        if old.get(name) != new.get(name):
            yield SetBudget(name, new.get(name))


def _changed_settings(before: BaseModel, after: BaseModel, prefix: str = "") -> Iterator[str]:
    """The keys, as the file has them, of settings that differ."""
    for name, field in type(after).model_fields.items():
        key = prefix + (field.alias or name)
        old, new = getattr(before, name), getattr(after, name)
        if old == new or key.startswith(_ELSEWHERE):
            continue
        if isinstance(old, BaseModel) and isinstance(new, BaseModel):
            yield from _changed_settings(old, new, f"{key}.")
        else:
            yield key


def _listed(what: str, names: set[str] | tuple[str, ...]) -> str:
    return f"{what} {', '.join(sorted(names))}" if names else ""
