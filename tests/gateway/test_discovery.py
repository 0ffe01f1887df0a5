"""The served process finds its endpoints by DNS and in Kubernetes, as the documentation has it."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from forebay.config import jsonc
from support.cluster import cluster, endpoint, endpoint_slice
from support.edits import CHAT, EMBED, SHORT, TEXTS, ask, becomes, id_of, status, under_load
from support.name_server import name_server
from support.served import served

pytestmark = pytest.mark.anyio

PAGE = Path(__file__).parents[2] / "docs/live.md"


@pytest.fixture
async def k8s():
    async with cluster() as api:
        yield api


@pytest.fixture
async def dns():
    async with name_server() as server:
        yield server


def port_of(url):
    return int(re.search(r":(\d+)", url.removeprefix("http://"))[1])


def documented(one, two, k8s, dns):
    """The example of the documentation, on the servers of the test."""
    (text,) = re.findall(r"```jsonc\n(.*?)```", PAGE.read_text("utf-8"), re.DOTALL)
    for written, here in (
        ("qwen3-27b", "chat"),
        ("bge-m3", "embedding"),
        ("http://gpu-a.lan:8000", two.chat_url),
        (":7997", f":{port_of(one.embed_url)}"),
    ):
        assert written in text
        text = text.replace(written, here)
    config = jsonc.parse(text, file="live.md").value
    discovery = {"nameservers": [dns.address], "kubernetes_url": k8s.url}
    return {**config, "forebay": {"limit": "fixed", "discovery": discovery}}


def pods(host, address="127.0.0.1", name="vllm-abcde"):
    return endpoint_slice(
        endpoint(address), name=name, ports=(("http", port_of(host.chat_url)), ("metrics", 1))
    )


async def serves(process, *ids):
    await becomes(process, lambda now: set(now["endpoints"]) == set(ids))


async def test_the_documented_example_follows_pods_and_names(hosts, k8s, dns, tmp_path):
    one, two = await hosts(2)
    (three,) = await hosts(1, "127.0.0.2")
    dns.zone["embed.example.org", "A"] = ["127.0.0.1"]
    k8s.put(pods(one))
    embedding, written = id_of("embedding", one.embed_url), id_of("chat", two.chat_url)
    first, other = id_of("chat", one.chat_url), id_of("chat", three.chat_url)
    with served(tmp_path, documented(one, two, k8s, dns)) as process:
        await serves(process, first, written, embedding)
        groups = (await status(process))["groups"]
        assert {name: group["budget"] for name, group in groups.items()} == {
            "gpu-127.0.0.1": 16,
            "gpu-a": 8,
        }
        assert set(groups["gpu-127.0.0.1"]["members"]) == {first, embedding}
        assert (await ask(process, EMBED, TEXTS)).status == 200
        async with under_load(process) as load:
            k8s.put(pods(three, "127.0.0.2", name="vllm-fghij"))
            await serves(process, first, written, other, embedding)
            await load.goes_on()
            assert (await status(process))["groups"]["gpu-127.0.0.2"]["budget"] == 16
            k8s.delete("vllm-abcde")
            await serves(process, written, other, embedding)
            await load.goes_on()
        assert load.wrong == []
        assert f"endpoints found: added {other}" in process.text
        assert f"endpoints found: removed {first}" in process.text
        assert " ERROR " not in process.text
    assert three.record()["chat"]["finished"] > 0


async def test_sources_that_fail_take_nothing_away_and_are_told_of(hosts, k8s, dns, tmp_path):
    one, two = await hosts(2)
    dns.zone["embed.example.org", "A"] = ["127.0.0.1"]
    k8s.put(pods(one))
    found = id_of("chat", one.chat_url), id_of("embedding", one.embed_url)
    config = documented(one, two, k8s, dns)
    with served(tmp_path, config) as process:
        await serves(process, *found, id_of("chat", two.chat_url))
        del dns.zone["embed.example.org", "A"]
        k8s.status = 503
        k8s.expire(as_event=True)
        await becomes(
            process,
            lambda now: all(source["failure"] for source in now["config"]["sources"].values()),
            within_s=15,
        )
        # An edit is carried out with what was found last.
        config["chat_models"][0]["endpoints"].pop()
        process.file.write_text(json.dumps(config), "utf-8")
        await serves(process, *found)
        assert (await ask(process, CHAT, SHORT)).status == 200
        assert (await ask(process, EMBED, TEXTS)).status == 200
