"""`forebay demo` from outside: it measures, it stays if asked, and it leaves nothing running."""

from __future__ import annotations

import json
import os
import re
import select
import signal
import subprocess
import sys
import time
import urllib.request
import uuid
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

SHORT = ["--rounds", "1", "--seconds", "0.5"]


class Demo:
    """A running `forebay demo`, marked so that its descendants can be found."""

    def __init__(self, folder: Path, *options: str) -> None:
        self.mark = f"FOREBAY_TEST_DEMO={uuid.uuid4()}"
        name, value = self.mark.split("=")
        self.process = subprocess.Popen(
            [sys.executable, "-m", "forebay", "demo", *SHORT, *options],
            env={**os.environ, name: value, "COLUMNS": "200", "TMPDIR": str(folder)},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def pids(self) -> list[int]:
        """Every process of it that still runs."""
        found = []
        for environ in Path("/proc").glob("[0-9]*/environ"):
            try:
                if self.mark.encode() in environ.read_bytes():
                    found.append(int(environ.parent.name))
            except OSError:  # it ended just now, or is not ours to look at
                continue
        return found

    def await_processes(self, count: int) -> None:
        deadline = time.monotonic() + 30
        while len(self.pids()) < count:
            assert self.process.poll() is None, self.process.stderr.read()
            assert time.monotonic() < deadline, self.pids()
            time.sleep(0.05)

    def read_until(self, pattern: str) -> str:
        """What it tells on stderr, up to a line with `pattern`."""
        told = ""
        while not re.search(pattern, told):
            line = self.process.stderr.readline()
            assert line, f"ended without {pattern!r}: {told}"
            told += line
        return told


@pytest.fixture
def start_demo(tmp_path: Path) -> Iterator[Callable[..., Demo]]:
    started: list[Demo] = []

    def start(*options: str) -> Demo:
        started.append(Demo(tmp_path, *options))
        return started[-1]

    yield start
    for demo in started:
        demo.process.kill()
        demo.process.communicate()


def get(url: str) -> str:
    with urllib.request.urlopen(url, timeout=10) as response:
        text: str = response.read().decode()
        return text


@pytest.mark.usefixtures("llamacpp_chat", "llamacpp_embed")  # skips, or fails, without packages
def test_on_real_engines_it_measures_three_ways_then_stays_until_ctrl_c(
    start_demo: Callable[..., Demo],
) -> None:
    demo = start_demo("--json", "--keep")
    told = demo.read_until("configuration")
    gateway = re.search(r"Forebay +(http\S+)/v1", told)[1]
    assert json.loads(get(f"{gateway}/forebay/status"))["groups"]["demo"]["inflight"] == 0

    demo.process.send_signal(signal.SIGINT)
    output, _ = demo.process.communicate(timeout=30)
    assert demo.process.returncode == 0
    assert demo.pids() == []
    report = json.loads(output)
    for way in ("alone", "direct", "governed"):
        assert report[way]["answers"] > 0
        assert report[way]["failed"] == 0
        assert 0 < report[way]["first_token"]["p50_s"] <= report[way]["answer"]["p95_s"]
    assert report["alone"]["bulk_tokens_per_s"] == report["alone"]["embeddings_per_s"] == 0
    for way in ("direct", "governed"):
        assert report[way]["bulk_tokens_per_s"] > 0
        assert report[way]["embeddings_per_s"] > 0


def test_emulated_it_ends_with_a_table_and_a_sentence_and_leaves_nothing_running(
    start_demo: Callable[..., Demo],
) -> None:
    demo = start_demo("--emulated")
    output, told = demo.process.communicate(timeout=120)
    assert demo.process.returncode == 0, told
    assert demo.pids() == []
    assert "bulk tokens / s" in output
    assert output.rstrip().endswith("of theirs.")


@pytest.mark.parametrize("signum", [signal.SIGTERM, signal.SIGINT])
def test_killed_politely_it_stops_what_it_started(
    start_demo: Callable[..., Demo], signum: signal.Signals
) -> None:
    demo = start_demo("--emulated", "--seconds", "60")
    demo.await_processes(3)  # itself, the emulator, the gateway
    demo.process.send_signal(signum)
    _, told = demo.process.communicate(timeout=30)
    assert demo.process.returncode == 128 + signum
    assert "Traceback" not in told
    assert demo.pids() == []


def test_killed_hard_it_takes_what_it_started_along(start_demo: Callable[..., Demo]) -> None:
    demo = start_demo("--emulated", "--seconds", "60")
    demo.await_processes(3)
    children = [os.pidfd_open(pid) for pid in demo.pids() if pid != demo.process.pid]
    demo.process.kill()
    demo.process.communicate(timeout=30)
    for child in children:
        assert select.select([child], [], [], 10.0)[0]
        os.close(child)
