"""A configuration that changes while requests run.

`diff` tells what leads from one plan to the next, `Live` carries that out, and `Reload` finds the
next one: when the file changes, when it is told to look, when a source finds other endpoints. What
cannot change while requests run is named, and waits for a restart.
"""

from __future__ import annotations

from forebay.live.carry_out import Clients, Live
from forebay.live.diff import Diff, diff
from forebay.live.reload import Reload
from forebay.live.sources import look_up

__all__ = ["Clients", "Diff", "Live", "Reload", "diff", "look_up"]
