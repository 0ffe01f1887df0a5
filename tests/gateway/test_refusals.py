"""Refusals: their status, their shape, and when to try again."""

from __future__ import annotations

import math

import anyio
import pytest

from support.configs import emulated, entry, one_chat
from support.endpoint import Endpoint
from support.http_responses import json_response, response
from support.waiting import eventually
from support.wire import connected

pytestmark = pytest.mark.anyio

CHAT = "/v1/chat/completions"
BODY = b'{"model":"m"}'


async def asked(running, body=BODY, headers=(), method="POST", path=CHAT):
    async with connected(running.port) as wire:
        return await wire.ask(method, path, body, headers)


def try_again_in(answer):
    text = answer.head["retry-after"]
    assert text.isdecimal()
    assert int(text) >= 1
    return int(text)


async def test_a_full_queue_is_429(serve, gateway):
    running = await gateway(
        one_chat(Endpoint(serve).url, ceiling=1, forebay={"queue": {"max_requests": 1}})
    )
    async with connected(running.port) as served, connected(running.port) as waiting:
        await served.send("POST", CHAT, BODY)
        await eventually(lambda: running.inflight == 1)
        await waiting.send("POST", CHAT, BODY)
        await eventually(lambda: running.queued == 1)
        answer = await asked(running)
    assert (answer.status, answer.error["code"]) == (429, "queue_full")
    assert answer.error["type"] == "rate_limit_error"
    try_again_in(answer)
    assert running.counted("forebay_rejections_total", reason="queue_full") == 1


async def test_a_queue_full_of_bytes_is_429(serve, gateway):
    running = await gateway(
        one_chat(Endpoint(serve).url, ceiling=1, forebay={"queue": {"max_bytes": 1000}})
    )
    async with connected(running.port) as served:
        await served.send("POST", CHAT, BODY)
        await eventually(lambda: running.inflight == 1)
        answer = await asked(running, b'{"model":"m"}' + b" " * 1000)
    assert (answer.status, answer.error["code"]) == (429, "queue_full")


ASLEEP = b"""\
vllm:num_requests_running{engine="0",model_name="m"} 0.0
vllm:num_requests_waiting{engine="0",model_name="m"} 0.0
vllm:engine_sleep_state{engine="0",model_name="m",sleep_state="awake"} 0.0
vllm:engine_sleep_state{engine="0",model_name="m",sleep_state="weights_offloaded"} 1.0
"""


async def test_an_engine_that_sleeps_is_503_and_not_taken_for_idle(serve, gateway):
    asked_for = []

    async def engine(peer):
        while request := await peer.request():
            asked_for.append(request.split(b" ", 2)[1].decode())
            await peer.send(response(ASLEEP, "Content-Type: text/plain; version=0.0.4"))

    running = await gateway(one_chat(serve(engine).url, engine="vllm"))
    refused = []
    with anyio.fail_after(5):
        while not refused or refused[-1].status != 503:  # until the page has been read
            refused.append(await asked(running))
    answer = refused[-1]
    assert answer.error["code"] == "asleep"
    assert "asleep" in answer.error["message"]
    try_again_in(answer)
    asked_for.clear()
    assert (await asked(running)).status == 503
    assert CHAT not in asked_for


async def test_an_endpoint_that_is_away_is_503(serve, gateway):
    async def script(peer):
        await peer.request()
        peer.reset()

    running = await gateway(one_chat(serve(script).url, MODEL_BREAKER_FAIL_THRESHOLD=1))
    assert (await asked(running)).status == 502
    for stream in (b"true", b"false"):
        answer = await asked(running, b'{"model":"m","stream":%b}' % stream)
        assert (answer.status, answer.error["code"]) == (503, "unavailable")
        assert try_again_in(answer) <= 6


@pytest.mark.parametrize("model", [b'"other"', b'"M"', b'""', b'"m "', b'"\\u00e4"'])
async def test_an_unknown_model_is_404_and_the_known_ones_are_named(serve, gateway, model):
    running = await gateway(one_chat(Endpoint(serve).url))
    answer = await asked(running, b'{"model":%b}' % model)
    assert (answer.status, answer.error["code"]) == (404, "model_not_found")
    assert answer.error["param"] == "model"
    assert "'m'" in answer.error["message"]


@pytest.mark.parametrize("body", [b"", b"{}", b'{"model":null}', b'{"Model":"m"}'])
async def test_no_model_is_400(serve, gateway, body):
    running = await gateway(one_chat(Endpoint(serve).url))
    answer = await asked(running, body)
    assert (answer.status, answer.error["code"]) == (400, "no_model")


async def test_no_model_without_a_body_is_400(serve, gateway):
    running = await gateway(one_chat(Endpoint(serve).url))
    for target in ("/v1/files", "/v1/files?model=", "/v1/files?x=1", "/v1/files?%ff"):
        answer = await asked(running, None, method="GET", path=target)
        assert answer.status == 400


@pytest.mark.parametrize(
    "path",
    [
        "/v1/../metrics",
        "/v1/%2e%2e/metrics",
        "/v1/chat/..%2f..%2fmetrics",
        "/v1/.",
        "/v1/a/./b",
        "/v1/..",
    ],
)
async def test_a_path_out_of_the_api_goes_nowhere(serve, gateway, path):
    endpoint = Endpoint(serve, json_response({}))
    running = await gateway(one_chat(endpoint.url))
    answer = await asked(running, path=path)
    assert answer.status in {400, 404}
    assert endpoint.requests == []


async def test_other_paths_are_404_in_the_same_shape(serve, gateway):
    running = await gateway(one_chat(Endpoint(serve).url))
    for path in ("/", "/v2/chat/completions", "/V1/chat/completions", "/v1", "/forebay/nothing"):
        assert (await asked(running, path=path)).error["code"] == "not_found"


@pytest.mark.parametrize(
    ("value", "is_valid"),
    [
        ("30", True),
        ("0.5", True),
        ("1e6", True),
        ("0", False),
        ("-1", False),
        ("nan", False),
        ("inf", False),
        ("", False),
        ("soon", False),
        ("1_000", False),
        ("\xb9", False),
    ],
)
async def test_a_time_out_that_is_none_is_400(serve, gateway, value, is_valid):
    running = await gateway(one_chat(Endpoint(serve, json_response({})).url))
    answer = await asked(running, headers=[("X-Request-Timeout", value)])
    assert answer.status == (200 if is_valid else 400)
    if not is_valid:
        assert answer.error["param"] == "x-request-timeout"


class TestAnEndpointsOwnRefusal:
    @pytest.mark.parametrize("status", ["429 Too Many Requests", "503 Service Unavailable"])
    async def test_gets_a_time_to_try_again(self, serve, gateway, status):
        busy = json_response({"error": {"message": "queue is full"}}, status=status)
        running = await gateway(one_chat(Endpoint(serve, busy).url))
        assert try_again_in(await asked(running)) == 1

    async def test_gets_a_time_to_try_again_while_it_loads(self, serve, gateway):
        loads = json_response(
            {"error": {"message": "Loading model"}}, status="503 Service Unavailable"
        )
        running = await gateway(one_chat(Endpoint(serve, loads).url))
        answer = await asked(running)
        assert b"Loading model" in answer.body
        assert try_again_in(answer) == 1

    @pytest.mark.parametrize("given", ["7", "Sun, 06 Nov 2094 08:49:37 GMT"])
    async def test_keeps_a_time_that_it_gave(self, serve, gateway, given):
        busy = json_response({}, f"Retry-After: {given}", status="429 Too Many Requests")
        running = await gateway(one_chat(Endpoint(serve, busy).url))
        assert (await asked(running)).head["retry-after"] == given

    @pytest.mark.parametrize("given", ["-3", "abc", "", "nan"])
    async def test_gets_a_time_in_place_of_nonsense(self, serve, gateway, given):
        busy = json_response({}, f"Retry-After: {given}", status="429 Too Many Requests")
        running = await gateway(one_chat(Endpoint(serve, busy).url))
        assert try_again_in(await asked(running)) == 1

    async def test_holds_the_endpoint_back_for_as_long(self, serve, gateway):
        answers = [
            response(b"{}", "Retry-After: 1", status="429 Too Many Requests"),
            json_response({"ok": True}),
        ]

        async def script(peer):
            while answers and await peer.answer(answers[0]):
                answers.pop(0)

        running = await gateway(one_chat(serve(script).url))
        assert (await asked(running)).status == 429
        answer = await asked(running)
        assert answer.json == {"ok": True}
        assert math.isclose(int(answer.head["x-forebay-queued-ms"]), 1000, abs_tol=300)

    async def test_holds_it_back_no_longer_than_is_allowed(self, serve, gateway):
        answers = [
            response(b"{}", "Retry-After: 99999999", status="429 Too Many Requests"),
            json_response({"ok": True}),
        ]

        async def script(peer):
            while answers and await peer.answer(answers[0]):
                answers.pop(0)

        most = {"timeouts": {"retry_after_s": 0.2}}
        running = await gateway(one_chat(serve(script).url, forebay=most))
        assert (await asked(running)).status == 429
        answer = await asked(running)
        assert answer.json == {"ok": True}
        assert 150 <= int(answer.head["x-forebay-queued-ms"]) < 1000


class TestKeys:
    FOREBAY = {  # noqa: RUF012
        "api_keys": [
            {"name": "app", "key": "key-of-app"},
            {"name": "boss", "key": "key-of-boss", "admin": True, "may_raise": True},
        ]
    }

    @pytest.mark.parametrize(
        "headers",
        [
            [],
            [("Authorization", "Bearer wrong")],
            [("Authorization", "key-of-app")],
            [("Authorization", "Basic key-of-app")],
            [("Authorization", "Bearer ")],
            [("X-Api-Key", "key-of-ap")],
        ],
    )
    async def test_no_key_or_a_wrong_one_is_401(self, serve, gateway, headers):
        endpoint = Endpoint(serve, json_response({}))
        running = await gateway(one_chat(endpoint.url, forebay=self.FOREBAY))
        for path in (CHAT, "/v1/models", "/metrics", "/forebay/status"):
            method = "POST" if path == CHAT else "GET"
            answer = await asked(running, headers=headers, path=path, method=method)
            assert (answer.status, answer.error["code"]) == (401, "invalid_api_key")
            assert answer.error["type"] == "authentication_error"
        assert endpoint.requests == []

    @pytest.mark.parametrize(
        "header",
        [
            ("Authorization", "Bearer key-of-app"),
            ("Authorization", "bearer  key-of-app "),
            ("X-Api-Key", "key-of-app"),
            ("Api-Key", "key-of-app"),
        ],
    )
    async def test_a_key_opens_the_api_alone(self, serve, gateway, header):
        running = await gateway(
            one_chat(Endpoint(serve, json_response({})).url, forebay=self.FOREBAY)
        )
        assert (await asked(running, headers=[header])).status == 200
        for path in ("/metrics", "/forebay/status"):
            answer = await asked(running, None, [header], "GET", path)
            assert (answer.status, answer.error["code"]) == (403, "not_admin")
            assert "key-of-app" not in answer.error["message"]

    async def test_an_admin_key_opens_everything(self, serve, gateway):
        running = await gateway(
            one_chat(Endpoint(serve, json_response({})).url, forebay=self.FOREBAY)
        )
        key = ("Authorization", "Bearer key-of-boss")
        assert (await asked(running, headers=[key])).status == 200
        for path in ("/metrics", "/forebay/status", "/v1/models"):
            assert (await asked(running, None, [key], "GET", path)).status == 200

    async def test_health_is_open_to_everybody(self, serve, gateway):
        running = await gateway(one_chat(Endpoint(serve).url, forebay=self.FOREBAY))
        for path in ("/healthz", "/readyz"):
            assert (await asked(running, None, method="GET", path=path)).status == 200

    async def test_a_wrong_key_is_refused_before_the_body_is_read(self, serve, gateway):
        running = await gateway(one_chat(Endpoint(serve).url, forebay=self.FOREBAY))
        async with connected(running.port) as wire:
            await wire.send("POST", CHAT, None, [("Content-Length", "60000000")])
            assert (await wire.answer()).status == 401


class TestClasses:
    def config(self, host, **forebay):
        return emulated(host, forebay={**TestKeys.FOREBAY, **forebay})

    async def ask(self, running, *, model="chat", key="key-of-app", **more):
        body = {"model": model, "messages": [{"role": "user", "content": "x"}], "max_tokens": 1}
        if model == "embedding":
            body = {"model": model, "input": "x"}
        headers = [("Authorization", f"Bearer {key}")]
        if "priority" in more:
            headers.append(("X-Forebay-Priority", more.pop("priority")))
        path = CHAT if model == "chat" else "/v1/embeddings"
        async with connected(running.port) as wire:
            return await wire.ask("POST", path, {**body, **more}, headers)

    def served(self, running, model):
        name = "forebay_queue_seconds_count"
        classes = ("interactive", "best_effort")
        return [running.counted(name, model=model, **{"class": each}) for each in classes]

    async def test_a_model_has_the_class_of_its_role(self, host, gateway):
        running = await gateway(self.config(host))
        assert (await self.ask(running)).status == 200
        assert (await self.ask(running, model="embedding")).status == 200
        assert self.served(running, "chat") == [1, 0]
        assert self.served(running, "embedding") == [0, 1]

    @pytest.mark.parametrize(
        "lower",
        [{"service_tier": "flex"}, {"priority": "best-effort"}, {"priority": "Best_Effort"}],
    )
    async def test_a_request_may_lower_itself(self, host, gateway, lower):
        running = await gateway(self.config(host))
        assert (await self.ask(running, **lower)).status == 200
        assert self.served(running, "chat") == [0, 1]

    @pytest.mark.parametrize("tier", ["auto", "default", "priority", "scale", None])
    async def test_other_service_tiers_change_nothing(self, host, gateway, tier):
        running = await gateway(self.config(host))
        assert (await self.ask(running, service_tier=tier)).status == 200
        assert self.served(running, "chat") == [1, 0]

    async def test_raising_itself_needs_a_key_that_may(self, host, gateway):
        running = await gateway(self.config(host))
        refused = await self.ask(running, model="embedding", priority="interactive")
        assert (refused.status, refused.error["code"]) == (403, "may_not_raise")
        raised = await self.ask(
            running, model="embedding", priority="interactive", key="key-of-boss"
        )
        assert raised.status == 200
        assert self.served(running, "embedding") == [1, 0]

    async def test_an_unknown_priority_is_400(self, host, gateway):
        running = await gateway(self.config(host))
        answer = await self.ask(running, priority="high")
        assert (answer.status, answer.error["param"]) == (400, "x-forebay-priority")


async def test_a_flood_on_one_model_refuses_no_other(serve, gateway):
    config = one_chat(Endpoint(serve).url, ceiling=1, forebay={"queue": {"max_requests": 1}})
    quiet = Endpoint(serve, json_response({}))
    config["chat_models"].append(entry("quiet", f"{quiet.url}/v1", engine="unknown"))
    running = await gateway(config)
    async with connected(running.port) as served, connected(running.port) as waiting:
        await served.send("POST", CHAT, BODY)
        await waiting.send("POST", CHAT, BODY)
        await eventually(lambda: running.queued == 1)
        assert (await asked(running)).status == 429
        assert (await asked(running, b'{"model":"quiet"}')).status == 200
