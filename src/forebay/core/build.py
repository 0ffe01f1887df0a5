"""Put an `Admission` together from endpoints and budgets."""

from __future__ import annotations

from typing import TYPE_CHECKING

from forebay.core.admission import Admission
from forebay.core.breaker import BreakerSettings
from forebay.core.layout import Layout, Rules
from forebay.core.observer import Observer
from forebay.core.queue import QueueBounds

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from forebay.core.breaker import Rng
    from forebay.core.limits.protocol import Limit
    from forebay.core.model import Endpoint
    from forebay.core.protection import ProtectionSettings


def build(  # noqa: PLR0913 - every part of a deployment meets here, by name
    endpoints: Iterable[Endpoint],
    budgets: Mapping[str, int],
    *,
    law: Callable[[Endpoint], Limit],
    rng: Rng,
    breaker: BreakerSettings | None = None,
    bounds: QueueBounds | None = None,
    max_overtakes: int = 8,
    protection: ProtectionSettings | None = None,
    observer: Observer | None = None,
    models: Iterable[str] = (),
) -> Admission:
    """Build the admission of a whole deployment.

    Args:
        endpoints: all of them; several may serve one model.
        budgets: slots by GPU group; a group without one binds nobody (R5).
        law: makes an endpoint's limit.
        rng: for jitter, and for the choice between equals.
        breaker: settings of every endpoint's breaker.
        bounds: of every queue.
        max_overtakes: see `Room`.
        protection: of chat from best-effort work on its GPU; None leaves it to counts.
        observer: hears of limits and breakers.
        models: see `Admission.expect`.

    Raises:
        ValueError: an id twice, or floors that add up to more than their group's budget.
    """
    rules = Rules(
        law=law,
        rng=rng,
        breaker=breaker or BreakerSettings(),
        bounds=bounds or QueueBounds(),
        max_overtakes=max_overtakes,
        protection=protection,
        observer=observer or Observer(),
    )
    layout = Layout(rules, dict(budgets))
    for endpoint in sorted(endpoints, key=_stands_in):
        layout.add(endpoint)
    layout.check_floors()
    layout.expect(models)
    return Admission(layout)


def _stands_in(endpoint: Endpoint) -> bool:
    """The model that it stands in for comes before it: it tells the class."""
    return endpoint.fallback_of is not None
