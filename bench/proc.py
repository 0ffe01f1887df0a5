"""Processes of a benchmark: started on one core, measured as a tree, stopped by id."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import time
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

CACHE = Path.home() / ".cache" / "forebay" / "bench"
ROOT = Path(__file__).resolve().parent.parent
_READY_S = 60.0
_STOP_S = 10.0
_PRIORITY = -15


class StartError(Exception):
    """A process did not come up; the message says why, with the end of its log."""


def free_port() -> int:
    """Return a loopback port that nothing listens on now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def prepare(core: int) -> Callable[[], None]:
    """Return what a child runs before its program: onto its core, before others' work.

    Every session is one autogroup to Linux' scheduler (sched(7)), and priorities count only within
    it, so that the group's own one is raised too. Without the right to, it stays as it is.
    """

    def prepared() -> None:
        os.sched_setaffinity(0, {core})
        with suppress(OSError):
            os.setpriority(os.PRIO_PROCESS, 0, _PRIORITY)
            Path("/proc/self/autogroup").write_text(str(_PRIORITY))

    return prepared


def tree(pid: int) -> list[int]:
    """Return `pid` and its living descendants."""
    found = [pid]
    for parent in found:  # grows while it is walked
        with suppress(FileNotFoundError, ProcessLookupError):
            for task in Path(f"/proc/{parent}/task").iterdir():
                found += map(int, (task / "children").read_text().split())
    return found


def cpu_s(pid: int) -> float:
    """Return the CPU seconds that the living processes of a tree have used, all threads included.

    The kernel's per-process CPU clock (clock_getcpuclockid(3)) counts nanoseconds, ended threads
    included; /proc/PID/stat counts ticks of 10 ms, too coarse for a server at 20 µs a request.
    """
    total = 0.0
    for process in tree(pid):
        with suppress(OSError):
            total += time.clock_gettime((~process << 3) | 2)
    return total


def rss_mb(pid: int) -> float:
    """Return the resident memory of a tree, in MB (10^6 bytes)."""
    pages = 0
    for process in tree(pid):
        with suppress(FileNotFoundError, ProcessLookupError):
            pages += int(Path(f"/proc/{process}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


@contextmanager
def running(
    command: Sequence[str],
    *,
    core: int,
    port: int,
    log: Path,
    env: Mapping[str, str] | None = None,
) -> Iterator[int]:
    """Run a server on one core until the block ends; yield its process id.

    Args:
        command: what to run.
        core: the CPU that it and its children are bound to.
        port: the loopback port that it is ready on.
        log: where its output goes.
        env: added to the environment.

    Raises:
        StartError: it ended, or did not listen in time.
    """
    with log.open("wb") as output:
        process = subprocess.Popen(
            command,
            cwd=ROOT,
            env={**os.environ, **(env or {})},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            preexec_fn=prepare(core),  # noqa: PLW1509  (no threads here)
        )
    try:
        _await_port(process, port, log)
        yield process.pid
    finally:
        _stop(process)


def _await_port(process: subprocess.Popen[bytes], port: int, log: Path) -> None:
    end = time.monotonic() + _READY_S
    while time.monotonic() < end:
        if process.poll() is not None:
            raise StartError(f"ended with {process.returncode}: {_tail(log)}")
        with suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
            return
        time.sleep(0.1)
    raise StartError(f"does not listen on port {port} after {_READY_S:.0f} s: {_tail(log)}")


def _tail(log: Path) -> str:
    lines = log.read_text(errors="replace").strip().splitlines()
    return " | ".join(lines[-3:]) or "no output"


def _stop(process: subprocess.Popen[bytes]) -> None:
    # The session that we started, so that a launcher's children end with it.
    for sent in (signal.SIGTERM, signal.SIGKILL):
        with suppress(ProcessLookupError):
            os.killpg(process.pid, sent)
        with suppress(subprocess.TimeoutExpired):
            process.wait(_STOP_S)
            break
    with suppress(ProcessLookupError):  # a child that outlived its leader
        os.killpg(process.pid, signal.SIGKILL)
