"""Endpoints by DNS: the addresses of a name, or the targets of its SRV records.

A name is looked up again when its records are no longer valid (their TTL), within bounds. A name
that does not exist, or has no records any more, counts as a lookup that failed: it is what a broken
name server says too, and endpoints that are really gone are kept away from by their breakers.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

import dns.asyncresolver
import dns.exception
import dns.nameserver
import dns.resolver

from forebay.adapters.discovery.address import SrvAddress
from forebay.adapters.discovery.nameserver import split_nameserver

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from dns.asyncresolver import Resolver

    from forebay.adapters.discovery.address import DnsAddress

_log = logging.getLogger(__name__)

_LEAST_S = 1.0
_RETRY_S = 5.0
_LOOKUP_S = 5.0


class DnsSource:
    """What a name stands for in DNS.

    Args:
        address: what to look up.
        nameservers: see `Discovery`.
        interval_s: the longest time between two lookups.
    """

    def __init__(
        self,
        address: DnsAddress | SrvAddress,
        nameservers: Sequence[str] = (),
        *,
        interval_s: float = 30.0,
    ) -> None:
        self._address = address
        self._nameservers = nameservers
        self._interval_s = interval_s
        self.failure: str | None = None

    def __repr__(self) -> str:
        return f"<DnsSource {self._address}, failure={self.failure!r}>"

    async def run(self, tell: Callable[[frozenset[str]], None]) -> None:
        """See `Source.run`."""
        known: frozenset[str] | None = None
        while True:
            wait_s = min(_RETRY_S, self._interval_s)
            try:
                found, ttl_s = await self._look_up()
            except (dns.exception.DNSException, OSError) as error:
                self._failed(error)
            else:
                self.failure = None
                wait_s = min(max(ttl_s, _LEAST_S), self._interval_s)
                if found != known:
                    known = found
                    tell(found)
            await asyncio.sleep(wait_s)

    async def _look_up(self) -> tuple[frozenset[str], float]:
        """The base URLs, and for how long they are valid, seconds."""
        # In a thread: it reads /etc/resolv.conf, which may change while we run.
        resolver = await asyncio.to_thread(self._resolver)
        address = self._address
        if isinstance(address, SrvAddress):
            return await _by_srv(resolver, address)
        hosts, ttl_s = await _addresses(resolver, address.name)
        return frozenset(_url(host, address.port, address.path) for host in hosts), ttl_s

    def _resolver(self) -> Resolver:
        resolver = dns.asyncresolver.Resolver(configure=not self._nameservers)
        if self._nameservers:
            resolver.nameservers = [
                dns.nameserver.Do53Nameserver(*split_nameserver(text)) for text in self._nameservers
            ]
        resolver.lifetime = _LOOKUP_S
        resolver.use_search_by_default = True
        return resolver

    def _failed(self, error: Exception) -> None:
        failure = f"{self._address}: cannot be looked up: {_why(error)}"
        if failure != self.failure:
            _log.warning("%s; what was found before stays", failure)
        self.failure = failure


async def _addresses(resolver: Resolver, name: str) -> tuple[list[str], float]:
    """A name's IPv4 addresses, or where it has none its IPv6 ones: most hosts have one of each."""
    answer = await resolver.resolve(name, "A", raise_on_no_answer=False)
    if answer.rrset is None:
        answer = await resolver.resolve(name, "AAAA")
    return [record.address for record in answer], answer.chaining_result.minimum_ttl


async def _by_srv(resolver: Resolver, address: SrvAddress) -> tuple[frozenset[str], float]:
    """RFC 2782: the targets with the lowest priority number; weights are admission's business."""
    answer = await resolver.resolve(address.name, "SRV")
    ttl_s: float = answer.chaining_result.minimum_ttl
    best = min(record.priority for record in answer)
    urls = set()
    for record in answer:
        target = record.target.to_text(omit_final_dot=True)
        if record.priority != best or target == ".":  # which says: no such service here
            continue
        hosts, valid_s = await _addresses(resolver, f"{target}.")
        # Several addresses of one target are ways to one server.
        urls.add(_url(min(hosts), record.port, address.path))
        ttl_s = min(ttl_s, valid_s)
    return frozenset(urls), ttl_s


def _url(host: str, port: int, path: str) -> str:
    return f"http://[{host}]:{port}{path}" if ":" in host else f"http://{host}:{port}{path}"


def _why(error: Exception) -> str:
    if isinstance(error, dns.resolver.NXDOMAIN):
        return "there is no such name"
    if isinstance(error, dns.resolver.NoAnswer):
        return "the name has no such records"
    if isinstance(error, dns.exception.Timeout):
        return "no name server answered in time"
    if isinstance(error, dns.resolver.NoNameservers):
        return "no name server gave a usable answer"
    return str(error) or type(error).__name__
