"""Endpoints by DNS, against a real name server on loopback."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from forebay.adapters.discovery.address import parse
from forebay.adapters.discovery.dns import DnsSource
from support.name_server import NameServer, name_server
from support.waiting import eventually
from support.watching import watching

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

pytestmark = pytest.mark.anyio

HOSTS, SERVICE = "gpu.test", "_http._tcp.gpu.test"


@pytest.fixture
async def server() -> AsyncIterator[NameServer]:
    async with name_server() as server:
        yield server


def by_dns(server: NameServer, url: str = f"dns://{HOSTS}:8000/v1") -> DnsSource:
    address = parse(url)
    return DnsSource(address, (server.address,), interval_s=0.05)


async def test_every_address_of_a_name_is_an_endpoint(server: NameServer) -> None:
    server.zone[HOSTS, "A"] = ["10.0.0.1", "10.0.0.2"]
    async with watching(by_dns(server)) as told:
        await told.becomes("http://10.0.0.1:8000/v1", "http://10.0.0.2:8000/v1")


async def test_ipv6_counts_where_there_is_no_ipv4(server: NameServer) -> None:
    server.zone[HOSTS, "AAAA"] = ["fd00::1"]
    async with watching(by_dns(server)) as told:
        await told.becomes("http://[fd00::1]:8000/v1")
        server.zone[HOSTS, "A"] = ["10.0.0.1"]  # of the same host
        await told.becomes("http://10.0.0.1:8000/v1")


async def test_hosts_come_and_go_with_their_records(server: NameServer) -> None:
    server.zone[HOSTS, "A"] = ["10.0.0.1"]
    async with watching(by_dns(server)) as told:
        await told.becomes("http://10.0.0.1:8000/v1")
        server.zone[HOSTS, "A"] = ["10.0.0.2", "10.0.0.1"]
        await told.becomes("http://10.0.0.1:8000/v1", "http://10.0.0.2:8000/v1")
        server.zone[HOSTS, "A"] = ["10.0.0.2"]
        await told.becomes("http://10.0.0.2:8000/v1")
    assert len(told.sets) == 3, "only changes are told"


@pytest.mark.parametrize("how", ["silent", "broken", "no such name", "no records"])
async def test_a_lookup_that_fails_keeps_what_was_found(
    server: NameServer, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("forebay.adapters.discovery.dns._LOOKUP_S", 0.3)
    monkeypatch.setattr("forebay.adapters.discovery.dns._LEAST_S", 0.05)
    server.zone[HOSTS, "A"] = ["10.0.0.1"]
    source = by_dns(server)
    async with watching(source) as told:
        await told.becomes("http://10.0.0.1:8000/v1")
        records = server.zone.pop((HOSTS, "A"))
        server.silent, server.broken = how == "silent", how == "broken"
        if how == "no records":
            server.zone[HOSTS, "TXT"] = ["here"]
        await eventually(lambda: source.failure is not None)
        assert told.sets == [frozenset({"http://10.0.0.1:8000/v1"})]
        server.silent = server.broken = False
        server.zone[HOSTS, "A"] = [*records, "10.0.0.2"]
        await told.becomes("http://10.0.0.1:8000/v1", "http://10.0.0.2:8000/v1")
        assert source.failure is None


async def test_records_are_believed_as_long_as_they_are_valid(server: NameServer) -> None:
    server.zone[HOSTS, "A"], server.ttl = ["10.0.0.1"], 2
    source = DnsSource(parse(f"dns://{HOSTS}:8000/v1"), (server.address,), interval_s=30)
    async with watching(source) as told:
        await told.becomes("http://10.0.0.1:8000/v1")
        server.zone[HOSTS, "A"] = ["10.0.0.2"]
        await told.becomes("http://10.0.0.2:8000/v1", within_s=4)
    assert len(server.asked) == 2


async def test_srv_records_give_host_and_port(server: NameServer) -> None:
    server.zone[SERVICE, "SRV"] = ["0 1 8000 a.test.", "0 9 8001 b.test."]
    server.zone["a.test", "A"], server.zone["b.test", "A"] = ["10.0.0.1"], ["10.0.0.2"]
    async with watching(by_dns(server, f"srv://{SERVICE}/v1")) as told:
        await told.becomes("http://10.0.0.1:8000/v1", "http://10.0.0.2:8001/v1")


async def test_of_srv_records_only_the_best_priority_counts(server: NameServer) -> None:
    server.zone[SERVICE, "SRV"] = ["10 0 8000 a.test.", "20 0 8000 b.test."]
    server.zone["a.test", "A"], server.zone["b.test", "A"] = ["10.0.0.1"], ["10.0.0.2"]
    async with watching(by_dns(server, f"srv://{SERVICE}/v1")) as told:
        await told.becomes("http://10.0.0.1:8000/v1")


async def test_an_srv_target_that_cannot_be_looked_up_removes_nobody(server: NameServer) -> None:
    server.zone[SERVICE, "SRV"] = ["0 0 8000 a.test.", "0 0 8000 b.test."]
    server.zone["a.test", "A"], server.zone["b.test", "A"] = ["10.0.0.1"], ["10.0.0.2"]
    source = by_dns(server, f"srv://{SERVICE}/v1")
    async with watching(source) as told:
        await told.becomes("http://10.0.0.1:8000/v1", "http://10.0.0.2:8000/v1")
        del server.zone["b.test", "A"]
        await eventually(lambda: source.failure is not None)
    assert len(told.sets) == 1


async def test_a_service_that_says_that_it_is_not_offered_has_no_endpoints(
    server: NameServer,
) -> None:
    server.zone[SERVICE, "SRV"] = ["0 0 0 ."]
    async with watching(by_dns(server, f"srv://{SERVICE}/v1")) as told:
        await told.becomes()
