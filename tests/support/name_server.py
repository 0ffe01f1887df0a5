"""A DNS server on a UDP socket of loopback, whose zone a test changes."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import dns.flags
import dns.message
import dns.rcode
import dns.rdatatype
import dns.rrset

if TYPE_CHECKING:
    from collections.abc import AsyncIterator


class NameServer(asyncio.DatagramProtocol):
    """Answers from `zone`: (name, type) → records; a name without any does not exist.

    Attributes:
        ttl: of every record, seconds.
        silent: it does not answer at all.
        broken: it answers SERVFAIL.
        asked: names that were asked for.
        address: where it listens.
    """

    def __init__(self) -> None:
        self.zone: dict[tuple[str, str], list[str]] = {}
        self.ttl = 0
        self.silent = self.broken = False
        self.asked: list[str] = []
        self.address = ""

    def connection_made(self, transport) -> None:
        self._transport = transport
        host, port = transport.get_extra_info("sockname")
        self.address = f"{host}:{port}"

    def datagram_received(self, data: bytes, addr: tuple[str, int]) -> None:
        if not self.silent:
            self._transport.sendto(self._answer(dns.message.from_wire(data)).to_wire(), addr)

    def _answer(self, query: dns.message.Message) -> dns.message.Message:
        (question,) = query.question
        name = question.name.to_text(omit_final_dot=True).lower()
        kind = dns.rdatatype.to_text(question.rdtype)
        self.asked.append(name)
        reply = dns.message.make_response(query)
        reply.flags |= dns.flags.AA
        if self.broken:
            reply.set_rcode(dns.rcode.SERVFAIL)
        elif records := self.zone.get((name, kind)):
            reply.answer.append(dns.rrset.from_text(question.name, self.ttl, "IN", kind, *records))
        elif not any(known == name for known, _ in self.zone):
            reply.set_rcode(dns.rcode.NXDOMAIN)
        return reply


@asynccontextmanager
async def name_server() -> AsyncIterator[NameServer]:
    loop = asyncio.get_running_loop()
    transport, server = await loop.create_datagram_endpoint(NameServer, local_addr=("127.0.0.1", 0))
    try:
        yield server
    finally:
        transport.close()
