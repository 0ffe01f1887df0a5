"""One core is the GPU of the engines under test, the other one is for everybody else."""

from __future__ import annotations

import os
from pathlib import Path

GPU, OTHERS = 0, 1


def move(pid: int, core: int) -> None:
    """Move all threads of a process to a core; what it starts later begins there too."""
    for task in Path(f"/proc/{pid}/task").iterdir():
        os.sched_setaffinity(int(task.name), {core})
