"""Hosts with a network of their own, which can be cut off: packets vanish, no port is closed.

Theory of operation. Linux' network namespaces, joined by pairs of virtual interfaces:

    site ─── router ─┬─ host
                     └─ host

The thread that opens a `Network` is in the *site* as long as the block lasts, and so is all that it
starts there; `Network.command` runs something on a host. To cut a host off, the router drops what
goes to it and what comes from it without a word, in the middle of connections too. Nothing of the
machine's own network is touched.

It takes root and `ip` (Debian: iproute2). What a killed process left behind is removed by the next
one.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import shutil
import subprocess
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import TracebackType

_NAMED = Path("/run/netns")  # where `ip netns` keeps them
_FILES = Path("/etc/netns")  # what `ip netns exec` shows in place of /etc
_CLONE_NEWNET = 0x40000000
_PREFIX = "forebay-"


class NetworkUnavailable(Exception):  # noqa: N818 - names what happened
    """This machine does not let us make networks; the message says why."""


@dataclass(frozen=True, slots=True)
class Host:
    """A host of the network.

    Args:
        name: what it is called.
        address: its IPv4 address.
        namespace: its network namespace.
    """

    name: str
    address: str
    namespace: str


class Network:
    """The site, its router and the hosts behind that; use it as a context manager."""

    def __init__(self) -> None:
        self._prefix = f"{_PREFIX}{os.getpid()}-"
        self._site = f"{self._prefix}site"
        self._router = f"{self._prefix}router"
        self._hosts: list[Host] = []
        self._names: list[str] = ["127.0.0.1 localhost"]
        self._outside = -1
        self._thread = 0

    def __enter__(self) -> Self:
        if os.geteuid() != 0:
            raise NetworkUnavailable("network namespaces take root")
        if shutil.which("ip") is None:
            raise NetworkUnavailable("there is no `ip` (Debian: apt-get install iproute2)")
        _remove_left_behind()
        self._outside = os.open("/proc/thread-self/ns/net", os.O_RDONLY)
        self._thread = threading.get_ident()
        try:
            self._join(self._router)
            _in(self._router, "sh", "-c", "echo 1 > /proc/sys/net/ipv4/ip_forward")
            self._join(self._site)
            self._link(self._site, number=0)
            self._enter_site()
        except BaseException:
            self._remove()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        assert threading.get_ident() == self._thread, "another thread is in the site"
        _set_namespace(self._outside)
        self._remove()

    def add(self, name: str, *aliases: str) -> Host:
        """Add a host.

        Args:
            name: what it is called.
            aliases: what those who are started with `command` in the site find it by as well.
        """
        number = len(self._hosts) + 1
        host = Host(name, f"10.81.{number}.2", f"{self._prefix}{name}")
        self._hosts.append(host)
        self._join(host.namespace)
        self._link(host.namespace, number)
        self._names.append(" ".join([host.address, name, *aliases]))
        files = _FILES / self._site
        files.mkdir(parents=True, exist_ok=True)
        (files / "hosts").write_text("\n".join([*self._names, ""]))
        return host

    def command(self, host: Host | None, command: Sequence[str]) -> list[str]:
        """Return what runs a command on a host; None: in the site, where hosts have names."""
        return ["ip", "netns", "exec", self._site if host is None else host.namespace, *command]

    def cut(self, host: Host) -> None:
        """Drop all that goes to a host and comes from it."""
        for way in ("to", "from"):
            _ip("-n", self._router, "rule", "add", way, host.address, "blackhole")

    def mend(self, host: Host) -> None:
        """Let packets through again."""
        for way in ("to", "from"):
            _ip("-n", self._router, "rule", "del", way, host.address, "blackhole")

    def _join(self, namespace: str) -> None:
        _ip("netns", "add", namespace)
        _ip("-n", namespace, "link", "set", "lo", "up")

    def _link(self, namespace: str, number: int) -> None:
        """Connect a namespace with the router: it is 10.81.N.2, the router 10.81.N.1."""
        side = f"to{number}"
        _ip(
            *("link", "add", "eth0", "netns", namespace, "type", "veth"),
            *("peer", "name", side, "netns", self._router),
        )
        for end, device, last in ((namespace, "eth0", 2), (self._router, side, 1)):
            _ip("-n", end, "address", "add", f"10.81.{number}.{last}/24", "dev", device)
            _ip("-n", end, "link", "set", device, "up")
        _ip("-n", namespace, "route", "add", "default", "via", f"10.81.{number}.1")

    def _enter_site(self) -> None:
        site = os.open(_NAMED / self._site, os.O_RDONLY)
        try:
            _set_namespace(site)
        finally:
            os.close(site)

    def _remove(self) -> None:
        os.close(self._outside)
        for namespace in (self._site, self._router, *(host.namespace for host in self._hosts)):
            _remove(namespace)


def _remove_left_behind() -> None:
    """Remove what processes that are gone could not."""
    for path in _NAMED.glob(f"{_PREFIX}*"):
        pid = path.name.removeprefix(_PREFIX).partition("-")[0]
        if not Path("/proc", pid).exists():
            _remove(path.name)


def _remove(namespace: str) -> None:
    if (_NAMED / namespace).exists():
        _ip("netns", "delete", namespace)
    with contextlib.suppress(FileNotFoundError):
        shutil.rmtree(_FILES / namespace)


def _in(namespace: str, *command: str) -> None:
    _ip("netns", "exec", namespace, *command)


def _ip(*arguments: str) -> None:
    done = subprocess.run(["ip", *arguments], capture_output=True, text=True, check=False)
    if done.returncode:
        raise NetworkUnavailable(f"ip {' '.join(arguments)}: {done.stderr.strip()}")


def _set_namespace(descriptor: int) -> None:
    """Put this thread into a network namespace (setns(2); `os.setns` came with Python 3.12)."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.setns(descriptor, _CLONE_NEWNET):
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
