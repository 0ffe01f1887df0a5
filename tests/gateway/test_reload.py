"""`forebay serve` as a process whose file is edited while it serves."""

from __future__ import annotations

import json
import os
import re
import signal
from contextlib import AsyncExitStack
from functools import partial

import anyio
import pytest

from forebay.emulator.faults import Hang
from support.configs import emulated
from support.edits import (
    CHAT,
    LOADED,
    SHORT,
    ask,
    becomes,
    edit,
    id_of,
    status,
    tells,
    under_load,
    write,
)
from support.served import served
from support.wire import connected

pytestmark = pytest.mark.anyio

LONG = {**SHORT, "stream": True, "max_tokens": 2000}
TOO_MANY_FLOORS = {
    "chat_models": [
        {"id": "chat", "base_url": "http://a", "gpu_group": "g", "max_parallel_calls": 9}
    ],
    "GPU_CONCURRENCY_BUDGETS": {"g": 4},
}


@pytest.fixture
def run(tmp_path):
    """Run ``forebay serve`` on a configuration: ``with run(config) as process``."""
    return partial(served, tmp_path)


def on(hosts, ceiling=4, budget=None, **more):
    """Chat and embeddings on each of some hosts, whose GPUs are their own."""
    own = [f"gpu-{n}" for n in range(len(hosts))]
    budgets = {"GPU_CONCURRENCY_BUDGETS": dict.fromkeys(own, budget)} if budget else {}

    def model(id_, urls, engine):
        servers = [{"base_url": url, "gpu_group": gpu} for url, gpu in zip(urls, own, strict=True)]
        entry = {"id": id_, "engine": engine, "endpoints": servers}
        return {**entry, "max_concurrent_requests": ceiling}

    return {
        "chat_models": [model("chat", [host.chat_url for host in hosts], "vllm")],
        "embedding_models": [model("embedding", [host.embed_url for host in hosts], "tei")],
        "forebay": {"limit": "fixed", **more},
        **budgets,
    }


async def test_edits_lose_no_request(hosts, run):
    one, two, three = await hosts(3)
    slow = {"timeouts": {"connect_s": 1}}
    edits = [
        on([one, two]),
        on([one, two, three], ceiling=2),
        on([two, three], budget=3),
        on([two, three], ceiling=8, budget=5, **slow),
        on([three, one], budget=4),
        on([one], ceiling=8),
    ]
    with run(on([one])) as process:
        async with under_load(process) as load:
            for config in edits:
                await edit(process, config)
                await load.goes_on()
        assert load.wrong == []
        assert "Traceback" not in process.text
        assert " ERROR " not in process.text
        now = await status(process)
    assert set(now["endpoints"]) == {id_of("chat", one.chat_url), id_of("embedding", one.embed_url)}
    assert min(host.record()["chat"]["finished"] for host in (one, two, three)) > 5


async def test_a_host_that_goes_finishes_its_streams(hosts, run):
    one, two = await hosts(2)
    gone = id_of("chat", one.chat_url)
    with run(on([one])) as process:
        async with connected(process.port) as wire:
            await wire.send("POST", CHAT, LONG)
            await wire.head()
            await edit(process, on([two]))
            assert (await status(process))["endpoints"][gone]["draining"] is True
            assert (await ask(process)).head["x-forebay-endpoint"] == id_of("chat", two.chat_url)
            assert (await wire.rest())[-1] == b"data: [DONE]\n\n"
        await becomes(process, lambda now: gone not in now["endpoints"])
    assert one.record()["chat"]["finished"] == 1


async def test_bounds_and_budgets_are_in_force_at_once(host, run):
    host.faults.add(Hang(engine="chat"))

    async def inflight(process, count):
        await becomes(process, lambda now: now["groups"]["gpu"]["inflight"] == count)

    with run(emulated(host, chat=1)) as process:
        async with AsyncExitStack() as stack:
            for _ in range(8):
                wire = await stack.enter_async_context(connected(process.port))
                await wire.send("POST", CHAT, SHORT)
            await inflight(process, 1)
            await edit(process, emulated(host, chat=4))
            await inflight(process, 4)
            config = emulated(host, chat=8, budget=7)
            config["embedding_models"][0]["max_parallel_calls"] = 2
            await edit(process, config)  # two are kept for embeddings, while somebody wants them
            await inflight(process, 7)
            group = (await status(process))["groups"]["gpu"]
            assert (group["budget"], group["queued"]["interactive"]) == (7, 1)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ('{"chat_models": [', "config.json:1:"),
        ("", "config.json:1:"),
        ('{"chat_model": []}', "chat_models"),
        ("{}", "names no model"),
        ('{"chat_models": [{"id": "chat", "base_url": "${FOREBAY_TEST_UNSET}"}]}', "UNSET"),
        (json.dumps(TOO_MANY_FLOORS), "floors"),
    ],
    ids=["cut", "empty", "key", "nothing", "variable", "floors"],
)
async def test_a_bad_edit_changes_nothing_and_says_why(host, run, text, why):
    with run(emulated(host)) as process:
        before = await status(process)
        process.file.write_text(text, "utf-8")
        await tells(process, "configuration not loaded, the one before stays in force")
        now = await status(process)
        assert why in now["config"]["reload_error"]
        assert why in process.text
        assert now["config"]["loaded_at"] == before["config"]["loaded_at"]
        assert (await ask(process)).status == 200
        write(process, emulated(host, chat=3))
        await tells(process, LOADED)
        now = await status(process)
        assert now["config"]["reload_error"] is None
        assert now["endpoints"][id_of("chat", host.chat_url)]["ceiling"] == 3
        assert process.text.count("configuration not loaded") == 1  # not once a second
        assert f"{LOADED}changed {id_of('chat', host.chat_url)} (ceiling 8->3)" in process.text


async def test_what_came_of_edits_is_counted(host, run):
    async def seen(process):
        async with connected(process.port) as wire:
            text = (await wire.ask("GET", "/metrics", None)).body.decode()
        values = dict(re.findall(r"^forebay_config_(\S+) (\S+)$", text, re.MULTILINE))
        outcomes = ("applied", "rejected", "needs_restart")
        counts = {key: float(values[f'reloads_total{{outcome="{key}"}}']) for key in outcomes}
        assert (await status(process))["config"]["reloads"] == counts
        return (*counts.values(), float(values["rejected"]), float(values["needs_restart"]))

    with run(emulated(host)) as process:
        assert await seen(process) == (0, 0, 0, 0, 0)
        process.file.write_text("{", "utf-8")
        await tells(process, "not loaded")
        assert await seen(process) == (0, 1, 0, 1, 0)
        await edit(process, {**emulated(host, chat=3), "MODEL_BREAKER_FAIL_THRESHOLD": 9})
        assert await seen(process) == (0, 1, 1, 0, 1)
        await edit(process, emulated(host, chat=3))
        assert await seen(process) == (1, 1, 1, 0, 0)


def in_place(file, text):
    file.write_text(text, "utf-8")


def renamed_over(file, text):
    """As vi, and whoever wants a whole file or none, does."""
    new = file.with_name("config.json.new")
    new.write_text(text, "utf-8")
    new.replace(file)


def moved_away_first(file, text):
    """As Emacs and vim with a backup do."""
    file.rename(file.with_name("config.json~"))
    file.write_text(text, "utf-8")


def with_the_same_size_and_time(file, text):
    before = file.stat()
    file.write_text(text, "utf-8")
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))


def turned(file, text):
    """As Kubernetes does with a ConfigMap: the file leads through `..data`, which is turned."""
    folder = file.parent
    versions = len(list(folder.glob("..version-*")))
    (folder / f"..version-{versions}").mkdir()
    (folder / f"..version-{versions}" / "config.json").write_text(text, "utf-8")
    (folder / "..data_tmp").symlink_to(f"..version-{versions}")
    (folder / "..data_tmp").replace(folder / "..data")


@pytest.mark.parametrize(
    "way", [in_place, renamed_over, moved_away_first, with_the_same_size_and_time, turned]
)
async def test_however_the_file_is_written_it_is_seen(host, run, tmp_path, way):
    if way is turned:
        (tmp_path / "..version-0").mkdir()
        (tmp_path / "..data").symlink_to("..version-0")
        (tmp_path / "config.json").symlink_to("..data/config.json")
    with run(emulated(host, chat=3)) as process:
        for n, ceiling in enumerate((5, 7), 1):
            way(process.file, json.dumps(emulated(host, chat=ceiling)))
            await tells(process, LOADED, n)
            now = await status(process)
            assert now["endpoints"][id_of("chat", host.chat_url)]["ceiling"] == ceiling
        assert "not loaded" not in process.text


async def test_a_file_that_is_missing_for_a_while_is_read_once_it_is_there(host, run):
    with run(emulated(host)) as process:
        process.file.unlink()
        await tells(process, "configuration not loaded")
        assert (await ask(process)).status == 200
        await edit(process, emulated(host, chat=3))
        now = await status(process)
        assert now["endpoints"][id_of("chat", host.chat_url)]["ceiling"] == 3
        assert now["config"]["reload_error"] is None


async def test_a_file_that_is_written_slowly_is_taken_when_it_is_whole(host, run):
    config = json.dumps(emulated(host, chat=3))
    with run(emulated(host)) as process:
        with process.file.open("w", encoding="utf-8") as file:
            for n in range(0, len(config), 10):
                file.write(config[n : n + 10])
                file.flush()
                await anyio.sleep(0.02)
        await tells(process, LOADED)
        assert process.text.count(LOADED) == 1
        assert "not loaded" not in process.text


async def test_sighup_looks_at_the_file_and_always_says_what_came_of_it(host, run):
    with run(emulated(host)) as process:
        await status(process)  # whoever answers hears signals
        for n in (1, 2):
            os.kill(process.popen.pid, signal.SIGHUP)
            await tells(process, f"{LOADED}nothing changed", n)
        process.file.write_text("{", "utf-8")
        await tells(process, "not loaded")
        os.kill(process.popen.pid, signal.SIGHUP)
        await tells(process, "not loaded", 2)
        write(process, emulated(host, chat=3))
        os.kill(process.popen.pid, signal.SIGHUP)
        await tells(process, f"{LOADED}changed {id_of('chat', host.chat_url)}")
        assert (await ask(process)).status == 200


async def test_what_needs_a_restart_is_named_as_long_as_it_does(host, run):
    config = emulated(host)
    warning = "in force after a restart only: "
    with run(config) as process:
        own = {"limit": "knee", "breaker": {"ramp_double_s": 9}, "log_level": "info"}
        await edit(process, {**config, "forebay": own, "MODEL_BREAKER_FAIL_THRESHOLD": 9})
        named = ["MODEL_BREAKER_FAIL_THRESHOLD", "forebay.limit", "forebay.breaker.ramp_double_s"]
        assert (await status(process))["config"]["needs_restart"] == named
        assert f"WARNING forebay.live.reload changed in the file, but {warning}" in process.text
        assert all(name in process.text.partition(warning)[2] for name in named)
        await edit(process, {**config, "forebay": {**own, "limit": "fixed"}})
        assert (await status(process))["config"]["needs_restart"] == [named[2]]
        await edit(process, config)
        assert (await status(process))["config"]["needs_restart"] == []
        assert process.text.count(warning) == 2


async def test_new_warnings_of_the_file_are_told_and_old_ones_are_not_again(host, run):
    config = {**emulated(host), "GPU_CONCURRENCY_BUDGETS": {"gpus": 9}}
    with run(config) as process:
        told = process.text.count("gpus")
        await edit(process, {"MODEL_MAX_CONCURRENT_REQUESTS": 40, **config})
        assert process.text.count("gpus") == told > 0
        config["chat_models"][0]["max_parallel_calls"] = 20
        await edit(process, config)
        assert "the floor is lowered to 8" in process.text


async def test_keys_of_an_edit_are_in_no_log(host, run):
    config = emulated(host, forebay={"log_level": "debug"})
    with run(config) as process:
        config["chat_models"][0]["api_key"] = "sk-endpoint-secret"
        key = {"name": "app", "key": "sk-client-secret", "admin": True}
        own = {"log_level": "debug", "api_keys": [key]}
        await edit(process, {**config, "forebay": own})
        process.file.write_text(json.dumps({**config, "forebay": {**own, "limit": 3}}), "utf-8")
        await tells(process, "not loaded")
        assert "secret" not in process.text
