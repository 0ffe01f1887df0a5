"""What is behind an endpoint, as a request sees it."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

from forebay.core.model import Outcome

if TYPE_CHECKING:
    from forebay.core.model import Signal
    from forebay.sim.gpu import Gpu
    from forebay.sim.world import World


class Size(NamedTuple):
    """How much one request asks for.

    Args:
        input_tokens: of all its texts, or of its prompt; ≥ 1.
        output_tokens: to generate; 0 for embeddings.
        texts: inputs of an embedding request, equally long; ≥ 1.
    """

    input_tokens: int
    output_tokens: int = 0
    texts: int = 1

    @property
    def work(self) -> int:
        """Tokens that count as work done: the generated ones, or else the inputs."""
        return self.output_tokens or self.input_tokens


class Job(Protocol):
    """A request inside a server, which tells it what happens. Never called inside `submit`."""

    size: Size

    def first_token(self) -> None:
        """Its first token is there."""

    def finished(self, outcome: Outcome = Outcome.OK, retry_after_s: float | None = None) -> None:
        """It has ended."""


class Server(Protocol):
    """An engine."""

    def submit(self, job: Job) -> None:
        """Take a request in; it waits inside as long as it has to."""

    def abort(self, job: Job) -> None:
        """Drop a request without a word; one that is not there is ignored."""

    def signal(self, now: float) -> Signal:
        """What its metrics say now."""


class ServerSpec(Protocol):
    """The numbers of a server."""

    def build(self, world: World, gpu: Gpu) -> Server:
        """Make the server, on its GPU."""
