"""What may change while requests run: endpoints come, drain and go, and the rules of rooms move.

Nothing that runs is touched. Whatever may start, or has nothing left to wait for, follows at once.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from forebay.core.dispatch import Dispatch

if TYPE_CHECKING:
    from collections.abc import Iterable

    from forebay.core.endpoint import EndpointState
    from forebay.core.grant import Verdict
    from forebay.core.layout import Layout
    from forebay.core.model import Endpoint
    from forebay.core.queue import QueueBounds


@dataclass(slots=True, eq=False, repr=False)
class Changes:
    """The part of `Admission` that a change of the configuration calls.

    Args:
        layout: where everything is.
    """

    layout: Layout
    _dispatch: Dispatch = field(default_factory=Dispatch, init=False)

    def add(self, endpoint: Endpoint, now: float) -> list[Verdict]:
        """Put an endpoint in, or let one that drains serve again.

        Raises:
            ValueError: its id is there and it does not drain, or has another part; its floor
                does not fit its group's budget.
        """
        layout = self.layout
        state = layout.states.get(endpoint.id)
        if state is not None and not state.draining:
            raise ValueError(f"endpoint {endpoint.id!r} is there already")
        layout.check_floors(endpoint)
        out: list[Verdict] = []
        if state is None:
            state = layout.add(endpoint)
            state.begin_like_others(now)
        else:
            if state.endpoint.part != endpoint.part:
                raise ValueError(f"endpoint {endpoint.id!r} is there still, as another one")
            out = self._move(state, endpoint.gpu_group, now)
            state.change(endpoint, now)
            layout.reopen(state)
        for member in state.members:
            self._dispatch.attend(member.queue)
        return self._rearrange(state, now, out)

    def drain(self, endpoint_id: str, now: float) -> list[Verdict]:
        """Let an endpoint finish what it has, and give it nothing more.

        Whoever waits for nothing else is refused. Its floor is kept for nobody any more.
        """
        state = self.layout.states[endpoint_id]
        if state.draining:
            return []
        out: list[Verdict] = []
        for queue in self.layout.close(state):
            self._dispatch.flush_queue(queue, now, out)
            self._dispatch.attend(queue)
        return self._rearrange(state, now, out)

    def remove(self, endpoint_id: str, now: float) -> list[Verdict]:
        """Take an endpoint out; it is drained before, if that has not been done.

        Raises:
            ValueError: something still runs there.
        """
        state = self.layout.states[endpoint_id]
        if state.live:
            raise ValueError(f"endpoint {endpoint_id!r} still has {state.live} requests in flight")
        out = self.drain(endpoint_id, now)
        self.layout.remove(state)
        return out

    def set_budget(self, group: str, budget: int | None, now: float) -> list[Verdict]:
        """Move the budget of a GPU group, or take it away. What is in flight stays.

        Below it, nothing more is admitted.

        Raises:
            ValueError: the floors of the group's endpoints add up to more.
        """
        self.layout.set_budget(group, budget)
        out: list[Verdict] = []
        for state in self.layout.group(group):
            self._rearrange(state, now, out)
        return out

    def set_bounds(self, endpoint_id: str, floor: int, ceiling: int, now: float) -> list[Verdict]:
        """Move an endpoint's floor and ceiling. What is in flight stays.

        Raises:
            ValueError: the floors of its group's endpoints would add up to more than its budget.
        """
        endpoint = self.layout.states[endpoint_id].endpoint
        return self.change(replace(endpoint, floor=floor, ceiling=ceiling), now)

    def change(self, endpoint: Endpoint, now: float) -> list[Verdict]:
        """Give an endpoint other settings, by its id. What is in flight stays.

        Raises:
            ValueError: it has another part, or is on another GPU (see `move`); the floors of its
                group's endpoints would add up to more than its budget.
        """
        state = self.layout.states[endpoint.id]
        before = state.endpoint
        if (before.part, before.gpu_group) != (endpoint.part, endpoint.gpu_group):
            raise ValueError(f"endpoint {endpoint.id!r} is there, as another one")
        if not state.draining:
            self.layout.set_floor(state, endpoint.floor)
        state.change(endpoint, now)
        if state.pool is not None:
            state.pool.rendezvous.changed()
        for member in state.members:
            self._dispatch.attend(member.queue)  # a request may take less here than before
        return self._rearrange(state, now)

    def move(self, endpoint_id: str, group: str, now: float) -> list[Verdict]:
        """Let an endpoint be on another GPU, and what it has in flight count there.

        It has no floor there until `change` gives it one, so that two can change places.
        """
        state = self.layout.states[endpoint_id]
        out = self._move(state, group, now)
        return self._rearrange(state, now, out)

    def expect(self, models: Iterable[str]) -> None:
        """Name all models of the configuration: while no endpoint serves one, it is unavailable.

        Any other that nobody serves is unknown.
        """
        self.layout.expect(models)

    def set_queue_bounds(self, bounds: QueueBounds) -> None:
        """Move how much may wait in each queue. What waits stays."""
        self.layout.set_queue_bounds(bounds)

    def _move(self, state: EndpointState, group: str, now: float) -> list[Verdict]:
        before = state.endpoint.gpu_group
        out: list[Verdict] = []
        if group != before:
            self.layout.move(state, group)
            for left in self.layout.group(before):
                self._rearrange(left, now, out)
        return out

    def _rearrange(
        self, state: EndpointState, now: float, out: list[Verdict] | None = None
    ) -> list[Verdict]:
        """Start and refuse what may be, after the rules of the room of `state` changed."""
        dispatch, room = self._dispatch, state.native.room
        out = [] if out is None else out
        dispatch.look(state, now)
        for member in room.members:
            room.refresh(member)
            dispatch.review(member.state)
            dispatch.flush(member.state, now, out)
            dispatch.line_up(member.state)
        dispatch.free(now)  # a guard counts floors too
        return dispatch.settle(now, out)
