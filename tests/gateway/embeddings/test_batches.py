"""Any batch fits any server: it goes in pieces, and comes back as one answer."""

from __future__ import annotations

import asyncio
import gzip
import json

import anyio
import pytest

from forebay.emulator import EmbeddingSpec, Emulator, EmulatorSpec
from support.configs import emulated
from support.embedder import (
    Embedder,
    embeddings,
    one_embedder,
    packed,
    refusal,
    texts,
    vector,
)
from support.http_responses import json_response, response
from support.waiting import eventually
from support.wire import JSON, connected

pytestmark = pytest.mark.anyio

CONTENT_TOO_LARGE, UNPROCESSABLE = "413 Payload Too Large", "422 Unprocessable Entity"
TOO_MANY_REQUESTS = "429 Too Many Requests"


async def ask(running, inputs, headers=(), **more):
    async with connected(running.port) as wire:
        body = {"model": "m", "input": inputs, **more}
        return await wire.ask("POST", "/v1/embeddings", body, [JSON, *headers])


def assert_answers(answer, inputs):
    """Each input has its own vector, in its place."""
    assert answer.status == 200
    assert [(i["index"], i["embedding"]) for i in answer.json["data"]] == [
        (index, vector(text)) for index, text in enumerate(inputs)
    ]


def at_most(count, status=UNPROCESSABLE):
    """As TEI refuses larger batches."""

    def behave(request):
        size = len(request["input"])
        if size > count:
            return refusal(status, f"batch size {size} > maximum allowed batch size {count}")
        return embeddings(request)

    return behave


def never_alone(request):
    """Takes one input at a time, and never answers."""
    return at_most(1)(request) if len(request["input"]) > 1 else None


class TestLearntFromRefusals:
    @pytest.mark.parametrize("status", [CONTENT_TOO_LARGE, UNPROCESSABLE])
    async def test_a_batch_over_the_servers_limit_is_split(self, serve, gateway, status):
        server = Embedder(serve, at_most(32, status))
        running = await gateway(one_embedder(server.url))
        inputs = texts(214)
        assert_answers(await ask(running, inputs), inputs)
        assert sorted(server.sizes) == [22, *([32] * 6), 214]

    async def test_what_was_learnt_is_remembered(self, serve, gateway):
        server = Embedder(serve, at_most(32))
        running = await gateway(one_embedder(server.url))
        await ask(running, texts(40))
        inputs = texts(65)
        assert_answers(await ask(running, inputs), inputs)
        assert sorted(server.sizes[3:]) == [1, 32, 32]

    async def test_it_is_neither_congestion_nor_failure(self, serve, gateway):
        server = Embedder(serve, at_most(1))
        running = await gateway(one_embedder(server.url, forebay={"limit": "gradient_aimd"}))
        limit = running.endpoint("m")["limit"]
        for _ in range(3):
            assert (await ask(running, texts(9))).status == 200
        assert running.counted("forebay_requests_total", outcome="failure") == 0
        assert running.counted("forebay_requests_total", outcome="congestion") == 0
        assert running.endpoint("m")["limit"] >= limit
        assert running.breaker("m")["state"] == "closed"

    async def test_a_body_over_the_servers_limit_is_split_by_bytes(self, serve, gateway):
        def behave(request):
            if len(json.dumps(request)) > 2_000_000:
                text = b"Failed to buffer the request body: length limit exceeded"
                return response(text, "Content-Type: text/plain", status=CONTENT_TOO_LARGE)
            return embeddings(request)

        server = Embedder(serve, behave)
        running = await gateway(one_embedder(server.url))
        inputs = texts(20, padding=" " + "x" * 150_000)
        assert_answers(await ask(running, inputs), inputs)
        assert sorted(server.sizes) == [7, 13, 20]

    async def test_a_limit_that_is_not_told_is_found_by_halving(self, serve, gateway):
        def behave(request):
            if len(json.dumps(request)) > 10_000:
                return response(b"<html>413</html>", "Content-Type: text/html", status="413 Too")
            return embeddings(request)

        server = Embedder(serve, behave)
        running = await gateway(one_embedder(server.url))
        inputs = texts(30, padding=" " + "x" * 1_000)
        assert_answers(await ask(running, inputs), inputs)

    @pytest.mark.parametrize("place", [0, 5, 29])
    async def test_one_input_too_large_is_named_by_its_index(self, serve, gateway, place):
        def behave(request):
            if any(len(text) > 1_000 for text in request["input"]):
                return refusal(CONTENT_TOO_LARGE, "inputs must have less than 512 tokens")
            return embeddings(request)

        server = Embedder(serve, behave)
        running = await gateway(one_embedder(server.url))
        inputs = texts(30)
        inputs[place] += " " + "x" * 1_000
        answer = await ask(running, inputs)
        assert (answer.status, answer.error["param"]) == (413, "input")
        assert f"input[{place}] is too large" in answer.error["message"]
        assert "less than 512 tokens" in answer.error["message"]
        assert running.breaker("m")["state"] == "closed"
        await eventually(lambda: running.idle)

    async def test_a_single_text_too_large_is_input_0(self, serve, gateway):
        server = Embedder(serve, lambda _: refusal(CONTENT_TOO_LARGE, "length limit exceeded"))
        running = await gateway(one_embedder(server.url))
        answer = await ask(running, "t1")
        assert answer.status == 413
        assert "input[0]" in answer.error["message"]
        assert len(server.bodies) == 1

    async def test_a_server_that_refuses_whatever_it_says_is_not_asked_for_ever(
        self, serve, gateway
    ):
        server = Embedder(
            serve, lambda _: refusal(UNPROCESSABLE, "maximum allowed batch size 1000")
        )
        running = await gateway(one_embedder(server.url))
        answer = await ask(running, texts(64))
        assert answer.status == 413
        assert len(server.bodies) < 64


class TestToldByTheEngine:
    """The emulated host tells what it takes, as TEI does, and refuses what is over it."""

    @pytest.fixture
    async def tei(self, request):
        spec = EmbeddingSpec(
            weights_s=0.001, overhead_s=0.002, token_s=1e-6, dimensions=8, **request.param
        )
        async with Emulator(EmulatorSpec(embedding=spec)).running() as running:
            yield running

    async def running(self, gateway, host, **more):
        running = await gateway(emulated(host, **more))
        (target,) = (t for t in running.deployment.targets.values() if t.engine.name == "tei")
        await eventually(lambda: target.scraper.batch_limits.max_inputs is not None)
        return running

    async def refused(self, host):
        async with connected(int(host.embed_url.split(":")[2].split("/")[0])) as wire:
            page = (await wire.ask("GET", "/metrics", None)).body.decode()
        return sum(
            float(line.split()[-1])
            for line in page.splitlines()
            if line.startswith("te_request_failure{")
        )

    async def ask(self, running, inputs, **more):
        async with connected(running.port) as wire:
            body = {"model": "embedding", "input": inputs, **more}
            return await wire.ask("POST", "/v1/embeddings", body, [JSON])

    def assert_complete(self, answer, inputs):
        assert answer.status == 200, answer.body[:300]
        data = answer.json["data"]
        assert [i["index"] for i in data] == list(range(len(inputs)))
        assert len({str(i["embedding"]) for i in data}) == len(set(inputs))
        assert answer.json["usage"]["prompt_tokens"] >= len(inputs)

    @pytest.mark.parametrize("tei", [{}], indirect=True)
    async def test_nothing_is_refused_by_count_or_bytes(self, tei, gateway):
        running = await self.running(gateway, tei)
        for inputs in (texts(214), texts(20, padding=" " + "x" * 150_000)):
            self.assert_complete(await self.ask(running, inputs), inputs)
        assert await self.refused(tei) == 0

    @pytest.mark.parametrize(
        "tei", [{"max_concurrent_inputs": 64, "max_client_batch": 128}], indirect=True
    )
    async def test_inputs_in_flight_never_exceed_its_permits(self, tei, gateway):
        running = await self.running(gateway, tei)
        batches = [texts(100), texts(40, 100), texts(40, 200), texts(1, 300), texts(64, 400)] * 3
        async with anyio.create_task_group() as tasks:

            async def one(inputs):
                self.assert_complete(await self.ask(running, inputs), inputs)

            for inputs in batches:
                tasks.start_soon(one, inputs)
        assert await self.refused(tei) == 0
        assert running.idle

    @pytest.mark.parametrize("tei", [{"max_client_batch": 4}], indirect=True)
    async def test_pieces_are_the_same_vectors_in_both_encodings(self, tei, gateway):
        running = await self.running(gateway, tei)
        floats = (await self.ask(running, texts(10))).json["data"]
        encoded = (await self.ask(running, texts(10), encoding_format="base64")).json["data"]
        assert [packed(i["embedding"]) for i in floats] == [i["embedding"] for i in encoded]

    @pytest.mark.parametrize("tei", [{"max_client_batch": 2}], indirect=True)
    @pytest.mark.parametrize("ceiling", [1, 3])
    async def test_many_batches_share_few_slots(self, tei, gateway, ceiling):
        running = await self.running(gateway, tei, embedding=ceiling)
        async with anyio.create_task_group() as tasks:

            async def one(inputs):
                self.assert_complete(await self.ask(running, inputs), inputs)

            for number in range(10):
                tasks.start_soon(one, texts(20, 100 * number))
        assert running.idle


class TestOverloadedByOneBatch:
    """A server that counts inputs refuses a batch for load however idle it is, and for ever."""

    class Permits(Embedder):
        """Has `permits` for inputs, and takes a moment to use them."""

        def __init__(self, serve, permits, *headers):
            super().__init__(serve, self._with_permits)
            self.permits = permits
            self.headers = headers
            self.refused = 0

        async def _with_permits(self, request):
            count = len(request["input"])
            if count > self.permits:
                self.refused += 1
                error = {"message": "Model is overloaded", "type": "overloaded"}
                return json_response(error, *self.headers, status=TOO_MANY_REQUESTS)
            self.permits -= count
            await asyncio.sleep(0.005)  # the work
            self.permits += count
            return embeddings(request)

    async def test_the_batch_is_halved(self, serve, gateway):
        server = self.Permits(serve, 64)
        running = await gateway(one_embedder(server.url))
        inputs = texts(200)
        assert_answers(await ask(running, inputs), inputs)
        assert server.sizes == [200, 100, 50, 50, 50, 50]

    async def test_the_breaker_is_not_charged(self, serve, gateway):
        server = self.Permits(serve, 2)
        running = await gateway(one_embedder(server.url))
        for _ in range(3):
            await ask(running, texts(20))
        assert running.breaker("m")["state"] == "closed"
        assert running.counted("forebay_requests_total", outcome="congestion") > 0

    async def test_it_is_tried_a_bounded_number_of_times(self, serve, gateway):
        server = self.Permits(serve, 0)
        running = await gateway(one_embedder(server.url))
        answer = await ask(running, texts(2048))
        assert answer.status == 429
        assert int(answer.head["retry-after"]) >= 1
        assert server.refused <= 10

    async def test_one_input_is_refused_at_once(self, serve, gateway):
        server = self.Permits(serve, 0)
        running = await gateway(one_embedder(server.url))
        assert (await ask(running, texts(1))).status == 429
        assert len(server.bodies) == 1

    async def test_a_server_that_says_when_to_return_is_obeyed(self, serve, gateway):
        server = self.Permits(serve, 0, "Retry-After: 7")
        running = await gateway(one_embedder(server.url))
        answer = await ask(running, texts(2))
        assert (answer.status, answer.head["retry-after"]) == (429, "7")
        assert len(server.bodies) == 1


class TestSeveralEndpoints:
    async def test_each_gets_what_it_takes(self, serve, gateway):
        small, large = Embedder(serve, at_most(2)), Embedder(serve, at_most(16))
        config = one_embedder(small.url, ceiling=1)
        config["embedding_models"] += one_embedder(large.url, ceiling=1)["embedding_models"]
        running = await gateway(config)
        for _ in range(2):
            inputs = texts(60)
            assert_answers(await ask(running, inputs), inputs)
        assert small.sizes[-1] == 2
        assert large.sizes[-1] > 2
        assert 16 in large.sizes

    async def test_one_that_takes_the_whole_gets_it_in_one(self, serve, gateway):
        server = Embedder(serve)
        running = await gateway(one_embedder(server.url, engine="infinity"))
        inputs = texts(2048)
        assert_answers(await ask(running, inputs), inputs)
        assert server.sizes == [2048]


class TestOneAnswer:
    async def test_usage_is_summed_and_the_rest_is_the_first_ones(self, serve, gateway):
        def behave(request):
            inputs = request["input"]
            if len(inputs) > 2:
                return refusal(UNPROCESSABLE, "maximum allowed batch size 2")
            data = [{"index": i, "embedding": vector(t), "x": t} for i, t in enumerate(inputs)]
            usage = {
                "prompt_tokens": len(inputs),
                "total_tokens": 2 * len(inputs),
                "prompt_tokens_details": {"cached_tokens": 1},
                "kind": "a",
            }
            answer = {"id": inputs[0], "object": "list", "data": data, "model": "m", "usage": usage}
            return json_response(answer, "X-Odd: 1")

        running = await gateway(one_embedder(Embedder(serve, behave).url))
        answer = await ask(running, texts(5))
        got = answer.json
        assert (got["id"], got["object"], got["model"]) == ("t0", "list", "m")
        assert got["usage"] == {
            "prompt_tokens": 5,
            "total_tokens": 10,
            "prompt_tokens_details": {"cached_tokens": 3},
            "kind": "a",
        }
        assert [i["x"] for i in got["data"]] == texts(5)
        assert answer.head["x-odd"] == "1"
        assert int(answer.head["content-length"]) == len(answer.body)
        assert len(answer.head.all("x-forebay-queued-ms")) == 1

    async def test_pieces_keep_what_else_the_request_asks_for(self, serve, gateway):
        server = Embedder(serve, at_most(1))
        running = await gateway(one_embedder(server.url))
        answer = await ask(running, texts(2), dimensions=2, user="\u00e4", input_type="query")
        assert answer.status == 200
        for request in server.requests:
            del request["input"]
            assert request == {
                "model": "m",
                "dimensions": 2,
                "user": "\u00e4",
                "input_type": "query",
            }

    async def test_texts_arrive_as_they_were_written(self, serve, gateway):
        server = Embedder(serve, lambda r: at_most(1)({"input": ["t0"] * len(r["input"])}))
        running = await gateway(one_embedder(server.url))
        body = b'{"model":"m","input":[ "\\u00e4\\/\\n" , "\xc3\xa4\xf0\x9f\x98\x80" ]}'
        async with connected(running.port) as wire:
            answer = await wire.ask("POST", "/v1/embeddings", body, [JSON])
        assert answer.status == 200
        assert {b'["\\u00e4\\/\\n"]', b'["\xc3\xa4\xf0\x9f\x98\x80"]'} == {
            sent[sent.index(b"[") : sent.index(b"]") + 1] for sent in server.bodies[1:]
        }

    async def test_a_piece_that_misses_a_vector_fails_the_whole(self, serve, gateway):
        def behave(request):
            if "t3" in request["input"]:
                return embeddings({"input": request["input"][:1]})
            return embeddings(request)

        server = Embedder(serve, lambda r: at_most(2)(r) if len(r["input"]) > 2 else behave(r))
        running = await gateway(one_embedder(server.url))
        answer = await ask(running, texts(6))
        assert (answer.status, answer.error["code"]) == (502, "upstream_invalid_response")
        assert running.counted("forebay_requests_total", outcome="failure") == 1


class TestAPieceThatFails:
    async def test_its_error_is_the_answer_and_the_others_are_given_up(self, serve, gateway):
        async def behave(request):
            if len(request["input"]) > 1:
                return at_most(1)(request)
            if request["input"] == ["t3"]:
                await eventually(lambda: running.inflight == 4)
                return json_response({"x": 1}, status="503 Service Unavailable")
            return None

        running = await gateway(one_embedder(Embedder(serve, behave).url, ceiling=4))
        answer = await ask(running, texts(9))
        assert (answer.status, answer.json) == (503, {"x": 1})
        await eventually(lambda: running.idle)
        # The slot that the failed one gave back may have gone to one more.
        assert running.counted("forebay_requests_total", outcome="cancelled") in {3, 4}

    async def test_a_client_that_leaves_gives_every_slot_back(self, serve, gateway):
        running = await gateway(one_embedder(Embedder(serve, never_alone).url, ceiling=3))
        async with connected(running.port) as wire:
            await wire.send("POST", "/v1/embeddings", {"model": "m", "input": texts(9)}, [JSON])
            await eventually(lambda: running.inflight == 3 and running.queued == 1)
            wire.reset()
        await eventually(lambda: running.idle)

    async def test_one_deadline_holds_for_all_pieces(self, serve, gateway):
        running = await gateway(one_embedder(Embedder(serve, never_alone).url, ceiling=2))
        answer = await ask(running, texts(9), [("x-request-timeout", "0.2")])
        assert answer.status == 504
        await eventually(lambda: running.idle)


class TestHowMuchAtOnce:
    async def test_pieces_stay_within_the_endpoints_limit(self, serve, gateway):
        most = 0

        def behave(request):
            nonlocal most
            most = max(most, running.inflight)
            return at_most(1)(request)

        running = await gateway(one_embedder(Embedder(serve, behave).url, ceiling=2))
        inputs = texts(20)
        assert_answers(await ask(running, inputs), inputs)
        assert most == 2

    async def test_a_request_waits_with_one_ticket_at_a_time(self, serve, gateway):
        running = await gateway(one_embedder(Embedder(serve, never_alone).url, ceiling=1))
        async with connected(running.port) as wire:
            await wire.send("POST", "/v1/embeddings", {"model": "m", "input": texts(9)}, [JSON])
            await eventually(lambda: running.inflight == 1 and running.queued == 1)
            async with connected(running.port) as other:
                await other.send("POST", "/v1/embeddings", {"model": "m", "input": "t1"}, [JSON])
                await eventually(lambda: running.queued == 2)


@pytest.mark.parametrize("is_packed", [False, True])
async def test_all_pieces_of_one_request_share_what_may_be_held(
    serve, gateway, monkeypatch, is_packed
):
    """Each of the answers is well within the bound."""
    monkeypatch.setattr("forebay.proxy.embeddings.held._MOST_BYTES", 5000)

    def behave(request):
        if len(request["input"]) > 1:
            return refusal(CONTENT_TOO_LARGE, "too large")
        _, _, body = embeddings(request).partition(b"\r\n\r\n")
        body += b" " * 2000
        return (
            response(gzip.compress(body), "Content-Encoding: gzip") if is_packed else response(body)
        )

    running = await gateway(one_embedder(Embedder(serve, behave).url))
    assert_answers(await ask(running, texts(2)), texts(2))
    answer = await ask(running, texts(3))
    assert (answer.status, answer.error["code"]) == (502, "answer_too_large")
    assert running.breaker("m")["failures"] == 0
