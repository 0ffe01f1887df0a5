"""Bytes that scripted endpoints answer with."""

from __future__ import annotations

import json
from typing import Any

STREAM = (
    b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream; charset=utf-8\r\n"
    b"Transfer-Encoding: chunked\r\n\r\n"
)
LAST_CHUNK = b"0\r\n\r\n"
DONE = b"data: [DONE]\n\n"


def response(body: bytes, *headers: str, status: str = "200 OK") -> bytes:
    """A whole response with a content-length."""
    lines = [f"HTTP/1.1 {status}", *headers, f"Content-Length: {len(body)}"]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


def json_response(value: Any, *headers: str, status: str = "200 OK") -> bytes:
    body = json.dumps(value).encode()
    return response(body, "Content-Type: application/json", *headers, status=status)


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


def event(text: str, finish_reason: str | None = None) -> bytes:
    """A token as OpenAI streams it."""
    choice = {"index": 0, "delta": {"content": text}, "finish_reason": finish_reason}
    value = {"object": "chat.completion.chunk", "choices": [choice]}
    return b"data: " + json.dumps(value).encode() + b"\n\n"


def good_stream(*texts: str) -> bytes:
    """A whole stream, each event a chunk of its own."""
    events = [event(text) for text in texts] + [event("", "stop"), DONE]
    return STREAM + b"".join(map(chunk, events)) + LAST_CHUNK
