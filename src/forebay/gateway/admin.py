"""Everything that is not the data plane: health, metrics, status, the list of models."""

from __future__ import annotations

import asyncio
from http import HTTPStatus
from typing import TYPE_CHECKING

from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest
from starlette.applications import Starlette
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from forebay.errors import Rejected
from forebay.proxy.models import Models
from forebay.proxy.refusal import Refused, internal_error

if TYPE_CHECKING:
    from starlette.requests import Request

    from forebay.gateway.deployment import MeteredDeployment
    from forebay.gateway.keys import Keys


def admin_app(deployment: MeteredDeployment, keys: Keys) -> Starlette:
    """The admin pages as an ASGI application."""
    pages = Admin(deployment, keys)
    return Starlette(
        routes=[
            Route("/healthz", pages.healthz),
            Route("/readyz", pages.readyz),
            Route("/metrics", pages.metrics),
            Route("/forebay/status", pages.status),
            Route("/forebay/embedding-endpoint-status", pages.embedding_endpoint_status),
            Route("/v1/models", pages.models),
            Route("/v1/models/{model:path}", pages.model),
        ],
        exception_handlers={
            404: _not_found,
            405: _not_found,
            Refused: _refused,
            Exception: _failed,
        },
    )


class Admin:
    """The pages."""

    def __init__(self, deployment: MeteredDeployment, keys: Keys) -> None:
        self._deployment = deployment
        self._keys = keys
        self._models = Models(deployment)

    async def healthz(self, request: Request) -> Response:
        """The process is alive. Open to everybody."""
        del request
        return JSONResponse({"status": "ok"})

    async def readyz(self, request: Request) -> Response:
        """Some endpoint takes requests, and may. Open to everybody."""
        del request
        now = asyncio.get_running_loop().time()
        deployment = self._deployment
        states = [s for s in deployment.limiter.admission.states.values() if not s.draining]
        broken = {state.endpoint.id for state in states if state.broken(now)}
        fitness = deployment.identity.fitness()
        unfit = {(model, endpoint.id) for model, endpoint, is_fit in fitness if not is_fit}
        ready = any(
            (model, state.endpoint.id) not in unfit
            for state in states
            if state.endpoint.id not in broken
            for model, _ in state.endpoint.serves
        )
        code = HTTPStatus.OK if ready else HTTPStatus.SERVICE_UNAVAILABLE
        said = {
            "ready": ready,
            "unavailable": sorted(broken),
            "unfit": sorted({id_ for _, id_ in unfit}),
        }
        return JSONResponse(said, code)

    async def metrics(self, request: Request) -> Response:
        """Prometheus metrics."""
        self._keys.admin(request.headers.raw)
        return Response(
            generate_latest(self._deployment.metrics.registry), media_type=CONTENT_TYPE_LATEST
        )

    async def status(self, request: Request) -> Response:
        """Groups, endpoints, models and configuration, at one instant."""
        self._keys.admin(request.headers.raw)
        return JSONResponse(self._deployment.status())

    async def embedding_endpoint_status(self, request: Request) -> Response:
        """Which endpoint embeds now, and how often that changed."""
        self._keys.admin(request.headers.raw)
        try:
            status = self._deployment.embedding_endpoint_status(request.query_params.get("model"))
        except Rejected as rejected:
            raise Refused.of(rejected) from rejected
        return JSONResponse(status)

    async def models(self, request: Request) -> Response:
        """Every model once, as OpenAI lists them."""
        self._keys.caller(request.headers.raw)
        return JSONResponse(await self._models.listed())

    async def model(self, request: Request) -> Response:
        """One model."""
        self._keys.caller(request.headers.raw)
        return JSONResponse(await self._models.entry(request.path_params["model"]))


async def _not_found(request: Request, error: Exception) -> Response:
    status_code = getattr(error, "status_code", 404)
    is_missing = status_code == HTTPStatus.NOT_FOUND
    what = "no such page; the API is under /v1" if is_missing else "this method is not allowed"
    refused = Refused(status_code, f"{request.method} {request.url.path}: {what}", code="not_found")
    return await _refused(request, refused)


async def _refused(request: Request, error: Exception) -> Response:
    del request
    assert isinstance(error, Refused)  # noqa: S101 - registered for nothing else
    return Response(error.body, error.status, media_type="application/json")


async def _failed(request: Request, error: Exception) -> Response:
    """Starlette raises it again behind this answer, and `gateway.asgi` logs it."""
    del error
    return await _refused(request, internal_error())
