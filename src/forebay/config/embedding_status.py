"""Which endpoint embeds now, and how often that changed."""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from forebay.config.status import breaker_json
from forebay.core.model import Reason, ServiceClass
from forebay.errors import Rejected

if TYPE_CHECKING:
    from collections.abc import Mapping

    from forebay.config.plan import Plan, PlannedModel
    from forebay.core.admission import Admission
    from forebay.core.endpoint import EndpointState
    from forebay.core.failovers import Failovers

PRIMARY_KEY = "embedding"
FALLBACK_KEY = "embedding:fallback"
# Either endpoint's key means the embedder; it is one model, whoever serves it.
_KEYS = frozenset({PRIMARY_KEY, "embed", FALLBACK_KEY, "embed:fallback", "embedding-fallback"})
_NONE: Mapping[str, str] = MappingProxyType({})


def embedder(plan: Plan, key: str | None = None) -> PlannedModel:
    """The embedding model that is meant.

    Args:
        plan: the configuration.
        key: the model's id; ``embedding``, ``embedding:fallback`` or one of their aliases, or None,
            mean the embedding model that is configured first.

    Raises:
        Rejected: there is no such embedding model.
    """
    models = {id_: model for id_, model in plan.models.items() if model.kind == "embedding"}
    if key in models:
        return models[key]
    if models and (key is None or key in _KEYS):
        return next(iter(models.values()))
    known = ", ".join(models) or "none"
    message = f"no embedding model {key!r} is configured; known: {known}"
    raise Rejected(Reason.UNKNOWN_MODEL, message)


def embedding_endpoint_status(  # noqa: PLR0913, PLR0917 - each is a part of what is so now
    plan: Plan,
    admission: Admission,
    failovers: Failovers,
    now: float,
    key: str | None = None,
    unfit: Mapping[str, str] = _NONE,
) -> dict[str, Any]:
    """Which endpoint serves an embedding model. Reading it changes nothing.

    Args:
        plan: the configuration.
        admission: its endpoints.
        failovers: follows their breakers.
        now: on the clock of both.
        key: see `embedder`.
        unfit: ids of the endpoints that must not be used for the model, and why.

    Raises:
        Rejected: there is no such embedding model.
    """
    model = embedder(plan, key).id
    members = admission.queues[model, ServiceClass.BEST_EFFORT].members
    regular = [member.state for member in members if not member.stands_in]
    stand_ins = [member.state for member in members if member.stands_in]

    def serving(states: list[EndpointState]) -> list[EndpointState]:
        return [s for s in states if not s.broken(now) and s.endpoint.id not in unfit]

    away = all(state.broken(now) or state.rest.is_long(now) for state in regular)
    failed_over = bool(stand_ins) and (model in failovers.failed_over or away)
    primaries = [] if failed_over else serving(regular)
    fallbacks = [] if primaries else serving(stand_ins)
    active = next(iter(primaries or fallbacks or regular or stand_ins), None)
    return {
        "model": model,
        "active_model_key": FALLBACK_KEY if fallbacks else PRIMARY_KEY,
        "active_base_url": active and active.endpoint.base_url,
        "active_gpu_group": active and active.endpoint.gpu_group,
        "serving": bool(primaries or fallbacks),
        "is_fallback": bool(fallbacks),
        "fallback_configured": bool(stand_ins),
        "fallback_unfit": next(filter(None, (unfit.get(s.endpoint.id) for s in stand_ins)), None),
        "primary_breaker": breaker_json(regular[0], now) if regular else None,
        "failover_count": failovers.failovers[model],
        "recovery_count": failovers.recoveries[model],
    }
