"""How far `map_concurrent` is: for a callback, or as a bar."""

from __future__ import annotations

from collections.abc import Callable, Sized
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any, Literal

from forebay.errors import CallbackError, UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a fan-out is.

    Args:
        done: items that have ended, those that failed among them.
        failed: items that failed.
        total: how many there are; None if that is not known.
    """

    done: int
    failed: int
    total: int | None


# What is told after each item, or which library draws a bar.
Shown = Callable[[Progress], object] | Literal["rich", "tqdm"] | None


class Tally:
    """Counts items that have ended, and tells of it.

    Args:
        tell: hears of each; None: nobody.
        total: see `Progress`.
    """

    __slots__ = ("_done", "_failed", "_tell", "_total")

    def __init__(self, tell: Callable[[Progress], object] | None, total: int | None) -> None:
        self._tell = tell
        self._total = total
        self._done = self._failed = 0

    def count(self, *, failed: bool) -> None:
        """One more has ended.

        Raises:
            CallbackError: whoever is told has failed.
        """
        if self._tell is None:
            return
        self._done += 1
        self._failed += failed
        progress = Progress(self._done, self._failed, self._total)
        try:
            self._tell(progress)
        except Exception as error:
            raise CallbackError(
                f"the progress callback raised {error!r} at {progress}; let it catch its own errors"
            ) from error


@contextmanager
def tally(shown: Shown, items: object, name: str) -> Iterator[Tally]:
    """Count for the time of a block.

    Args:
        shown: see `Shown`.
        items: what is gone through.
        name: of a bar.

    Raises:
        UsageError: the library that draws is not installed.
        ValueError: `shown` is something else.
    """
    total = len(items) if isinstance(items, Sized) else None
    if shown is None or callable(shown):
        yield Tally(shown, total)
    elif shown == "tqdm":
        with _library("tqdm").tqdm(total=total, desc=name) as bar:
            yield Tally(lambda progress: bar.update(progress.done - bar.n), total)
    elif shown == "rich":
        with _library("rich.progress").Progress() as drawn:
            task = drawn.add_task(name, total=total)
            yield Tally(lambda progress: drawn.update(task, completed=progress.done), total)
    else:
        raise ValueError(f"progress is {shown!r}; it can be 'rich', 'tqdm' or a function")


def _library(name: str) -> Any:  # noqa: ANN401 - a module
    try:
        return import_module(name)
    except ImportError as error:
        package = name.partition(".")[0]
        raise UsageError(
            f"progress={package!r} needs {package}, which is not installed: pip install {package}"
        ) from error
