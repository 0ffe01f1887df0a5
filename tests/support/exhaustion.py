"""A process that has used up its descriptors."""

from __future__ import annotations

import gc
import os
import resource
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator


@contextmanager
def no_descriptor_left() -> Iterator[None]:
    """Within it, this process can open nothing more."""
    gc.collect()  # or it would free some meanwhile
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    taken = [os.dup(0)]
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(taken) + 1, hard))
    try:
        while True:
            try:
                taken.append(os.dup(0))  # fills the gaps below
            except OSError:
                break
        yield
    finally:
        for descriptor in taken:
            os.close(descriptor)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
