"""One request on its way: from asking for a slot to giving it back."""

from __future__ import annotations

from math import inf, isnan
from typing import TYPE_CHECKING

from forebay.core.model import Ending, Outcome, Timing, TimingKind

if TYPE_CHECKING:
    from collections.abc import Callable

    from forebay.core.admission import Grant
    from forebay.core.model import Refusal
    from forebay.sim.door import Door
    from forebay.sim.loads import Load
    from forebay.sim.record import Request
    from forebay.sim.simulation import Simulation
    from forebay.sim.world import Event

    # Told when a request is over, and when to come back if it was refused.
    Done = Callable[[Request, float | None], None]

# An answer too short to tell how fast tokens come, as for the gateway.
_FEWEST_TOKENS = 3


class Call:
    """An asker (`driver.Asker`) that becomes a job (`server.Job`), as the gateway would.

    Its readings are the gateway's: time to the first token against the prompt; time per output
    token; of an answer in one piece, the whole time against its work. What fails is tried elsewhere
    by the gateway's rules: not once some of the answer is there.
    """

    __slots__ = ("_deadline", "_done", "_door", "_grant", "_load", "_simulation", "_timer",
                 "request", "size")  # fmt: skip

    def __init__(
        self,
        simulation: Simulation,
        load: Load,
        request: Request,
        done: Done | None,
    ) -> None:
        self.request = request
        self.size = request.size
        self._simulation = simulation
        self._load = load
        self._done = done
        self._deadline = request.asked_at + load.timeout_s
        self._door: Door | None = None
        self._grant: Grant | None = None
        self._timer: Event | None = None

    def granted(self, grant: Grant) -> None:
        """Go where the grant says."""
        simulation, request = self._simulation, self.request
        request.endpoint = grant.endpoint.id
        request.attempts += 1
        request.started_at = simulation.world.now
        self._grant = grant
        simulation.started(grant)
        if self._deadline < inf:
            self._timer = simulation.world.at(self._deadline, self._time_out)
        self._door = simulation.doors[request.endpoint]
        self._door.enter(self)

    def refused(self, refusal: Refusal) -> None:
        """Leave without having been served."""
        self.request.refused = refusal.reason
        self._over(refusal.retry_after_s)

    def first_token(self) -> None:
        """Report the time to the first token."""
        request, grant = self.request, self._grant
        if grant is None or not self._load.streamed:
            return
        now = self._simulation.world.now
        request.first_token_at = now
        timing = Timing(TimingKind.FIRST_TOKEN, now - grant.at, self.size.input_tokens)
        self._simulation.limiter.report(grant, timing)

    def finished(self, outcome: Outcome = Outcome.OK, retry_after_s: float | None = None) -> None:
        """Give the slot back."""
        grant = self._grant
        if grant is None or self._door is None:  # it has been given back: the answer came late
            return
        self._grant = None
        self._door.leave(self)
        if self._timer is not None:
            self._timer.cancel()
        timings = self._timings(grant) if outcome is Outcome.OK else ()
        ending = Ending(outcome, timings, retry_after_s, self.size.work)
        self._simulation.limiter.give_back(grant, ending)
        if outcome is not Outcome.OK and isnan(self.request.first_token_at):
            again = self._simulation.again(grant, outcome)
            if again is not None:
                self._simulation.limiter.ask(again, self)
                return
        self.request.outcome = outcome
        self._over(retry_after_s)

    def _timings(self, grant: Grant) -> tuple[Timing, ...]:
        now, size = self._simulation.world.now, self.size
        if not (self._load.streamed and size.output_tokens):
            return (Timing(TimingKind.WORK, now - grant.at, size.work),)
        if size.output_tokens < _FEWEST_TOKENS:
            return ()
        each_s = (now - self.request.first_token_at) / (size.output_tokens - 1)
        return (Timing(TimingKind.OUTPUT_TOKEN, each_s, 1),)

    def _time_out(self) -> None:
        if self._door is not None:
            self._door.server.abort(self)
            self.finished(Outcome.TIMEOUT)

    def _over(self, retry_after_s: float | None) -> None:
        self.request.ended_at = self._simulation.world.now
        if self._done is not None:
            self._done(self.request, retry_after_s)
