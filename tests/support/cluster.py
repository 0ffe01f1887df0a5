"""The part of a Kubernetes API server that serves EndpointSlices, over real HTTP on loopback."""

from __future__ import annotations

import asyncio
import json
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from aiohttp import web

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

PATH = "/apis/discovery.k8s.io/v1/namespaces/ml/endpointslices"
UID = "6a4dcb0e-6dc6-4a41-a7d2-7a1c3f2f0a11"


def endpoint(address: str, **conditions: bool) -> dict[str, Any]:
    """One endpoint as the API server writes it."""
    full = {"ready": True, "serving": True, "terminating": False, **conditions}
    return {
        "addresses": [address],
        "conditions": full,
        "nodeName": "node-1",
        "targetRef": {"kind": "Pod", "namespace": "ml", "name": f"vllm-{address}", "uid": UID},
    }


def endpoint_slice(
    *endpoints: dict[str, Any],
    name: str = "vllm-abcde",
    family: str = "IPv4",
    ports: tuple[tuple[str, int], ...] = (("http", 8000),),
) -> dict[str, Any]:
    """One slice as the API server writes it, without its version."""
    return {
        "metadata": {
            "name": name,
            "generateName": "vllm-",
            "namespace": "ml",
            "labels": {
                "endpointslice.kubernetes.io/managed-by": "endpointslice-controller.k8s.io",
                "kubernetes.io/service-name": "vllm",
            },
            "ownerReferences": [{"apiVersion": "v1", "kind": "Service", "name": "vllm"}],
        },
        "addressType": family,
        "endpoints": list(endpoints) or None,
        "ports": [{"name": name, "port": port, "protocol": "TCP"} for name, port in ports],
    }


class Cluster:
    """Holds slices; lists and watches tell of them.

    Attributes:
        token: what callers must present, if anything.
        status: lists are refused with it, if it is not 200.
        lists: how many lists were served.
        watched_from: the version of every watch.
    """

    def __init__(self) -> None:
        self.token: str | None = None
        self.status = 200
        self.lists = 0
        self.watched_from: list[str] = []
        self._slices: dict[str, dict[str, Any]] = {}
        self._version = 1000
        self._watches: set[asyncio.Queue[bytes | None]] = set()
        self._gone_below = 0
        self.url = ""

    # -- what a test does ------------------------------------------------------------------------

    def put(self, *slices: dict[str, Any]) -> None:
        for each in slices:
            name = each["metadata"]["name"]
            kind = "MODIFIED" if name in self._slices else "ADDED"
            self._slices[name] = self._versioned(each)
            self._tell(kind, self._slices[name])

    def delete(self, name: str) -> None:
        self._tell("DELETED", self._versioned(self._slices.pop(name)))

    def bookmark(self) -> str:
        """Move the version without a change."""
        item = self._versioned({"metadata": {"creationTimestamp": None}})
        self._tell("BOOKMARK", item)
        return str(self._version)

    def expire(self, *, as_event: bool) -> None:
        """Forget the history; watches hear of it, or end and are told when they come back."""
        self._version += 1
        self._gone_below = self._version
        if as_event:
            self._tell("ERROR", {"kind": "Status", "code": 410, "reason": "Expired"})
        self.end_watches()

    def end_watches(self) -> None:
        for queue in self._watches:
            queue.put_nowait(None)

    @property
    def watches(self) -> int:
        return len(self._watches)

    # -- what it serves --------------------------------------------------------------------------

    async def serve(self, request: web.Request) -> web.StreamResponse:
        if self.token and request.headers.get("authorization") != f"Bearer {self.token}":
            return self._refusal(401)
        if self.status != 200:
            return self._refusal(self.status)
        assert request.query["labelSelector"] == "kubernetes.io/service-name=vllm"
        if "watch" in request.query:
            return await self._watch(request)
        self.lists += 1
        return web.json_response(
            {
                "kind": "EndpointSliceList",
                "apiVersion": "discovery.k8s.io/v1",
                "metadata": {"resourceVersion": str(self._version)},
                "items": list(self._slices.values()),
            }
        )

    async def _watch(self, request: web.Request) -> web.StreamResponse:
        version = request.query["resourceVersion"]
        self.watched_from.append(version)
        if int(version) < self._gone_below:
            return self._refusal(410)
        response = web.StreamResponse(headers={"content-type": "application/json"})
        queue: asyncio.Queue[bytes | None] = asyncio.Queue()
        self._watches.add(queue)
        try:
            await response.prepare(request)
            while (line := await queue.get()) is not None:
                half = len(line) // 2
                await response.write(line[:half])  # events come in pieces
                await response.write(line[half:])
        finally:
            self._watches.discard(queue)
        return response

    def _versioned(self, item: dict[str, Any]) -> dict[str, Any]:
        self._version += 1
        return {**item, "metadata": {**item["metadata"], "resourceVersion": str(self._version)}}

    def _tell(self, kind: str, item: dict[str, Any]) -> None:
        line = json.dumps({"type": kind, "object": item}).encode() + b"\n"
        for queue in self._watches:
            queue.put_nowait(line)

    @staticmethod
    def _refusal(status: int) -> web.Response:
        return web.json_response({"kind": "Status", "code": status}, status=status)


@asynccontextmanager
async def cluster() -> AsyncIterator[Cluster]:
    served = Cluster()
    app = web.Application()
    app.router.add_get(PATH, served.serve)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    try:
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        served.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
        yield served
    finally:
        served.end_watches()
        await runner.cleanup()
