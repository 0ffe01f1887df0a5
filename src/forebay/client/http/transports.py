"""Transports for httpx, and for httpx2, which has its own classes of the same names."""

from __future__ import annotations

import weakref
from contextlib import contextmanager
from functools import cache
from typing import TYPE_CHECKING, Any

from forebay.client.http.reply import BrokenOff
from forebay.proxy.message import Request

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from forebay.client.http.inside import Inside, Sent
    from forebay.proxy.message import Headers

_API = b"/v1"


@cache
def asynchronous(httpx: Any) -> type:  # noqa: ANN401 - either module
    """The transport of ``AsyncClient``."""

    class Stream(httpx.AsyncByteStream):
        def __init__(self, request: Any, sent: Sent) -> None:  # noqa: ANN401
            self._request, self._sent = request, sent
            weakref.finalize(self, sent.stop).atexit = False

        async def __aiter__(self) -> AsyncIterator[bytes]:
            within_s = _patience_s(self._request)
            with _as_errors_of(httpx, self._request):
                while piece := await self._sent.reply.read(within_s):
                    yield piece

        async def aclose(self) -> None:
            self._sent.stop()

    class Transport(httpx.AsyncBaseTransport):
        def __init__(self, inside: Inside, headers: Headers) -> None:
            self._inside, self._headers = inside, headers

        async def handle_async_request(self, request: Any) -> Any:  # noqa: ANN401
            body = await request.aread()
            sent = self._inside.send(_message(request, body, self._headers))
            stream = Stream(request, sent)
            with _as_errors_of(httpx, request):
                try:
                    await sent.reply.head(_patience_s(request))
                except BaseException:
                    sent.stop()
                    raise
            return httpx.Response(sent.reply.status, headers=sent.reply.headers, stream=stream)

    return Transport


@cache
def synchronous(httpx: Any) -> type:  # noqa: ANN401 - either module
    """The transport of ``Client``."""

    class Stream(httpx.SyncByteStream):
        def __init__(self, request: Any, sent: Sent) -> None:  # noqa: ANN401
            self._request, self._sent = request, sent
            weakref.finalize(self, sent.stop).atexit = False

        def __iter__(self) -> Iterator[bytes]:
            within_s = _patience_s(self._request)
            with _as_errors_of(httpx, self._request):
                while piece := self._sent.reply.read_sync(within_s):
                    yield piece

        def close(self) -> None:
            self._sent.stop()

    class Transport(httpx.BaseTransport):
        def __init__(self, inside: Inside, headers: Headers) -> None:
            self._inside, self._headers = inside, headers

        def handle_request(self, request: Any) -> Any:  # noqa: ANN401
            self._inside.see_that_it_may_block()
            sent = self._inside.send(_message(request, request.read(), self._headers))
            stream = Stream(request, sent)
            with _as_errors_of(httpx, request):
                try:
                    sent.reply.head_sync(_patience_s(request))
                except BaseException:
                    sent.stop()
                    raise
            return httpx.Response(sent.reply.status, headers=sent.reply.headers, stream=stream)

    return Transport


def _message(request: Any, body: bytes, more: Headers) -> Request:  # noqa: ANN401
    """The request as the data plane takes it: whatever its server, it goes where there is room."""
    path, _, query = request.url.raw_path.partition(b"?")
    at = path.find(_API + b"/")
    headers = [(name.lower(), value) for name, value in request.headers.raw]
    names = {name for name, _ in headers}
    headers += [pair for pair in more if pair[0] not in names]
    return Request(request.method.encode(), path[max(at, 0) :], query, headers, body)


def _patience_s(request: Any) -> float | None:  # noqa: ANN401
    """How long nothing may come."""
    seconds: float | None = request.extensions.get("timeout", {}).get("read")
    return seconds


@contextmanager
def _as_errors_of(httpx: Any, request: Any) -> Iterator[None]:  # noqa: ANN401
    try:
        yield
    except TimeoutError as error:
        message = (
            f"nothing came for {_patience_s(request)} s, and a request may wait longer for its "
            "slot; without a timeout of the client, forebay.timeouts.request_s bounds it"
        )
        raise httpx.ReadTimeout(message, request=request) from error
    except BrokenOff as error:
        raise httpx.RemoteProtocolError(str(error), request=request) from error
