"""Where the pieces of a body go while they arrive."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Generator

# Takes a piece, and returns `ACCEPTED` if the next one may follow at once, else what is over when
# it may. It has taken the piece in either case.
Sink = Callable[[bytes], Awaitable[None]]


class _Accepted:
    """Awaiting it takes no time."""

    def __await__(self) -> Generator[None, None, None]:
        return
        yield  # makes this a generator


ACCEPTED = _Accepted()
