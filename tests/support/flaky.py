"""An embedding server that breaks and comes back as a test tells it to, and a fallback for it."""

from __future__ import annotations

import asyncio
import json
from typing import Any

from support.embedder import embeddings
from support.http_responses import json_response


class Flaky:
    """Answers with the right vectors while its mode is ``ok``.

    Attributes:
        mode: ``ok``; ``reset``: it resets every connection; ``hang``: it never answers; or the
            bytes that it answers with.
        lets_go: set it, and who hangs is reset.
        requests: the JSON of each request that reached it.
    """

    def __init__(self, serve: Any) -> None:
        self.mode: str | bytes = "ok"
        self.requests: list[dict[str, Any]] = []
        self.lets_go = asyncio.Event()
        self.url = serve(self._script).url

    async def _script(self, peer: Any) -> None:
        while request := await peer.request():
            head, _, body = request.partition(b"\r\n\r\n")
            if not head.startswith(b"POST"):
                await peer.send(json_response({}, status="404 Not Found"))
                continue
            self.requests.append(json.loads(body))
            if self.mode == "reset":
                peer.reset()
                return
            if self.mode == "hang":
                await self.lets_go.wait()
                peer.reset()
                return
            whole = embeddings(self.requests[-1]) if self.mode == "ok" else self.mode
            await peer.send(whole)


def failing_over(  # noqa: PLR0913 - what a test needs to name, by name
    primary: str,
    fallback: str,
    *,
    model: str = "m",
    fallback_model: str = "m",
    chat_url: str | None = None,
    forebay: dict[str, Any] | None = None,
    **more: Any,
) -> dict[str, Any]:
    """An embedder on a GPU of its own, and its fallback on the GPU of a chat model.

    Args:
        primary: base URL of the one.
        fallback: base URL of the other.
        model: what the primary calls its model.
        fallback_model: what the fallback calls it.
        chat_url: base URL of the chat model ``chat``, if there is one.
        forebay: Forebay's own settings.
        more: keys of the file.
    """
    config: dict[str, Any] = {
        "embedding_models": [
            {
                "id": model,
                "base_url": primary,
                "gpu_group": "own",
                "max_concurrent_requests": 8,
                "engine": "unknown",
                "fallback": {
                    "id": fallback_model,
                    "base_url": fallback,
                    "gpu_group": "shared",
                    "max_concurrent_requests": 4,
                    "engine": "unknown",
                },
            }
        ],
        "GPU_CONCURRENCY_BUDGETS": {"own": 8, "shared": 6},
        "MODEL_BREAKER_FAIL_THRESHOLD": 1,
        "MODEL_BREAKER_BASE_COOLDOWN_S": 0.3,
        "MODEL_BREAKER_MAX_COOLDOWN_S": 2,
        "forebay": {"limit": "fixed", "identity": None, **(forebay or {})},
        **more,
    }
    if chat_url is not None:
        config["chat_models"] = [
            {
                "id": "chat",
                "base_url": chat_url,
                "gpu_group": "shared",
                "max_parallel_calls": 2,
                "max_concurrent_requests": 6,
                "engine": "unknown",
            }
        ]
    return config
