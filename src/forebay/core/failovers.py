"""When the stand-ins of a model take over from its regular endpoints, and when those are back."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from forebay.core.breaker import BreakerState
from forebay.core.observer import Observer

if TYPE_CHECKING:
    from forebay.core.admission import Admission
    from forebay.core.breaker import Change
    from forebay.core.model import Endpoint
    from forebay.core.queue import Queue

_CLOSED = BreakerState.CLOSED


class Failovers(Observer):
    """Follows the breakers and counts; it changes nothing, and looking at it changes nothing.

    A model is *failed over* while it has stand-ins and the breaker of every regular endpoint is
    open or half-open: a probe that is under way has brought nothing back yet, and one that failed
    is no second failover.

    Args:
        observer: hears of every failover and recovery.

    Attributes:
        failed_over: models that their stand-ins serve now.
        failovers: how often that began, by model.
        recoveries: how often a regular endpoint came back, by model.
    """

    def __init__(self, observer: Observer) -> None:
        self._observer = observer
        self._admission: Admission | None = None
        self.failed_over: set[str] = set()
        self.failovers: Counter[str] = Counter()
        self.recoveries: Counter[str] = Counter()

    def watch(self, admission: Admission) -> None:
        """Follow the endpoints of `admission`, those that are added later among them."""
        self._admission = admission

    def breaker_changed(self, endpoint: Endpoint, change: Change, now: float) -> None:
        """See whether a model fails over or recovers by this."""
        del change
        assert self._admission is not None  # noqa: S101 - whose endpoint could it be?
        state = self._admission.states[endpoint.id]
        served = {m.queue.model: m.queue for m in state.members if not m.stands_in}
        for queue in served.values():
            self._look(queue, now)

    def rearranged(self, now: float) -> None:
        """See which models fail over or recover because endpoints came or went."""
        assert self._admission is not None  # noqa: S101 - what could have been rearranged?
        models = {queue.model: queue for queue in self._admission.queues.values()}
        for queue in models.values():
            self._look(queue, now)
        self.failed_over &= models.keys()

    def _look(self, queue: Queue, now: float) -> None:
        regular = [m.state for m in queue.members if not m.stands_in]
        if regular and len(regular) < len(queue.members):
            away = all(state.breaker.state(now) is not _CLOSED for state in regular)
            self._note(queue.model, now, away=away)
        elif regular:  # its stand-ins have been taken away
            self.failed_over.discard(queue.model)

    def _note(self, model: str, now: float, *, away: bool) -> None:
        if away is (model in self.failed_over):
            return
        if away:
            self.failed_over.add(model)
            self.failovers[model] += 1
        else:
            self.failed_over.discard(model)
            self.recoveries[model] += 1
        self._observer.stand_in_changed(model, now, serves=away)
