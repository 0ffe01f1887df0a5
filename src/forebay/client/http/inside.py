"""The data plane, for requests that come from within the process."""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING
from urllib.parse import unquote_to_bytes

import msgspec

from forebay.client.home import running_loop
from forebay.client.http.reply import BrokenOff, Reply
from forebay.errors import UsageError
from forebay.proxy.caller import Caller
from forebay.proxy.look import check_path, too_large
from forebay.proxy.models import Models
from forebay.proxy.proxy import Proxy
from forebay.proxy.refusal import Refused, internal_error

if TYPE_CHECKING:
    from forebay.client.home import Home
    from forebay.proxy.deployment import Deployment
    from forebay.proxy.message import Request

_log = logging.getLogger(__name__)

_API, _MODELS = b"/v1/", b"/v1/models"
_OWN = Caller("this process", may_raise=True, admin=True)


class Sent:
    """A request that is under way.

    Args:
        loop: in which it is served.

    Attributes:
        reply: its answer.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.reply = Reply(loop)
        self._loop = loop
        self._task: asyncio.Task[None] | None = None
        self._stopped = False

    def stop(self) -> None:
        """Nobody wants its answer any more; for any thread, and for finalizers."""
        with suppress(RuntimeError):  # the loop is closed, and all ended with it
            self._loop.call_soon_threadsafe(self._stop)

    def served_by(self, task: asyncio.Task[None]) -> None:
        """It is served by this task from now on."""
        self._task = task
        if self._stopped:
            task.cancel()

    def _stop(self) -> None:
        self._stopped = True
        if self._task is not None and not self.reply.ended:
            self._task.cancel()


class Inside:
    """Serves the requests of this process as the gateway serves those of its clients.

    Args:
        deployment: the endpoints and their admission.
        home: where the session was opened.
    """

    def __init__(self, deployment: Deployment, home: Home) -> None:
        self._deployment = deployment
        self._proxy = Proxy(deployment)
        self._models = Models(deployment)
        self._home = home
        self._tasks: set[asyncio.Task[None]] = set()

    def send(self, request: Request) -> Sent:
        """Send a request, from any thread.

        Raises:
            UsageError: the session is closed, or this is a forked child.
        """
        self._home.check()
        sent = Sent(self._home.loop)
        self._home.loop.call_soon_threadsafe(self._begin, sent, request)
        return sent

    def see_that_it_may_block(self) -> None:
        """See that this thread may wait for an answer.

        Raises:
            UsageError: the answer is made by the loop that runs in it.
        """
        if running_loop() is self._home.loop:
            raise UsageError(
                "this would block the event loop that serves the request: use "
                "`fb.http_client()` here, or open the session with `forebay.open_sync`"
            )

    async def aclose(self) -> None:
        """Break off what is under way."""
        tasks = tuple(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _begin(self, sent: Sent, request: Request) -> None:
        if self._home.closed:
            sent.reply.break_off(BrokenOff("the session was closed"))
            return
        task = self._home.loop.create_task(self._serve(request, sent.reply))
        self._tasks.add(task)
        task.add_done_callback(partial(self._served, sent.reply))
        sent.served_by(task)

    def _served(self, reply: Reply, task: asyncio.Task[None]) -> None:
        """A task has ended, perhaps before its first step."""
        self._tasks.discard(task)
        closed = self._home.closed
        why = "the session was closed" if closed else "the request was cancelled"
        reply.break_off(BrokenOff(why))

    async def _serve(self, request: Request, reply: Reply) -> None:
        try:
            await self._handle(request, reply)
        except Refused as refused:
            await refused.answer(reply, [])
        except Exception:  # noqa: BLE001 - whatever it is, it is logged and the caller hears
            _log.exception("%r %r: cannot be served", request.method, request.path)
            await internal_error().answer(reply, [])

    async def _handle(self, request: Request, reply: Reply) -> None:
        """Do what the gateway's front does, for callers that need no key.

        Raises:
            Refused: the request is not one to the API.
        """
        limit = self._deployment.settings.body_limit_bytes
        if len(request.body) > limit:
            raise too_large(limit)
        path = unquote_to_bytes(request.path)
        if path == _MODELS or path.startswith(_MODELS + b"/"):
            if request.method not in {b"GET", b"HEAD"}:
                raise Refused(405, "this method is not allowed", code="not_found")
            name = path.removeprefix(_MODELS).removeprefix(b"/").decode("utf-8", "replace")
            body = msgspec.json.encode(
                await (self._models.entry(name) if name else self._models.listed())
            )
            length = (b"content-length", b"%d" % len(body))
            reply.start(200, [(b"content-type", b"application/json"), length])
            await reply.end(body)
            return
        if not path.startswith(_API):
            raise Refused(
                404,
                f"{path.decode('utf-8', 'replace')}: no such page; the API is under /v1, so give "
                "a base URL that ends with it (http://forebay/v1)",
                code="not_found",
            )
        check_path(path)
        await self._proxy.handle(_OWN, request, reply)
