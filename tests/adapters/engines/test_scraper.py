from __future__ import annotations

import asyncio
import logging
import random
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pytest

from forebay.adapters.engines.batching import BatchLimits
from forebay.adapters.engines.http import HttpFetch
from forebay.adapters.engines.infinity import Infinity
from forebay.adapters.engines.llamacpp import LlamaCpp
from forebay.adapters.engines.ollama import Ollama
from forebay.adapters.engines.scraper import Scraper
from forebay.adapters.engines.tei import Tei
from forebay.adapters.engines.triton import Triton
from forebay.adapters.engines.vllm import Vllm
from forebay.core.model import EngineState, Signal
from forebay.errors import ScrapeFailed

if TYPE_CHECKING:
    import aiohttp

    from conftest import Server
    from forebay.adapters.engines.base import Engine
    from forebay.adapters.engines.reply import Reply

pytestmark = pytest.mark.anyio

EVERY_ENGINE: tuple[Engine, ...] = (Infinity(), LlamaCpp(), Ollama(), Tei(), Triton(), Vllm())


@dataclass
class Bench:
    """A scraper of the server, its clock, a switch for the network, and what it told."""

    server: Server
    fetch: HttpFetch
    now: float = 100.0
    cut: bool = False
    told: list[Signal | None] = field(default_factory=list)
    heard: asyncio.Event = field(default_factory=asyncio.Event)

    async def get(self, url: str) -> Reply:
        if self.cut:
            raise ScrapeFailed(f"{url}: connection refused")
        return await self.fetch(url)

    def hear(self, signal: Signal | None) -> None:
        self.told.append(signal)
        self.heard.set()

    def scraper(
        self, *engines: Engine, interval_s: float = 5.0, metrics_url: str | None = None
    ) -> Scraper:
        return Scraper(
            root=self.server.root,
            model="bge-m3",
            fetch=self.get,
            engines=engines or EVERY_ENGINE,
            on_signal=self.hear,
            rng=random.Random(1),
            metrics_url=metrics_url,
            interval_s=interval_s,
            clock=lambda: self.now,
        )


@pytest.fixture
async def bench(server: Server, session: aiohttp.ClientSession) -> Bench:
    return Bench(server, HttpFetch(session))


def vllm_page(**values: float) -> str:
    return "".join(f'vllm:{name}{{engine="0"}} {value}\n' for name, value in values.items())


async def test_a_server_is_recognised_and_read(bench: Bench) -> None:
    bench.server.pages["/metrics"] = vllm_page(num_requests_running=3, num_requests_waiting=0)
    scraper = bench.scraper()

    assert scraper.engine.name == "unknown"
    signal = await scraper.read()
    assert scraper.engine.name == "vllm"
    assert signal == Signal("vllm", 100.0, running=3, waiting=0, saturated=False)
    assert scraper.latest(bench.now) == signal
    assert scraper.failure is None


async def test_the_last_good_value_does_not_outlive_three_intervals(bench: Bench) -> None:
    bench.server.pages["/metrics"] = vllm_page(num_requests_running=0, num_requests_waiting=0)
    scraper = bench.scraper(interval_s=5.0)
    bench.now = 55.0
    await scraper.read()
    bench.cut = True

    bench.now = 60.0
    assert await scraper.read() is None
    assert "refused" in (scraper.failure or "")
    assert scraper.latest(70.0) is not None
    assert scraper.latest(70.1) is None

    bench.cut = False
    bench.now = 90.0
    assert await scraper.read() is not None
    assert scraper.failure is None
    assert scraper.latest(90.0) is not None


async def test_a_growing_count_of_refusals_is_saturation(bench: Bench) -> None:
    calm = {"num_requests_running": 8, "num_requests_waiting": 0}
    scraper = bench.scraper()
    seen = []
    for rejections in (11, 11, 14, 14):
        bench.server.pages["/metrics"] = vllm_page(**calm, admission_rejections_total=rejections)
        signal = await scraper.read()
        seen.append(signal and signal.saturated)

    assert seen == [False, False, True, False]


async def test_a_restart_that_resets_counters_raises_no_alarm(bench: Bench) -> None:
    scraper = bench.scraper()
    for rejections, preemptions in ((40, 40), (0, 0), (0, 0)):
        bench.server.pages["/metrics"] = vllm_page(
            num_requests_waiting=0,
            admission_rejections_total=rejections,
            num_preemptions_total=preemptions,
            request_queue_time_seconds_sum=rejections,
            request_queue_time_seconds_count=rejections,
        )
        signal = await scraper.read()
        assert signal is not None
        assert signal.saturated is False

    assert scraper.queue_s is None


async def test_the_mean_queue_time_is_that_between_two_reads(bench: Bench) -> None:
    scraper = bench.scraper()
    for total, count in ((100, 50), (130, 60)):
        bench.server.pages["/metrics"] = vllm_page(
            request_queue_time_seconds_sum=total, request_queue_time_seconds_count=count
        )
        await scraper.read()

    assert scraper.queue_s == 3


async def test_metrics_that_are_not_offered_are_asked_for_rarely_and_logged_once(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    bench.server.pages["/api/ps"] = {"models": []}
    scraper = bench.scraper()
    for _ in range(5):
        signal = await scraper.read()
        assert signal is not None
        assert (signal.engine, signal.running, signal.waiting) == ("ollama", None, None)
        bench.now += 5
    assert bench.server.requests.count("/metrics") == 1
    assert bench.server.requests.count("/api/ps") == 6
    assert len(caplog.records) == 1

    bench.now += 600
    await scraper.read()
    assert bench.server.requests.count("/metrics") == 2


async def test_a_llamacpp_without_metrics_is_read_for_its_slots(bench: Bench) -> None:
    bench.server.pages["/metrics"] = {"error": {"code": 501, "type": "not_supported_error"}}
    bench.server.statuses["/metrics"] = 501
    bench.server.pages["/props"] = {"total_slots": 4, "default_generation_settings": {}}
    scraper = bench.scraper()
    for _ in range(3):
        signal = await scraper.read()
        assert signal == Signal("llamacpp", 100.0, slots=4)

    assert bench.server.requests.count("/metrics") == 1


async def test_a_router_is_asked_for_the_model_without_loading_it(bench: Bench) -> None:
    bench.server.pages["/metrics"] = {"error": {"code": 400, "message": "model name is missing"}}
    bench.server.statuses["/metrics"] = 400
    query = "?model=bge-m3&autoload=false"
    bench.server.pages[f"/metrics{query}"] = "llamacpp:requests_processing 1\n"
    bench.server.pages[f"/props{query}"] = {"total_slots": 2}
    scraper = bench.scraper()
    for _ in range(2):
        signal = await scraper.read()
        assert signal is not None
        assert (signal.engine, signal.running, signal.slots) == ("llamacpp", 1, 2)

    assert bench.server.requests.count("/metrics") == 1


async def test_metrics_can_live_at_a_url_of_their_own(bench: Bench) -> None:
    bench.server.pages["/elsewhere"] = 'nv_inference_pending_request_count{model="bge-m3"} 95\n'
    signal = await bench.scraper(metrics_url=f"{bench.server.root}/elsewhere").read()

    assert signal is not None
    assert (signal.engine, signal.waiting) == ("triton", 95)


async def test_batch_limits_come_with_the_read(bench: Bench) -> None:
    bench.server.pages["/metrics"] = "te_queue_size 0\n"
    bench.server.pages["/info"] = {"max_client_batch_size": 32, "max_concurrent_requests": 64}
    scraper = bench.scraper()

    assert scraper.batch_limits == BatchLimits()
    await scraper.read()
    assert scraper.batch_limits == BatchLimits(32, 2_000_000, 64)


async def test_a_server_that_comes_back_as_another_engine_is_recognised_anew(bench: Bench) -> None:
    bench.server.pages["/metrics"] = vllm_page(num_requests_running=1)
    scraper = bench.scraper()
    await scraper.read()
    bench.cut = True
    await scraper.read()
    bench.cut = False
    bench.server.pages["/metrics"] = "te_queue_size 0\n"
    await scraper.read()

    assert scraper.engine.name == "tei"


async def test_an_engine_that_was_configured_is_not_looked_for(bench: Bench) -> None:
    bench.server.pages["/metrics"] = vllm_page(num_requests_running=1)
    scraper = bench.scraper(Vllm())

    assert scraper.engine.name == "vllm"
    await scraper.read()
    assert bench.server.requests == ["/metrics"]


async def test_a_login_page_is_a_failed_read_not_an_idle_engine(bench: Bench) -> None:
    bench.server.pages["/metrics"] = "<html><title>Sign in</title></html>"
    scraper = bench.scraper(Vllm())

    assert await scraper.read() is None
    assert "login" in (scraper.failure or "")


async def test_failures_are_logged_when_they_begin_and_end(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    bench.server.pages["/metrics"] = vllm_page(num_requests_running=1)
    scraper = bench.scraper(Vllm())
    for cut in (False, True, True, True, False, False):
        bench.cut = cut
        await scraper.read()

    assert [record.levelname for record in caplog.records] == ["INFO", "WARNING", "INFO"]


async def test_a_running_scraper_tells_every_read_until_it_is_closed(bench: Bench) -> None:
    bench.server.pages["/metrics"] = vllm_page(num_requests_running=1)
    scraper = bench.scraper(Vllm(), interval_s=0.001)
    scraper.start()
    scraper.start()
    async with asyncio.timeout(10):
        while len(bench.told) < 3:
            bench.heard.clear()
            await bench.heard.wait()
        bench.cut = True
        while bench.told[-1] is not None:
            bench.heard.clear()
            await bench.heard.wait()
    await scraper.aclose()
    told = len(bench.told)
    await scraper.aclose()

    assert bench.told[0] is not None
    assert len(bench.told) == told


async def test_a_listener_that_fails_does_not_end_the_reads(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench.server.pages["/metrics"] = vllm_page(num_requests_running=1)
    heard = bench.hear

    def fail(signal: Signal | None) -> None:
        heard(signal)
        raise LookupError

    monkeypatch.setattr(bench, "hear", fail)
    scraper = bench.scraper(Vllm(), interval_s=0.001)
    scraper.start()
    async with asyncio.timeout(10):
        while len(bench.told) < 2:
            bench.heard.clear()
            await bench.heard.wait()
    await scraper.aclose()


async def test_closing_while_a_read_hangs_is_immediate(bench: Bench) -> None:
    hanging = asyncio.Event()

    async def never(url: str) -> Reply:
        del url
        hanging.set()
        await asyncio.Event().wait()
        raise AssertionError

    scraper = Scraper(
        root=bench.server.root,
        model="m",
        fetch=never,
        engines=EVERY_ENGINE,
        on_signal=bench.hear,
        rng=random.Random(1),
    )
    scraper.start()
    async with asyncio.timeout(10):
        await hanging.wait()
        await scraper.aclose()

    assert bench.told == []


async def test_an_engine_that_loads_is_read_again_within_a_second(bench: Bench) -> None:
    bench.server.pages["/metrics"] = {"error": {"code": 503, "message": "Loading model"}}
    bench.server.statuses["/metrics"] = 503
    scraper = bench.scraper(interval_s=30.0)
    loading = await scraper.read()

    assert loading is not None
    assert loading.state is EngineState.LOADING
    assert scraper._pause_s(loading) == 1.0
    assert 27 <= scraper._pause_s(None) <= 33
