"""One request and the way its response goes out; every fault on the wire happens here.

Handlers answer through an `Exchange` and know nothing of faults.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

import msgspec
from aiohttp import web

from forebay.emulator.faults import (
    CloseKeepalive,
    Cut,
    Garbage,
    Hang,
    Html,
    Loading,
    Reset,
    Stall,
    Status,
    StreamError,
)
from forebay.emulator.record import End
from forebay.emulator.wire import close, reset
from forebay.errors import ForebayError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from forebay.emulator.faults import Fault
    from forebay.emulator.record import Entry

    Handler = Callable[["Exchange"], Awaitable[web.StreamResponse]]
    ErrorBody = Callable[[int, str, str], dict[str, Any]]

_T = TypeVar("_T")
_PAGE = "<!DOCTYPE html><html><body>Sign in to the network</body></html>"
_NOT_HTTP = b"\x15\x03\x01\x00\x02\x02\x46 not HTTP\r\n\r\n"
_NOT_A_CHUNK = b"zz not a chunk size\r\n\r\n"
_NOT_JSON = b'{"choices": [{"delta": \xff\xfe'


class Refusal(ForebayError):  # noqa: N818 - the engine's own answer to a wrong request
    """What the emulated engine does not accept.

    Args:
        status: the HTTP status.
        kind: the engine's name for this kind of error.
        message: what a person should read.
    """

    def __init__(self, status: int, kind: str, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.kind = kind


class _EndedEarly(Exception):  # noqa: N818 - unwinds the handler of a stream that a fault ended
    pass


class Exchange:
    """One request and its response.

    Args:
        request: the request.
        body: its body, received in full.
        entry: its line in the record; ended here when the response's last byte goes out.
        fault: what is to go wrong, None for nothing.
        error_body: the engine's body for an error of a status, a kind and a message.
    """

    def __init__(
        self,
        request: web.Request,
        body: bytes,
        entry: Entry,
        fault: Fault | None,
        error_body: ErrorBody,
    ) -> None:
        self._body = body
        self._request = request
        self._entry = entry
        self._fault = fault
        self._error_body = error_body
        self._response = web.StreamResponse()
        self._events = 0
        self._broken = False

    async def answer(self, handle: Handler) -> web.StreamResponse:
        """Let the handler answer, or the fault in its place, or both in turn."""
        try:
            response = await self._answer_with_fault()
            return await handle(self) if response is None else response
        except Refusal as error:
            return await self._send_error(error.status, error.kind, str(error), End.REFUSED)
        except _EndedEarly:
            return self._response
        except ConnectionError:  # noticed by a write, before the server cancels this handler
            return self._response
        finally:
            # Only if no response ended it: the client is gone, or this handler has a bug.
            self._entry.end(End.FAULTED if self._broken else End.ABORTED)

    def decode(self, kind: type[_T], *, refusal: tuple[int, str]) -> _T:
        """Return the body as a `kind`.

        Raises:
            Refusal: with that status and kind of error: the body is not JSON, or not a `kind`.
        """
        try:
            return msgspec.json.decode(self._body, type=kind)
        except msgspec.DecodeError as error:
            raise Refusal(*refusal, str(error)) from error

    async def send_json(self, value: object) -> web.StreamResponse:
        """Answer with a JSON body."""
        body = msgspec.json.encode(value)
        match self._fault:
            case StreamError(code=code, message=message):
                return await self._send(_json(_error(code, message)), End.FAULTED)
            case Garbage():
                half = body[: len(body) // 2] + _NOT_JSON
                return await self._send(_json_bytes(half), End.FAULTED)
            case Reset() | Cut() | Stall():
                return await self._send_half(body, self._fault)
        return await self._send(_json_bytes(body), End.FINISHED)

    async def send_text(self, text: str) -> web.StreamResponse:
        """Answer with plain text."""
        return await self._send(web.Response(text=text), End.FINISHED)

    async def start_stream(self) -> None:
        """Begin a stream of server-sent events: the headers go out."""
        self._response.content_type = "text/event-stream"
        self._response.charset = "utf-8"
        await self._response.prepare(self._request)
        await self._break_if_due()

    async def send_event(self, data: bytes) -> None:
        """Send one event, as a chunk of its own."""
        await self._response.write(b"data: %b\n\n" % data)
        self._events += 1
        await self._break_if_due()

    async def end_stream(self) -> web.StreamResponse:
        """End the stream as OpenAI does, with ``[DONE]``."""
        end = End.FAULTED if self._broken else End.FINISHED
        return await self._send(self._response, end, b"data: [DONE]\n\n")

    async def _answer_with_fault(self) -> web.StreamResponse | None:
        """Let a fault answer that needs nothing of the engine."""
        match self._fault:
            case Hang():
                await self._until_gone()
            case Reset(after_chunks=None):
                reset(self._request.transport)
                await self._until_gone()
            case Garbage(where="head"):
                close(self._request.transport, _NOT_HTTP)
                await self._until_gone()
            case Html():
                page = web.Response(text=_PAGE, content_type="text/html")
                return await self._send(page, End.FAULTED)
            case Loading():
                return await self._send_error(
                    503, "unavailable_error", "Loading model", End.FAULTED
                )
            case Status(status=status, message=message, retry_after=retry_after):
                return await self._send_error(status, "emulated", message, End.FAULTED, retry_after)
        return None

    async def _break_if_due(self) -> None:
        """Let a fault break the stream that is due after this many events."""
        match self._fault:
            case (
                Reset(after_chunks=due)
                | Cut(after_chunks=due)
                | Stall(after_chunks=due)
                | StreamError(after_chunks=due)
                | Garbage(after_chunks=due)
            ) if due == self._events:
                await self._break(self._fault)

    async def _break(self, fault: Fault) -> None:
        match fault:
            case Reset():
                reset(self._request.transport)
                await self._until_gone()
            case Cut(clean=False):
                close(self._request.transport)
                await self._until_gone()
            case Cut():
                await self._send(self._response, End.FAULTED)
                raise _EndedEarly
            case Stall():
                await self._until_gone()
            case StreamError(code=code, message=message):
                event = b"data: %b\n\n" % msgspec.json.encode(_error(code, message))
                await self._send(self._response, End.FAULTED, event)
                raise _EndedEarly
            case Garbage(where="chunk"):
                close(self._request.transport, _NOT_A_CHUNK)
                await self._until_gone()
            case Garbage():
                self._broken = True
                await self._response.write(b"data: %b\n\n" % _NOT_JSON)

    async def _send_half(self, body: bytes, fault: Reset | Cut | Stall) -> web.StreamResponse:
        """Send the headers, perhaps half of the body, and break."""
        self._response.content_type = "application/json"
        if not (isinstance(fault, Cut) and fault.clean):
            self._response.content_length = len(body)
        await self._response.prepare(self._request)
        if fault.after_chunks:
            await self._response.write(body[: len(body) // 2])
        await self._break(fault)
        return self._response

    async def _send_error(
        self, status: int, kind: str, message: str, end: End, retry_after: str | None = None
    ) -> web.StreamResponse:
        response = _json(self._error_body(status, kind, message), status)
        if retry_after is not None:
            response.headers["Retry-After"] = retry_after
        return await self._send(response, end)

    async def _send(
        self, response: web.StreamResponse, end: End, last: bytes = b""
    ) -> web.StreamResponse:
        await response.prepare(self._request)
        # Before the last byte: who has read it must not find the request still counted.
        self._entry.end(end)
        await response.write_eof(last)
        if isinstance(self._fault, CloseKeepalive):
            loop = asyncio.get_running_loop()
            loop.call_later(self._fault.after_s, close, self._request.transport)
        return response

    async def _until_gone(self) -> NoReturn:
        """Wait: the server cancels the handler when the connection is lost."""
        self._broken = True
        await asyncio.Event().wait()
        raise AssertionError("an event that nobody sets")


def _json(value: object, status: int = 200) -> web.Response:
    return _json_bytes(msgspec.json.encode(value), status)


def _json_bytes(body: bytes, status: int = 200) -> web.Response:
    return web.Response(body=body, status=status, content_type="application/json")


def _error(code: int, message: str) -> dict[str, Any]:
    return {"error": {"message": message, "type": "emulated", "code": code}}
