"""Who calls, and what that caller may do."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Caller:
    """Who calls.

    Args:
        name: for logs.
        may_raise: may ask for a better class than the model's.
        admin: may see the admin pages.
    """

    name: str
    may_raise: bool
    admin: bool


ANYONE = Caller("anyone", may_raise=False, admin=True)
