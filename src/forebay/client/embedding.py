"""Vectors for any number of texts: the rest of a session's fan-outs."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Literal, TypedDict, Unpack, overload

from forebay.client.blocks import Blocks
from forebay.client.embedding_request import Texts
from forebay.client.home import refuse_to_block
from forebay.client.slots import Asked
from forebay.client.streaming import Streaming
from forebay.client.vectors import stacked

if TYPE_CHECKING:
    from collections.abc import AsyncIterable, Iterable

    from numpy import float32
    from numpy.typing import NDArray

    from forebay.client.http.inside import Inside
    from forebay.client.mapper import OnError
    from forebay.client.progress import Shown
    from forebay.client.slots import Priority, Slots
    from forebay.errors import ForebayError
    from forebay.proxy.deployment import Deployment


class Options(TypedDict, total=False):
    """What can be asked for besides; see `Embedding.embed`."""

    dimensions: int | None
    timeout: float | None
    priority: Priority | None
    progress: Shown


class Embedding(Streaming):
    """`Streaming`, and embeddings.

    Args:
        deployment: what the session is open over.
        slots: its slots.
        inside: serves its requests.
    """

    def __init__(self, deployment: Deployment, slots: Slots, inside: Inside) -> None:
        super().__init__(deployment, slots)
        self._inside = inside

    @overload
    async def embed(
        self,
        texts: Iterable[str] | AsyncIterable[str],
        *,
        model: str,
        on_error: Literal["raise"] = "raise",
        **options: Unpack[Options],
    ) -> NDArray[float32]: ...

    @overload
    async def embed(
        self,
        texts: Iterable[str] | AsyncIterable[str],
        *,
        model: str,
        on_error: Literal["collect"],
        **options: Unpack[Options],
    ) -> list[NDArray[float32] | ForebayError]: ...

    async def embed(
        self,
        texts: Iterable[str] | AsyncIterable[str],
        *,
        model: str,
        on_error: OnError = "raise",
        **options: Unpack[Options],
    ) -> Any:
        """Embed texts: ``vectors = await fb.embed(texts, model="bge-m3")``.

        They go out in batches that the endpoint takes, as many at once as there is room for, and
        elsewhere if one fails. A text that an endpoint chokes on is found and fails alone. Vectors
        of another model are not taken (see ``identity`` in the configuration).

        Args:
            texts: any number of them, read as they are needed; none may be empty.
            model: id of an embedding model.
            on_error: ``raise`` the first error, which ends everything; or ``collect`` them.
            options: ``dimensions`` of the vectors, where the model can be asked for fewer;
                ``timeout``, seconds that a batch may take, its wait among them, in place of
                `forebay.timeouts.request_s`; ``priority="best-effort"`` lowers it below the model's
                own class; ``progress``, a function that is told after each text, or ``"rich"`` or
                ``"tqdm"``.

        Returns:
            An array of float32, a row for each text, in their order. If numpy is not installed, a
            list of lists. With ``collect`` a list of rows, and of errors in the places of those
            that have none.

        Raises:
            Rejected: there is no such model, or no slot in time.
            RequestFailed: a text, or all of them, got no vector; `code` says why.
            ItemsError: `texts` raised.
            UsageError: the session is closed, or this is a forked child.
        """
        if on_error not in {"raise", "collect"}:
            raise ValueError(f"on_error is {on_error!r}; it can be 'raise' or 'collect'")
        if unknown := options.keys() - Options.__annotations__.keys():
            known = ", ".join(Options.__annotations__)
            raise TypeError(f"there is no argument {min(unknown)!r}; besides model: {known}")
        timeout_s, priority = options.get("timeout"), options.get("priority")
        self._slots.check(Asked(model, timeout_s, priority))
        collect = on_error == "collect"
        wanted = Texts(model, options.get("dimensions"), timeout_s, priority, collect=collect)
        blocks = Blocks(self._deployment, self._inside, wanted)
        rows = await blocks.run(texts, options.get("progress"))
        return rows if collect else stacked(rows)

    @overload
    def embed_sync(
        self,
        texts: Iterable[str],
        *,
        model: str,
        on_error: Literal["raise"] = "raise",
        **options: Unpack[Options],
    ) -> NDArray[float32]: ...

    @overload
    def embed_sync(
        self,
        texts: Iterable[str],
        *,
        model: str,
        on_error: Literal["collect"],
        **options: Unpack[Options],
    ) -> list[NDArray[float32] | ForebayError]: ...

    def embed_sync(self, texts: Iterable[str], **options: Any) -> Any:
        """`embed`, and block this thread.

        Raises:
            UsageError: an event loop runs in it; and see `embed`.
        """
        refuse_to_block("await fb.embed(...)")
        # Here, where it is known what this thread holds.
        asked = Asked(options["model"], options.get("timeout"), options.get("priority"))
        self._slots.check(asked)
        return asyncio.run(self.embed(texts, **options))
