"""A refusal in words."""

from __future__ import annotations

from forebay.core.model import Reason, Refusal
from forebay.errors import Rejected

_MESSAGES = {
    Reason.QUEUE_FULL: "the queue of {model!r} is full",
    Reason.DEADLINE: "no slot for {model!r} became free before the deadline",
    Reason.UNAVAILABLE: "{model!r} has no healthy endpoint now",
    Reason.LOADING: "{model!r} is still being loaded",
    Reason.ASLEEP: "{model!r} is asleep: its engine has put it to sleep and must be woken",
    Reason.NO_ROOM: "the floors reserved on the GPU of {model!r} leave no room for this class",
    Reason.UNKNOWN_MODEL: "no model {model!r} is configured",
    Reason.SHUTTING_DOWN: "shutting down",
}


def rejected(refusal: Refusal) -> Rejected:
    """The error that tells a caller of a refusal."""
    message = _MESSAGES[refusal.reason].format(model=refusal.ticket.model)
    return Rejected(refusal.reason, message, refusal.retry_after_s)
