"""Ways to an endpoint: names, IPv6, TLS; and what it means when there is none."""

from __future__ import annotations

import asyncio
import socket
import ssl

import pytest
import trustme

from forebay.adapters.upstream import UpstreamSettings, tls_context
from forebay.errors import ConfigError, ConnectFailed, PoolExhausted, UpstreamError
from support.exhaustion import no_descriptor_left

pytestmark = pytest.mark.anyio

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"


@pytest.fixture
def unused_port():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return listener.getsockname()[1]


async def test_host_is_the_urls_and_other_headers_are_as_given(serve, connect):
    requests = []

    async def answer(peer):
        requests.append(await peer.answer(OK))

    server = serve(answer)
    upstream = connect(server.url + "/v1")
    headers = [
        (b"host", b"gateway.example"),
        (b"Content-Length", b"99"),
        (b"Transfer-Encoding", b"chunked"),
        (b"connection", b"close"),
        (b"X-B", b"1"),
        (b"x-a", b""),
        (b"X-B", b"2"),
    ]
    response = await upstream.send(b"POST", b"/v1/x?y=z", headers, b"{}", head_timeout_s=5)
    response.abort()
    host = server.url.removeprefix("http://").encode()
    assert requests == [
        b"POST /v1/x?y=z HTTP/1.1\r\nHost: %b\r\nX-B: 1\r\nx-a: \r\nX-B: 2\r\n"
        b"Content-Length: 2\r\n\r\n{}" % host
    ]


async def test_ipv6(serve, connect, fetch):
    requests = []

    async def answer(peer):
        requests.append(await peer.answer(OK))

    server = serve(answer, host="::1")
    _, pieces = await fetch(connect(server.url))
    assert pieces == [b"ok"]
    assert b"\r\nHost: [::1]:" in requests[0]


async def test_small_writes_are_sent_at_once(serve, connect):
    async def answer(peer):
        await peer.answer(OK)

    upstream = connect(serve(answer).url)
    response = await upstream.send(b"GET", b"/", [], b"", head_timeout_s=5)
    sock = response._connection._transport.get_extra_info("socket")
    assert sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)


async def test_nobody_listens(connect, fetch, unused_port):
    upstream = connect(f"http://127.0.0.1:{unused_port}")
    with pytest.raises(ConnectFailed, match=f"http://127.0.0.1:{unused_port}") as caught:
        await fetch(upstream)
    assert not caught.value.response_started
    assert (upstream.stats().open, upstream.stats().connects) == (0, 0)


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
async def test_no_descriptor_left_is_this_sides_fault(connect, fetch, unused_port, host):
    upstream = connect(f"http://{host}:{unused_port}")
    with no_descriptor_left(), pytest.raises(PoolExhausted):
        await fetch(upstream)
    assert upstream.stats().open == 0


async def test_a_name_that_does_not_exist(connect, fetch):
    with pytest.raises(ConnectFailed, match=r"http://gpu\.invalid:8000"):
        await fetch(connect("http://gpu.invalid:8000"))


async def test_connecting_has_a_time_of_its_own(serve, connect, fetch):
    async def never_shake_hands(_peer):
        pass

    server = serve(never_shake_hands)
    url = server.url.replace("http:", "https:")
    upstream = connect(url, UpstreamSettings(connect_timeout_s=0.05))
    with pytest.raises(ConnectFailed, match=r"no connection within 0\.05 s"):
        await fetch(upstream)
    assert upstream.stats().open == 0
    await server.left()


async def test_cancelled_in_a_tls_handshake_it_closes_its_connection(serve, connect, fetch):
    accepted = asyncio.Event()

    async def never_shake_hands(_peer):
        accepted.set()

    server = serve(never_shake_hands)
    upstream = connect(server.url.replace("http:", "https:"))
    task = asyncio.create_task(fetch(upstream))
    await accepted.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert upstream.stats().open == 0
    await server.left()


@pytest.fixture(scope="module")
def authority():
    return trustme.CA()


@pytest.fixture
def ca_file(authority, tmp_path):
    path = tmp_path / "ca.pem"
    authority.cert_pem.write_to_path(path)
    return path


@pytest.fixture
async def serve_tls(authority):
    """Start TLS servers: ``await serve_tls(name, ...)`` returns a URL and the names asked for."""
    servers = []

    async def start(name, *, ask_for_certificate=False):
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        authority.issue_cert(name).configure_cert(context)
        if ask_for_certificate:
            authority.configure_trust(context)
            context.verify_mode = ssl.CERT_REQUIRED
        asked_for = []
        context.sni_callback = lambda _socket, name, _context: asked_for.append(name)

        async def answer(reader, writer):
            try:
                while await reader.readuntil(b"{}"):
                    writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 200000\r\n\r\n")
                    writer.write(bytes(200_000))
                    await writer.drain()
            except (asyncio.IncompleteReadError, ConnectionError):
                writer.transport.abort()

        server = await asyncio.start_server(answer, "127.0.0.1", 0, ssl=context)
        servers.append(server)
        return f"https://127.0.0.1:{server.sockets[0].getsockname()[1]}", asked_for

    yield start
    for server in servers:
        server.close()
        await server.wait_closed()


async def test_tls_with_an_authority_of_ones_own(serve_tls, connect, fetch, ca_file):
    url, _ = await serve_tls("127.0.0.1")
    upstream = connect(url, UpstreamSettings(tls=tls_context(ca_file=ca_file)))
    for _ in range(3):
        _, pieces = await fetch(upstream)
        assert sum(map(len, pieces)) == 200_000
    assert upstream.stats().connects == 1


async def test_tls_refuses_a_server_it_does_not_trust(serve_tls, connect, fetch):
    url, _ = await serve_tls("127.0.0.1")
    upstream = connect(url)
    with pytest.raises(ConnectFailed, match=r"(?i)certificate"):
        await fetch(upstream)
    assert upstream.stats().open == 0


async def test_tls_refuses_a_certificate_for_another_name(serve_tls, connect, fetch, ca_file):
    url, _ = await serve_tls("other.example")
    upstream = connect(url, UpstreamSettings(tls=tls_context(ca_file=ca_file)))
    with pytest.raises(ConnectFailed, match=r"(?i)certificate"):
        await fetch(upstream)


async def test_tls_can_ask_for_and_verify_another_name(serve_tls, connect, fetch, ca_file):
    url, asked_for = await serve_tls("gpu.internal")
    tls = tls_context(ca_file=ca_file)
    upstream = connect(url, UpstreamSettings(tls=tls, tls_server_name="gpu.internal"))
    response, _ = await fetch(upstream)
    assert (response.status, asked_for) == (200, ["gpu.internal"])


async def test_tls_without_verification(serve_tls, connect, fetch):
    url, _ = await serve_tls("other.example")
    upstream = connect(url, UpstreamSettings(tls=tls_context(verify=False)))
    response, _ = await fetch(upstream)
    assert response.status == 200


@pytest.fixture
def client_files(authority, tmp_path):
    certificate = authority.issue_cert("forebay@example.com")
    cert_file, key_file = tmp_path / "client.pem", tmp_path / "client.key"
    cert_file.write_bytes(b"".join(blob.bytes() for blob in certificate.cert_chain_pems))
    certificate.private_key_pem.write_to_path(key_file)
    return cert_file, key_file


async def test_tls_shows_a_client_certificate(serve_tls, connect, fetch, ca_file, client_files):
    cert_file, key_file = client_files
    url, _ = await serve_tls("127.0.0.1", ask_for_certificate=True)
    tls = tls_context(ca_file=ca_file, client_cert=cert_file, client_key=key_file)
    response, _ = await fetch(connect(url, UpstreamSettings(tls=tls)))
    assert response.status == 200
    with pytest.raises(UpstreamError):
        await fetch(connect(url, UpstreamSettings(tls=tls_context(ca_file=ca_file))))


def test_tls_files_that_cannot_be_used_are_named(ca_file, tmp_path):
    for arguments, named in [
        ({"ca_file": tmp_path / "none.pem"}, "none.pem"),
        ({"client_cert": tmp_path / "none.pem"}, "none.pem"),
        ({"client_cert": ca_file}, "ca.pem"),
        ({"client_key": tmp_path / "key.pem"}, "key.pem"),
    ]:
        with pytest.raises(ConfigError, match=named):
            tls_context(**arguments)
