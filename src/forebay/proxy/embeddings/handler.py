"""Answers requests for embeddings."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from forebay.proxy.embeddings import answers, inputs
from forebay.proxy.embeddings.known import KnownEndpoint
from forebay.proxy.embeddings.pieces import Pieces
from forebay.proxy.embeddings.results import takes_part
from forebay.proxy.refusal import Refused, internal_error

if TYPE_CHECKING:
    from collections.abc import Mapping

    from forebay.core.model import ServiceClass
    from forebay.proxy.call import Call
    from forebay.proxy.deployment import Deployment
    from forebay.proxy.embeddings.inputs import Inputs
    from forebay.proxy.embeddings.results import Failures, Part
    from forebay.proxy.message import Request

_log = logging.getLogger(__name__)

_PATH = b"/v1/embeddings"
# They tell of one endpoint's answer as it was sent.
_OF_ONE_ANSWER = frozenset({b"content-encoding", b"content-length", b"content-md5", b"etag"})


class EmbeddingsHandler:
    """Handles ``POST /v1/embeddings``.

    Args:
        deployment: the endpoints and their admission.
    """

    def __init__(self, deployment: Deployment) -> None:
        self._deployment = deployment
        self._known = deployment.embedders
        self._of_model: dict[str, dict[str, KnownEndpoint]] = {}
        deployment.targets.on_change(self._follow)

    @staticmethod
    def takes(request: Request) -> bool:
        """Whether a request is one for it."""
        return request.path == _PATH and request.method == b"POST"

    def read(self, call: Call) -> Inputs:
        """Understand a request before it takes a slot.

        Raises:
            Refused: it cannot be served, whatever the endpoint.
        """
        takes_part(call.request)
        wanted = inputs.read(call.look, call.body)
        if wanted.are_tokens:
            for known in self._endpoints(call).values():
                if known.target.endpoint.fallback_of is None:
                    _see_that_it_takes_tokens(known)
        return wanted

    async def serve(self, call: Call, wanted: Inputs, service_class: ServiceClass) -> None:
        """Answer a request. Every refusal and failure becomes an answer."""
        pieces = Pieces(call, wanted, service_class, self._deployment, self._endpoints(call))
        try:
            results = await pieces.run()
            parts = results.in_order()
        except Refused as refused:
            await refused.answer(call.responder, call.own_headers())
        except Exception:  # noqa: BLE001 - whatever it is, the client hears of it
            _log.exception("%s: cannot be served", call.request_id.decode("latin-1"))
            await internal_error().answer(call.responder, call.own_headers())
        else:
            await _answer(call, parts, results.failures, pieces.queued_s)

    def _endpoints(self, call: Call) -> Mapping[str, KnownEndpoint]:
        """The endpoints that a request may go to, those that only stand in among them."""
        model = call.look.model
        assert model is not None  # noqa: S101 - the proxy has seen to it
        known = self._of_model.get(model)
        if known is None:
            known = self._of_model[model] = {}
            self._fill(model, known)
        return known

    def _fill(self, model: str, known: dict[str, KnownEndpoint]) -> None:
        """Put in who serves a model now; those that drain still may have a piece to begin."""
        for id_, target in self._deployment.targets.items():
            if any(served == model for served, _ in target.endpoint.serves):
                # One that stands in for several models has one batch limit, and is known once.
                known[id_] = self._known.setdefault(id_, KnownEndpoint(target))

    def _follow(self) -> None:
        """Endpoints have come, gone, or are reached in another way; requests are under way."""
        targets = self._deployment.targets
        for id_ in self._known.keys() - targets.keys():
            del self._known[id_]
        for id_, known in self._known.items():
            known.use(targets[id_])
        for model, endpoints in self._of_model.items():
            for id_ in endpoints.keys() - targets.keys():
                del endpoints[id_]
            self._fill(model, endpoints)


def _see_that_it_takes_tokens(known: KnownEndpoint) -> None:
    engine = known.target.engine
    if not engine.takes_token_ids:
        raise Refused(
            400,
            f"{known.target.name} (engine {engine.name}) is not known to take token ids, and those "
            "of another tokenizer would mean other words; send text "
            "(LangChain: OpenAIEmbeddings(check_embedding_ctx_length=False))",
            code="token_ids_not_supported",
            param="input",
        )


async def _answer(call: Call, parts: list[Part], failures: list[Failures], queued_s: float) -> None:
    first = parts[0].held
    understood = [(part.start, part.answer) for part in parts if part.answer is not None]
    if not understood:
        await first.pass_on(call.responder)
        return
    body = answers.merged(understood, failures)
    headers = [
        pair
        for pair in first.headers
        if pair[0] not in _OF_ONE_ANSWER and pair[0] != b"x-forebay-queued-ms"
    ]
    headers.append((b"x-forebay-queued-ms", b"%d" % (queued_s * 1000)))
    headers.append((b"content-length", b"%d" % len(body)))
    call.responder.start(first.status, headers)
    await call.responder.end(body)
