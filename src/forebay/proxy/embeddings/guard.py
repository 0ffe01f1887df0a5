"""Sees to it that vectors of another model never reach a caller: see `forebay.core.identity`.

A model with several endpoints, or with a stand-in, has a guard. Before an endpoint's first vectors
are used, it embeds one text in the slot that it was given for them, and the result is compared with
the model's reference. That is taken when the gateway starts, or with the first request that one of
the model's regular endpoints serves.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any

import msgspec

from forebay.core.identity import Identity, Likeness
from forebay.core.model import Ending, Outcome
from forebay.proxy.call import TIMEOUT_HEADER, Call
from forebay.proxy.embeddings import answers
from forebay.proxy.embeddings.findings import NO_REFERENCE, Findings
from forebay.proxy.embeddings.held import HeldAnswer, InvalidAnswer, Room
from forebay.proxy.embeddings.results import excerpt
from forebay.proxy.exchange import Exchange
from forebay.proxy.failure import Failed
from forebay.proxy.look import Look
from forebay.proxy.message import Request
from forebay.proxy.refusal import Refused

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

    from forebay.config.settings import IdentitySettings
    from forebay.core.identity import Verdict
    from forebay.drivers.lease import Lease
    from forebay.proxy.target import Target

# Long enough that models differ in it, short enough that none cuts it.
PROBE = "A reservoir stores the water of wet years for the fields of dry ones."
_CONFIGURATION = Ending(Outcome.CONFIGURATION)
_vector = msgspec.json.Decoder(list[float])


class Incomparable(Exception):  # noqa: N818 - why, to go into a message
    """An endpoint that serves, but gives no vector of the probe."""


class Unfit(Failed):
    """An endpoint must not be used for the model; `Findings` has logged why, once."""

    def __init__(self, refused: Refused) -> None:
        super().__init__(refused, _CONFIGURATION)

    @property
    def level(self) -> int:
        """Every request to the model meets it."""
        return logging.DEBUG


class ModelGuard:
    """Compares the endpoints of one model.

    Args:
        model: its id.
        settings: how much alike is alike, and what to do without a reference.
        clock: seconds, monotonic.

    Attributes:
        identity: what is known by now.
        findings: what the log has been told of it.
    """

    def __init__(self, model: str, settings: IdentitySettings, clock: Callable[[], float]) -> None:
        self.model = model
        self.identity = Identity(settings.min_cosine)
        self._allow_unverified = settings.allow_unverified
        self._clock = clock
        self.findings = Findings(model)
        # By endpoint: comparisons that are under way, and what comes of them.
        self._under_way: dict[str, asyncio.Future[Verdict | Failed]] = {}

    @property
    def unfit(self) -> frozenset[str]:
        """Ids of the endpoints that must not be used."""
        return self.identity.unfit(self._clock())

    def why_unfit(self, endpoint_id: str, *, stands_in: bool) -> str | None:
        """Why an endpoint would not be used, as far as is known; None: it would be."""
        verdict = self.identity.last(endpoint_id)
        if verdict is not None:
            return None if verdict.same else verdict.reason
        if stands_in and self.identity.reference is None and not self._allow_unverified:
            return NO_REFERENCE
        return None

    def keep(self, endpoint_ids: Collection[str]) -> None:
        """Forget all other endpoints."""
        self.identity.keep(endpoint_ids)
        self.findings.keep(endpoint_ids)

    async def check(self, call: Call, target: Target, lease: Lease) -> None:
        """See that an endpoint's vectors are the model's.

        Args:
            call: for which they are to be used.
            target: the endpoint.
            lease: the slot that the call has there.

        Raises:
            Failed: they are not, or that cannot be told; the endpoint must not be used.
        """
        verdict = self.identity.verdict(target.id, self._clock())
        if verdict is None:
            if self.identity.reference is None and self._stands_in(target):
                self._go_without_reference(target)
                return
            verdict = await self._compared(call, target, lease)
        if not verdict.same:
            self.findings.found(target.id, verdict)  # of another outage, perhaps
            raise Unfit(_refused(self.model, target, verdict))

    async def _compared(self, call: Call, target: Target, lease: Lease) -> Verdict:
        """Compare an endpoint, or wait for what another request finds out that does."""
        try:
            async with asyncio.timeout_at(call.deadline):
                while (under_way := self._under_way.get(target.id)) is not None:
                    await asyncio.wait([under_way])
                    if not under_way.cancelled():
                        return _found(under_way.result())
                return await self._compare(call, target, lease)
        except TimeoutError:
            message = f"{target.name} was not compared before the request's deadline"
            raise Failed(
                Refused(504, message, code="deadline"), Ending(Outcome.CANCELLED)
            ) from None

    async def _compare(self, call: Call, target: Target, lease: Lease) -> Verdict:
        """Compare an endpoint, and let those that wait for it know."""
        found = self._under_way[target.id] = asyncio.get_running_loop().create_future()
        try:
            verdict = await self._judged(call, target, lease)
            found.set_result(verdict)
        except Failed as failed:
            if failed.ending.outcome is not Outcome.CANCELLED:  # that was its own time, too short
                found.set_result(failed)
            raise
        finally:
            found.cancel()  # unless there is a result: then one of the others compares it
            del self._under_way[target.id]
        return verdict

    def _stands_in(self, target: Target) -> bool:
        return (self.model, False) not in target.endpoint.serves

    def _go_without_reference(self, target: Target) -> None:
        """Let a stand-in serve that nothing can be compared with, if that is allowed."""
        self.findings.unverified(target.id, used=self._allow_unverified)
        if self._allow_unverified:
            return
        message = (
            f"{target.name} stands in for {self.model!r}, and no regular endpoint of that has "
            "answered since the gateway started, with which its vectors could be compared; bring "
            "one back, or set forebay.identity.allow_unverified"
        )
        raise Unfit(Refused(503, message, code="identity_unverified"))

    async def _judged(self, call: Call, target: Target, lease: Lease) -> Verdict:
        identity, clock = self.identity, self._clock
        try:
            vector = await self._embedded(call, target, lease)
        except Incomparable as why:
            decide = identity.reject if self._stands_in(target) else identity.trust
            verdict = decide(target.id, str(why), clock())
        else:
            verdict = identity.judge(target.id, vector, clock())
        self.findings.found(target.id, verdict)
        return verdict

    async def _embedded(self, call: Call, target: Target, lease: Lease) -> Sequence[float]:
        """The endpoint's vector of the probe.

        Raises:
            Failed: it failed.
            Incomparable: it answered, but gave none.
        """
        held = HeldAnswer(Room())
        await Exchange(_probing(call, self.model, held), target, lease).run()
        if not held.ok:
            raise Incomparable(f"it answered {held.status}: {excerpt(b''.join(held.pieces))}")
        try:
            answer = answers.read(held.content(), 1, "float")
            return _vector.decode(answer.items[0]["embedding"])
        except (InvalidAnswer, msgspec.MsgspecError) as invalid:
            raise Incomparable(str(invalid)) from invalid

    def status(self, endpoints: Sequence[str]) -> dict[str, Any]:
        """What is known, as plain values."""
        identity = self.identity
        verdicts = {id_: identity.last(id_) for id_ in endpoints}
        return {
            "reference": identity.reference.endpoint_id if identity.reference else None,
            "endpoints": {id_: _verdict_json(verdict) for id_, verdict in verdicts.items()},
        }


def _found(result: Verdict | Failed) -> Verdict:
    """What another request found out.

    Raises:
        Failed: the endpoint failed there; it would be no use to ask it again for each who waited.
    """
    if isinstance(result, Failed):
        raise Failed(result.refused, result.ending)
    return result


def _probing(call: Call, model: str, held: HeldAnswer) -> Call:
    """A request for one text, in the time that `call` has."""
    body = msgspec.json.encode({"model": model, "input": [PROBE]})
    headers = [(b"content-type", b"application/json")]
    if not call.deadline_is_default:
        headers.append((TIMEOUT_HEADER, call.request.fields[TIMEOUT_HEADER]))
    return Call(
        Request(b"POST", b"/v1/embeddings", b"", headers, body),
        held,
        Look(model=model),
        body,
        call.request_id,
        call.asked_at,
        call.deadline,
        call.context,
    )


def _refused(model: str, target: Target, verdict: Verdict) -> Refused:
    if verdict.likeness is Likeness.INCOMPARABLE:
        message = f"{target.name} cannot be compared for {model!r}: {verdict.reason}"
        return Refused(502, message, code="identity_unverified")
    message = (
        f"{target.name} gives other vectors than {model!r} has ({verdict.reason}); it is not used. "
        "See that it serves the same model with the same pooling and normalisation"
    )
    return Refused(502, message, code="identity_mismatch")


def _verdict_json(verdict: Verdict | None) -> dict[str, Any]:
    if verdict is None:
        return {"state": "unverified", "cosine": None, "reason": None}
    cosine = None if verdict.cosine is None else round(verdict.cosine, 4)
    return {"state": verdict.likeness, "cosine": cosine, "reason": verdict.reason}
