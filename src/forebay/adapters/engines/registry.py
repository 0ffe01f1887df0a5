"""Engines by name, from the entry point group ``forebay.engines``; plug-ins add theirs there."""

from __future__ import annotations

from difflib import get_close_matches
from importlib.metadata import entry_points
from typing import TYPE_CHECKING

from forebay.errors import ConfigError

if TYPE_CHECKING:
    from forebay.adapters.engines.base import Engine

GROUP = "forebay.engines"


def names() -> tuple[str, ...]:
    """The names that `engine` takes, sorted."""
    return tuple(sorted({entry.name for entry in entry_points(group=GROUP)}))


def engine(name: str) -> Engine:
    """A new engine of that name.

    Raises:
        ConfigError: for a name that nobody registered.
    """
    found = entry_points(group=GROUP, name=name)
    if not found:
        near = get_close_matches(name, names(), n=1)
        meant = f"; did you mean {near[0]!r}?" if near else ""
        raise ConfigError(f"unknown engine {name!r}{meant} Known: {', '.join(names())}")
    made: Engine = next(iter(found)).load()()
    return made


def engines() -> tuple[Engine, ...]:
    """One of each, for finding out which a server is."""
    return tuple(engine(name) for name in names())
