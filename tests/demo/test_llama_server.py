"""How llama.cpp's server says that it is there."""

from __future__ import annotations

import importlib
import io
import sys

import pytest


class Log(io.RawIOBase):
    """A log that others write to as well, each time between two writes."""

    def __init__(self) -> None:
        self.text = b"0.00.080 "

    def writable(self) -> bool:
        return True

    def write(self, data) -> int:
        self.text += bytes(data) + b"W srv init: cache disabled"
        return len(data)


@pytest.mark.usefixtures("minilm")  # skips, or fails, where the demo is not installed
def test_it_is_a_line_of_its_own_whoever_else_writes(monkeypatch) -> None:
    log = Log()
    unbuffered = io.TextIOWrapper(log, "utf-8", write_through=True)
    monkeypatch.setattr(sys, "stdout", unbuffered)
    server = importlib.import_module("forebay.demo.llama_server")
    server.announce("http://127.0.0.1:8080")
    assert b"listening on http://127.0.0.1:8080" in log.text.splitlines()
