"""Whether a request that failed at one endpoint is tried at another one."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from forebay.core.model import Outcome

if TYPE_CHECKING:
    from collections.abc import Mapping

    from forebay.core.admission import Admission
    from forebay.core.member import Member
    from forebay.core.model import Ticket
    from forebay.core.retry import RetryBudget

# What another endpoint may do better. A wrong key or path is a matter of one endpoint's
# configuration. A client's mistake is the same everywhere, and who left needs no answer.
_ELSEWHERE = frozenset(
    {
        Outcome.FAILURE,
        Outcome.TIMEOUT,
        Outcome.CONGESTION,
        Outcome.LOADING,
        Outcome.CONFIGURATION,
    }
)
# Refused at once, before anything was computed: to ask elsewhere puts no load on anybody that was
# not to be there anyway, and no budget keeps a request from the endpoint that would serve it.
_COSTS_NOTHING = frozenset({Outcome.LOADING, Outcome.CONFIGURATION})
# Refused at once as well, but others of its kind may be as full and be asked for nothing: that is
# counted. A stand-in is of another kind: it is there for what they do not take.
_CONGESTION = Outcome.CONGESTION
# Endpoints that one request is tried at. Who fails at three is likely to be the reason itself.
_MOST_ATTEMPTS = 3


def may_go_elsewhere(outcome: Outcome) -> bool:
    """Whether a request that ended like this may be served at another endpoint."""
    return outcome in _ELSEWHERE


@dataclass(slots=True, eq=False, repr=False)
class Retries:
    """Decides on second attempts: never at the same endpoint, few, and few for all requests.

    Args:
        admission: knows the endpoints.
        budgets: what may be tried again, by model.
    """

    admission: Admission
    budgets: dict[str, RetryBudget]

    def note(self, ticket: Ticket) -> None:
        """A request asks for its first slot."""
        budget = self.budgets.get(ticket.model)
        if budget is not None:
            budget.note_request()

    def follow(self, budgets: Mapping[str, RetryBudget]) -> None:
        """Go by other endpoints from now on; what a model has used up stays used up."""
        for model in self.budgets.keys() - budgets.keys():
            del self.budgets[model]
        for model, budget in budgets.items():
            self.budgets.setdefault(model, budget).resize(budget.burst)

    def take_one(self, model: str) -> bool:
        """Take one more attempt from a model's budget; False if none is left."""
        budget = self.budgets.get(model)
        return budget is None or budget.try_retry()

    def again(
        self, ticket: Ticket, endpoint_id: str, outcome: Outcome, now: float, *, probe: bool = False
    ) -> Ticket | None:
        """The ticket to ask with for another endpoint; None if the failure is the answer.

        Args:
            ticket: with which it got the slot that it has given back.
            endpoint_id: where that was.
            outcome: how it ended there. Nothing of an answer has gone to the client.
            now: the time.
            probe: it tried whether an endpoint is back. There is one in each cooldown, so that no
                budget needs to keep its client from an answer.
        """
        if outcome not in _ELSEWHERE or ticket.deadline <= now:
            return None
        # Where none else was left, admission may have sent it back to where it had failed.
        if endpoint_id in ticket.avoid or ticket.attempt >= _MOST_ATTEMPTS:
            return None
        avoid = ticket.avoid | {endpoint_id}
        again = replace(ticket, avoid=avoid, attempt=ticket.attempt + 1)
        others = self._others(again, now)
        if not others or probe or outcome in _COSTS_NOTHING:
            return again if others else None
        regular = [member.state for member in others if not member.stands_in]
        may_stand_in = outcome is _CONGESTION and len(regular) < len(others)
        # Or they rest; or the stand-in would never be asked, since this attempt is the last.
        ready = again.attempt < _MOST_ATTEMPTS and any(state.usable for state in regular)
        if (ready or not may_stand_in) and self.take_one(ticket.model):
            return again
        skipped = {state.endpoint.id for state in regular}
        return replace(again, avoid=avoid | skipped) if may_stand_in else None

    def _others(self, ticket: Ticket, now: float) -> list[Member]:
        """The endpoints that the ticket does not avoid, and that would take it, now or soon."""
        queue = self.admission.queues.get((ticket.model, ticket.service_class))
        others = []
        for member in () if queue is None else queue.members:  # none: its model was taken out
            state, most = member.state, member.room.most(member)
            if (
                state.endpoint.id not in ticket.avoid
                and not state.broken(now)
                and (most is None or most > 0)
            ):
                others.append(member)
        return others
