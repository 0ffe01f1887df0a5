"""Faults that the emulated engines can be told to have, live.

A fault belongs to one engine. It hits the inference requests of that engine, or, with `path`, the
requests to that path only (``/metrics``, ``/health``, …); `next` limits how many it hits,
`probability` makes it hit by chance, `containing` and `over_bytes` by the request's body (an input
that the engine chokes on, a batch that its memory does not hold). Of several active faults the
oldest that hits is taken.

``after_chunks`` is counted in events of a stream; on a response that is not a stream, 0 means
after the headers and more means after half of the body.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

if TYPE_CHECKING:
    import random
    from collections.abc import Iterable


class EngineName(StrEnum):
    """The two engines of an emulated host."""

    CHAT = "chat"
    EMBEDDING = "embedding"


class _Fault(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    engine: EngineName
    probability: float = Field(default=1.0, gt=0, le=1)
    next: int | None = Field(default=None, ge=1)
    path: str | None = Field(default=None, pattern="^/")
    containing: str | None = Field(default=None, min_length=1)
    over_bytes: int | None = Field(default=None, ge=0)

    def concerns(self, body: bytes) -> bool:
        """Whether a request with that body is one that it hits."""
        if self.over_bytes is not None and len(body) <= self.over_bytes:
            return False
        return self.containing is None or self.containing.encode() in body


class Slow(_Fault):
    """Steps of the engine take `factor` times as long; `next` and `probability` count steps."""

    kind: Literal["slow"] = "slow"
    factor: float = Field(gt=0)
    path: None = None
    containing: None = None
    over_bytes: None = None


class Hang(_Fault):
    """The request is read and never answered."""

    kind: Literal["hang"] = "hang"


class Reset(_Fault):
    """The connection is reset (TCP RST): before any byte, or `after_chunks`."""

    kind: Literal["reset"] = "reset"
    after_chunks: int | None = Field(default=None, ge=0)


class Status(_Fault):
    """The request is answered with an error, with the engine's own body for it."""

    kind: Literal["status"] = "status"
    status: int = Field(ge=400, le=599)
    retry_after: str | None = None
    message: str = "emulated fault"


class Loading(_Fault):
    """The engine loads its model: 503 on every path, health included."""

    kind: Literal["loading"] = "loading"


class Html(_Fault):
    """A 200 with an HTML page, as a captive portal or a wrong proxy answers."""

    kind: Literal["html"] = "html"


class Cut(_Fault):
    """The response ends `after_chunks`: the connection closes, or, `clean`, the body just ends."""

    kind: Literal["cut"] = "cut"
    after_chunks: int = Field(ge=0)
    clean: bool = False


class StreamError(_Fault):
    """A 200 that carries an error, as its last event `after_chunks` or as its whole body."""

    kind: Literal["stream_error"] = "stream_error"
    after_chunks: int = Field(default=0, ge=0)
    code: int = Field(default=503, ge=400, le=599)
    message: str = "engine overloaded"


class Stall(_Fault):
    """The response stops `after_chunks` and the connection stays open."""

    kind: Literal["stall"] = "stall"
    after_chunks: int = Field(ge=0)


class Garbage(_Fault):
    """Bytes that are not the protocol.

    ``head`` in place of a status line; ``chunk`` in place of a chunk's size, `after_chunks`;
    ``event`` one event that is not JSON, `after_chunks`, and the stream goes on.
    """

    kind: Literal["garbage"] = "garbage"
    where: Literal["head", "chunk", "event"] = "head"
    after_chunks: int = Field(default=0, ge=0)


class CloseKeepalive(_Fault):
    """The connection is closed `after_s` a whole response that announced to keep it open.

    Whatever happens on it by then: the race of an idle time-out with the client's next request.
    """

    kind: Literal["close_keepalive"] = "close_keepalive"
    after_s: float = Field(default=0.0, ge=0)


Fault = Annotated[
    Slow
    | Hang
    | Reset
    | Status
    | Loading
    | Html
    | Cut
    | StreamError
    | Stall
    | Garbage
    | CloseKeepalive,
    Field(discriminator="kind"),
]


@dataclass(slots=True)
class _Armed:
    fault: Fault
    left: int | None  # hits; None: without end


class Faults:
    """The faults that are active now.

    Args:
        initial: faults to start with.
        rng: the dice of `probability`.
    """

    def __init__(self, initial: Iterable[Fault], rng: random.Random) -> None:
        self._armed: list[_Armed] = []
        self._rng = rng
        for fault in initial:
            self.add(fault)

    def add(self, fault: Fault) -> None:
        """Activate a fault."""
        self._armed.append(_Armed(fault, fault.next))

    def clear(self, engine: EngineName | None = None) -> None:
        """End the faults of one engine, or all."""
        self._armed = [armed for armed in self._armed if engine not in {None, armed.fault.engine}]

    def active(self) -> list[Fault]:
        """Return what is active, with `next` counted down."""
        return [armed.fault.model_copy(update={"next": armed.left}) for armed in self._armed]

    def take(
        self, engine: EngineName, path: str, body: bytes = b"", *, inference: bool
    ) -> Fault | None:
        """Return the fault that hits a request to `path`, and count the hit."""
        for armed in self._armed:
            fault = armed.fault
            if fault.engine is not engine or isinstance(fault, Slow) or not fault.concerns(body):
                continue
            everywhere = inference or isinstance(fault, Loading)
            if (fault.path == path or (fault.path is None and everywhere)) and self._hits(armed):
                return fault
        return None

    def slowdown(self, engine: EngineName) -> float:
        """Return how many times as long the engine's next step takes, and count the hits."""
        factor = 1.0
        for armed in tuple(self._armed):
            fault = armed.fault
            if isinstance(fault, Slow) and fault.engine is engine and self._hits(armed):
                factor *= fault.factor
        return factor

    def _hits(self, armed: _Armed) -> bool:
        if armed.fault.probability < 1 and self._rng.random() >= armed.fault.probability:
            return False
        if armed.left is not None:
            armed.left -= 1
            if armed.left == 0:
                self._armed.remove(armed)
        return True
