"""What admission answers: a slot, or a refusal."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from forebay.core.model import Refusal

if TYPE_CHECKING:
    from forebay.core.breaker import Pass
    from forebay.core.member import Member
    from forebay.core.model import Endpoint, Ticket
    from forebay.core.protection import Guard


@dataclass(slots=True, eq=False, repr=False)
class Grant:
    """Leave to start: a slot that is held until `Admission.release`.

    Args:
        ticket: whose it is.
        member: where it runs, and in which class.
        weight: the slots that it holds.
        at: when it was given.
        pass_: the breaker's leave; `pass_.probe` tells a half-open probe.
        guard: what protects chat on its GPU, if anything did when it started; it counts this one.
        held: it has not been released yet.
        answered: its request has got the first of its answer.
        unanswered: its endpoint was asked, and has said nothing yet; set by whoever asks it.
    """

    ticket: Ticket
    member: Member
    weight: int
    at: float
    pass_: Pass
    guard: Guard | None = None
    held: bool = True
    answered: bool = False
    unanswered: bool = False

    def __repr__(self) -> str:
        return f"<Grant of {self.weight} on {self.member}>"

    @property
    def endpoint(self) -> Endpoint:
        """Where to send the request."""
        return self.member.state.endpoint


Verdict = Grant | Refusal
