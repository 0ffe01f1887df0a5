"""The real gateway, in a test's own process and event loop, on a real socket."""

from __future__ import annotations

import asyncio
import json
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from forebay.config.load import plan_from
from forebay.gateway.deployment import MeteredDeployment
from forebay.gateway.serve import Server, listen

if TYPE_CHECKING:
    from collections.abc import AsyncIterator


@dataclass(frozen=True)
class RunningGateway:
    """A gateway that takes requests.

    Args:
        url: where it listens.
        deployment: what it runs; for looking into.
        server: what serves it.
    """

    url: str
    deployment: MeteredDeployment
    server: Server

    @property
    def base_url(self) -> str:
        return f"{self.url}/v1"

    @property
    def port(self) -> int:
        return int(self.url.rpartition(":")[2])

    def status(self) -> dict[str, Any]:
        return self.deployment.status()

    def stop_waiting(self) -> None:
        """Give up what is under way, as a stopped server does in the end."""
        for task in self.server.front.tasks:
            task.cancel()

    @property
    def inflight(self) -> int:
        """Slots in use, over all groups; they must agree with the endpoints' own counts."""
        now = self.status()
        groups = sum(group["inflight"] for group in now["groups"].values())
        assert groups == sum(endpoint["inflight"] for endpoint in now["endpoints"].values())
        return groups

    @property
    def queued(self) -> int:
        return sum(
            count
            for group in self.status()["groups"].values()
            for count in group["queued"].values()
        )

    @property
    def idle(self) -> bool:
        return self.inflight == 0 and self.queued == 0

    def breaker(self, model: str) -> dict[str, Any]:
        return self.endpoint(model)["breaker"]

    def endpoint(self, model: str) -> dict[str, Any]:
        return next(e for e in self.status()["endpoints"].values() if e["model"] == model)

    def counted(self, name: str, **labels: str) -> float:
        """A metric's value, summed over the labels that are not given."""
        return sum(
            sample.value
            for family in self.deployment.metrics.registry.collect()
            for sample in family.samples
            if sample.name == name and labels.items() <= sample.labels.items()
        )


@asynccontextmanager
async def running_gateway(config: dict[str, Any]) -> AsyncIterator[RunningGateway]:
    """Run the gateway on a configuration; what is under way at the end is cut off."""
    plan = plan_from(json.dumps(config), file="test.json", environ={})
    with listen("127.0.0.1", 0) as listening:
        async with MeteredDeployment(plan) as deployment:
            # `Server.serve` without its signal handlers, which a test's process keeps.
            server = Server(deployment)
            async with server.accepting(listening):
                url = f"http://127.0.0.1:{listening.getsockname()[1]}"
                try:
                    yield RunningGateway(url, deployment, server)
                finally:
                    tasks = server.front.tasks
                    for connection in tuple(server.front.connections):
                        connection.outgoing.abort()  # so that each request finds its client gone
                    await asyncio.gather(*tasks, return_exceptions=True)
