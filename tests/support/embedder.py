"""Scripted embedding servers, each with the ways of another kind."""

from __future__ import annotations

import base64
import inspect
import json
import struct
from typing import TYPE_CHECKING, Any

from forebay.proxy.embeddings.guard import PROBE
from support.http_responses import json_response

if TYPE_CHECKING:
    from collections.abc import Callable


HARMLESS = "test"  # what the gateway asks for to see whether a server serves such requests at all


def one_embedder(url: str, *, ceiling: int = 8, forebay: dict[str, Any] | None = None, **more):
    """One embedding model ``m``; its limit does not move."""
    entry = {
        "id": "m",
        "base_url": f"{url}/v1",
        "gpu_group": "gpu",
        "max_concurrent_requests": ceiling,
        "engine": "unknown",
        **more,
    }
    return {"embedding_models": [entry], "forebay": {"limit": "fixed", **(forebay or {})}}


def vector(text: str) -> list[float]:
    """The vector of ``"t17"`` is ``[17, -0.5]``: each tells whose it is."""
    number = 0 if text in {HARMLESS, PROBE} else text.removeprefix("t").split(" ")[0]
    return [float(number), -0.5]


def packed(values: list[float]) -> str:
    return base64.b64encode(struct.pack(f"<{len(values)}f", *values)).decode()


def texts(count: int, start: int = 0, padding: str = "") -> list[str]:
    return [f"t{number}{padding}" for number in range(start, start + count)]


def embeddings(request: dict[str, Any], *, as_base64: bool | None = None) -> bytes:
    """A correct answer; in the encoding that was asked for, unless told otherwise."""
    inputs = request["input"] if isinstance(request["input"], list) else [request["input"]]
    if as_base64 is None:
        as_base64 = request.get("encoding_format") == "base64"
    data = [
        {
            "object": "embedding",
            "index": index,
            "embedding": packed(vector(text)) if as_base64 else vector(text),
        }
        for index, text in enumerate(inputs)
    ]
    usage = {"prompt_tokens": len(inputs), "total_tokens": len(inputs)}
    return json_response({"object": "list", "data": data, "model": "m-1", "usage": usage})


def refusal(status: str, message: str) -> bytes:
    return json_response({"message": message, "code": int(status[:3])}, status=status)


class Embedder:
    """A server that answers each request with what `behave` makes of it.

    Args:
        serve: the fixture that starts scripted servers.
        behave: the request's JSON → the response, at once or some time; None is never.
    """

    def __init__(self, serve: Any, behave: Callable[[dict[str, Any]], Any] = embeddings) -> None:
        self._behave = behave
        self.bodies: list[bytes] = []
        self.url = serve(self._script).url

    async def _script(self, peer: Any) -> None:
        while request := await peer.request():
            head, _, body = request.partition(b"\r\n\r\n")
            if not head.startswith(b"POST"):
                await peer.send(json_response({}, status="404 Not Found"))
                continue
            self.bodies.append(body)
            answer = self._behave(json.loads(body))
            if inspect.isawaitable(answer):
                answer = await answer
            if answer is None:
                return
            await peer.send(answer)

    @property
    def harmless(self) -> int:
        """Requests that were there to see whether it serves at all."""
        return sum(request["input"] == [HARMLESS] for request in self._read())

    def _read(self) -> list[dict[str, Any]]:
        return [json.loads(body) for body in self.bodies]

    @property
    def probes(self) -> int:
        """Requests that were there to compare its vectors."""
        return sum(request["input"] == [PROBE] for request in self._read())

    @property
    def requests(self) -> list[dict[str, Any]]:
        """Those that have a client's inputs."""
        own = ([HARMLESS], [PROBE])
        return [request for request in self._read() if request["input"] not in own]

    @property
    def sizes(self) -> list[int]:
        """Inputs in each request."""
        return [len(request["input"]) for request in self.requests]
