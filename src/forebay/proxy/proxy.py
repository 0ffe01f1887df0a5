"""The data plane: everything under ``/v1/``, governed by the model that it names.

A request passes through here once: look at it, ask for a slot, exchange with the endpoint, settle
the slot. Settling is tied to the way out of one `try`, so that no ending can leave it out. While
nothing of an answer has gone to the client, a failed exchange is followed by another one elsewhere.
"""

from __future__ import annotations

import asyncio
import logging
from itertools import count
from math import isfinite
from os import urandom
from typing import TYPE_CHECKING

from forebay.core.model import Ending, Outcome, ServiceClass, Ticket
from forebay.errors import Rejected
from forebay.proxy.call import TIMEOUT_HEADER, Call, Context
from forebay.proxy.embeddings import EmbeddingsHandler
from forebay.proxy.exchange import Exchange, Failed
from forebay.proxy.keepalive import KeepAlive
from forebay.proxy.look import decoded, look_at
from forebay.proxy.refusal import Refused, internal_error
from forebay.proxy.size import tokens_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    from forebay.config.settings import ForebaySettings
    from forebay.drivers.lease import Lease
    from forebay.proxy.caller import Caller
    from forebay.proxy.deployment import Deployment
    from forebay.proxy.look import Look
    from forebay.proxy.message import Request, Responder

_log = logging.getLogger(__name__)

_INTERACTIVE, _BEST_EFFORT = ServiceClass.INTERACTIVE, ServiceClass.BEST_EFFORT
_CANCELLED = Ending(Outcome.CANCELLED)
_AFFINITY_BYTES = 256
_SHOWN = 100  # characters of what a caller sent
_PRIORITIES = {
    b"interactive": _INTERACTIVE,
    b"best-effort": _BEST_EFFORT,
    b"best_effort": _BEST_EFFORT,
}


class Proxy:
    """Handles the requests of the data plane.

    Args:
        deployment: the endpoints and their admission.
    """

    def __init__(self, deployment: Deployment) -> None:
        self._deployment = deployment
        self._loop = asyncio.get_running_loop()
        self._use(deployment.settings)
        deployment.on_change(self._use)
        self._id_prefix = urandom(6).hex()
        self._id_count = count(1)
        self._embeddings = EmbeddingsHandler(deployment)

    def _use(self, settings: ForebaySettings) -> None:
        """Go by these settings with the next request."""
        self._settings = settings
        self._context = Context(self._loop, settings.timeouts, self._deployment.observer)

    async def handle(self, caller: Caller, request: Request, responder: Responder) -> None:
        """Answer one request. Every refusal and failure becomes an answer."""
        request_id = (
            request.fields.get(b"x-request-id")
            or f"{self._id_prefix}-{next(self._id_count)}".encode()
        )
        try:
            call = self._call(request, responder, request_id)
            service_class = self._service_class(call, caller)
            inputs = self._embeddings.read(call) if self._embeddings.takes(request) else None
        except Refused as refused:
            self._deployment.observer.rejected(None, refused.code)
            await refused.answer(responder, [(b"x-request-id", request_id)])
            return
        try:
            if inputs is not None:
                await self._embeddings.serve(call, inputs, service_class)
                return
            lease = await self._admitted(call, service_class)
            while lease is not None:
                lease = await self._serve(call, lease)
        finally:
            call.drop_keepalive()

    async def _admitted(self, call: Call, service_class: ServiceClass) -> Lease | None:
        """Wait for a slot; None if there is none and the client has been told."""
        deployment, model = self._deployment, call.look.model
        assert model is not None  # noqa: S101 - `_call` has refused it
        if call.look.stream and self._settings.sse_keepalive_s:
            call.keepalive = KeepAlive(
                call.responder, call.own_headers(), self._settings.sse_keepalive_s
            )
        ticket = Ticket(
            model,
            service_class,
            call.asked_at,
            call.deadline,
            0,
            len(call.body),
            tokens_of(call.request, call.body) if deployment.weighs(model) else 0,
            call.affinity,
        )
        deployment.retries.note(ticket)
        try:
            return await self._slot(ticket)
        except Rejected as rejected:
            await self._refuse(call, Refused.of(rejected))
            return None

    async def _slot(self, ticket: Ticket) -> Lease:
        """Wait for a slot, and count that.

        Raises:
            Rejected: there is none.
        """
        deployment = self._deployment
        try:
            lease = await deployment.limiter.slot(ticket)
        except Rejected as rejected:
            deployment.observer.rejected(ticket, rejected.reason)
            raise
        deployment.observer.admitted(ticket, lease.queued_s)
        return lease

    async def _serve(self, call: Call, lease: Lease) -> Lease | None:
        """Use the slot and give it back, whatever happens; return one to try again with, if any."""
        ending = _CANCELLED  # unless something else turns out
        refused: Refused | None = None
        exchange = Exchange(call, self._deployment.targets[lease.endpoint.id], lease)
        try:
            ending = await exchange.run()
        except Failed as failed:
            ending, refused = failed.ending, failed.refused
            _log.log(failed.level, "%s: %s", call.request_id.decode("latin-1"), refused)
        except Exception:  # noqa: BLE001 - whatever it is, the slot comes back and the client hears
            # Our own fault; it must not count against the endpoint, nor leak the slot.
            _log.exception("%s: cannot be served", call.request_id.decode("latin-1"))
            refused = internal_error()
        finally:
            # Before the client is told: one that asks again at once must find the slot free.
            lease.settle(ending)
            self._deployment.observer.ended(lease.endpoint, ending)
        if refused is None:
            return None
        elsewhere = None if exchange.begun else await self._elsewhere(call, lease, ending)
        if elsewhere is None:
            await self._refuse(call, refused)
        return elsewhere

    async def _elsewhere(self, call: Call, failed: Lease, ending: Ending) -> Lease | None:
        """Wait for a slot at another endpoint, if there is any use in it."""
        deployment = self._deployment
        before, outcome = failed.grant.ticket, ending.outcome
        ticket = deployment.retries.again(
            before, failed.endpoint.id, outcome, call.clock(), probe=failed.is_probe
        )
        if ticket is None:
            return None
        deployment.observer.retried(ticket, outcome)
        call.attempts += 1
        try:
            return await self._slot(ticket)
        except Rejected:
            return None  # why the first attempt failed is what the client should know

    async def _refuse(self, call: Call, refused: Refused) -> None:
        await call.stop_keepalive()
        await refused.answer(call.responder, call.own_headers())

    # -- what a request asks for -----------------------------------------------------------------

    def _call(self, request: Request, responder: Responder, request_id: bytes) -> Call:
        body = decoded(request, self._settings.body_limit_bytes)
        look = self._named(look_at(request, body))
        timeout_s = self._timeout_s(request)
        if timeout_s is None:
            timeout_s = self._settings.timeouts.request_s
        now = self._loop.time()
        call = Call(request, responder, look, body, request_id, now, now + timeout_s, self._context)
        call.affinity = _affinity(request)
        if call.affinity is None and self._deployment.keeps_together(look.model):
            call.affinity = look.affinity
        return call

    def _named(self, look: Look) -> Look:
        """The look with a model that is served here.

        Raises:
            Refused: no model is named, or one that is not served.
        """
        models = self._deployment.plan.models
        if look.model is None:
            raise Refused(
                400, f"name a model; configured: {_list(models)}", code="no_model", param="model"
            )
        if look.model not in models:
            raise Refused(
                404,
                f"the model {look.model[:_SHOWN]!r} is not configured; configured: {_list(models)}",
                code="model_not_found",
                param="model",
            )
        return look

    @staticmethod
    def _timeout_s(request: Request) -> float | None:
        text = request.fields.get(TIMEOUT_HEADER)
        if text is None:
            return None
        try:
            seconds = -1.0 if b"_" in text else float(text)  # Python's own digits' separator
        except ValueError:
            seconds = -1.0
        if not (isfinite(seconds) and seconds > 0):
            raise Refused(
                400,
                f"x-request-timeout is {text.decode('latin-1')!r}; give seconds above 0",
                code="invalid_timeout",
                param="x-request-timeout",
            )
        return seconds

    def _service_class(self, call: Call, caller: Caller) -> ServiceClass:
        """The class that the request asks for, as far as it may."""
        assert call.look.model is not None  # noqa: S101 - `_named` has seen to it
        own = self._deployment.service_class(call.look.model)
        header = call.request.fields.get(b"x-forebay-priority")
        if header is not None:
            asked = _PRIORITIES.get(header.strip().lower())
            if asked is None:
                raise Refused(
                    400,
                    f"x-forebay-priority is {header.decode('latin-1')!r}; "
                    "give 'interactive' or 'best-effort'",
                    code="invalid_priority",
                    param="x-forebay-priority",
                )
        else:
            asked = _BEST_EFFORT if call.look.service_tier == "flex" else own
        if asked is _INTERACTIVE and own is _BEST_EFFORT and not caller.may_raise:
            raise Refused(
                403,
                f"{call.look.model!r} is best-effort, and this caller may not raise its requests",
                code="may_not_raise",
                param="x-forebay-priority",
            )
        return asked


def _affinity(request: Request) -> str | None:
    """What the request has in common with others that should run where it does.

    Raises:
        Refused: it is too long to be remembered.
    """
    key = request.fields.get(b"x-forebay-affinity")
    if not key:
        return None
    if len(key) > _AFFINITY_BYTES:
        raise Refused(
            400,
            f"x-forebay-affinity has {len(key)} bytes; give at most {_AFFINITY_BYTES}",
            code="invalid_affinity",
            param="x-forebay-affinity",
        )
    return key.decode("latin-1")


def _list(models: Iterable[str]) -> str:
    return ", ".join(repr(name) for name in sorted(models))
