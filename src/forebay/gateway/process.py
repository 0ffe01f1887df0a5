"""What a process that relays for weeks does differently from one that computes and ends."""

from __future__ import annotations

import ctypes
import gc
import logging
import resource
from contextlib import suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from forebay.config.plan import Plan

_log = logging.getLogger(__name__)

# mallopt(3): parameters of glibc's allocator.
_M_TRIM_THRESHOLD = -1
_M_MMAP_THRESHOLD = -3
_KEPT_BYTES = 128 * 2**20
_LARGEST_FROM_HEAP = 32 * 2**20
# Descriptors that a process needs beside its connections.
_OTHER_FILES = 100


def keep_freed_memory() -> None:
    """Have glibc keep what is freed for what comes next, instead of returning it each time.

    Large answers come and go all the time; without this each costs dozens of page faults, a third
    of the CPU time of relaying it. Does nothing with another C library.
    """
    with suppress(OSError, AttributeError):
        libc = ctypes.CDLL(None)
        libc.mallopt(_M_TRIM_THRESHOLD, _KEPT_BYTES)
        libc.mallopt(_M_MMAP_THRESHOLD, _LARGEST_FROM_HEAP)


def spare_the_collector() -> None:
    """Have the garbage collector pass over what will live as long as the process.

    A full collection walks every module and setting that was loaded, some 30 ms in which no chunk
    is relayed. Call it once everything has been set up.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(10_000, 20, 50)


def provide_files(plan: Plan) -> None:
    """Have as many descriptors as a plan may need, or warn that there are fewer.

    Each request needs one towards its client, and one towards its endpoint.
    """
    needed = 2 * sum(planned.endpoint.ceiling for planned in plan.endpoints) + _OTHER_FILES
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < needed and soft < hard:
        soft = min(needed, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    if soft < needed:
        _log.warning(
            "the limit of open files is %d, but %d may be needed; raise it (ulimit -n)",
            soft,
            needed,
        )
