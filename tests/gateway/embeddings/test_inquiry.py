"""One bad input among many is found and named; a batch that is too large is cut until it passes."""

from __future__ import annotations

import asyncio
import json

import pytest

from forebay.emulator import EmbeddingSpec, Emulator, EmulatorSpec, EngineName, Status
from support.configs import emulated
from support.embedder import Embedder, embeddings, one_embedder, refusal, texts, vector
from support.waiting import eventually
from support.wire import JSON, connected

pytestmark = pytest.mark.anyio

PARTIAL = ("x-forebay-partial", "true")
BAD_REQUEST, SERVER_ERROR = "400 Bad Request", "500 Internal Server Error"


async def ask(running, inputs, *headers, model="m", **more):
    async with connected(running.port) as wire:
        body = {"model": model, "input": inputs, **more}
        return await wire.ask("POST", "/v1/embeddings", body, [JSON, *headers])


def poisoned(status, *places):
    """Refuses whatever has one of the texts ``t<place>`` in it."""
    bad = {f"t{place}" for place in places}

    def behave(request):
        if bad & set(request["input"]):
            return refusal(status, "cannot be embedded")
        return embeddings(request)

    return behave


def no_more_than(count, status=SERVER_ERROR):
    """Runs out of memory with more."""

    def behave(request):
        if len(request["input"]) > count:
            return refusal(status, "CUDA out of memory")
        return embeddings(request)

    return behave


def assert_answers(answer, inputs):
    assert answer.status == 200, answer.body
    assert [(i["index"], i["embedding"]) for i in answer.json["data"]] == [
        (index, vector(text)) for index, text in enumerate(inputs)
    ]
    assert "errors" not in answer.json


class TestOneBadInput:
    @pytest.mark.parametrize("place", [0, 1, 31, 62, 63])
    @pytest.mark.parametrize(
        ("status", "told"),
        [
            (BAD_REQUEST, (400, "input_refused")),
            ("422 Unprocessable Entity", (422, "input_refused")),
            (SERVER_ERROR, (422, "input_failed")),
            ("424 Failed Dependency", (422, "input_failed")),
        ],
    )
    async def test_it_is_named_by_its_index(self, serve, gateway, place, status, told):
        server = Embedder(serve, poisoned(status, place))
        running = await gateway(one_embedder(server.url))
        answer = await ask(running, texts(64))
        assert (answer.status, answer.error["code"]) == told
        assert answer.error["message"].startswith(f"input[{place}] ")
        assert "cannot be embedded" in answer.error["message"]
        assert len(server.requests) <= 1 + 2 * 6 + told[1].endswith("failed")
        await eventually(lambda: running.idle)

    @pytest.mark.parametrize("status", [BAD_REQUEST, SERVER_ERROR])
    async def test_it_does_not_open_the_breaker(self, serve, gateway, status):
        running = await gateway(one_embedder(Embedder(serve, poisoned(status, 5)).url))
        for _ in range(4):
            await ask(running, texts(40))
            assert_answers(await ask(running, texts(5)), texts(5))
        assert running.breaker("m")["state"] == "closed"
        assert running.breaker("m")["trips"] == 0

    async def test_a_failure_counts_once_however_often_its_halves_fail(self, serve, gateway):
        running = await gateway(one_embedder(Embedder(serve, poisoned(SERVER_ERROR, 0)).url))
        await ask(running, texts(64))
        assert running.counted("forebay_requests_total", outcome="failure") == 1
        assert running.breaker("m")["failures"] == 1

    async def test_it_leaves_what_the_endpoint_takes_as_it_was(self, serve, gateway):
        server = Embedder(serve, poisoned(SERVER_ERROR, 40))
        running = await gateway(one_embedder(server.url))
        await ask(running, texts(64))
        asked = len(server.requests)
        assert_answers(await ask(running, texts(40)), texts(40))
        assert len(server.requests) == asked + 1

    async def test_what_is_wrong_with_the_whole_request_is_blamed_on_no_input(self, serve, gateway):
        def behave(request):
            if request.get("dimensions"):
                return refusal(BAD_REQUEST, "this model has no dimensions to choose")
            return embeddings(request)

        server = Embedder(serve, behave)
        running = await gateway(one_embedder(server.url))
        answer = await ask(running, texts(64), dimensions=2)
        assert (answer.status, answer.json["code"]) == (400, 400)
        assert (len(server.requests), server.harmless) == (1, 1)

    async def test_the_only_input_gets_the_endpoints_own_answer(self, serve, gateway):
        server = Embedder(serve, poisoned(BAD_REQUEST, 0))
        running = await gateway(one_embedder(server.url))
        answer = await ask(running, texts(1))
        assert answer.json == {"message": "cannot be embedded", "code": 400}
        assert len(server.bodies) == 1

    async def test_token_lists_are_found_too(self, serve, gateway):
        def behave(request):
            if [7, 7] in request["input"]:
                return refusal(BAD_REQUEST, "unknown token")
            return embeddings({"input": [f"t{ids[0]}" for ids in request["input"]]})

        running = await gateway(one_embedder(Embedder(serve, behave).url, engine="vllm"))
        answer = await ask(running, [[1], [2], [7, 7], [3]])
        assert answer.error["message"].startswith("input[2] ")


class TestAnInputThatFailsOnce:
    """A failure may pass; an input that is blamed for one must not be sent again by its client."""

    @staticmethod
    def failing_of(text, times):
        """Fails of a text when that is alone, so many times."""
        left = times

        def behave(request):
            nonlocal left
            if request["input"] == [text] and left:
                left -= 1
                return refusal(SERVER_ERROR, "worker died")
            return embeddings(request)

        return behave

    async def test_it_is_asked_for_again_and_served(self, serve, gateway):
        server = Embedder(serve, self.failing_of("t2", 1))
        running = await gateway(one_embedder(server.url, max_batch_items=1))
        assert_answers(await ask(running, texts(5)), texts(5))
        assert len(server.requests) == 6
        assert running.counted("forebay_requests_total", outcome="failure") == 1
        assert running.breaker("m")["trips"] == 0
        await eventually(lambda: running.idle)

    async def test_it_is_named_when_it_fails_again(self, serve, gateway):
        server = Embedder(serve, self.failing_of("t2", 2))
        running = await gateway(one_embedder(server.url, max_batch_items=1))
        answer = await ask(running, texts(5), PARTIAL)
        assert [(e["index"], e["code"]) for e in answer.json["errors"]] == [(2, "input_failed")]
        assert [request["input"] for request in server.requests].count(["t2"]) == 2
        assert running.counted("forebay_requests_total", outcome="failure") == 1

    async def test_that_says_nothing_of_how_much_the_endpoint_takes(self, serve, gateway):
        once = self.failing_of("t0", 1)

        def behave(request):
            return no_more_than(1)(request) if server.requests == [request] else once(request)

        server = Embedder(serve, behave)
        running = await gateway(one_embedder(server.url))
        assert_answers(await ask(running, texts(2)), texts(2))
        assert [request["input"] for request in server.requests].count(["t0"]) == 2
        assert set(running.endpoint("m")["batches"].values()) == {None}

    async def test_beside_a_bad_one_it_is_not_blamed(self, serve, gateway):
        """They are halves of one piece, so both have failed with it."""
        once = self.failing_of("t2", 1)

        def behave(request):
            return poisoned(SERVER_ERROR, 3)(request) if "t3" in request["input"] else once(request)

        running = await gateway(one_embedder(Embedder(serve, behave).url))
        answer = await ask(running, texts(4), PARTIAL)
        assert [i["index"] for i in answer.json["data"]] == [0, 1, 2]
        assert [(e["index"], e["code"]) for e in answer.json["errors"]] == [(3, "input_failed")]

    async def test_without_a_retry_left_the_endpoints_answer_is_the_answer(self, serve, gateway):
        server = Embedder(serve, self.failing_of("t2", 2))
        running = await gateway(one_embedder(server.url, max_batch_items=1))
        while running.deployment.retries.take_one("m"):
            pass
        answer = await ask(running, texts(3), PARTIAL)
        assert [(e["index"], e["code"]) for e in answer.json["errors"]] == [(2, "upstream_error")]
        assert len(server.requests) == 3

    async def test_without_a_retry_left_a_bad_one_among_others_is_named_still(self, serve, gateway):
        server = Embedder(serve, poisoned(SERVER_ERROR, 1))
        running = await gateway(one_embedder(server.url))
        while running.deployment.retries.take_one("m"):
            pass
        answer = await ask(running, texts(2))
        assert (answer.status, answer.error["code"]) == (422, "input_failed")
        assert answer.error["message"].startswith("input[1] ")


class TestAnEndpointThatIsDown:
    @pytest.mark.parametrize("status", ["502 Bad Gateway", "503 Service Unavailable"])
    async def test_nobody_behind_it_is_not_looked_into(self, serve, gateway, status):
        server = Embedder(serve, lambda _: refusal(status, "nobody there"))
        running = await gateway(one_embedder(server.url))
        assert (await ask(running, texts(64))).status == int(status[:3])
        assert len(server.bodies) == 1

    async def test_one_that_fails_of_everything_is_asked_one_thing_more(self, serve, gateway):
        server = Embedder(serve, lambda _: refusal(SERVER_ERROR, "broken"))
        running = await gateway(one_embedder(server.url))
        answer = await ask(running, texts(64))
        assert (answer.status, answer.json["message"]) == (500, "broken")
        assert len(server.bodies) == 2
        for _ in range(2):
            await ask(running, texts(64))
        assert running.breaker("m")["state"] == "open"

    async def test_one_that_breaks_meanwhile_is_not_blamed_on_an_input(self, serve, gateway):
        asked = []

        def behave(request):
            asked.append(request)
            if len(asked) in {2, 4}:  # the harmless one, and a half
                return embeddings(request)
            return refusal(SERVER_ERROR, "broken")

        running = await gateway(one_embedder(Embedder(serve, behave).url, ceiling=1))
        answer = await ask(running, texts(8))
        assert (answer.status, answer.json["message"]) == (500, "broken")
        assert len(asked) < 12


class TestABatchThatIsTooLarge:
    @pytest.mark.parametrize("status", [SERVER_ERROR, "424 Failed Dependency", BAD_REQUEST])
    async def test_it_is_cut_and_the_size_is_remembered(self, serve, gateway, status):
        server = Embedder(serve, no_more_than(10, status))
        running = await gateway(one_embedder(server.url, max_batch_bytes=5000))
        told = {"max_batch_bytes": 5000, "max_batch_items": None, "max_batch_tokens": None}
        assert running.endpoint("m")["batches"] == told | {"max_items_in_flight": None}
        assert_answers(await ask(running, texts(64)), texts(64))
        batches = running.endpoint("m")["batches"]
        assert batches["max_batch_items" if status == BAD_REQUEST else "max_batch_tokens"] > 0
        refused = sum(size > 10 for size in server.sizes)
        assert refused <= 7
        assert_answers(await ask(running, texts(64, 100)), texts(64, 100))
        assert sum(size > 10 for size in server.sizes) == refused
        assert running.breaker("m")["trips"] == 0

    async def test_an_endpoint_that_fails_one_batch_after_another_is_left_alone(
        self, serve, gateway
    ):
        """Though it answers whatever is small."""
        whole, all_there = [], asyncio.Event()

        async def behave(request):
            if len(request["input"]) == 32:
                whole.append(request)
                if len(whole) == 5:
                    all_there.set()
                await all_there.wait()
            return no_more_than(1)(request)

        running = await gateway(one_embedder(Embedder(serve, behave).url))
        answers = await asyncio.gather(*(ask(running, texts(32, 100 * n)) for n in range(5)))
        assert running.breaker("m")["state"] == "open"
        assert {answer.status for answer in answers} <= {500, 503}

    async def test_halves_that_pass_do_not_make_the_failures_before_them_forgotten(
        self, serve, gateway, monkeypatch
    ):
        """Were sizes not remembered, each batch would fail anew."""
        monkeypatch.setattr("forebay.proxy.embeddings.known._FOUND_FOR_S", 0)
        running = await gateway(one_embedder(Embedder(serve, no_more_than(16)).url))
        for failures in (1, 2):
            assert_answers(await ask(running, texts(32)), texts(32))
            assert running.breaker("m")["failures"] == failures
        assert (await ask(running, texts(32))).status == 503
        assert running.breaker("m")["state"] == "open"

    async def test_the_other_endpoint_still_gets_it_whole(self, serve, gateway):
        small, large = Embedder(serve, no_more_than(4)), Embedder(serve)
        config = one_embedder(small.url, ceiling=1, max_batch_items=40)
        more = one_embedder(large.url, ceiling=1, max_batch_items=40)
        config["embedding_models"] += more["embedding_models"]
        running = await gateway(config | {"MODEL_BREAKER_FAIL_THRESHOLD": 10})
        assert_answers(await ask(running, texts(200)), texts(200))
        learned = len(small.sizes)
        for start in (200, 400):
            inputs = texts(200, start)
            assert_answers(await ask(running, inputs), inputs)
        assert 40 in large.sizes[1:]
        assert 40 not in small.sizes[learned:]
        assert all(state["breaker"]["trips"] == 0 for state in endpoints(running))


def endpoints(running):
    return running.status()["endpoints"].values()


class TestPartial:
    async def test_what_fails_is_told_beside_the_vectors_of_the_others(self, serve, gateway):
        server = Embedder(serve, poisoned(BAD_REQUEST, 3, 4, 40))
        running = await gateway(one_embedder(server.url))
        answer = await ask(running, texts(64), PARTIAL)
        assert answer.status == 200
        good = [n for n in range(64) if n not in {3, 4, 40}]
        assert [i["index"] for i in answer.json["data"]] == good
        assert [i["embedding"][0] for i in answer.json["data"]] == good
        errors = answer.json["errors"]
        assert [(e["index"], e["code"]) for e in errors] == [
            (3, "input_refused"),
            (4, "input_refused"),
            (40, "input_refused"),
        ]
        assert errors[0]["message"].startswith("input[3] is refused by endpoint ")
        assert answer.json["usage"]["prompt_tokens"] == 61
        assert len(server.requests) <= 1 + 2 * 3 * 6

    async def test_an_input_that_is_too_large_does_not_fail_the_others(self, serve, gateway):
        def behave(request):
            if any(len(text) > 100 for text in request["input"]):
                return refusal("413 Payload Too Large", "must have less than 512 tokens")
            return embeddings(request)

        running = await gateway(one_embedder(Embedder(serve, behave).url))
        inputs = texts(9)
        inputs[7] += " " * 200
        answer = await ask(running, inputs, PARTIAL)
        assert [i["index"] for i in answer.json["data"]] == [0, 1, 2, 3, 4, 5, 6, 8]
        assert [(e["index"], e["code"]) for e in answer.json["errors"]] == [(7, "input_too_large")]

    async def test_a_piece_that_is_not_served_costs_its_own_inputs_only(self, serve, gateway):
        def behave(request):
            if "t4" in request["input"]:
                return refusal("503 Service Unavailable", "away")
            return embeddings(request)

        running = await gateway(one_embedder(Embedder(serve, behave).url, max_batch_items=3))
        answer = await ask(running, texts(9), PARTIAL)
        assert [i["index"] for i in answer.json["data"]] == [0, 1, 2, 6, 7, 8]
        assert [e["index"] for e in answer.json["errors"]] == [3, 4, 5]
        assert "away" in answer.json["errors"][0]["message"]

    async def test_what_the_deadline_cuts_off_is_told(self, serve, gateway):
        async def behave(request):
            if "t4" in request["input"]:
                return None
            return embeddings(request)

        server = Embedder(serve, behave)
        running = await gateway(one_embedder(server.url, ceiling=1, max_batch_items=2))
        answer = await ask(running, texts(9), PARTIAL, ("x-request-timeout", "0.5"))
        assert [i["index"] for i in answer.json["data"]] == [0, 1, 2, 3]
        assert [(e["index"], e["code"]) for e in answer.json["errors"]] == [
            (index, "deadline") for index in range(4, 9)
        ]
        await eventually(lambda: running.idle)

    async def test_where_nothing_succeeds_the_answer_is_the_error(self, serve, gateway):
        running = await gateway(
            one_embedder(Embedder(serve, lambda _: refusal(BAD_REQUEST, "no")).url)
        )
        answer = await ask(running, texts(9), PARTIAL)
        assert (answer.status, answer.json["message"]) == (400, "no")

    async def test_where_nothing_fails_the_answer_is_as_ever(self, serve, gateway):
        running = await gateway(one_embedder(Embedder(serve).url))
        assert_answers(await ask(running, texts(9), PARTIAL), texts(9))

    async def test_base64_is_kept(self, serve, gateway):
        running = await gateway(one_embedder(Embedder(serve, poisoned(BAD_REQUEST, 1)).url))
        answer = await ask(running, texts(3), PARTIAL, encoding_format="base64")
        assert [type(i["embedding"]) for i in answer.json["data"]] == [str, str]

    async def test_a_header_that_says_neither_is_refused(self, serve, gateway):
        server = Embedder(serve)
        running = await gateway(one_embedder(server.url))
        answer = await ask(running, texts(3), ("x-forebay-partial", "maybe"))
        assert (answer.status, answer.error["code"]) == (400, "invalid_partial")
        assert server.bodies == []


class TestConfigured:
    @pytest.mark.parametrize(
        ("key", "value", "sizes"),
        [
            ("max_batch_items", 4, [2, 4, 4]),
            ("max_batch_tokens", 30, [1, 3, 3, 3]),
            ("max_batch_bytes", 250, [2, 4, 4]),
        ],
    )
    async def test_a_limit_holds_from_the_first_request_on(self, serve, gateway, key, value, sizes):
        server = Embedder(serve)
        running = await gateway(one_embedder(server.url, **{key: value}))
        inputs = texts(10, padding=" " * 38)
        assert (await ask(running, inputs)).status == 200
        assert sorted(server.sizes) == sizes
        assert max(map(len, server.bodies)) <= 250 or key != "max_batch_bytes"


class TestOnTheEmulatedEngine:
    SPEC = EmbeddingSpec(
        weights_s=0.001,
        overhead_s=0.002,
        token_s=1e-6,
        dimensions=8,
        max_client_batch=256,
        max_request_tokens=500,
    )

    @pytest.fixture
    async def host(self):
        async with Emulator(EmulatorSpec(embedding=self.SPEC)).running() as running:
            yield running

    def ask(self, running, inputs, *headers):
        return ask(running, inputs, *headers, model="embedding")

    async def test_a_request_has_no_more_tokens_than_it_takes(self, host, gateway):
        running = await gateway(emulated(host))
        refused = []
        for _ in range(2):
            answer = await self.ask(running, texts(100, padding=" word" * 20))
            assert answer.status == 200, answer.body[:300]
            assert [i["index"] for i in answer.json["data"]] == list(range(100))
            refused.append(host.record()["embedding"]["refused"])
        assert refused[0] == refused[1] <= 2, "pieces that were under way together"

    async def test_poison_and_little_memory_at_once(self, host, gateway):
        """Two inputs fail of themselves; of more than so many bytes everything does."""
        running = await gateway(emulated(host))
        engine = EngineName.EMBEDDING
        host.faults.add(Status(engine=engine, status=500, containing="poison"))
        host.faults.add(Status(engine=engine, status=424, over_bytes=600))
        inputs = texts(64)
        inputs[9], inputs[50] = "poison 1", "poison 2"
        answer = await self.ask(running, inputs, PARTIAL)
        assert answer.status == 200, answer.body[:300]
        assert [(e["index"], e["code"]) for e in answer.json["errors"]] == [
            (9, "input_failed"),
            (50, "input_failed"),
        ]
        alone = json.loads((await self.ask(running, "t63")).body)["data"][0]["embedding"]
        assert answer.json["data"][-1]["embedding"] == alone
        assert running.breaker("embedding")["trips"] == 0
        await eventually(lambda: running.idle)
