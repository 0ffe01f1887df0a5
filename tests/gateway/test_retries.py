"""A request that fails at one endpoint before its answer has begun is answered by another."""

from __future__ import annotations

import json
import time
from dataclasses import replace

import anyio
import pytest

from forebay.adapters.upstream import Upstream, UpstreamSettings
from forebay.proxy.look import look_at
from forebay.proxy.message import Request
from support.http_responses import STREAM, chunk, event, good_stream, json_response, response
from support.waiting import eventually
from support.wire import connected

pytestmark = pytest.mark.anyio

CHAT = "/v1/chat/completions"
BODY = b'{"model":"m","messages":[]}'
STREAMED = b'{"model":"m","messages":[],"stream":true}'
GOOD = json_response({"object": "chat.completion", "choices": []})
PATIENT = {"MODEL_BREAKER_FAIL_THRESHOLD": 1000}


class Hosts:
    """Endpoints of one model; the requests that reach them, in order, meet `fates`.

    A fate is bytes to answer with, or a function of the peer. Whoever comes after all of them gets
    what a host `always` answers, or else a good answer.
    """

    def __init__(self, serve, count, *fates, good=GOOD):
        self.fates, self.good = list(fates), good
        self.always: dict[int, bytes] = {}
        self.asked: list[int] = []
        self.servers = [serve(lambda peer, n=n: self._script(peer, n)) for n in range(count)]

    async def _script(self, peer, number):
        while await peer.request():
            self.asked.append(number)
            fate = self.fates.pop(0) if self.fates else self.always.get(number, self.good)
            if isinstance(fate, bytes):
                await peer.send(fate)
            else:
                await fate(peer)
                return

    def config(self, *, forebay=None, **more):
        endpoints = [
            {"base_url": f"{server.url}/v1", "gpu_group": f"gpu-{n}", "engine": "unknown"}
            for n, server in enumerate(self.servers)
        ]
        return {
            "chat_models": [
                {"id": "m", "max_concurrent_requests": 8, "endpoints": endpoints},
            ],
            "forebay": {"limit": "fixed", **(forebay or {})},
            **PATIENT,
            **more,
        }


async def asked(running, body=BODY, *headers):
    async with connected(running.port) as wire:
        return await wire.ask("POST", CHAT, body, headers)


async def hang_up(peer):
    peer.close()


async def reset(peer):
    peer.reset()


def error(status, message="no", *headers):
    return json_response({"error": {"message": message}}, *headers, status=status)


BEFORE_THE_ANSWER = {
    "reset": (reset, "failure"),
    "hung up": (hang_up, "failure"),
    "500": (error("500 Internal Server Error"), "failure"),
    "502 of a proxy": (
        response(b"<html>bad gateway", "Content-Type: text/html", status="502 Bad Gateway"),
        "failure",
    ),
    "a page": (response(b"<!doctype html>", "Content-Type: text/html"), "failure"),
    "an error with 200": (json_response({"error": {"message": "x", "code": 500}}), "failure"),
    "429": (error("429 Too Many Requests"), "congestion"),
    "503 full": (error("503 Service Unavailable", "queue is full"), "congestion"),
    "503 loading": (error("503 Service Unavailable", "Loading model"), "loading"),
    "a wrong key": (error("401 Unauthorized"), "configuration"),
    "no such model": (error("404 Not Found"), "configuration"),
    "a redirect": (
        response(b"", "Location: https://login", status="302 Found"),
        "configuration",
    ),
}


@pytest.mark.parametrize(("fate", "reason"), BEFORE_THE_ANSWER.values(), ids=BEFORE_THE_ANSWER)
async def test_another_endpoint_answers_once(serve, gateway, fate, reason):
    hosts = Hosts(serve, 2, fate)
    running = await gateway(hosts.config())
    answer = await asked(running)
    assert (answer.status, answer.body) == (200, GOOD.partition(b"\r\n\r\n")[2])
    assert len(hosts.asked) == len(set(hosts.asked)) == 2
    assert answer.head["x-forebay-attempts"] == "2"
    second = hosts.servers[hosts.asked[1]].url.removeprefix("http://")
    assert second in answer.head["x-forebay-endpoint"]
    assert running.counted("forebay_retries_total", model="m", reason=reason) == 1
    assert running.counted("forebay_requests_total", outcome=reason) == 1
    assert running.counted("forebay_requests_total", outcome="ok") == 1
    await eventually(lambda: running.idle)


@pytest.mark.parametrize(
    "refusal",
    [
        error("401 Unauthorized"),
        error("404 Not Found"),
        error("503 Service Unavailable", "Loading model"),
        error("503 Service Unavailable", "queue is full"),
        error("429 Too Many Requests"),
    ],
    ids=["wrong key", "no such model", "loading", "full", "429"],
)
async def test_an_endpoint_that_only_refuses_costs_no_client_its_answer(serve, gateway, refusal):
    asked_there = 0

    async def refuse(peer):
        nonlocal asked_there
        while await peer.request():
            asked_there += 1
            await peer.send(refusal)

    hosts = Hosts(serve, 1)
    refusing = serve(refuse)
    hosts.servers.append(refusing)
    running = await gateway(hosts.config())
    for _ in range(200):
        assert (await asked(running)).status == 200
    assert 3 <= asked_there <= 10
    assert running.breaker("m")["failures"] == 0


async def test_an_endpoint_where_nobody_listens_is_passed_over(serve, gateway):
    hosts = Hosts(serve, 2)
    running = await gateway(hosts.config())
    await hosts.servers[0].aclose()
    for _ in range(6):
        assert (await asked(running)).status == 200
    assert set(hosts.asked) == {1}


async def test_a_silent_endpoint_costs_its_time_to_the_first_byte(serve, gateway):
    hosts = Hosts(serve, 2, lambda peer: peer.gone())
    running = await gateway(hosts.config(forebay={"timeouts": {"first_byte_s": 0.2}}))
    started = time.monotonic()
    assert (await asked(running)).status == 200
    assert 0.2 <= time.monotonic() - started < 1
    assert running.counted("forebay_retries_total", reason="timeout") == 1


async def test_a_model_and_each_of_its_servers_may_have_a_time_of_their_own(serve, gateway):
    hosts = Hosts(serve, 2, *[lambda peer: peer.gone()] * 2)
    config = hosts.config(forebay={"timeouts": {"first_byte_s": 5}})
    (model,) = config["chat_models"]
    model["first_byte_s"] = 0.1
    model["endpoints"][1]["first_byte_s"] = 0.4
    running = await gateway(config)
    started = time.monotonic()
    answer = await asked(running)
    assert (answer.status, sorted(hosts.asked)) == (504, [0, 1])
    assert "did not answer in time" in answer.error["message"]
    assert 0.5 <= time.monotonic() - started < 5


async def test_one_deadline_holds_for_all_attempts(serve, gateway):
    hosts = Hosts(serve, 3, *[lambda peer: peer.gone()] * 3)
    running = await gateway(hosts.config(forebay={"timeouts": {"first_byte_s": 0.3}}))
    started = time.monotonic()
    answer = await asked(running, BODY, ("x-request-timeout", "0.5"))
    assert answer.status == 504
    assert time.monotonic() - started < 1
    assert len(hosts.asked) == 2


async def test_the_answer_of_an_only_endpoint_comes_as_it_is(serve, gateway):
    words = error("500 Internal Server Error", "CUDA error", "X-Trace: 7")
    hosts = Hosts(serve, 1, words)
    running = await gateway(hosts.config())
    answer = await asked(running)
    assert (answer.status, answer.head["x-trace"]) == (500, "7")
    assert answer.body == words.partition(b"\r\n\r\n")[2]
    assert answer.head.get("x-forebay-attempts") is None
    assert len(hosts.asked) == 1


async def test_when_all_fail_the_last_answer_comes_as_it_is(serve, gateway):
    fates = [error("500 Internal Server Error", f"number {n}") for n in range(5)]
    hosts = Hosts(serve, 5, *fates)
    running = await gateway(hosts.config())
    answer = await asked(running)
    assert answer.json["error"]["message"] == "number 2"
    assert answer.head["x-forebay-attempts"] == "3"
    assert len(set(hosts.asked)) == len(hosts.asked) == 3


@pytest.mark.parametrize("status", ["400 Bad Request", "413 Content Too Large", "422 No"])
async def test_a_wrong_request_is_asked_once(serve, gateway, status):
    hosts = Hosts(serve, 2, error(status))
    running = await gateway(hosts.config())
    assert str((await asked(running)).status) in status
    assert len(hosts.asked) == 1
    assert running.counted("forebay_retries_total") == 0


async def test_nobody_queues_for_endpoints_that_are_away(serve, gateway):
    hosts = Hosts(serve, 2, reset, reset, reset)
    running = await gateway(hosts.config(MODEL_BREAKER_FAIL_THRESHOLD=1))
    with anyio.fail_after(1):
        assert (await asked(running)).status == 502  # it met both resets
        assert (await asked(running)).status == 503
    assert sorted(hosts.asked) == [0, 1]


async def test_an_outage_does_not_double_the_load(serve, gateway):
    hosts = Hosts(serve, 2, *[error("500 Internal Server Error")] * 1000)
    running = await gateway(hosts.config())
    for _ in range(200):
        assert (await asked(running)).status == 500
    # What their loss may strand (2 x 8, and as many in the places of these), and a tenth.
    assert len(hosts.asked) <= 200 + 32 + 20 + 1
    assert running.counted("forebay_retries_total") == len(hosts.asked) - 200


REFUSES_ALL = ["a wrong key", "no such model", "503 loading"]


@pytest.mark.parametrize("kind", REFUSES_ALL)
async def test_an_endpoint_that_refuses_all_keeps_nobody_from_one_that_serves(serve, gateway, kind):
    refuses, _ = BEFORE_THE_ANSWER[kind]
    hosts = Hosts(serve, 2)
    hosts.always[0] = refuses
    running = await gateway(hosts.config())
    statuses = {(await asked(running)).status for _ in range(150)}
    assert statuses == {200}


class TestStreams:
    GOOD = good_stream("a", "b")

    async def test_an_error_as_first_event_is_not_seen(self, serve, gateway):
        bad = STREAM + chunk(b'data: {"error":{"message":"engine overloaded","code":503}}\n\n')
        hosts = Hosts(serve, 2, bad, good=self.GOOD)
        answer = await asked(await gateway(hosts.config()), STREAMED)
        assert b"".join(answer.pieces).count(b"data:") == 4
        assert b"overloaded" not in b"".join(answer.pieces)

    async def test_comments_are_no_answer(self, serve, gateway):
        async def ping_and_leave(peer):
            await peer.send(STREAM + chunk(b": ping\n\n"))
            peer.close()

        hosts = Hosts(serve, 2, ping_and_leave, good=self.GOOD)
        answer = await asked(await gateway(hosts.config()), STREAMED)
        assert b"ping" not in b"".join(answer.pieces)
        assert answer.events[-1] == b"data: [DONE]"
        assert len(hosts.asked) == 2

    async def test_keep_alives_of_our_own_are_no_answer_either(self, serve, gateway):
        async def late_error(peer):
            await anyio.sleep(0.2)
            await peer.send(error("500 Internal Server Error", "CUDA error"))

        hosts = Hosts(serve, 2, late_error, good=self.GOOD)
        running = await gateway(hosts.config(forebay={"sse_keepalive_s": 0.02}))
        answer = await asked(running, STREAMED)
        whole = b"".join(answer.pieces)
        assert whole.startswith(b": keep-alive")
        assert b"CUDA" not in whole
        assert whole.endswith(b"data: [DONE]\n\n")
        assert len(hosts.asked) == 2

    @pytest.mark.parametrize("leave", [hang_up, reset])
    async def test_one_that_is_cut_is_never_sent_again(self, serve, gateway, leave):
        async def cut(peer):
            await peer.send(STREAM + chunk(event("a")))
            await anyio.sleep(0.05)
            await leave(peer)

        hosts = Hosts(serve, 2, cut, good=self.GOOD)
        running = await gateway(hosts.config())
        answer = await asked(running, STREAMED)
        events = [json.loads(e.removeprefix(b"data: ")) for e in answer.events]
        assert events[0]["choices"][0]["delta"]["content"] == "a"
        assert "error" in events[-1]
        assert len(events) == 2
        assert len(hosts.asked) == 1
        assert running.counted("forebay_requests_total", outcome="failure") == 1
        await eventually(lambda: running.idle)

    async def test_one_that_falls_silent_is_never_sent_again(self, serve, gateway):
        async def stall(peer):
            await peer.send(STREAM + chunk(event("a")))
            await peer.gone()

        hosts = Hosts(serve, 2, stall, good=self.GOOD)
        running = await gateway(hosts.config(forebay={"timeouts": {"between_chunks_s": 0.2}}))
        answer = await asked(running, STREAMED)
        assert b'"error"' in answer.events[-1]
        assert len(hosts.asked) == 1


async def test_a_client_that_left_is_not_asked_for_again(serve, gateway):
    hosts = Hosts(serve, 2, lambda peer: peer.gone())
    running = await gateway(hosts.config())
    async with connected(running.port) as wire:
        await wire.send("POST", CHAT, BODY)
        await eventually(lambda: len(hosts.asked) == 1)
        wire.leave()
        await eventually(lambda: running.idle)
    assert len(hosts.asked) == 1


async def test_a_gateway_without_connections_does_not_ask_elsewhere(serve, gateway):
    hosts = Hosts(serve, 2, lambda peer: peer.gone())
    running = await gateway(hosts.config())
    targets = running.deployment.targets
    few = [Upstream(server.url, UpstreamSettings(max_connections=1)) for server in hosts.servers]
    for (name, target), upstream in zip(list(targets.items()), few, strict=True):
        targets[name] = replace(target, upstream=upstream)
    async with connected(running.port) as wire:
        await wire.send("POST", CHAT, BODY)
        await eventually(lambda: len(hosts.asked) == 1)
        statuses = [(await asked(running)).status for _ in range(4)]
    assert set(statuses) <= {200, 503}
    assert running.counted("forebay_retries_total") == 0
    for upstream in few:
        await upstream.aclose()


async def test_a_dying_connection_is_replaced_at_the_same_endpoint(serve, gateway):
    """The server had closed an idle connection: no attempt, no failure, the same slot."""

    async def once_more(peer):
        await peer.send(GOOD)
        if len(hosts.asked) == 1:
            await peer.request()
            peer.reset()

    hosts = Hosts(serve, 1, once_more)
    running = await gateway(hosts.config())
    answers = [await asked(running), await asked(running)]
    assert [answer.status for answer in answers] == [200, 200]
    assert running.counted("forebay_requests_total", outcome="failure") == 0
    assert running.counted("forebay_retries_total") == 0


class TestAffinity:
    async def test_a_key_is_not_sent_on(self, serve, gateway):
        hosts = Hosts(serve, 1)
        running = await gateway(hosts.config())
        assert (await asked(running, BODY, ("x-forebay-affinity", "user-7"))).status == 200

    async def test_a_key_that_is_too_long_is_refused(self, serve, gateway):
        running = await gateway(Hosts(serve, 1).config())
        answer = await asked(running, BODY, ("x-forebay-affinity", "k" * 257))
        assert (answer.status, answer.error["code"]) == (400, "invalid_affinity")

    async def test_requests_with_one_key_go_to_one_endpoint(self, serve, gateway):
        hosts = Hosts(serve, 4)
        running = await gateway(hosts.config())
        for _ in range(6):
            await asked(running, BODY, ("x-forebay-affinity", "user-7"))
        assert len(set(hosts.asked)) == 1

    @pytest.mark.parametrize(
        ("routing", "said", "keeps_together"),
        [
            ("hrw", {"prompt_cache_key": "thread-7"}, True),
            ("hrw", {"user": "ann", "prompt_cache_key": None}, True),
            ("hrw", {"user": ""}, False),
            ("least_inflight", {"prompt_cache_key": "thread-7", "user": "ann"}, False),
        ],
    )
    async def test_a_model_may_take_keys_from_the_body(
        self, serve, gateway, routing, said, keeps_together
    ):
        hosts = Hosts(serve, 4)
        config = hosts.config()
        config["chat_models"][0]["routing"] = routing
        running = await gateway(config)
        body = json.dumps({"model": "m", "messages": [], **said}).encode()
        for _ in range(12):
            await asked(running, body)
        assert (len(set(hosts.asked)) == 1) is keeps_together  # 12 at random: 1 in 4 million

    def test_of_a_long_key_in_the_body_the_beginning_counts(self):
        request = Request(b"POST", b"/v1/chat/completions", b"", [], b"")
        body = json.dumps({"model": "m", "user": "ann " * 1_000_000}).encode()
        assert len(look_at(request, body).affinity) < 257

    async def test_the_header_goes_before_the_body(self, serve, gateway):
        hosts = Hosts(serve, 4)
        config = hosts.config()
        config["chat_models"][0]["routing"] = "hrw"
        running = await gateway(config)
        for number in range(6):
            body = json.dumps({"model": "m", "messages": [], "user": f"u{number}"}).encode()
            await asked(running, body, ("x-forebay-affinity", "thread-7"))
        assert len(set(hosts.asked)) == 1
