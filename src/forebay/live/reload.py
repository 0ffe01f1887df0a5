"""The next plan: when the file changes, when somebody asks, when a source finds other endpoints.

The file is read once a second and compared by what is in it. That holds for an editor that writes a
new file and renames it, for a symbolic link that is turned (as Kubernetes does with a ConfigMap)
and for clocks that stand still. What has just changed is read again until it is twice the same,
since it may be half written. Whatever is wrong with it, what was in force stays.
"""

from __future__ import annotations

import asyncio
import logging
import os
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from forebay.config.load import plan_from, read
from forebay.errors import ForebayError
from forebay.live.sources import Sources

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from forebay.config.plan import Plan
    from forebay.config.problems import ConfigWarning
    from forebay.live.diff import Diff

_log = logging.getLogger(__name__)

_LOOK_S = 1.0
_SETTLED_S = 0.1


class Reload:
    """Follows the configuration that a plan was made from.

    Args:
        plan: in force now.
        apply: puts another one in force; raises `ForebayError` if it cannot be.
        waiting: tells what the one in force says that needs a restart.

    Attributes:
        loaded_at: when the configuration in force was loaded, ISO 8601.
        needs_restart: what it says that is not in force before one.
        reloads: how often the file was read anew, by what came of it: ``applied``, ``rejected``, or
            ``needs_restart``, which is applied but for some keys.
    """

    def __init__(
        self,
        plan: Plan,
        apply: Callable[[Plan], Diff],
        waiting: Callable[[], tuple[str, ...]],
    ) -> None:
        self._plan = plan
        self._apply = apply
        self._waiting = waiting
        # As the file is now, and as it was when it was good last.
        self._data: bytes | ForebayError = plan.text
        self._good = plan.text
        self._wake = asyncio.Event()
        self._is_asked = False
        self._sources = Sources(self._wake.set)
        self._error_of_file: str | None = None
        self._error_of_sources: str | None = None
        self.loaded_at = _now()
        self.needs_restart: tuple[str, ...] = ()
        self.reloads = {"applied": 0, "rejected": 0, "needs_restart": 0}

    @property
    def error(self) -> str | None:
        """Why the file, or what its sources have found, is not in force; None if all is."""
        return self._error_of_file or self._error_of_sources

    def status(self) -> dict[str, Any]:
        """Where the configuration comes from, and how it is."""
        return {
            "path": self._plan.file,
            "loaded_at": self.loaded_at,
            "reload_error": self.error,
            "needs_restart": list(self.needs_restart),
            "reloads": dict(self.reloads),
            "sources": self._sources.status(),
        }

    def look(self) -> None:
        """Look at the file now, and say what came of it; for a signal."""
        self._is_asked = True
        self._wake.set()

    @asynccontextmanager
    async def following(self) -> AsyncIterator[None]:
        """Follow while the block lasts."""
        self._sources.follow(self._plan)
        task = asyncio.create_task(self._run(), name="configuration")
        try:
            yield
        finally:
            task.cancel()
            self._sources.close()
            await asyncio.wait([task])

    async def _run(self) -> None:
        while True:
            try:
                await self._look()
            except Exception as error:  # noqa: BLE001 - whatever it is, what is in force stays so
                if "new futures after" in str(error):
                    return  # the program ends, and no thread can be had any more to look
                _log.exception("the configuration cannot be followed; its next edit is tried again")
            with suppress(TimeoutError):
                async with asyncio.timeout(_LOOK_S):
                    await self._wake.wait()
            self._wake.clear()

    async def _look(self) -> None:
        is_asked, self._is_asked = self._is_asked, False
        data = await self._settled()
        if is_asked or not _same(data, self._data):
            await self._read_anew(data, is_asked=is_asked)
        if self._sources.changed:
            await self._look_at_what_was_found(self._good)

    async def _read_anew(self, data: bytes | ForebayError, *, is_asked: bool) -> None:
        before, self._data = self._plan, data
        try:
            text = _readable(data)
            changes = await self._load(text)
        except ForebayError as error:
            if is_asked or str(error) != self._error_of_file:
                _tell("configuration not loaded, the one before stays in force", error)
            self._reject(str(error))
            return
        except Exception as error:
            self._reject(f"an error of Forebay's own, which the log has: {error!r}")
            raise
        self._good, self._error_of_file, self._error_of_sources = text, None, None
        self.loaded_at = _now()
        self.reloads["needs_restart" if self.needs_restart else "applied"] += 1
        _log.info("configuration loaded: %s", changes)
        told = set(map(_what, before.warnings))
        for warning in self._plan.warnings:
            if _what(warning) not in told:
                _log.warning("%s", warning)

    def _reject(self, why: str) -> None:
        self._error_of_file = why
        self.reloads["rejected"] += 1

    async def _look_at_what_was_found(self, data: bytes) -> None:
        try:
            changes = await self._load(data)
        except ForebayError as error:
            if str(error) != self._error_of_sources:
                _tell("endpoints were found that cannot be used, the ones before stay", error)
            self._error_of_sources = str(error)
            return
        self._error_of_sources = None
        if changes:
            _log.info("endpoints found: %s", changes)

    async def _load(self, data: bytes) -> Diff:
        plan = await self._planned(data)
        if self._sources.begin(plan):  # what is found before must not leave before what comes
            await self._sources.begun(plan)
            plan = await self._planned(data)
        changes = self._apply(plan)
        self._plan = plan
        self._sources.follow(plan)
        before, self.needs_restart = self.needs_restart, self._waiting()
        if self.needs_restart and self.needs_restart != before:
            waits = ", ".join(self.needs_restart)
            _log.warning("changed in the file, but in force after a restart only: %s", waits)
        return changes

    async def _planned(self, data: bytes) -> Plan:
        found = self._sources.take()
        return await asyncio.to_thread(
            plan_from, data, file=self._plan.file, environ=os.environ, found=found
        )

    async def _settled(self) -> bytes | ForebayError:
        """What the file holds, once nobody writes it any more; or why it cannot be read."""
        data = await asyncio.to_thread(_read, self._plan.file)
        while not _same(data, self._data):
            before = data
            await asyncio.sleep(_SETTLED_S)
            data = await asyncio.to_thread(_read, self._plan.file)
            if _same(data, before):
                break
        return data


def _read(file: str) -> bytes | ForebayError:
    try:
        return read(file)
    except ForebayError as error:
        return error


def _readable(data: bytes | ForebayError) -> bytes:
    if isinstance(data, ForebayError):
        raise data
    return data


def _same(one: bytes | ForebayError, other: bytes | ForebayError) -> bool:
    if isinstance(one, bytes) or isinstance(other, bytes):
        return one == other
    return str(one) == str(other)


def _what(warning: ConfigWarning) -> tuple[str, str]:
    """What a warning says, wherever in the file that stands now."""
    return warning.key, warning.message


def _tell(what: str, error: ForebayError) -> None:
    lines = "".join(f"\n  error: {line}" for line in str(error).splitlines())
    _log.error("%s:%s", what, lines)


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
