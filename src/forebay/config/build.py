"""From a plan to the admission that it describes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from forebay.core.breaker import BreakerSettings
from forebay.core.build import build
from forebay.core.protection import ProtectionSettings
from forebay.core.queue import QueueBounds
from forebay.core.retry import RetryBudget

if TYPE_CHECKING:
    from forebay.config.plan import Plan
    from forebay.config.settings import Protection
    from forebay.core.admission import Admission, Observer
    from forebay.core.breaker import Rng


def admission_of(plan: Plan, rng: Rng, observer: Observer) -> Admission:
    """The admission that a plan describes."""
    config, own = plan.config, plan.config.forebay
    return build(
        [planned.endpoint for planned in plan.endpoints],
        plan.budgets,
        law=lambda endpoint: plan.law.build(endpoint, config),
        rng=rng,
        breaker=BreakerSettings(
            enabled=config.circuit_breaker,
            fail_threshold=config.breaker_fail_threshold,
            base_cooldown_s=config.breaker_base_cooldown_s,
            max_cooldown_s=config.breaker_max_cooldown_s,
            backoff_factor=config.breaker_backoff_factor,
            probe_timeout_s=own.timeouts.probe_s,
            reset_after_requests=own.breaker.reset_after_requests,
            reset_after_s=own.breaker.reset_after_s,
            ramp_double_s=own.breaker.ramp_double_s,
        ),
        bounds=queue_bounds(plan),
        max_overtakes=own.max_overtakes,
        protection=_protection(own.protection),
        observer=observer,
        models=plan.models,
    )


def queue_bounds(plan: Plan) -> QueueBounds:
    """How much may wait for each model and class."""
    queue = plan.config.forebay.queue
    return QueueBounds(queue.max_requests, queue.max_bytes)


def _protection(section: Protection | None) -> ProtectionSettings | None:
    return None if section is None else ProtectionSettings(**section.model_dump())


def retry_budgets(plan: Plan) -> dict[str, RetryBudget]:
    """What may be tried again of each model: what the loss of all its endpoints can strand.

    That is what runs there, and what still starts there until the breaker has seen enough; if it is
    to see very much, no more than runs there.
    """
    config = plan.config
    more = config.breaker_fail_threshold - 1 if config.circuit_breaker else 0
    ceilings = {planned.endpoint.id: planned.endpoint.ceiling for planned in plan.endpoints}
    strands = {id_: ceiling + min(more, ceiling) for id_, ceiling in ceilings.items()}
    return {
        model.id: RetryBudget(sum(strands[id_] for id_ in model.endpoints))
        for model in plan.models.values()
    }
