from __future__ import annotations

import asyncio
import json
import re
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import pytest

from forebay.emulator import (
    CloseKeepalive,
    Cut,
    Emulator,
    EmulatorSpec,
    EngineName,
    Garbage,
    Hang,
    Html,
    Loading,
    Reset,
    Slow,
    Stall,
    Status,
    StreamError,
)
from support.waiting import eventually

if TYPE_CHECKING:
    import aiohttp

    from forebay.emulator import Fault, Host

pytestmark = pytest.mark.anyio
CHAT, EMBEDDING = EngineName.CHAT, EngineName.EMBEDDING
SILENT_S = 0.5
CHUNKS = 6  # of a whole stream: the role, five tokens; and [DONE]


class Answer:
    """What a client read from its socket, and how that ended."""

    def __init__(self) -> None:
        self.data = b""
        self.end = ""

    @property
    def head(self) -> bytes:
        return self.data.partition(b"\r\n\r\n")[0]

    @property
    def body(self) -> bytes:
        return self.data.partition(b"\r\n\r\n")[2]

    @property
    def whole(self) -> bool:
        """Whether HTTP's framing says that the response is over."""
        length = re.search(rb"Content-Length: (\d+)", self.head)
        if length is None:
            return self.body.endswith(b"0\r\n\r\n")
        return len(self.body) == int(length[1])

    @property
    def status(self) -> int:
        return int(self.head.split(b" ")[1])

    @property
    def events(self) -> list[bytes]:
        return re.findall(rb"^data: (.*)$", self.body, re.MULTILINE)


async def post(url: str, body: dict[str, Any], *, linger: bool = False) -> Answer:
    """Post over a bare socket; read until the response is whole, or `linger` on after that."""
    parts = urlsplit(url)
    reader, writer = await asyncio.open_connection(parts.hostname, parts.port)
    payload = json.dumps(body).encode()
    writer.write(b"POST %b HTTP/1.1\r\nHost: x\r\n" % parts.path.encode())
    writer.write(b"Content-Length: %d\r\n\r\n%b" % (len(payload), payload))
    answer = Answer()
    try:
        while chunk := await asyncio.wait_for(reader.read(65536), SILENT_S):
            answer.data += chunk
            if answer.whole and not linger:
                answer.end = "whole"
                break
        else:
            answer.end = "closed"
    except ConnectionResetError:
        answer.end = "reset"
    except TimeoutError:
        answer.end = "silent"
    writer.close()
    return answer


async def chat(host: Host, *, stream: bool = True, linger: bool = False) -> Answer:
    body = {
        "model": "chat",
        "messages": [{"role": "user", "content": "hello"}],
        "max_tokens": CHUNKS - 1,
        "stream": stream,
    }
    return await post(f"{host.chat_url}/chat/completions", body, linger=linger)


async def embed(host: Host) -> Answer:
    return await post(f"{host.embed_url}/embeddings", {"input": ["a", "b", "c"]})


async def check_recorded_as(host: Host, end: str, engine: EngineName = CHAT) -> None:
    await eventually(lambda: host.record()["gpu"]["inflight"] == 0)
    record = host.record()[engine]
    assert record[end] == record["requests"] == 1
    await eventually(lambda: host.record()["chat"]["engine"]["kv_blocks_used"] == 0)


async def test_without_a_fault_the_stream_is_whole(host: Host) -> None:
    answer = await chat(host)
    assert (answer.status, len(answer.events), answer.end) == (200, CHUNKS + 1, "whole")
    assert answer.events[-1] == b"[DONE]"
    assert answer.end == "whole"
    await check_recorded_as(host, "finished")


async def test_hang_accepts_and_never_answers(host: Host) -> None:
    host.faults.add(Hang(engine=CHAT))
    answering = asyncio.create_task(chat(host))
    await eventually(lambda: host.record()["chat"]["inflight"] == 1)
    answer = await answering
    assert (answer.data, answer.end) == (b"", "silent")
    await check_recorded_as(host, "faulted")


@pytest.mark.parametrize("stream", [True, False])
async def test_reset_before_any_byte(host: Host, stream: bool) -> None:
    host.faults.add(Reset(engine=CHAT))
    answer = await chat(host, stream=stream)
    assert (answer.data, answer.end) == (b"", "reset")
    await check_recorded_as(host, "faulted")


@pytest.mark.parametrize("chunks", [0, 1, 3])
async def test_reset_in_a_stream(host: Host, chunks: int) -> None:
    host.faults.add(Reset(engine=CHAT, after_chunks=chunks))
    answer = await chat(host)
    assert (answer.status, len(answer.events), answer.end) == (200, chunks, "reset")
    await check_recorded_as(host, "faulted")


async def test_reset_after_half_of_a_body(host: Host) -> None:
    host.faults.add(Reset(engine=EMBEDDING, after_chunks=1))
    answer = await embed(host)
    assert (answer.status, answer.end) == (200, "reset")
    assert answer.body.startswith(b'{"object":"list"')
    await check_recorded_as(host, "faulted", EMBEDDING)


@pytest.mark.parametrize("status", [424, 429, 500, 503])
async def test_a_status_comes_with_the_body_of_the_engine(host: Host, status: int) -> None:
    for engine in EngineName:
        host.faults.add(Status(engine=engine, status=status))
    answers = [await chat(host), await embed(host)]
    assert [answer.status for answer in answers] == [status, status]
    assert json.loads(answers[0].body)["error"]["code"] == status
    assert json.loads(answers[1].body)["code"] == status
    assert not any(b"retry-after" in answer.head.lower() for answer in answers)
    await check_recorded_as(host, "faulted")


async def test_retry_after_is_sent_as_it_was_given(host: Host) -> None:
    host.faults.add(Status(engine=CHAT, status=429, retry_after="5, 7", next=1))
    assert b"Retry-After: 5, 7" in (await chat(host)).head
    assert (await chat(host)).status == 200


async def test_loading_shows_in_health_too(host: Host, http: aiohttp.ClientSession) -> None:
    host.faults.add(Loading(engine=CHAT))
    answer = await chat(host)
    assert answer.status == 503
    assert json.loads(answer.body)["error"]["message"] == "Loading model"
    async with http.get(f"{host.control_url}/health") as response:
        assert response.status == 503
    async with http.get(f"{host.embed_url.removesuffix('/v1')}/health") as response:
        assert response.status == 200


async def test_html_is_a_page_with_status_200(host: Host) -> None:
    host.faults.add(Html(engine=EMBEDDING))
    answer = await embed(host)
    assert answer.status == 200
    assert b"Content-Type: text/html" in answer.head
    assert answer.body.startswith(b"<!DOCTYPE html>")
    await check_recorded_as(host, "faulted", EMBEDDING)


@pytest.mark.parametrize("chunks", [0, 1, 4])
async def test_cut_closes_in_the_middle(host: Host, chunks: int) -> None:
    host.faults.add(Cut(engine=CHAT, after_chunks=chunks))
    answer = await chat(host)
    assert (len(answer.events), answer.end) == (chunks, "closed")
    assert not answer.whole
    await check_recorded_as(host, "faulted")


@pytest.mark.parametrize("stream", [True, False])
async def test_a_clean_cut_is_a_whole_body_that_is_too_short(host: Host, stream: bool) -> None:
    host.faults.add(Cut(engine=CHAT, after_chunks=2, clean=True))
    answer = await chat(host, stream=stream)
    assert answer.end == "whole"
    assert b"[DONE]" not in answer.body
    assert b'"usage"' not in answer.body
    await check_recorded_as(host, "faulted")


@pytest.mark.parametrize("chunks", [0, 2])
async def test_an_error_inside_a_stream_is_its_last_event(host: Host, chunks: int) -> None:
    host.faults.add(StreamError(engine=CHAT, after_chunks=chunks, code=503))
    answer = await chat(host)
    assert (answer.status, len(answer.events)) == (200, chunks + 1)
    assert json.loads(answer.events[-1])["error"]["code"] == 503
    assert answer.end == "whole"
    await check_recorded_as(host, "faulted")


async def test_an_error_inside_a_200_body(host: Host) -> None:
    host.faults.add(StreamError(engine=EMBEDDING, message="out of memory"))
    answer = await embed(host)
    assert answer.status == 200
    assert json.loads(answer.body)["error"]["message"] == "out of memory"
    await check_recorded_as(host, "faulted", EMBEDDING)


@pytest.mark.parametrize("chunks", [0, 3])
async def test_stall_falls_silent_in_the_middle(host: Host, chunks: int) -> None:
    host.faults.add(Stall(engine=CHAT, after_chunks=chunks))
    answer = await chat(host)
    assert (len(answer.events), answer.end) == (chunks, "silent")
    await check_recorded_as(host, "faulted")


async def test_garbage_in_place_of_a_head(host: Host) -> None:
    host.faults.add(Garbage(engine=CHAT))
    answer = await chat(host)
    assert answer.data
    assert not answer.data.startswith(b"HTTP/")
    assert answer.end == "closed"
    await check_recorded_as(host, "faulted")


async def test_garbage_in_place_of_a_chunk(host: Host) -> None:
    host.faults.add(Garbage(engine=CHAT, where="chunk", after_chunks=2))
    answer = await chat(host)
    assert len(answer.events) == 2
    assert answer.body.endswith(b"zz not a chunk size\r\n\r\n")
    assert answer.end == "closed"
    await check_recorded_as(host, "faulted")


async def test_garbage_in_place_of_an_event(host: Host) -> None:
    host.faults.add(Garbage(engine=CHAT, where="event", after_chunks=2))
    answer = await chat(host)
    assert len(answer.events) == CHUNKS + 2
    with pytest.raises(ValueError, match="decode"):
        json.loads(answer.events[2])
    assert answer.events[-1] == b"[DONE]"
    await check_recorded_as(host, "faulted")


async def test_garbage_in_a_body(host: Host) -> None:
    host.faults.add(Garbage(engine=EMBEDDING, where="event"))
    answer = await embed(host)
    assert answer.status == 200
    with pytest.raises(ValueError, match="decode"):
        json.loads(answer.body)
    await check_recorded_as(host, "faulted", EMBEDDING)


@pytest.mark.parametrize("stream", [True, False])
async def test_keepalive_is_announced_and_the_connection_closed(host: Host, stream: bool) -> None:
    host.faults.add(CloseKeepalive(engine=CHAT))
    answer = await chat(host, stream=stream, linger=True)
    assert (answer.whole, answer.end) == (True, "closed")
    assert b"connection: close" not in answer.head.lower()
    await check_recorded_as(host, "finished")


async def test_a_slow_engine_takes_longer_from_its_next_step_on(host: Host) -> None:
    loop = asyncio.get_running_loop()
    host.faults.add(Slow(engine=EMBEDDING, factor=50))
    started = loop.time()
    await post(f"{host.embed_url}/embeddings", {"input": "a"})
    assert loop.time() - started >= 50 * 0.004
    assert host.record()["embedding"]["finished"] == 1


async def test_scrapes_can_fail_while_requests_are_served(
    host: Host, http: aiohttp.ClientSession
) -> None:
    host.faults.add(Status(engine=CHAT, status=500, path="/metrics"))
    async with http.get(f"{host.control_url}/metrics") as response:
        assert response.status == 500
    assert (await chat(host)).status == 200


async def test_faults_are_switched_over_http(host: Host, http: aiohttp.ClientSession) -> None:
    url = f"{host.control_url}/emulator/faults"
    one = {"engine": "chat", "kind": "status", "status": 503, "next": 1}
    more = [{"engine": "embedding", "kind": "hang"}, {"engine": "embedding", "kind": "loading"}]
    for body in (one, more):
        async with http.post(url, json=body) as response:
            assert response.status == 200
    async with http.get(url) as response:
        kinds = [fault["kind"] for fault in (await response.json())["faults"]]
    assert kinds == ["status", "hang", "loading"]
    assert (await chat(host)).status == 503
    assert (await chat(host)).status == 200
    async with http.delete(f"{url}?engine=embedding") as response:
        assert await response.json() == {"faults": []}
    assert (await embed(host)).status == 200


async def test_a_spec_can_begin_with_faults() -> None:
    fault: Fault = Status(engine=CHAT, status=500)
    async with Emulator(EmulatorSpec(faults=(fault,))).running() as host:
        assert (await chat(host)).status == 500
