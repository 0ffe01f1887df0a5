"""A minimal, fast, OpenAI-shaped server: what every gateway of the benchmark stands in front of.

It has to cost far less CPU than the gateways, so it speaks `asyncio.Protocol` and llhttp and has
its answers ready. What to answer is written in the prompt (`directive`), because the prompt is the
one thing that every gateway passes on unchanged; the server itself keeps no state.

A streamed chunk carries the monotonic time at which it was written (`STAMP`). Monotonic time is one
clock for the whole machine, so a receiver on it knows how late the chunk is.

    python -m bench.backend --port 9000
"""

from __future__ import annotations

import argparse
import asyncio
import json
import re
import time
from typing import TYPE_CHECKING, cast

import httptools
import uvloop

if TYPE_CHECKING:
    from collections.abc import Callable

MODEL = "bench"
STAMP = re.compile(rb"@(\d+)@")
_DIRECTIVE = re.compile(rb"bench:(\d+):(\d+):(\d+);")
_SMALL_BYTES = 1_000
_CHUNK = (
    '{"id":"chatcmpl-bench","object":"chat.completion.chunk","created":1700000000,"model":"bench",'
    '"choices":[{"index":0,"delta":{"content":"@%d@"},"finish_reason":null}]}'
)
_LAST_CHUNK = (
    '{"id":"chatcmpl-bench","object":"chat.completion.chunk","created":1700000000,"model":"bench",'
    '"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}'
)
_STREAM_HEAD = (
    b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream; charset=utf-8\r\n"
    b"transfer-encoding: chunked\r\n\r\n"
)


def directive(*, chunks: int = 0, interval_ms: int = 0, response_bytes: int = _SMALL_BYTES) -> str:
    """Return the start of a prompt that makes the backend answer in this way.

    Args:
        chunks: events of a streamed answer; 0 for an answer in one piece.
        interval_ms: pause between two events; 0 for as fast as the reader takes them.
        response_bytes: size of an answer in one piece.
    """
    return f"bench:{chunks}:{interval_ms}:{response_bytes};"


def _response(payload: bytes) -> bytes:
    head = f"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {len(payload)}"
    return head.encode() + b"\r\n\r\n" + payload


def _completion(size: int) -> bytes:
    def body(text: str) -> bytes:
        message = {"role": "assistant", "content": text}
        usage = {"prompt_tokens": 200, "completion_tokens": 100, "total_tokens": 300}
        return json.dumps(
            {
                "id": "chatcmpl-bench",
                "object": "chat.completion",
                "created": 1_700_000_000,
                "model": MODEL,
                "choices": [{"index": 0, "message": message, "finish_reason": "stop"}],
                "usage": usage,
            }
        ).encode()

    return _response(body("x" * max(1, size - len(body("")))))


def _embeddings() -> bytes:
    vector = {"object": "embedding", "index": 0, "embedding": [0.0123] * 128}
    usage = {"prompt_tokens": 8, "total_tokens": 8}
    return _response(
        json.dumps({"object": "list", "model": MODEL, "data": [vector], "usage": usage}).encode()
    )


def _event(data: str) -> bytes:
    event = f"data: {data}\n\n"
    return f"{len(event):x}\r\n{event}\r\n".encode()


_MODELS = _response(
    json.dumps({"object": "list", "data": [{"id": MODEL, "object": "model"}]}).encode()
)
_EMPTY = _response(b"{}")
_EMBEDDINGS = _embeddings()


class _Stream:
    """One streamed answer, written event by event on its own timetable."""

    def __init__(self, connection: _Connection, chunks: int, interval_s: float) -> None:
        self._connection = connection
        self._left = chunks
        self._interval_s = interval_s
        self._loop = asyncio.get_running_loop()
        self._due = self._loop.time() + interval_s
        connection.write(_STREAM_HEAD)
        self._loop.call_later(interval_s, self._step)

    def _step(self) -> None:
        connection = self._connection
        if connection.closed:
            return
        if not connection.writable.is_set():  # the reader is behind: so is this stream
            waiter = self._loop.create_task(connection.writable.wait())
            waiter.add_done_callback(lambda _: self._step())
            return
        if self._left == 0:
            connection.write(_event(_LAST_CHUNK) + _event("[DONE]") + b"0\r\n\r\n")
            return
        self._left -= 1
        connection.write(_event(_CHUNK % time.monotonic_ns()))
        self._due += self._interval_s
        self._loop.call_at(self._due, self._step)


class _Connection(asyncio.Protocol):
    """One connection: parses requests, answers them."""

    def __init__(self, completion: Callable[[int], bytes]) -> None:
        self._completion = completion
        self._parser = httptools.HttpRequestParser(self)
        self._url = b""
        self._body = b""
        self.closed = False
        self.writable = asyncio.Event()
        self.writable.set()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.write = cast("asyncio.Transport", transport).write
        self._close = transport.close

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002  (asyncio's signature)
        self.closed = True
        self.writable.set()

    def pause_writing(self) -> None:
        self.writable.clear()

    def resume_writing(self) -> None:
        self.writable.set()

    def data_received(self, data: bytes) -> None:
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError:
            self._close()

    def on_message_begin(self) -> None:
        self._url = self._body = b""

    def on_url(self, url: bytes) -> None:
        self._url += url

    def on_body(self, body: bytes) -> None:
        self._body += body

    def on_message_complete(self) -> None:
        if self._url.endswith(b"/embeddings"):
            self.write(_EMBEDDINGS)
        elif self._url.endswith(b"/completions"):
            self._complete()
        elif self._url.endswith(b"/models"):
            self.write(_MODELS)
        else:  # health checks and what else a gateway asks before it trusts a server
            self.write(_EMPTY)

    def _complete(self) -> None:
        found = _DIRECTIVE.search(self._body)
        chunks, interval_ms, size = map(int, found.groups()) if found else (0, 0, _SMALL_BYTES)
        if chunks:
            _Stream(self, chunks, interval_ms / 1000)
        else:
            self.write(self._completion(size))


async def serve(port: int) -> None:
    """Serve on loopback until cancelled."""
    ready: dict[int, bytes] = {}

    def completion(size: int) -> bytes:
        if size not in ready:
            ready[size] = _completion(size)
        return ready[size]

    loop = asyncio.get_running_loop()
    server = await loop.create_server(
        lambda: _Connection(completion), "127.0.0.1", port, backlog=4096
    )
    await server.serve_forever()


def main() -> None:
    """Read the command line and serve."""
    parser = argparse.ArgumentParser(description="The benchmark's OpenAI-shaped backend.")
    parser.add_argument("--port", type=int, required=True)
    uvloop.run(serve(parser.parse_args().port))


if __name__ == "__main__":
    main()
