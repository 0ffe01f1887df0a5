"""One function over many items, under admission: the fan-out half of a `Session`."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Generic, Literal, TypedDict, Unpack, overload

from forebay.client.calls import InTasks, InThreads
from forebay.client.fan_out import FanOut, Item, Job, Result, text_tokens
from forebay.client.home import refuse_to_block
from forebay.client.progress import tally
from forebay.client.retry import Retry
from forebay.client.slots import Asked
from forebay.client.streams import Results
from forebay.errors import ItemsError

if TYPE_CHECKING:
    from collections.abc import AsyncIterable, Awaitable, Callable, Coroutine, Iterable

    from forebay.client.fan_out import Outlet
    from forebay.client.lease import Lease
    from forebay.client.progress import Shown
    from forebay.client.slots import Priority, Slots
    from forebay.client.streams import Run
    from forebay.proxy.deployment import Deployment

OnError = Literal["raise", "collect"]


class Options(TypedDict, Generic[Item], total=False):
    """What all fan-outs can be told besides; see `Mapper.map_concurrent`."""

    timeout: float | None
    priority: Priority | None
    size: Callable[[Item], float | None] | None
    retry: Retry | None
    progress: Shown


class Mapper:
    """The fan-outs of a session.

    Args:
        deployment: what it is open over.
        slots: where they come from.
    """

    def __init__(self, deployment: Deployment, slots: Slots) -> None:
        self._deployment = deployment
        self._slots = slots

    @overload
    async def map_concurrent(
        self,
        fn: Callable[[Item], Awaitable[Result]],
        items: Iterable[Item] | AsyncIterable[Item],
        *,
        model: str,
        on_error: Literal["raise"] = "raise",
        **options: Unpack[Options[Item]],
    ) -> list[Result]: ...

    @overload
    async def map_concurrent(
        self,
        fn: Callable[[Item], Awaitable[Result]],
        items: Iterable[Item] | AsyncIterable[Item],
        *,
        model: str,
        on_error: Literal["collect"],
        **options: Unpack[Options[Item]],
    ) -> list[Result | BaseException]: ...

    async def map_concurrent(
        self,
        fn: Callable[[Item], Awaitable[Result]],
        items: Iterable[Item] | AsyncIterable[Item],
        *,
        model: str,
        on_error: OnError = "raise",
        **options: Unpack[Options[Item]],
    ) -> list[Any]:
        """Call `fn` for each item, inside a slot each; results are in the order of the items.

        Items are taken as slots come free, so `items` may be endless in all but its results.
        `fn` finds its lease by `current_lease`. While no endpoint can serve, it waits. Where one
        fails, `fn` is called again for the item, with a lease of another one if there is any.

        Args:
            fn: what to do with an item.
            items: iterable or async iterable.
            model: id of the model.
            on_error: ``raise``: the first error cancels all others, and is raised. ``collect``:
                an item's error is its result.
            **options: any of these.
                timeout: seconds that each item may wait for a slot; see `slot`.
                priority: see `slot`.
                size: an item's size, see `Lease.work`; None where that is unknown. By default,
                texts of embedding and reranking models count four characters as a token. It also is
                what `slot` has as `tokens`.
                retry: how errors of `fn` are tried again, a `Retry`; None: they are not.
                progress: ``"rich"`` or ``"tqdm"`` draws a bar; or a function, called with a
                `Progress` after each item.

        Raises:
            Rejected: there is no slot; with ``collect`` only if there will be none for any item.
            ItemsError: `items` raised. With ``collect``, what had been taken is done first, and is
                the error's `results`.
            CallbackError: the progress function raised.
            UsageError: the session is closed, this is a forked child, or waiting would never end.
        """
        results = Results()
        run = self._run(InTasks(fn), items, model, on_error, options)
        return await _all(results, run(results), collect=on_error == "collect")

    @overload
    def map_concurrent_sync(
        self,
        fn: Callable[[Item], Result],
        items: Iterable[Item],
        *,
        model: str,
        on_error: Literal["raise"] = "raise",
        **options: Unpack[Options[Item]],
    ) -> list[Result]: ...

    @overload
    def map_concurrent_sync(
        self,
        fn: Callable[[Item], Result],
        items: Iterable[Item],
        *,
        model: str,
        on_error: Literal["collect"],
        **options: Unpack[Options[Item]],
    ) -> list[Result | BaseException]: ...

    def map_concurrent_sync(
        self,
        fn: Callable[[Item], Result],
        items: Iterable[Item],
        *,
        model: str,
        on_error: OnError = "raise",
        **options: Unpack[Options[Item]],
    ) -> list[Any]:
        """`map_concurrent` for a function that blocks: each call is in a thread of its own.

        Calls that have begun when it ends early are done first: a thread cannot be stopped.

        Raises:
            UsageError: an event loop runs in this thread; or see `map_concurrent`.
        """
        refuse_to_block("write `await fb.map_concurrent(…)`")
        results = Results()
        run = self._run(InThreads(fn), items, model, on_error, options)
        return asyncio.run(_all(results, run(results), collect=on_error == "collect"))

    def _run(
        self,
        calls: InTasks[Item, Result] | InThreads[Item, Result],
        items: Iterable[Item] | AsyncIterable[Item],
        model: str,
        on_error: OnError,
        options: Options[Item],
    ) -> Run:
        """What runs a fan-out; what is wrong with it is told before any item is taken."""
        if on_error not in {"raise", "collect"}:
            raise ValueError(f"on_error is {on_error!r}; it can be 'raise' or 'collect'")
        if unknown := options.keys() - Options.__annotations__.keys():
            known = ", ".join(Options.__annotations__)
            raise TypeError(f"there is no argument {min(unknown)!r}; besides model: {known}")
        retry = options.get("retry")
        if not isinstance(retry, Retry | None):
            raise TypeError(f"retry is {retry!r}; give a forebay.Retry")
        slots = self._slots
        asked = Asked(model, options.get("timeout"), options.get("priority"))
        slots.check(asked)
        size = options.get("size")
        if size is None:
            served = self._deployment.plan.models.get(model)  # another plan may be in force by now
            size = text_tokens if served and served.kind != "chat" else _unknown

        async def slot(tokens: float | None) -> Lease:
            return await slots.take_for_bulk(slots.ticket(asked._replace(tokens=tokens)))

        job = Job(calls, slot, slots.take_elsewhere, size, retry, on_error == "collect")

        async def run(outlet: Outlet) -> None:
            with calls, tally(options.get("progress"), items, model) as counted:
                await FanOut(job, outlet, counted).run(items)

        return run


async def _all(results: Results, run: Coroutine[Any, Any, None], *, collect: bool) -> list[Any]:
    try:
        await run
    except ItemsError as error:
        if collect and error.results is None:
            error.results = results.all
        raise
    return results.all


def _unknown(item: object) -> None:
    """A prompt's length says nothing of how much will be generated."""
    del item
