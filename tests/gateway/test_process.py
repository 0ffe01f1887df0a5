"""`forebay serve` as the process that people run."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import urllib.request
from functools import partial

import anyio
import pytest

from forebay.emulator.faults import Hang, Stall
from support.configs import emulated, one_chat
from support.served import served
from support.waiting import eventually
from support.wire import connected

pytestmark = pytest.mark.anyio

CHAT = "/v1/chat/completions"
BODY = {
    "model": "chat",
    "messages": [{"role": "user", "content": "x"}],
    "stream": True,
    "max_tokens": 300,
    "ignore_eos": True,
}


@pytest.fixture
def serve_command(tmp_path):
    """Run ``forebay serve`` on a configuration: ``with serve_command(config) as served``."""
    return partial(served, tmp_path)


@pytest.mark.parametrize("which", [signal.SIGTERM, signal.SIGINT])
async def test_a_signal_lets_it_finish_what_is_under_way(host, serve_command, which):
    with serve_command(emulated(host)) as served:
        async with connected(served.port) as wire, connected(served.port) as idle:
            await idle.ask("GET", "/healthz", None)
            await wire.send("POST", CHAT, BODY)
            await wire.head()
            await wire.piece()
            os.kill(served.popen.pid, which)
            assert await idle.closed() == b""  # and it takes nothing new
            pieces = await wire.rest()
        assert pieces[-1] == b"data: [DONE]\n\n"
        assert await served.ended() == 0
        with pytest.raises(OSError, match="refused"):
            socket.create_connection(("127.0.0.1", served.port)).close()
    assert "Traceback" not in served.text
    assert host.record()["chat"]["finished"] == 1


async def test_a_second_signal_ends_it_at_once(host, serve_command):
    with serve_command(emulated(host)) as served:
        async with connected(served.port) as wire, connected(served.port) as idle:
            await idle.ask("GET", "/healthz", None)
            await wire.send("POST", CHAT, {**BODY, "max_tokens": 8000})
            await wire.head()
            os.kill(served.popen.pid, signal.SIGINT)
            assert await idle.closed() == b""  # it has heard of the first one
            os.kill(served.popen.pid, signal.SIGINT)
            assert b'"code":"shutting_down"' in await wire.closed()
            assert await served.ended(within_s=3) == 0
        await eventually(lambda: host.record()["chat"]["inflight"] == 0, within_s=1)


async def waits(served):
    """Return when a chat is queued."""
    queued = b'forebay_queued{class="interactive",model="chat"} 1.0'
    with anyio.fail_after(5):
        async with connected(served.port) as wire:
            while True:
                if queued in (await wire.ask("GET", "/metrics", None)).body:
                    return


@pytest.mark.parametrize("which", [signal.SIGTERM, signal.SIGINT])
async def test_a_signal_refuses_at_once_what_waits(host, serve_command, which):
    with serve_command(emulated(host, chat=1)) as served:
        async with connected(served.port) as ahead, connected(served.port) as waiting:
            await ahead.send("POST", CHAT, {**BODY, "max_tokens": 500})
            await ahead.head()
            await waiting.send("POST", CHAT, BODY)
            await waits(served)
            os.kill(served.popen.pid, which)
            with anyio.fail_after(1):
                answer = await waiting.answer()
            assert (answer.status, answer.error["code"]) == (503, "shutting_down")
            assert await waiting.closed() == b""
            assert (await ahead.rest())[-1] == b"data: [DONE]\n\n"
        assert await served.ended() == 0


async def test_what_outlives_the_drain_time_is_answered_and_cut(host, serve_command):
    host.faults.add(Stall(engine="chat", after_chunks=3, next=1))
    with serve_command(emulated(host), drain_s=0.5) as served:
        async with connected(served.port) as begun, connected(served.port) as unanswered:
            await begun.send("POST", CHAT, BODY)
            await begun.head()
            for _ in range(3):
                await begun.piece()
            host.faults.add(Hang(engine="chat", next=1))
            await unanswered.send("POST", CHAT, BODY)
            await eventually(lambda: host.record()["chat"]["inflight"] == 2)
            os.kill(served.popen.pid, signal.SIGTERM)
            with anyio.fail_after(5):
                answer = await unanswered.answer()
                assert (answer.status, answer.error["code"]) == (503, "shutting_down")
                assert b'"code":"shutting_down"' in (await begun.rest())[-1]
                assert await begun.closed() == b""
        assert await served.ended(within_s=3) == 0
        await eventually(lambda: host.record()["chat"]["inflight"] == 0, within_s=1)
    assert "Traceback" not in served.text


async def test_a_client_that_does_not_read_does_not_keep_it_from_ending(host, serve_command):
    with serve_command(emulated(host), drain_s=0.5) as served:
        async with connected(served.port, receive_buffer=4096) as wire:
            for _ in range(500):
                wire.writer.write(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n")
            await wire.head()
            os.kill(served.popen.pid, signal.SIGTERM)
            assert await served.ended(within_s=5) == 0


async def test_it_serves_ipv6_and_says_where(host, serve_command):
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError:
        pytest.skip("this machine has no IPv6")
    with serve_command(emulated(host), "--host", "::1") as served:
        url = f"http://[::1]:{served.port}/healthz"
        assert url.removesuffix("/healthz") in served.text
        answer = await anyio.to_thread.run_sync(urllib.request.urlopen, url)
        assert answer.status == 200
        answer.close()


async def test_keys_are_in_no_log(host, serve_command):
    config = emulated(
        host,
        forebay={
            "log_level": "debug",
            "api_keys": [{"name": "app", "key": "sk-client-secret", "admin": True}],
        },
    )
    config["chat_models"][0]["api_key"] = "sk-endpoint-secret"
    with serve_command(config) as served:
        body = {**BODY, "stream": False, "max_tokens": 1}
        for key, status in (("sk-client-secret", 200), ("sk-wrong-secret", 401)):
            async with connected(served.port) as wire:
                answer = await wire.ask("POST", CHAT, body, [("Authorization", f"Bearer {key}")])
            assert answer.status == status
    assert "secret" not in served.text


def refused(*options: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "forebay", "serve", *options]
    return subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)


def written(tmp_path, config):
    file = tmp_path / "config.json"
    file.write_text(json.dumps(config), "utf-8")
    return str(file)


def test_several_workers_are_refused_with_the_reason(tmp_path):
    file = written(tmp_path, one_chat("http://127.0.0.1:1"))
    result = refused("--config", file, "--workers", "4")
    assert result.returncode != 0
    assert "4 times" in result.stderr
    assert "Traceback" not in result.stderr


def test_a_port_that_is_taken_is_named(tmp_path):
    file = written(tmp_path, one_chat("http://127.0.0.1:1"))
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        result = refused("--config", file, "--port", port)
    assert result.returncode != 0
    assert port in result.stderr
    assert "Traceback" not in result.stderr


@pytest.mark.parametrize(
    ("host", "way_out"), [("203.0.113.9", "another --host"), ("no.such.host.invalid", "--host")]
)
def test_an_address_that_is_not_this_machines_is_named_with_the_way_out(tmp_path, host, way_out):
    file = written(tmp_path, one_chat("http://127.0.0.1:1"))
    result = refused("--config", file, "--host", host)
    assert result.returncode != 0
    assert host in result.stderr
    assert way_out in result.stderr
    assert "Traceback" not in result.stderr
