"""What an edit changes, in one line of the log. Names and numbers; nothing that may be secret."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from forebay.config.plan import Plan, PlannedEndpoint

# How many names a line has at most.
_MOST = 20
_OF_ENDPOINT = ("gpu_group", "role", "floor", "ceiling", "slot_weight", "tokens_per_slot")
_OF_PLANNED = ("engine", "piece_tokens", "first_byte_s")
_BATCHES = {
    "max_batch_items": "max_inputs",
    "max_batch_tokens": "max_tokens",
    "max_batch_bytes": "max_body_bytes",
}
# Told without their values, which may be keys or have some in them.
_HIDDEN = {"api_key": "api_key", "metrics_url": "metrics_url", "url": "base_url"}


def told(before: Plan, after: Plan, settings: Sequence[str]) -> tuple[str, ...]:
    """Say what leads from one plan to the next; empty if nothing does.

    Args:
        before: the one.
        after: the next.
        settings: what changes beside endpoints and budgets, as it is to be told.
    """
    old = {planned.endpoint.id: planned for planned in before.endpoints}
    new = {planned.endpoint.id: planned for planned in after.endpoints}
    changed = {
        f"{id_} ({', '.join(what)})"
        for id_, planned in new.items()
        if id_ in old and (what := list(_changed(old[id_], planned)))
    }
    parts = [
        _listed("added", new.keys() - old.keys()),
        _listed("removed", old.keys() - new.keys()),
        _listed("changed", changed),
        _listed("budget of", _budgets(before, after)),
        _listed("source added", set(after.sources) - set(before.sources)),
        _listed("source removed", set(before.sources) - set(after.sources)),
        _listed("set", settings),
    ]
    return tuple(filter(None, parts))


def moved(name: str, old: object, new: object) -> str:
    """A value that moved; only its name if it is a text, since that may be secret."""
    values = (old, new)
    if all(value is None or isinstance(value, int | float) for value in values):
        return f"{name} {_shown(old)}->{_shown(new)}"
    return name


def _changed(old: PlannedEndpoint, new: PlannedEndpoint) -> Iterator[str]:
    """What of an endpoint is another."""
    pairs = {
        name: (getattr(old.endpoint, name), getattr(new.endpoint, name)) for name in _OF_ENDPOINT
    }
    pairs |= {name: (getattr(old, name), getattr(new, name)) for name in _OF_PLANNED}
    limits = (old.batch_limits, new.batch_limits)
    pairs |= {key: tuple(getattr(each, name) for each in limits) for key, name in _BATCHES.items()}
    for name, (one, other) in pairs.items():
        if one != other:
            yield f"{name} {_shown(one)}->{_shown(other)}"
    for name, key in _HIDDEN.items():
        if getattr(old, name) != getattr(new, name):
            yield key


def _budgets(before: Plan, after: Plan) -> Iterator[str]:
    old, new = before.budgets, after.budgets
    for name in old.keys() | new.keys():
        if old.get(name) != new.get(name):
            yield f"{name} {_shown(old.get(name))}->{_shown(new.get(name))}"


def _shown(value: object) -> str:
    if value is None:
        return "none"
    return f"{value:g}" if isinstance(value, float) else str(value)


def _listed(what: str, names: Iterable[str]) -> str:
    listed = sorted(names)
    if not listed:
        return ""
    more = f" and {len(listed) - _MOST} more" if len(listed) > _MOST else ""
    return f"{what} {', '.join(listed[:_MOST])}{more}"
