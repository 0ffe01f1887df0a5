"""Child processes come up or tell why not, and nothing of them is left."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from forebay.demo.processes import ChildProcess, Processes, ProcessFailed

SERVER = "import http.server as h; s = h.HTTPServer(('127.0.0.1', 0), h.SimpleHTTPRequestHandler)"
SERVE = f"{SERVER}; print('port', s.server_port, flush=True); s.serve_forever()"
SLEEP = "import time; print('up', flush=True); time.sleep(60)"
IGNORE_TERM = f"import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); {SLEEP}"


def python(code: str, tmp_path: Path) -> ChildProcess:
    return ChildProcess("child", [sys.executable, "-c", code], tmp_path / "child.log")


def ends(pidfd: int) -> bool:
    """Whether a process that is not our child ends soon."""
    try:
        return select.select([pidfd], [], [], 10.0)[0] == [pidfd]
    finally:
        os.close(pidfd)


def exists(pid: int) -> bool:
    return Path(f"/proc/{pid}").exists()


def test_it_is_awaited_by_what_it_prints_and_by_what_it_answers(tmp_path: Path) -> None:
    with python(SERVE, tmp_path) as child:
        port = child.await_line(r"port (\d+)")
        child.await_ok(f"http://127.0.0.1:{port}/")
        assert child.is_running()
    assert not exists(child.pid)


def test_one_that_dies_is_told_with_the_end_of_its_log(tmp_path: Path) -> None:
    with (
        python("print('the disk is full'); raise SystemExit(3)", tmp_path) as child,
        pytest.raises(ProcessFailed, match=r"ended with status 3.*\n +the disk is full"),
    ):
        child.await_line(r"port (\d+)")


def test_one_that_does_not_come_up_is_told_with_what_was_awaited(tmp_path: Path) -> None:
    with (
        python(SLEEP, tmp_path) as child,
        pytest.raises(ProcessFailed, match=r"did not print 'port .*' in 0\.2 s"),
    ):
        child.await_line(r"port (\d+)", timeout_s=0.2)
    assert not exists(child.pid)


def test_one_that_ignores_the_polite_signal_is_killed(tmp_path: Path) -> None:
    with python(IGNORE_TERM, tmp_path) as child:
        child.await_line("(up)")
        child.stop(timeout_s=0.1)
        assert not exists(child.pid)


def test_what_it_started_ends_with_it(tmp_path: Path) -> None:
    spawn = f"import subprocess, sys; p = subprocess.Popen([sys.executable, '-c', {SLEEP!r}])"
    with python(f"{spawn}; print('pid', p.pid, flush=True); p.wait()", tmp_path) as child:
        grandchild = os.pidfd_open(int(child.await_line(r"pid (\d+)")))
    assert ends(grandchild)


def test_it_ends_when_the_one_who_started_it_is_killed(tmp_path: Path) -> None:
    log = tmp_path / "grandchild.log"
    code = (
        "import pathlib, sys\n"
        "from forebay.demo.processes import ChildProcess\n"
        f"log = pathlib.Path({str(log)!r})\n"
        f"child = ChildProcess('x', [sys.executable, '-c', {SLEEP!r}], log)\n"
        "print(child.pid, flush=True)\n"
        "sys.stdin.read()"
    )
    parent = subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    with parent:
        child = os.pidfd_open(int(parent.stdout.readline()))
        parent.kill()
    assert ends(child)


def test_of_several_each_has_its_log_and_a_dead_one_is_told(tmp_path: Path) -> None:
    with Processes(tmp_path) as processes:
        sleeper = processes.start("sleeper", [sys.executable, "-c", SLEEP])
        sleeper.await_line("(up)")
        processes.check()
        doomed = processes.start("doomed", [sys.executable, "-c", "print('out of luck')"])
        with pytest.raises(ProcessFailed, match=r"doomed .*\n +out of luck"):
            doomed.await_line("(up)")
        with pytest.raises(ProcessFailed, match="doomed"):
            processes.check()
        assert sorted(path.name for path in tmp_path.iterdir()) == ["doomed.log", "sleeper.log"]
    assert not exists(sleeper.pid)


@pytest.mark.parametrize("signum", [signal.SIGTERM, signal.SIGINT])
def test_one_that_is_being_started_when_a_signal_ends_us_is_stopped_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, signum: signal.Signals
) -> None:
    pids = []

    class Interrupted(subprocess.Popen):  # the signal comes when the process is there
        def __init__(self, *args: Any, **options: Any) -> None:
            super().__init__(*args, **options)
            pids.append(self.pid)
            signal.raise_signal(signum)

    monkeypatch.setattr(subprocess, "Popen", Interrupted)
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt), Processes(tmp_path) as processes:
            processes.start("child", [sys.executable, "-c", SLEEP])
    finally:
        signal.signal(signal.SIGTERM, before)
    (pid,) = pids
    assert not exists(pid)
