"""HTTP/1.1 to an endpoint: the hot path's client, on `asyncio.Protocol` and llhttp.

Theory of operation. An `Upstream` is one endpoint. `Upstream.send` takes a connection out of the
`Pool`, or makes one, and returns a `Response` when the head is here. The response owns the
connection until it is settled, which gives it back or closes it; `Connection` holds the phases of
one exchange. No tasks, and one future a wait.

Which connection is used again (RFC 9112 section 9.3):

- It goes back to the pool when the response ended by its own framing, the request had been sent in
  full, the server did not announce a close (``Connection: close``, or HTTP/1.0 without keep-alive),
  and nothing came after the response. It leaves the pool at once when anything comes, EOF included.
- The last one used is used first, never after it was idle for `UpstreamSettings.idle_s`.

When a request is sent again. A server may close an idle connection at the moment in which a request
leaves, and llama.cpp's does after each streamed response, while it announces keep-alive. RFC 9112
section 9.3.1 leaves a repetition to what is known of the request's meaning: here requests are
inference, which computes and changes nothing. So:

- A request on a *reused* connection that ends before any byte of a response is sent again, exactly
  once, on a *new* connection. The caller does not notice (`UpstreamStats.transparent_retries`).
- On a new connection, that is an error.
- After any byte of a response (an interim one counts), and after a timeout, it is an error.

Errors: `UpstreamError` and its kinds, which name the endpoint; `PoolExhausted` is not one of them,
because it says nothing about the endpoint.
"""

from __future__ import annotations

from forebay.adapters.upstream.client import Upstream
from forebay.adapters.upstream.response import Response
from forebay.adapters.upstream.settings import UpstreamSettings, UpstreamStats
from forebay.adapters.upstream.sink import ACCEPTED, Sink
from forebay.adapters.upstream.tls import tls_context

__all__ = [
    "ACCEPTED",
    "Response",
    "Sink",
    "Upstream",
    "UpstreamSettings",
    "UpstreamStats",
    "tls_context",
]
