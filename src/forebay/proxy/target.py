"""An endpoint as the proxy needs it: how to reach it, and how to understand it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from forebay.adapters.engines.base import Engine
    from forebay.adapters.engines.batching import BatchLimits
    from forebay.adapters.engines.http import HttpFetch
    from forebay.adapters.engines.scraper import Scraper
    from forebay.adapters.upstream import Upstream
    from forebay.config import PlannedEndpoint
    from forebay.core.model import Endpoint

_API = b"/v1"


@dataclass(frozen=True, slots=True)
class Target:
    """One endpoint.

    Args:
        endpoint: as admission knows it.
        upstream: the client that reaches it.
        scraper: reads its engine's metrics, and knows which engine it is.
        path: of its API, e.g. ``b"/v1"`` or ``b""``.
        query: fixed part of its URLs, without the question mark.
        models_url: where it lists its models.
        authorization: the header with its key, if it has one.
        fetch: reads one of its URLs, apart from the data plane.
        header: tells callers that it answered.
        piece_tokens: see `PlannedEndpoint`.
        batch_limits: see `PlannedEndpoint`.
        first_byte_s: see `PlannedEndpoint`.
    """

    endpoint: Endpoint
    upstream: Upstream
    scraper: Scraper
    path: bytes
    query: bytes
    models_url: str
    authorization: bytes | None
    fetch: HttpFetch
    header: tuple[bytes, bytes]
    piece_tokens: int | None
    batch_limits: BatchLimits
    first_byte_s: float | None

    @classmethod
    def make(
        cls, planned: PlannedEndpoint, upstream: Upstream, scraper: Scraper, fetch: HttpFetch
    ) -> Target:
        """Work out what stays the same for every request."""
        url, key = planned.url, planned.api_key
        return cls(
            endpoint=planned.endpoint,
            upstream=upstream,
            scraper=scraper,
            path=(url.prefix + url.api_prefix).encode(),
            query=url.query.encode(),
            models_url=url.at("/models"),
            authorization=f"Bearer {key.get_secret_value()}".encode() if key else None,
            fetch=fetch,
            header=(b"x-forebay-endpoint", planned.endpoint.id.encode()),
            piece_tokens=planned.piece_tokens,
            batch_limits=planned.batch_limits,
            first_byte_s=planned.first_byte_s,
        )

    @property
    def id(self) -> str:
        """The endpoint's id."""
        return self.endpoint.id

    @property
    def name(self) -> str:
        """How messages name it."""
        return f"endpoint {self.endpoint.id!r}"

    @property
    def engine(self) -> Engine:
        """What server it is, as far as that is known by now."""
        return self.scraper.engine

    def target_of(self, path: bytes, query: bytes) -> bytes:
        """The request target on this endpoint for a path of the gateway that begins with /v1."""
        full = self.path + path.removeprefix(_API)
        if not (query or self.query):
            return full
        return full + b"?" + b"&".join(part for part in (self.query, query) if part)
