"""An emulated host in this process: two engines on two ports of one GPU, behind real HTTP."""

from __future__ import annotations

import random
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from aiohttp import web

from forebay.emulator.chat_api import ChatApi
from forebay.emulator.control_api import ControlApi
from forebay.emulator.door import Door
from forebay.emulator.embedding_api import EmbeddingApi
from forebay.emulator.faults import EngineName, Faults
from forebay.emulator.gpu import Gpu
from forebay.emulator.record import Record
from forebay.emulator.runner import GpuRunner
from forebay.emulator.spec import EmulatorSpec
from forebay.errors import ForebayError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from forebay.emulator.exchange import Handler

_CHAT_BODY_BYTES = 64 * 2**20


@dataclass(frozen=True, slots=True)
class Host:
    """A running emulated host.

    Args:
        spec: what it is.
        chat_url: base URL of the chat engine's OpenAI API, ending in ``/v1``.
        embed_url: base URL of the embedding engine's OpenAI API, ending in ``/v1``.
        faults: what goes wrong now; add to it and clear it at will.
    """

    spec: EmulatorSpec
    chat_url: str
    embed_url: str
    faults: Faults
    _runner: GpuRunner
    _record: Record

    @property
    def control_url(self) -> str:
        """Where ``/emulator/faults``, ``/emulator/record`` and ``/emulator/spec`` are."""
        return self.chat_url.removesuffix("/v1")

    def record(self) -> dict[str, Any]:
        """Return what ``GET /emulator/record`` returns."""
        self._runner.catch_up()
        return self._record.snapshot()

    def timeline(self, last: int) -> list[dict[str, Any]]:
        """Return the latest changes of the in-flight counts, oldest first."""
        return self._record.timeline(last)

    def reset_record(self) -> None:
        """Begin the record again."""
        self._runner.catch_up()
        self._record.reset()

    def urls(self) -> dict[str, str]:
        """Return what a client in another process needs to know."""
        return {
            "chat_url": self.chat_url,
            "chat_model": self.spec.chat.model,
            "embed_url": self.embed_url,
            "embed_model": self.spec.embedding.model,
            "control_url": self.control_url,
        }


class Emulator:
    """A host that can be started.

    Args:
        spec: what it is.
    """

    def __init__(self, spec: EmulatorSpec | None = None) -> None:
        self.spec = spec or EmulatorSpec()

    @asynccontextmanager
    async def running(self, host: str = "127.0.0.1", port: int = 0) -> AsyncIterator[Host]:
        """Serve until the block is left.

        Args:
            host: address to listen on.
            port: the chat engine's port; the embedding engine gets the next one. 0: free ports.

        Raises:
            ForebayError: a port cannot be listened on.
        """
        faults = Faults(self.spec.faults, random.Random(self.spec.seed))  # noqa: S311 - repeatable
        runner = GpuRunner(Gpu(self.spec, faults.slowdown))
        record = Record(runner.gpu, runner.now, self.spec.timeline_length)
        control = ControlApi(self.spec, runner, faults, record)
        chat = ChatApi(self.spec, runner)
        chat_door = Door(EngineName.CHAT, chat.error_body, faults, record)
        chat_routes: dict[str, Handler] = {
            "POST /v1/chat/completions": chat.chat_completions,
            "POST /v1/completions": chat.completions,
            "GET /v1/models": chat.models,
            "GET /health": chat.health,
            "GET /metrics": chat.metrics,
        }
        embedding = EmbeddingApi(self.spec, runner)
        embedding_door = Door(EngineName.EMBEDDING, embedding.error_body, faults, record)
        embedding_routes: dict[str, Handler] = {
            "POST /v1/embeddings": embedding.embeddings,
            "POST /embed": embedding.embed,
            "POST /rerank": embedding.rerank,
            "GET /v1/models": embedding.models,
            "GET /info": embedding.info,
            "GET /health": embedding.health,
            "GET /metrics": embedding.metrics,
        }
        async with AsyncExitStack() as stack:
            stack.callback(runner.close)
            urls = []
            for offset, app in enumerate(
                (
                    chat_door.application(chat_routes, _CHAT_BODY_BYTES),
                    embedding_door.application(
                        embedding_routes, self.spec.embedding.max_body_bytes
                    ),
                )
            ):
                app.add_routes(control.routes())
                served = self._serving(app, host, port and port + offset)
                urls.append(await stack.enter_async_context(served))
            yield Host(self.spec, f"{urls[0]}/v1", f"{urls[1]}/v1", faults, runner, record)

    @asynccontextmanager
    async def _serving(self, app: web.Application, host: str, port: int) -> AsyncIterator[str]:
        runner = web.AppRunner(
            app,
            access_log=None,
            handler_cancellation=True,  # a handler ends when its client goes away
            keepalive_timeout=self.spec.keepalive_s,
            shutdown_timeout=0.1,  # requests that hang on purpose never end by themselves
        )
        await runner.setup()
        try:
            await self._listen(runner, host, port)
            name = f"[{host}]" if ":" in host else host
            yield f"http://{name}:{runner.addresses[0][1]}"
        finally:
            await runner.cleanup()

    @staticmethod
    async def _listen(runner: web.AppRunner, host: str, port: int) -> None:
        try:
            await web.TCPSite(runner, host, port).start()
        except OSError as error:
            raise ForebayError(
                f"cannot listen on {host} port {port}: {error.strerror}; choose another --port "
                "(embeddings take the next one)"
            ) from error
