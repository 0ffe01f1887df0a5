"""``/v1/models``: every configured model once, with what its server says of it."""

from __future__ import annotations

import asyncio
from math import inf
from typing import TYPE_CHECKING, Any

from forebay.adapters.engines.reply import as_dict, as_list
from forebay.errors import ScrapeFailed
from forebay.proxy.refusal import Refused

if TYPE_CHECKING:
    from collections.abc import Mapping

    from forebay.proxy.deployment import Deployment
    from forebay.proxy.target import Target

_CREATED = 0  # unknown, in the field that OpenAI's clients require


# So that clients that ask again and again are no load on the servers.
_FRESH_S = 5.0


class Models:
    """The merged list, asked of the servers at most every few seconds.

    Args:
        deployment: whose servers.
    """

    def __init__(self, deployment: Deployment) -> None:
        self._deployment = deployment
        self._clock = asyncio.get_running_loop().time
        self._asking = asyncio.Lock()
        self._listed: dict[str, Any] = {}
        self._fresh_until = -inf

    async def listed(self) -> dict[str, Any]:
        """The list, in OpenAI's form."""
        async with self._asking:
            if self._clock() >= self._fresh_until:
                self._listed = await _model_list(self._deployment)
                self._fresh_until = self._clock() + _FRESH_S
            return self._listed

    async def entry(self, model: str) -> dict[str, Any]:
        """One model of the list.

        Raises:
            Refused: it is not configured.
        """
        entries: list[dict[str, Any]] = (await self.listed())["data"]
        for entry in entries:
            if entry["id"] == model:
                return entry
        raise Refused(404, f"the model {model!r} is not configured", code="model_not_found")


async def _model_list(deployment: Deployment) -> dict[str, Any]:
    """Ask every server. One that does not answer costs its details, not its model."""
    # A fallback is asked for its model under another name, if under any.
    merged: dict[str, Any] = {model: {} for model in deployment.plan.models}
    regular = [
        target
        for target in deployment.targets.values()
        if target.endpoint.fallback_of is None and target.endpoint.model in merged
    ]
    described = await asyncio.gather(*(_described(target) for target in regular))
    for target, details in zip(regular, described, strict=True):
        merged[target.endpoint.model].update(details)
    return {
        "object": "list",
        "data": [
            {"created": _CREATED, "owned_by": "forebay", **details, "id": model, "object": "model"}
            for model, details in merged.items()
        ],
    }


async def _described(target: Target) -> Mapping[str, Any]:
    try:
        reply = await target.fetch(target.models_url)
    except ScrapeFailed:
        return {}
    entries = [as_dict(entry) for entry in as_list(as_dict(reply.json()).get("data"))]
    named = [entry for entry in entries if entry.get("id") == target.endpoint.model]
    return named[0] if named else {}
