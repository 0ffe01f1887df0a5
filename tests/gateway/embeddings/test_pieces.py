"""Large requests for embeddings go in pieces, so that chat gets in between; no client can tell."""

from __future__ import annotations

import asyncio
import json

import pytest

from forebay.core.model import ServiceClass
from forebay.emulator import EmbeddingSpec, Emulator, EmulatorSpec
from support.configs import emulated, entry
from support.embedder import Embedder, embeddings, one_embedder, refusal, texts
from support.http_responses import good_stream, json_response, response
from support.waiting import eventually
from support.wire import JSON, connected

pytestmark = pytest.mark.anyio

KEY = ("Authorization", "Bearer key-of-boss")
MAY_RAISE = {"api_keys": [{"name": "boss", "key": "key-of-boss", "may_raise": True}]}
INTERACTIVE = ("x-forebay-priority", "interactive")
TEXT = "t1" + " " * 38  # 40 characters are 10 tokens


def beside_chat(url, *, chat_url="http://127.0.0.1:9", budget=None, forebay=None, **more):
    """An embedder ``m`` and a chat model ``chat`` on one GPU."""
    config = one_embedder(url, forebay=forebay, **more)
    config["chat_models"] = [entry("chat", f"{chat_url}/v1", engine="unknown", ceiling=8)]
    if budget is not None:
        config["GPU_CONCURRENCY_BUDGETS"] = {"gpu": budget}
    return config


async def ask(running, inputs, *headers, **more):
    async with connected(running.port) as wire:
        body = {"model": "m", "input": inputs, **more}
        return await wire.ask("POST", "/v1/embeddings", body, [JSON, *headers])


async def chat(running, content="hello", **more):
    async with connected(running.port) as wire:
        body = {"model": "chat", "messages": [{"role": "user", "content": content}], **more}
        return await wire.ask("POST", "/v1/chat/completions", body, [JSON])


class Gate(Embedder):
    """Answers requests one by one, as a test lets it."""

    def __init__(self, serve, behave=embeddings) -> None:
        super().__init__(serve, self._after_leave)
        self._answer = behave
        self._leave = asyncio.Semaphore(0)

    async def _after_leave(self, request):
        await self._leave.acquire()
        return self._answer(request)

    def let(self, count):
        for _ in range(count):
            self._leave.release()


class TestWhichRequestsGoInPieces:
    async def test_a_large_one_beside_chat(self, serve, gateway):
        server = Embedder(serve)
        running = await gateway(beside_chat(server.url))
        inputs = texts(500, padding=" " * 397)  # a hundred tokens each
        answer = await ask(running, inputs)
        assert [item["embedding"][0] for item in answer.json["data"]] == list(range(500))
        assert sorted(server.sizes) == [20] * 25

    async def test_as_many_inputs_as_the_piece_has_room_for(self, serve, gateway):
        server = Embedder(serve)
        running = await gateway(one_embedder(server.url, piece_tokens=100))
        assert (await ask(running, [TEXT] * 25)).status == 200
        assert sorted(server.sizes) == [5, 10, 10]

    async def test_an_input_larger_than_a_piece_goes_by_itself(self, serve, gateway):
        server = Embedder(serve)
        running = await gateway(one_embedder(server.url, piece_tokens=20))
        assert (await ask(running, [TEXT, "t2" + " " * 400, TEXT, TEXT])).status == 200
        assert sorted(server.sizes) == [1, 1, 2]

    async def test_token_ids_are_counted(self, serve, gateway):
        server = Embedder(
            serve, lambda r: embeddings({"input": [f"t{ids[0]}" for ids in r["input"]]})
        )
        running = await gateway(one_embedder(server.url, engine="vllm", piece_tokens=20))
        answer = await ask(running, [[number] * 10 for number in range(7)])
        assert [item["embedding"][0] for item in answer.json["data"]] == list(range(7))
        assert sorted(server.sizes) == [1, 2, 2, 2]

    async def test_none_where_the_gpu_only_embeds(self, serve, gateway):
        server = Embedder(serve)
        running = await gateway(one_embedder(server.url))
        await ask(running, [TEXT] * 2000)
        assert server.sizes == [2000]

    async def test_none_where_it_is_switched_off(self, serve, gateway):
        server = Embedder(serve)
        running = await gateway(beside_chat(server.url, piece_tokens=0))
        await ask(running, [TEXT] * 2000)
        assert server.sizes == [2000]

    async def test_not_one_that_is_interactive_itself(self, serve, gateway):
        server = Embedder(serve)
        running = await gateway(beside_chat(server.url, piece_tokens=100, forebay=MAY_RAISE))
        await ask(running, [TEXT] * 25, KEY, INTERACTIVE)
        assert server.sizes == [25]

    async def test_one_of_an_interactive_model_that_lowers_itself(self, serve, gateway):
        server = Embedder(serve)
        running = await gateway(one_embedder(server.url, role="default", piece_tokens=100))
        await ask(running, [TEXT] * 20)
        await ask(running, [TEXT] * 20, service_tier="flex")
        assert [server.sizes[0], *sorted(server.sizes[1:])] == [20, 10, 10]

    async def test_pieces_are_also_no_larger_than_the_endpoint_takes(self, serve, gateway):
        def behave(request):
            if len(request["input"]) > 4:
                return refusal("422 Unprocessable Entity", "maximum allowed batch size 4")
            return embeddings(request)

        server = Embedder(serve, behave)
        running = await gateway(one_embedder(server.url, ceiling=1, piece_tokens=100))
        assert (await ask(running, [TEXT] * 25)).status == 200
        assert server.sizes == [10, 4, 4, 4, 4, 4, 4, 1]


def compact(request):
    """As engines write it: without blanks, and with fields that nobody else has."""
    as_base64 = request.get("encoding_format") == "base64"
    whole = json.loads(embeddings(request).partition(b"\r\n\r\n")[2])
    for item in whole["data"]:
        item["extra"] = {"ü": [1.50, None], "b": as_base64}
    count = len(request["input"])
    whole["usage"] = {"prompt_tokens": 3 * count, "total_tokens": 3 * count}
    whole["created"] = 1.0
    body = json.dumps(whole, separators=(",", ":"), ensure_ascii=False).encode()
    return response(body, "Content-Type: application/json; charset=utf-8", "X-Server: e")


class TestNoClientCanTell:
    @pytest.mark.parametrize("encoding", [{}, {"encoding_format": "base64"}], ids=["float", "b64"])
    async def test_the_merged_answer_is_the_unsplit_one_byte_for_byte(
        self, serve, gateway, encoding
    ):
        server = Embedder(serve, compact)
        whole = await gateway(one_embedder(server.url))
        pieces = await gateway(one_embedder(server.url, piece_tokens=3))
        inputs = texts(41)
        expected, got = await ask(whole, inputs, **encoding), await ask(pieces, inputs, **encoding)
        assert len(server.sizes) > 41 / 3
        assert got.body == expected.body
        own = {"x-request-id", "x-forebay-queued-ms"}
        assert sorted(h for h in got.head.headers if h[0] not in own) == sorted(
            h for h in expected.head.headers if h[0] not in own
        )

    @pytest.mark.parametrize("encoding", ["float", "base64"])
    async def test_a_server_with_only_the_other_encoding_is_converted_piece_by_piece(
        self, serve, gateway, encoding
    ):
        other = "float" if encoding == "base64" else "base64"
        server = Embedder(serve, lambda r: compact({**r, "encoding_format": other}))
        whole = await gateway(one_embedder(server.url))
        pieces = await gateway(one_embedder(server.url, piece_tokens=2))
        expected = await ask(whole, texts(9), encoding_format=encoding)
        got = await ask(pieces, texts(9), encoding_format=encoding)
        assert got.body == expected.body

    async def test_answers_that_come_in_any_order_are_merged_by_index(self, serve, gateway):
        """The first piece is answered last, and each of them backwards."""

        async def behave(request):
            if request["input"][0] == "t0":
                await eventually(lambda: len(server.bodies) == 4)
            whole = json.loads(compact(request).partition(b"\r\n\r\n")[2])
            whole["data"].reverse()
            return json_response(whole)

        server = Embedder(serve, behave)
        running = await gateway(one_embedder(server.url, piece_tokens=3))
        answer = await ask(running, texts(12))
        assert [(i["index"], i["embedding"][0]) for i in answer.json["data"]] == [
            (n, n) for n in range(12)
        ]
        assert answer.json["usage"] == {"prompt_tokens": 36, "total_tokens": 36}


class TestChatGetsInBetween:
    async def test_chat_above_its_floor_waits_for_one_piece_not_for_500_texts(self, serve, gateway):
        server = Gate(serve)

        async def talk(peer):
            await peer.answer(good_stream("hi"))

        config = beside_chat(server.url, chat_url=serve(talk).url, budget=3, piece_tokens=100)
        running = await gateway(config)
        take_chats_floor(running)
        asking = asyncio.create_task(ask(running, [TEXT] * 500))
        await eventually(lambda: len(server.bodies) == 2)
        talking = asyncio.create_task(chat(running, stream=True))
        await eventually(lambda: running.queued == 2)
        server.let(1)
        assert (await talking).status == 200
        assert len(server.bodies) <= 3, "of fifty"
        server.let(100)
        assert (await asking).status == 200

    async def test_unsplit_it_would_wait_for_all_of_them(self, serve, gateway):
        server = Gate(serve)
        running = await gateway(beside_chat(server.url, budget=3, piece_tokens=0))
        take_chats_floor(running)
        asking = [asyncio.create_task(ask(running, [TEXT] * 500)) for _ in range(2)]
        await eventually(lambda: len(server.bodies) == 2)
        talking = asyncio.create_task(chat(running))
        await eventually(lambda: running.queued == 1)
        server.let(1)
        await talking
        assert sum(task.done() for task in asking) == 1
        server.let(1)
        await asyncio.gather(*asking)
        assert server.sizes == [500, 500]

    async def test_other_embeddings_get_in_between_too(self, serve, gateway):
        server = Gate(serve)
        running = await gateway(one_embedder(server.url, ceiling=1, piece_tokens=100))
        large = asyncio.create_task(ask(running, [TEXT] * 500))
        await eventually(lambda: running.queued == 1 and len(server.bodies) == 1)
        small = asyncio.create_task(ask(running, ["t7"]))
        await eventually(lambda: running.queued == 2)
        server.let(3)
        assert (await small).status == 200
        assert not large.done()
        server.let(100)
        assert (await large).status == 200


def take_chats_floor(running):
    """As a long answer does."""
    limiter = running.deployment.limiter
    ticket = limiter.ticket("chat", ServiceClass.INTERACTIVE, timeout_s=60)
    assert limiter.try_slot(ticket) is not None


class TestSlotsBySize:
    async def test_pieces_have_their_own_weight_and_stay_within_the_budget(self, serve, gateway):
        seen = []

        def behave(request):
            seen.append((len(request["input"]), running.inflight))
            return embeddings(request)

        server = Embedder(serve, behave)
        config = beside_chat(server.url, budget=6, piece_tokens=100, tokens_per_slot=40)
        running = await gateway(config)
        answer = await ask(running, [TEXT] * 102)
        assert answer.status == 200
        assert sorted(count for count, _ in seen) == [2, *[10] * 10]
        assert {inflight for _, inflight in seen} <= {1, 3, 4}, "3 slots a piece, of 5"

    async def test_32_long_texts_take_as_many_slots_as_they_are(self, serve, gateway):
        server = Gate(serve)
        running = await gateway(one_embedder(server.url, ceiling=100, tokens_per_slot=100))
        asking = asyncio.create_task(ask(running, ["t1" + " " * 998] * 32))
        await eventually(lambda: len(server.bodies) == 1)
        assert running.inflight == 80
        server.let(1)
        assert (await asking).status == 200
        await eventually(lambda: running.idle)

    async def test_one_larger_than_the_whole_budget_runs_alone(self, serve, gateway):
        server = Gate(serve)
        config = beside_chat(server.url, budget=4, piece_tokens=0, tokens_per_slot=1)
        running = await gateway(config)
        large = asyncio.create_task(ask(running, [TEXT] * 500))
        await eventually(lambda: len(server.bodies) == 1)
        small = asyncio.create_task(ask(running, ["t7"]))
        await eventually(lambda: running.queued == 1)
        assert running.inflight == 3, "all but chat's floor"
        server.let(2)
        assert [a.status for a in await asyncio.gather(large, small)] == [200, 200]

    async def test_no_piece_is_larger_than_its_slot_was_given_for(self, serve, gateway):
        """A small last piece is asked for; then a larger one comes back, refused."""

        def behave(request):
            size = len(request["input"])
            assert running.inflight >= size / 2, "two inputs a slot"
            if size > 8:
                return refusal("422 Unprocessable Entity", "maximum allowed batch size 8")
            return embeddings(request)

        server = Embedder(serve, behave)
        config = one_embedder(server.url, ceiling=9, piece_tokens=100, tokens_per_slot=20)
        running = await gateway(config)
        assert (await ask(running, [TEXT] * 11)).status == 200
        assert sum(server.sizes[1:]) >= 10

    async def test_a_chat_request_takes_slots_by_its_prompt(self, serve, gateway):
        leave = asyncio.Event()

        async def talk(peer):
            await peer.request()
            await leave.wait()
            await peer.send(json_response({"object": "chat.completion", "choices": []}))

        config = {
            "chat_models": [
                entry("chat", f"{serve(talk).url}/v1", engine="unknown", tokens_per_slot=100)
            ],
            "forebay": {"limit": "fixed"},
        }
        running = await gateway(config)
        talking = [asyncio.create_task(chat(running, "x" * 1200))]
        await eventually(lambda: running.inflight == 4)
        picture = f"data:image/png;base64,{'A' * 50_000}"
        content = [{"type": "image_url", "image_url": {"url": picture}}]
        talking.append(asyncio.create_task(chat(running, content)))
        await eventually(lambda: running.inflight == 5)
        leave.set()
        assert [a.status for a in await asyncio.gather(*talking)] == [200, 200]


class TestAllOrNothing:
    @pytest.mark.parametrize("place", [0, 1, 7, 19])
    async def test_where_one_piece_fails_its_error_is_the_answer(self, serve, gateway, place):
        def behave(request):
            if f"t{place}" in request["input"]:
                return refusal("503 Service Unavailable", "the GPU is on fire")
            return embeddings(request)

        running = await gateway(one_embedder(Embedder(serve, behave).url, piece_tokens=2))
        answer = await ask(running, texts(20))
        assert (answer.status, answer.json["message"]) == (503, "the GPU is on fire")
        await eventually(lambda: running.idle)

    @pytest.mark.parametrize("served", range(6))
    async def test_a_client_that_leaves_at_any_point_leaves_nothing_behind(
        self, serve, gateway, served
    ):
        server = Gate(serve)
        running = await gateway(beside_chat(server.url, budget=3, piece_tokens=10))
        async with connected(running.port) as wire:
            body = {"model": "m", "input": [TEXT] * 30}
            await wire.send("POST", "/v1/embeddings", body, [JSON])
            server.let(served)
            await eventually(lambda: len(server.bodies) == served + 2 and running.queued == 1)
            wire.reset()
        await eventually(lambda: running.idle)
        server.let(100)
        assert (await ask(running, [TEXT] * 3)).status == 200
        assert running.idle

    async def test_the_deadline_is_the_whole_requests_not_a_pieces(self, serve, gateway):
        server = Embedder(serve, self.after_50_ms)
        running = await gateway(one_embedder(server.url, ceiling=1, piece_tokens=10))
        answer = await ask(running, [TEXT] * 500, ("x-request-timeout", "0.4"))
        assert (answer.status, answer.error["code"]) == (504, "deadline")
        assert 2 <= len(server.bodies) <= 9
        await eventually(lambda: running.idle)

    @staticmethod
    async def after_50_ms(request):
        await asyncio.sleep(0.05)
        return embeddings(request)


class TestOnTheEmulatedGpu:
    """An engine that takes any batch, and computes a large one in one long step."""

    @pytest.fixture
    async def host(self):
        embedding = EmbeddingSpec(
            max_client_batch=5000, max_batch_tokens=262_144, token_s=2e-5, pad_tokens=1
        )
        async with Emulator(EmulatorSpec(embedding=embedding)).running() as running:
            yield running

    async def answer_and_queued_ms(self, running):
        """How long chat above its floor waits while two large requests hold what is left."""

        async def embed():
            async with connected(running.port) as wire:
                body = {"model": "embedding", "input": texts(500, padding=" water" * 25)}
                return await wire.ask("POST", "/v1/embeddings", body, [JSON])

        take_chats_floor(running)
        asking = [asyncio.create_task(embed()) for _ in range(2)]
        await eventually(lambda: running.inflight == 3)
        talk = await chat(running, max_tokens=4, stream=True)
        answers = await asyncio.gather(*asking)
        assert [a.status for a in (*answers, talk)] == [200] * 3
        return answers[0], int(talk.head["x-forebay-queued-ms"])

    async def test_chats_first_token_is_not_behind_500_texts(self, host, gateway):
        whole = await gateway(emulated(host, budget=3) | self.pieces_of(host, 0))
        expected, behind_all_ms = await self.answer_and_queued_ms(whole)
        pieces = await gateway(emulated(host, budget=3))
        answer, behind_a_piece_ms = await self.answer_and_queued_ms(pieces)
        assert behind_a_piece_ms < behind_all_ms / 2
        assert answer.json == expected.json

    @staticmethod
    def pieces_of(host, tokens):
        (model,) = emulated(host)["embedding_models"]
        return {"embedding_models": [{**model, "piece_tokens": tokens}]}
