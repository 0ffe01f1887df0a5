"""Run a command that the kernel kills when its parent goes away: `PARENT_PID COMMAND [ARG]…`.

Started as a plain script, before anything heavy is imported; what it asks of the kernel stays in
force over `exec` (Linux, prctl(2): PR_SET_PDEATHSIG). Elsewhere it only runs the command.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys

_PR_SET_PDEATHSIG = 1


def main() -> None:
    """Become the command."""
    parent_pid, *command = sys.argv[1:]
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != int(parent_pid):  # it went before the kernel was asked
            sys.exit("the parent process is gone")
    os.execvp(command[0], command)  # noqa: S606 - the command is ours, no shell is wanted


if __name__ == "__main__":
    main()
