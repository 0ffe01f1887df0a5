"""Changing a served process's configuration, and putting load on it meanwhile."""

from __future__ import annotations

import json
from contextlib import asynccontextmanager

import anyio

from support.wire import JSON, connected

CHAT, EMBED = "/v1/chat/completions", "/v1/embeddings"
SHORT = {
    "model": "chat",
    "messages": [{"role": "user", "content": "x"}],
    "max_tokens": 3,
    "ignore_eos": True,
}
TEXTS = {"model": "embedding", "input": ["one", "two", "three"]}
LOADED = "configuration loaded: "


def write(process, config):
    process.file.write_text(json.dumps(config), "utf-8")


async def tells(process, text, count=1):
    """Return when the log has a text so many times."""
    with anyio.fail_after(10):
        while process.text.count(text) < count:  # noqa: ASYNC110 - another process writes it
            await anyio.sleep(0.02)


async def edit(process, config):
    """Write a file, and return when it is in force."""
    before = process.text.count(LOADED)
    write(process, config)
    await tells(process, LOADED, before + 1)


async def status(process):
    async with connected(process.port) as wire:
        return (await wire.ask("GET", "/forebay/status", None)).json


async def becomes(process, condition, within_s=10):
    """Return the first status of which a condition holds."""
    with anyio.fail_after(within_s):
        while not condition(now := await status(process)):  # noqa: ASYNC110 - as in `tells`
            await anyio.sleep(0.02)
        return now


async def ask(process, path=CHAT, body=SHORT):
    async with connected(process.port) as wire:
        return await wire.ask("POST", path, body, [JSON])


def id_of(model, url):
    return f"{model}@{url.removeprefix('http://').removesuffix('/v1')}"


class Load:
    """Chat, streams and embeddings until told to stop.

    Attributes:
        answered: whole answers.
        wrong: everything else.
    """

    def __init__(self, process):
        self._process = process
        self.answered = 0
        self.wrong = []
        self.over = False

    async def _ask(self, path, body):
        while not self.over:
            async with connected(self._process.port) as wire:
                for _ in range(5):
                    answer = await wire.ask("POST", path, body, [JSON])
                    good = answer.status == 200 and b"error" not in answer.body
                    if body.get("stream"):
                        good = good and answer.events[-1] == b"data: [DONE]"
                    if good:
                        self.answered += 1
                    else:
                        self.wrong.append((answer.status, answer.body))

    def start(self, tasks):
        streamed = {**SHORT, "stream": True, "max_tokens": 20}
        for path, body in ((CHAT, SHORT), (CHAT, streamed), (EMBED, TEXTS)):
            for _ in range(3):
                tasks.start_soon(self._ask, path, body)

    async def goes_on(self, answers=30):
        """Return after so many more answers."""
        enough = self.answered + answers
        with anyio.fail_after(20):
            while self.answered < enough:  # noqa: ASYNC110
                await anyio.sleep(0.01)


@asynccontextmanager
async def under_load(process):
    load = Load(process)
    async with anyio.create_task_group() as tasks:
        load.start(tasks)
        await load.goes_on()
        yield load
        load.over = True
