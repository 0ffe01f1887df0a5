"""Load for a gateway: requests in a closed loop, requests at a rate, or many open streams.

A process of its own, so that its CPU time is not the gateway's. It watches the gateway's process
tree over exactly the window in which it measures, and prints one JSON object.

    python -m bench.load --url http://127.0.0.1:8080 closed --connections 16 --requests 5000
    python -m bench.load --url http://127.0.0.1:8080 open --rate 200 --seconds 5
    python -m bench.load --url http://127.0.0.1:8080 streams --streams 200 --interval-ms 40
"""

from __future__ import annotations

import argparse
import asyncio
import json
import time
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import uvloop

from . import proc
from .backend import directive
from .client import Connection, StreamTally, request

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

_GIVE_UP_S = 60.0
_SLACK_S = 5.0  # that streams outlast the window by, for what starts late


def quantile(values: Sequence[float], share: float) -> float:
    """Return the value that `share` of the values do not exceed; NaN of none."""
    if not values:
        return float("nan")
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


class Watch:
    """CPU time and memory of the gateway's process tree since the watch began; NaN of none."""

    def __init__(self, pid: int | None) -> None:
        self._pid = pid
        self._cpu_s, self._rss_mb = self._read()

    def _read(self) -> tuple[float, float]:
        if self._pid is None:
            return float("nan"), float("nan")
        return proc.cpu_s(self._pid), proc.rss_mb(self._pid)

    def spent(self) -> dict[str, float]:
        """Return the CPU seconds and the MB that were added."""
        cpu_s, rss_mb = self._read()
        return {"cpu_s": cpu_s - self._cpu_s, "rss_added_mb": rss_mb - self._rss_mb}


class Load:
    """The three kinds of load, against one gateway."""

    def __init__(self, url: str, watch: int | None) -> None:
        parts = urlsplit(url)
        self._address = (parts.hostname or "127.0.0.1", parts.port or 80)
        self._watch = watch
        self._tally = StreamTally()
        self._errors: list[str] = []

    async def closed(self, connections: int, requests: int, response_bytes: int) -> dict[str, Any]:
        """Keep `connections` busy until `requests` have been answered."""
        payload = request("bench", directive(response_bytes=response_bytes))
        done = asyncio.Event()
        latency_ms: list[float] = []
        left = requests - connections
        busy = connections

        def on_end(connection: Connection) -> None:
            nonlocal left, busy
            if connection.error is None:
                now = time.monotonic()
                latency_ms.append((now - connection.sent_at) * 1e3)
                if left > 0:
                    left -= 1
                    connection.send(payload, now)
                    return
            else:
                self._errors.append(connection.error)
            busy -= 1
            if busy == 0:
                done.set()

        opened = [await self._connect(on_end) for _ in range(connections)]
        watch = Watch(self._watch)
        for connection in opened:
            connection.send(payload, time.monotonic())
        await asyncio.wait_for(done.wait(), _GIVE_UP_S)
        received = sum(connection.received for connection in opened)
        return self._report(watch.spent(), latency_ms, received_bytes=received)

    async def open(self, rate: float, seconds: float) -> dict[str, Any]:
        """Send at a fixed rate, whatever the answers do."""
        payload = request("bench", directive())
        latency_ms: list[float] = []
        idle: list[Connection] = []
        left = int(rate * seconds)
        done = asyncio.Event()

        def on_end(connection: Connection) -> None:
            nonlocal left
            left -= 1
            if left == 0:
                done.set()
            if connection.error is None:
                latency_ms.append((time.monotonic() - connection.sent_at) * 1e3)
                idle.append(connection)
            else:
                self._errors.append(connection.error)

        watch = Watch(self._watch)
        start = time.monotonic()
        for index in range(left):
            await asyncio.sleep(start + index / rate - time.monotonic())
            sent_at = time.monotonic()
            while idle and not idle[-1].open:
                idle.pop()
            connection = idle.pop() if idle else await self._connect(on_end)
            connection.send(payload, sent_at)
        await asyncio.wait_for(done.wait(), _GIVE_UP_S)
        return self._report(watch.spent(), latency_ms)

    async def streams(
        self, streams: int, interval_ms: int, seconds: float, ramp_s: float
    ) -> dict[str, Any]:
        """Open streams over `ramp_s`, then watch them, all open, for `seconds`.

        Memory counts from before the first one; CPU time and events within the window only.
        """
        chunks = int((seconds + ramp_s + _SLACK_S) * 1e3 / interval_ms)
        payload = request("bench", directive(chunks=chunks, interval_ms=interval_ms), stream=True)

        def on_end(connection: Connection) -> None:
            self._errors.append(connection.error or "the stream ended before the window did")

        before = Watch(self._watch)
        opened = []
        start = time.monotonic()
        for index in range(streams):
            await asyncio.sleep(start + index * ramp_s / streams - time.monotonic())
            connection = await self._connect(on_end)
            connection.send(payload, time.monotonic())
            opened.append(connection)
        await self._first_events(streams)

        window = Watch(self._watch)
        self._tally.counting = True
        await asyncio.sleep(seconds)
        self._tally.counting = False
        spent = window.spent() | {"rss_added_mb": before.spent()["rss_added_mb"]}
        return self._report(spent, []) | self._stream_report()

    async def _first_events(self, streams: int) -> None:
        end = time.monotonic() + _GIVE_UP_S
        while len(self._tally.first_ms) + len(self._errors) < streams:
            if time.monotonic() > end:
                waiting = streams - len(self._tally.first_ms)
                self._errors.append(f"{waiting} streams had no event after {_GIVE_UP_S:.0f} s")
                return
            await asyncio.sleep(0.01)

    async def _connect(self, on_end: Callable[[Connection], None]) -> Connection:
        loop = asyncio.get_running_loop()
        _, connection = await loop.create_connection(
            lambda: Connection(on_end, self._tally), *self._address
        )
        return connection

    def _report(
        self, spent: dict[str, float], latency_ms: list[float], received_bytes: int = 0
    ) -> dict[str, Any]:
        return spent | {
            "answered": len(latency_ms),
            "p50_ms": quantile(latency_ms, 0.5),
            "p99_ms": quantile(latency_ms, 0.99),
            "received_bytes": received_bytes,
            "errors": len(self._errors),
            "error": self._errors[0] if self._errors else None,
        }

    def _stream_report(self) -> dict[str, Any]:
        tally = self._tally
        return {
            "events": tally.events,
            "events_per_read": tally.events / tally.reads if tally.reads else float("nan"),
            "first_p99_ms": quantile(tally.first_ms, 0.99),
            "late_p50_ms": quantile(tally.lateness_ms, 0.5),
            "late_p99_ms": quantile(tally.lateness_ms, 0.99),
            "late_max_ms": max(tally.lateness_ms, default=float("nan")),
            "longest_gap_ms": tally.longest_gap_ms,
        }


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Load for one gateway; prints JSON.")
    parser.add_argument("--url", required=True)
    parser.add_argument("--watch", type=int, help="process id whose tree's CPU and memory count")
    kinds = parser.add_subparsers(dest="kind", required=True)
    closed = kinds.add_parser("closed")
    closed.add_argument("--connections", type=int, default=16)
    closed.add_argument("--requests", type=int, default=5000)
    closed.add_argument("--response-bytes", type=int, default=1000)
    rate = kinds.add_parser("open")
    rate.add_argument("--rate", type=float, default=200)
    rate.add_argument("--seconds", type=float, default=5)
    streams = kinds.add_parser("streams")
    streams.add_argument("--streams", type=int, default=200)
    streams.add_argument("--interval-ms", type=int, default=40)
    streams.add_argument("--seconds", type=float, default=10)
    streams.add_argument("--ramp-s", type=float, default=2)
    return parser.parse_args()


def main() -> None:
    """Read the command line, apply the load, print what was measured."""
    arguments = vars(_arguments())
    load = Load(arguments.pop("url"), arguments.pop("watch"))
    kind = arguments.pop("kind")
    print(json.dumps(uvloop.run(getattr(load, kind)(**arguments))))


if __name__ == "__main__":
    main()
