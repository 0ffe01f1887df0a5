"""Child processes that come up for sure or fail with a reason, and never outlive us."""

from __future__ import annotations

import contextlib
import http.client
import os
import re
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Self, TypeVar
from urllib.parse import urlsplit

from forebay.errors import ForebayError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from types import TracebackType

_DIE_WITH_PARENT = Path(__file__).with_name("die_with_parent.py")
_POLL_S = 0.02
_LOG_TAIL_LINES = 20
_T = TypeVar("_T")


class ProcessFailed(ForebayError):  # noqa: N818 - names what happened, as the others do
    """A child process died or did not come up; the message has the end of its log."""


class ChildProcess:
    """A running command, its output in a file.

    It has a session of its own, so that Ctrl-C reaches us alone and we stop it in order; if we
    are killed, so is it.

    Args:
        name: what messages call it.
        command: the program and its arguments.
        log: file that gets everything it prints.
        environment: variables that it gets in addition to ours.

    Attributes:
        pid: its process id, which is also its process group's.
        log: see above.
    """

    def __init__(
        self,
        name: str,
        command: Sequence[str],
        log: Path,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self.name = name
        self.log = log
        launcher = [sys.executable, "-I", "-S", str(_DIE_WITH_PARENT), str(os.getpid())]
        with log.open("wb") as output:
            self._popen = subprocess.Popen(  # noqa: S603 - commands of our own, no shell
                [*launcher, *command],
                env={**os.environ, **(environment or {})},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self.pid = self._popen.pid

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.stop()

    def is_running(self) -> bool:
        """Whether it has not ended yet."""
        return self._popen.poll() is None

    def await_line(self, pattern: str, timeout_s: float = 30.0) -> str:
        """Wait until it prints a line that is all `pattern`; returns the first group.

        Raises:
            ProcessFailed: it ended first, or the time is up.
        """
        line = re.compile(rf"^{pattern}$", re.MULTILINE)

        def printed() -> str | None:
            match = line.search(self.log.read_text("utf-8", errors="replace"))
            return match[1] if match else None

        return self._await(printed, f"did not print {pattern!r}", timeout_s)

    def await_ok(self, url: str, timeout_s: float = 30.0) -> None:
        """Wait until a GET of `url` is answered with status 200.

        Raises:
            ProcessFailed: it ended first, or the time is up.
        """
        self._await(lambda: _answers_ok(url) or None, f"did not answer {url}", timeout_s)

    def check(self) -> None:
        """Make sure that it runs.

        Raises:
            ProcessFailed: it has ended.
        """
        if not self.is_running():
            raise ProcessFailed(
                f"{self.name} (pid {self.pid}) ended with status {self._popen.returncode}"
                f"{self._log_tail()}"
            )

    def stop(self, timeout_s: float = 5.0) -> None:
        """Ask it to end, then make it, together with what it has started."""
        if self.is_running():
            self._popen.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._popen.wait(timeout_s)
        with contextlib.suppress(ProcessLookupError):  # the usual case: the whole group has ended
            os.killpg(self.pid, signal.SIGKILL)
        self._popen.wait()

    def _await(self, condition: Callable[[], _T | None], failure: str, timeout_s: float) -> _T:
        deadline = time.monotonic() + timeout_s
        while (result := condition()) is None:
            self.check()
            if time.monotonic() > deadline:
                raise ProcessFailed(
                    f"{self.name} (pid {self.pid}) {failure} in {timeout_s:g} s{self._log_tail()}"
                )
            time.sleep(_POLL_S)
        return result

    def _log_tail(self) -> str:
        lines = self.log.read_text("utf-8", errors="replace").splitlines()[-_LOG_TAIL_LINES:]
        tail = "".join(f"\n    {line}" for line in lines)
        return (
            f"; its log ({self.log}) ends:{tail}" if lines else f"; its log ({self.log}) is empty"
        )


@contextlib.contextmanager
def signals_wait() -> Iterator[None]:
    """Let SIGINT and SIGTERM come in at the end of the block; in the main thread, which gets them.

    Blocking them would be simpler, but the children would inherit that.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    came: list[int] = []
    before = {
        each: signal.signal(each, lambda signum, _: came.append(signum))
        for each in (signal.SIGINT, signal.SIGTERM)
    }
    try:
        yield
    finally:
        for signum, handler in before.items():
            signal.signal(signum, handler)
        for number in came:
            signal.raise_signal(number)


class Processes:
    """Child processes that end together, last started first.

    Args:
        folder: gets a log for each, and whatever else they need.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._running: list[ChildProcess] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        with contextlib.ExitStack() as stack:
            for process in self._running:
                stack.callback(process.stop)

    def start(
        self, name: str, command: Sequence[str], environment: Mapping[str, str] | None = None
    ) -> ChildProcess:
        """Start a command; see `ChildProcess`.

        A signal that ends us meanwhile waits until the process is among those that we stop.
        """
        with signals_wait():
            process = ChildProcess(name, command, self.folder / f"{name}.log", environment)
            self._running.append(process)
        return process

    def check(self) -> None:
        """Make sure that all of them run.

        Raises:
            ProcessFailed: one has ended.
        """
        for process in self._running:
            process.check()


def _answers_ok(url: str) -> bool:
    parts = urlsplit(url)
    connection = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=1.0)
    try:
        connection.request("GET", parts.path or "/")
        return connection.getresponse().status == http.HTTPStatus.OK
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()
