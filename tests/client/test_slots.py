"""A slot is held for exactly as long as its block, however that ends."""

from __future__ import annotations

import asyncio
import gc

import pytest

import forebay
from support.sessions import inflight, waiting
from support.virtual_loop import VirtualLoop
from support.waiting import eventually

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend():
    return ("asyncio", {"loop_factory": VirtualLoop})


async def test_a_slot_says_where_to_send_the_request(config) -> None:
    async with forebay.open(config()) as fb, fb.slot("embed") as lease:
        assert lease.endpoint.base_url == "http://127.0.0.2:9/v1"
        assert 0 <= lease.queued_s < 1
        assert inflight(fb) == 1


async def test_a_slot_is_waited_for_until_one_is_free(config) -> None:
    async with forebay.open(config(embedding=1)) as fb:
        held = fb.try_slot("embed")

        async def ask() -> float:
            async with fb.slot("embed") as lease:
                return lease.queued_s

        asking = asyncio.create_task(ask())
        await eventually(lambda: waiting(fb) == 1)
        held.give_back()
        assert await asking >= 0
        assert inflight(fb) == 0


@pytest.mark.parametrize(
    "error",
    [
        ValueError("mine"),
        ConnectionResetError(),
        TimeoutError(),
        asyncio.CancelledError(),
        GeneratorExit(),
        KeyboardInterrupt(),
        ExceptionGroup("both", [ValueError(), ConnectionError()]),
    ],
    ids=repr,
)
async def test_the_slot_comes_back_whatever_the_block_raises(config, error) -> None:
    async with forebay.open(config(embedding=1)) as fb:
        with pytest.raises(type(error)), fb.try_slot("embed"):
            raise error
        assert inflight(fb) == 0
        with pytest.raises(type(error)):
            async with fb.slot("embed"):
                raise error
        assert inflight(fb) == 0


async def test_return_and_break_give_the_slot_back(config) -> None:
    async with forebay.open(config(embedding=1)) as fb:

        async def leaves_early() -> int:
            async with fb.slot("embed"):
                return 1

        assert await leaves_early() == 1
        for _ in range(2):
            async with fb.slot("embed"):
                break
        assert inflight(fb) == 0


async def test_try_slot_takes_what_is_free_and_never_waits(config) -> None:
    async with forebay.open(config(embedding=1)) as fb:
        lease = fb.try_slot("embed")
        assert lease is not None
        assert fb.try_slot("embed") is None
        assert waiting(fb) == 0
        with lease:
            assert fb.try_slot("embed") is None
        async with fb.try_slot("embed") as again:
            assert again.endpoint.model == "embed"
        assert inflight(fb) == 0


async def test_a_lease_is_good_for_one_block(config) -> None:
    async with forebay.open(config(embedding=1)) as fb:
        lease = fb.try_slot("embed")
        with lease:
            with pytest.raises(forebay.UsageError, match="used before"), lease:
                pass
            assert inflight(fb) == 1
        with pytest.raises(forebay.UsageError, match="used before"), lease:
            pass
        lease.give_back()
        assert inflight(fb) == 0


async def test_a_lease_that_nobody_used_comes_back_when_it_is_collected(config) -> None:
    async with forebay.open(config(embedding=1)) as fb:
        lease = fb.try_slot("embed")
        assert inflight(fb) == 1
        del lease
        gc.collect()
        await eventually(lambda: inflight(fb) == 0)
        entered = fb.try_slot("embed").__enter__()
        del entered
        gc.collect()
        await eventually(lambda: inflight(fb) == 0)


async def test_a_generator_that_is_dropped_gives_its_slot_back(config) -> None:
    async with forebay.open(config(embedding=1)) as fb:

        async def stream():
            async with fb.slot("embed"):
                yield 1
                yield 2

        for _ in range(2):
            async for _token in stream():
                break
            gc.collect()
            await eventually(lambda: inflight(fb) == 0)


async def test_waiting_ends_at_the_timeout_with_the_reason(config) -> None:
    async with forebay.open(config(embedding=1)) as fb, fb.slot("embed"):
        now = asyncio.get_running_loop().time

        async def ask() -> None:
            async with fb.slot("embed", timeout=5):
                pass

        asked_at = now()
        with pytest.raises(forebay.Rejected) as caught:
            await asyncio.create_task(ask())
        assert caught.value.reason == "deadline"
        assert now() - asked_at == pytest.approx(5)
        assert waiting(fb) == 0


async def test_without_a_timeout_the_configured_deadline_holds(config) -> None:
    path = config(embedding=1, timeouts={"request_s": 600})
    async with forebay.open(path) as fb:
        held = fb.try_slot("embed")
        with pytest.raises(forebay.Rejected, match="deadline"):
            async with fb.slot("embed"):
                pass
        held.give_back()


async def test_the_timeout_does_not_end_the_block(config) -> None:
    async with forebay.open(config()) as fb, fb.slot("embed", timeout=1):
        await asyncio.sleep(10)
        assert inflight(fb) == 1


async def test_asyncio_timeout_around_it_leaves_nothing_behind(config) -> None:
    async with forebay.open(config(embedding=1)) as fb:
        for _ in range(50):
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.001), fb.slot("embed"):
                    await asyncio.Event().wait()
            assert inflight(fb) == 0
        held = fb.try_slot("embed")
        for _ in range(50):
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.001), fb.slot("embed"):
                    pass
            assert (inflight(fb), waiting(fb)) == (1, 0)
        held.give_back()
        async with fb.slot("embed", timeout=1):
            pass


async def test_a_slot_that_is_handed_over_to_a_task_as_it_is_cancelled_comes_back(config) -> None:
    async with forebay.open(config(embedding=1)) as fb:

        async def ask() -> None:
            async with fb.slot("embed"):
                await asyncio.Event().wait()

        for _ in range(50):
            held = fb.try_slot("embed")
            asking = asyncio.create_task(ask())
            await eventually(lambda: waiting(fb) == 1)
            held.give_back()  # the slot is its own now, although it has not run yet
            asking.cancel()
            await asyncio.wait([asking])
            assert asking.cancelled()
            assert (inflight(fb), waiting(fb)) == (0, 0)


async def test_what_is_lowered_waits_behind_what_is_not(config) -> None:
    async with forebay.open(config(chat=1)) as fb:
        held = fb.try_slot("chat")
        order: list[str] = []

        async def ask(name: str, priority: str | None) -> None:
            async with fb.slot("chat", priority=priority):
                order.append(name)

        low = asyncio.create_task(ask("low", "best-effort"))
        await eventually(lambda: waiting(fb) == 1)
        high = asyncio.create_task(ask("high", None))
        await eventually(lambda: waiting(fb) == 2)
        assert fb.status()["groups"]["gpu"]["queued"] == {"interactive": 1, "best_effort": 1}
        held.give_back()
        await asyncio.gather(low, high)
        assert order == ["high", "low"]


async def test_a_model_that_is_not_configured_is_refused_with_those_that_are(config) -> None:
    async with forebay.open(config()) as fb:
        for ask in (lambda: fb.try_slot("gpt-4"), lambda: fb.slot("gpt-4").__aenter__()):
            with pytest.raises(forebay.Rejected, match="known: chat, embed") as caught:
                await ask()
            assert caught.value.reason == "unknown_model"


@pytest.mark.parametrize("seconds", [0, -1, float("nan")])
async def test_a_timeout_that_makes_no_sense_is_refused(config, seconds) -> None:
    async with forebay.open(config()) as fb:
        with pytest.raises(ValueError, match="timeout"):
            async with fb.slot("embed", timeout=seconds):
                pass
        assert inflight(fb) == 0


async def test_only_lowering_is_a_priority(config) -> None:
    async with forebay.open(config()) as fb:
        with pytest.raises(ValueError, match="best-effort"):
            fb.try_slot("embed", priority="interactive")


async def test_closing_refuses_whoever_waits(config) -> None:
    async with forebay.open(config(embedding=1)) as fb:
        held = fb.try_slot("embed")

        async def ask() -> None:
            async with fb.slot("embed"):
                pass

        asking = asyncio.create_task(ask())
        await eventually(lambda: waiting(fb) == 1)
    with pytest.raises(forebay.Rejected, match="shutting down"):
        await asking
    held.give_back()


async def test_status_tells_the_same_as_the_gateway(config) -> None:
    path = config(budget=3)
    async with forebay.open(path) as fb, fb.slot("chat"):
        told = fb.status()
        assert told["groups"]["gpu"]["budget"] == 3
        assert told["groups"]["gpu"]["members"]["chat@127.0.0.1:9"]["interactive"] == 1
        assert told["endpoints"]["embed@127.0.0.2:9"]["limit"] == 2
        assert told["models"]["embed"]["endpoints"] == ["embed@127.0.0.2:9"]
        assert told["config"]["path"] == str(path)


async def test_no_configuration_means_that_of_the_command_line(config, monkeypatch) -> None:
    monkeypatch.setenv("FOREBAY_CONFIG", str(config()))
    async with forebay.open() as fb:
        assert set(fb.status()["models"]) == {"chat", "embed"}


async def test_a_configuration_that_must_not_start_does_not(tmp_path) -> None:
    with pytest.raises(forebay.ConfigError, match=r"missing\.json"):
        async with forebay.open(tmp_path / "missing.json"):
            pass
