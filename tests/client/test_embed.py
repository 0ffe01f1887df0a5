"""`fb.embed`: vectors for any number of texts, each at its place."""

from __future__ import annotations

import asyncio
import sys

import anyio
import numpy as np
import pytest

import forebay
from forebay.emulator.faults import Hang, Status
from support.configs import emulated
from support.embedder import Embedder, embeddings, one_embedder, refusal, texts, vector
from support.flaky import Flaky, failing_over
from support.http_responses import json_response
from support.sessions import inflight
from support.waiting import eventually

pytestmark = pytest.mark.anyio


@pytest.fixture
async def fb(host, write):
    async with forebay.open(write(emulated(host))) as fb:
        yield fb
        await eventually(lambda: inflight(fb) == 0, within_s=1)


async def test_a_row_for_each_text_in_their_order(serve, write) -> None:
    server = Embedder(serve)
    async with forebay.open(write(one_embedder(server.url))) as fb:
        vectors = await fb.embed(texts(1000), model="m")
        assert vectors.dtype == np.float32
        assert vectors.tolist() == [vector(text) for text in texts(1000)]
        none = await fb.embed([], model="m")
        assert none.shape == (0, 0)


async def test_as_many_batches_at_once_as_there_is_room(fb, host) -> None:
    vectors = await fb.embed((f"text {n}" for n in range(700)), model="embedding")
    assert vectors.shape == (700, 8)
    record = host.record()["embedding"]
    assert 1 < record["max_inflight"] <= 8


async def test_texts_are_read_as_they_are_needed(fb) -> None:
    taken = done = 0

    def told(progress: forebay.Progress) -> None:
        nonlocal done
        done = progress.done

    async def endless():
        nonlocal taken
        for n in range(20_000):
            taken += 1
            assert taken - done <= 64 * 10 + 1
            yield f"text {n}"
            if n == 3000:
                raise OSError("the disk is gone")

    with pytest.raises(forebay.ItemsError, match=r"disk is gone.* after 3001 items"):
        await fb.embed(endless(), model="embedding", progress=told)
    assert taken == 3001


class TestFailures:
    async def test_the_text_that_an_endpoint_chokes_on_fails_alone(self, fb, host) -> None:
        host.faults.add(Status(engine="embedding", status=500, containing="poison"))
        several = [f"text {n}" for n in range(150)]
        several[97] = "poison"
        rows = await fb.embed(several, model="embedding", on_error="collect")
        assert isinstance(rows[97], forebay.RequestFailed)
        assert rows[97].code == "input_failed"
        assert "text 97" in str(rows[97])
        assert all(isinstance(row, np.ndarray) for n, row in enumerate(rows) if n != 97)
        with pytest.raises(forebay.RequestFailed, match="text 97"):
            await fb.embed(several, model="embedding")

    async def test_an_empty_text(self, fb) -> None:
        rows = await fb.embed(["a", "", "b"], model="embedding", on_error="collect")
        assert [isinstance(row, np.ndarray) for row in rows] == [True, False, True]
        with pytest.raises(forebay.RequestFailed, match="text 1 is empty; leave it out"):
            await fb.embed(["a", ""], model="embedding")

    async def test_what_is_no_text(self, fb) -> None:
        with pytest.raises(TypeError, match="text 1 is 7; give a str"):
            await fb.embed(["a", 7], model="embedding")
        with pytest.raises(TypeError, match="give a list of them"):
            await fb.embed("a", model="embedding")

    async def test_a_model_that_there_is_not(self, fb) -> None:
        for on_error in ("raise", "collect"):
            with pytest.raises(forebay.Rejected, match="no model 'other' is configured"):
                await fb.embed(["a"], model="other", on_error=on_error)

    async def test_arguments_that_there_are_not(self, fb) -> None:
        with pytest.raises(TypeError, match="no argument 'size'"):
            await fb.embed(["a"], model="embedding", size=3)
        with pytest.raises(ValueError, match="'raise' or 'collect'"):
            await fb.embed(["a"], model="embedding", on_error="ignore")
        with pytest.raises(ValueError, match="must be above 0"):
            await fb.embed(["a"], model="embedding", timeout=-1)
        with pytest.raises(ValueError, match="'best-effort' or None"):
            await fb.embed(["a"], model="embedding", priority="high")

    async def test_an_endpoint_that_is_full_for_a_moment_is_waited_for(self, fb, host) -> None:
        host.faults.add(
            Status(engine="embedding", status=429, message="full", retry_after="1", next=3)
        )
        vectors = await fb.embed([f"text {n}" for n in range(100)], model="embedding")
        assert vectors.shape == (100, 8)

    async def test_each_keeps_its_own_reason_where_all_of_them_fail(self, serve, write) -> None:
        def refuse(request):
            inputs = request["input"]
            if inputs == ["test"]:
                return embeddings(request)
            if len(inputs) > 1:
                return refusal("500 Internal Server Error", "cannot")
            if inputs == ["t1"]:
                return refusal("400 Bad Request", "a word that is not allowed")
            return refusal("413 Payload Too Large", "too many tokens")

        server = Embedder(serve, refuse)
        async with forebay.open(write(one_embedder(server.url))) as fb:
            rows = await fb.embed(["t1", "t2"], model="m", on_error="collect")
        assert [row.status for row in rows] == [400, 413]
        assert "text 1" in str(rows[1])

    async def test_a_server_that_says_when_by_a_date(self, serve, write) -> None:
        busy = (
            b"HTTP/1.1 429 Too Many Requests\r\ncontent-length: 2\r\n"
            b"date: Thu, 03 Dec 2026 10:00:00 GMT\r\n"
            b"retry-after: Thu, 03 Dec 2026 10:00:01 GMT\r\n\r\n{}"
        )
        answers = iter([busy])
        server = Embedder(serve, lambda request: next(answers, None) or embeddings(request))
        async with forebay.open(write(one_embedder(server.url))) as fb:
            assert (await fb.embed(["t1"], model="m")).tolist() == [vector("t1")]

    async def test_a_text_that_is_no_unicode(self, fb) -> None:
        rows = await fb.embed(["a", "\ud800"], model="embedding", on_error="collect")
        assert rows[1].code == "input_invalid"

    async def test_its_time_is_that_of_all_attempts(self, fb, host) -> None:
        host.faults.add(Status(engine="embedding", status=429, message="full", retry_after="1"))
        began_at = asyncio.get_running_loop().time()
        with pytest.raises((forebay.RequestFailed, forebay.Rejected)):
            await fb.embed(["a"], model="embedding", timeout=2)
        assert asyncio.get_running_loop().time() - began_at < 3

    async def test_a_session_that_is_closed_meanwhile(self, host, write) -> None:
        host.faults.add(Hang(engine="embedding"))
        async with forebay.open(write(emulated(host))) as fb:
            job = asyncio.create_task(fb.embed(["a"], model="embedding", on_error="collect"))
            await eventually(lambda: inflight(fb) == 1)
        with pytest.raises(forebay.Rejected, match="session was closed"):
            await job

    async def test_time_is_up(self, fb, host) -> None:
        host.faults.add(Status(engine="embedding", status=429, message="full", retry_after="1"))
        with pytest.raises((forebay.RequestFailed, forebay.Rejected)):
            await fb.embed(["a"], model="embedding", timeout=0.5)


async def test_another_endpoint_takes_over(serve, write) -> None:
    primary, fallback = Flaky(serve), Flaky(serve)
    async with forebay.open(write(failing_over(f"{primary.url}/v1", f"{fallback.url}/v1"))) as fb:
        primary.mode = "reset"
        vectors = await fb.embed(texts(300), model="m")
        assert vectors.tolist() == [vector(text) for text in texts(300)]
        assert fb.embedding_endpoint_status()["is_fallback"]


async def test_a_server_that_restarts_is_waited_for(serve, write) -> None:
    only = Flaky(serve)
    config = one_embedder(only.url)
    config |= {"MODEL_BREAKER_FAIL_THRESHOLD": 1, "MODEL_BREAKER_BASE_COOLDOWN_S": 0.3}
    async with forebay.open(write(config)) as fb:
        only.mode = "reset"
        job = asyncio.create_task(fb.embed(texts(300), model="m", timeout=20))
        await asyncio.sleep(0.5)
        only.mode = "ok"
        assert (await job).tolist() == [vector(text) for text in texts(300)]


async def test_strings_of_a_kind_of_their_own(fb) -> None:
    vectors = await fb.embed(list(np.array(["a", "b"])), model="embedding")
    assert vectors.shape == (2, 8)


async def test_vectors_of_another_model_are_not_taken(serve, write) -> None:
    def of_another_model(request):
        data = [{"index": n, "embedding": [1.0, 3.0]} for n in range(len(request["input"]))]
        return json_response({"object": "list", "data": data})

    primary, other = Flaky(serve), Embedder(serve, of_another_model)
    config = failing_over(f"{primary.url}/v1", f"{other.url}/v1", forebay={"identity": {}})
    async with forebay.open(write(config)) as fb:
        assert (await fb.embed(["t1"], model="m")).tolist() == [[1.0, -0.5]]
        primary.mode = "reset"
        with pytest.raises(forebay.ForebayError, match=r"other vectors|failed"):
            await fb.embed(["t2"], model="m", timeout=2)
        assert other.requests == []


async def test_a_cancelled_job_leaves_nothing(fb, host) -> None:
    with anyio.move_on_after(0.05):
        await fb.embed((f"text {n}" for n in range(100_000)), model="embedding")
    await eventually(lambda: inflight(fb) == 0, within_s=1)
    await eventually(lambda: host.record()["embedding"]["inflight"] == 0, within_s=1)


async def test_a_thread_embeds_and_waits(host, write) -> None:
    with forebay.open_sync(write(emulated(host))) as fb:
        seen = []
        vectors = await anyio.to_thread.run_sync(
            lambda: fb.embed_sync(
                (f"text {n}" for n in range(200)), model="embedding", progress=seen.append
            )
        )
        assert vectors.shape == (200, 8)
        assert seen[-1] == forebay.Progress(200, 0, None)
        with pytest.raises(forebay.UsageError, match=r"await fb\.embed"):
            fb.embed_sync(["a"], model="embedding")


async def test_a_thread_that_holds_all_the_slots_is_told(host, write) -> None:
    config = emulated(host)
    config["embedding_models"][0]["max_concurrent_requests"] = 1
    with forebay.open_sync(write(config)) as fb:

        def ask() -> None:
            with fb.slot("embedding"):
                fb.embed_sync(["a"], model="embedding")

        with pytest.raises(forebay.UsageError):
            await anyio.to_thread.run_sync(ask)


async def test_rows_may_be_written_to(fb) -> None:
    (row,) = await fb.embed(["a"], model="embedding", on_error="collect")
    row /= 2


async def test_lists_where_there_is_no_numpy(serve, write) -> None:
    server = Embedder(serve)
    script = """
import sys, forebay
sys.modules["numpy"] = None
from forebay.client import vectors
vectors._numpy.cache_clear()
vectors.find_spec = lambda name: None
with forebay.open_sync(sys.argv[1]) as fb:
    print(fb.embed_sync(["t1", "t2"], model="m"))
"""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-c",
        script,
        write(one_embedder(server.url)),
        stdout=asyncio.subprocess.PIPE,
    )
    output, _ = await asyncio.wait_for(process.communicate(), timeout=60)
    assert output.decode().strip() == "[[1.0, -0.5], [2.0, -0.5]]"
