"""Fan-outs whose results are read while they go on: the rest of a session's."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, overload

from forebay.client.calls import InTasks, InThreads
from forebay.client.home import refuse_to_block
from forebay.client.mapper import Mapper
from forebay.client.streams import Stream

if TYPE_CHECKING:
    from collections.abc import (
        AsyncGenerator,
        AsyncIterable,
        Awaitable,
        Callable,
        Generator,
        Iterable,
    )
    from typing import Unpack

    from forebay.client.fan_out import Item, Result
    from forebay.client.mapper import OnError, Options

_BUFFER = 1000


class Streaming(Mapper):
    """`Mapper`, and what reads its results one by one."""

    @overload
    def stream(
        self,
        fn: Callable[[Item], Awaitable[Result]],
        items: Iterable[Item] | AsyncIterable[Item],
        *,
        model: str,
        buffer: int = _BUFFER,
        on_error: Literal["raise"] = "raise",
        **options: Unpack[Options[Item]],
    ) -> AsyncGenerator[Result, None]: ...

    @overload
    def stream(
        self,
        fn: Callable[[Item], Awaitable[Result]],
        items: Iterable[Item] | AsyncIterable[Item],
        *,
        model: str,
        buffer: int = _BUFFER,
        on_error: Literal["collect"],
        **options: Unpack[Options[Item]],
    ) -> AsyncGenerator[Result | BaseException, None]: ...

    def stream(
        self,
        fn: Callable[[Item], Awaitable[Result]],
        items: Iterable[Item] | AsyncIterable[Item],
        *,
        model: str,
        buffer: int = _BUFFER,
        on_error: OnError = "raise",
        **options: Unpack[Options[Item]],
    ) -> AsyncGenerator[Any, None]:
        """`map_concurrent` whose results come while it goes on, in the order of the items.

        Args:
            fn: see there.
            items: see there.
            model: see there.
            buffer: no item is taken while so many have been, and their results not been read.
            on_error: see there.
            **options: see there.
        """
        run = self._run(InTasks(fn), items, model, on_error, options)
        return Stream(run, ordered=True, buffer=buffer).results()

    @overload
    def as_completed(
        self,
        fn: Callable[[Item], Awaitable[Result]],
        items: Iterable[Item] | AsyncIterable[Item],
        *,
        model: str,
        buffer: int = _BUFFER,
        on_error: Literal["raise"] = "raise",
        **options: Unpack[Options[Item]],
    ) -> AsyncGenerator[tuple[Item, Result], None]: ...

    @overload
    def as_completed(
        self,
        fn: Callable[[Item], Awaitable[Result]],
        items: Iterable[Item] | AsyncIterable[Item],
        *,
        model: str,
        buffer: int = _BUFFER,
        on_error: Literal["collect"],
        **options: Unpack[Options[Item]],
    ) -> AsyncGenerator[tuple[Item, Result | BaseException], None]: ...

    def as_completed(
        self,
        fn: Callable[[Item], Awaitable[Result]],
        items: Iterable[Item] | AsyncIterable[Item],
        *,
        model: str,
        buffer: int = _BUFFER,
        on_error: OnError = "raise",
        **options: Unpack[Options[Item]],
    ) -> AsyncGenerator[tuple[Item, Any], None]:
        """`stream` whose results come as they are there, each with its item."""
        run = self._run(InTasks(fn), items, model, on_error, options)
        return Stream(run, ordered=False, buffer=buffer).results()

    @overload
    def stream_sync(
        self,
        fn: Callable[[Item], Result],
        items: Iterable[Item],
        *,
        model: str,
        buffer: int = _BUFFER,
        on_error: Literal["raise"] = "raise",
        **options: Unpack[Options[Item]],
    ) -> Generator[Result, None, None]: ...

    @overload
    def stream_sync(
        self,
        fn: Callable[[Item], Result],
        items: Iterable[Item],
        *,
        model: str,
        buffer: int = _BUFFER,
        on_error: Literal["collect"],
        **options: Unpack[Options[Item]],
    ) -> Generator[Result | BaseException, None, None]: ...

    def stream_sync(
        self,
        fn: Callable[[Item], Result],
        items: Iterable[Item],
        *,
        model: str,
        buffer: int = _BUFFER,
        on_error: OnError = "raise",
        **options: Unpack[Options[Item]],
    ) -> Generator[Any, None, None]:
        """`stream` for a function that blocks; `items` is gone through in another thread."""
        refuse_to_block("write `async for … in fb.stream(…)`")
        run = self._run(InThreads(fn), items, model, on_error, options)
        return Stream(run, ordered=True, buffer=buffer).results_sync()

    @overload
    def as_completed_sync(
        self,
        fn: Callable[[Item], Result],
        items: Iterable[Item],
        *,
        model: str,
        buffer: int = _BUFFER,
        on_error: Literal["raise"] = "raise",
        **options: Unpack[Options[Item]],
    ) -> Generator[tuple[Item, Result], None, None]: ...

    @overload
    def as_completed_sync(
        self,
        fn: Callable[[Item], Result],
        items: Iterable[Item],
        *,
        model: str,
        buffer: int = _BUFFER,
        on_error: Literal["collect"],
        **options: Unpack[Options[Item]],
    ) -> Generator[tuple[Item, Result | BaseException], None, None]: ...

    def as_completed_sync(
        self,
        fn: Callable[[Item], Result],
        items: Iterable[Item],
        *,
        model: str,
        buffer: int = _BUFFER,
        on_error: OnError = "raise",
        **options: Unpack[Options[Item]],
    ) -> Generator[tuple[Item, Any], None, None]:
        """`as_completed` for a function that blocks; see `stream_sync`."""
        refuse_to_block("write `async for … in fb.as_completed(…)`")
        run = self._run(InThreads(fn), items, model, on_error, options)
        return Stream(run, ordered=False, buffer=buffer).results_sync()
