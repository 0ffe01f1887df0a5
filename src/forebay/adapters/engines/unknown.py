"""A server of which nothing is known but that it speaks the API."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from forebay.adapters.engines.base import Engine
from forebay.core.model import Signal

if TYPE_CHECKING:
    from collections.abc import Mapping

    from forebay.adapters.engines.reply import Reply


class Unknown(Engine):
    """No server metrics: what it does shows in the answers alone."""

    name: ClassVar[str] = "unknown"

    def fits(self, replies: Mapping[str, Reply]) -> bool:
        """Never: it is what remains."""
        del replies
        return False

    def read(self, replies: Mapping[str, Reply], model: str, now: float) -> Signal:  # noqa: D102
        del replies, model
        return Signal(self.name, now)
