"""A bounded first-in, first-out queue of tickets from which any ticket can leave at any time."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from forebay.core.member import Member
    from forebay.core.model import ServiceClass, Ticket


@dataclass(frozen=True, slots=True)
class QueueBounds:
    """How much may wait, per model and service class."""

    max_requests: int = 1024
    max_bytes: int = 256 * 2**20


@dataclass(slots=True, eq=False, repr=False)
class Queue:
    """The tickets of one model and class that wait, whichever endpoint they will run on.

    Args:
        model: id of the model.
        service_class: the class that they ask in.
        bounds: how much may wait.
        members: the endpoints, in this class, that serve the model.
        head: the ticket that has waited longest.
        size_bytes: what all of them occupy.
    """

    model: str
    service_class: ServiceClass
    bounds: QueueBounds
    members: list[Member] = field(default_factory=list)
    head: Ticket | None = field(default=None, init=False)
    size_bytes: int = field(default=0, init=False)
    # Ordered by arrival; unlike a deque, a ticket in the middle leaves in constant time.
    _tickets: OrderedDict[Ticket, None] = field(default_factory=OrderedDict, init=False)

    def __repr__(self) -> str:
        return f"<Queue {self.model} {self.service_class}: {len(self)} waiting>"

    def __len__(self) -> int:
        return len(self._tickets)

    def __contains__(self, ticket: Ticket) -> bool:
        return ticket in self._tickets

    def __iter__(self) -> Iterator[Ticket]:
        return iter(self._tickets)

    def has_space_for(self, ticket: Ticket) -> bool:
        """Whether `ticket` may join without breaking a bound."""
        return (
            len(self._tickets) < self.bounds.max_requests
            and self.size_bytes + ticket.size_bytes <= self.bounds.max_bytes
        )

    def join(self, ticket: Ticket) -> None:
        """Put `ticket` at the end."""
        self._tickets[ticket] = None
        self.size_bytes += ticket.size_bytes
        if self.head is None:
            self.head = ticket
            for member in self.members:
                member.room.waiting += 1

    def leave(self, ticket: Ticket) -> None:
        """Take `ticket` out, from wherever it stands."""
        del self._tickets[ticket]
        self.size_bytes -= ticket.size_bytes
        if ticket is self.head:
            self.head = next(iter(self._tickets), None)
            if self.head is None:
                for member in self.members:
                    member.room.waiting -= 1
