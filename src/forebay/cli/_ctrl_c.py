"""What Ctrl-C does to a command.

At first it ends the process at once, without a traceback of whatever is being loaded. A command
that has something to put away says so (`raising`), or handles the signal itself.
"""

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager

_INTERRUPTED = 128 + signal.SIGINT


def end_at_once() -> None:
    """Let Ctrl-C end the process with status 130, unless it is ignored, as in a shell's jobs."""
    if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
        signal.signal(signal.SIGINT, lambda *_: os._exit(_INTERRUPTED))


@contextmanager
def raising() -> Iterator[None]:
    """Let Ctrl-C raise KeyboardInterrupt for the time of a block."""
    before = signal.getsignal(signal.SIGINT)
    if before is not signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
