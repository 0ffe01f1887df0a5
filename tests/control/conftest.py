"""The benchmarks are no package that is installed: their scenarios are found from here."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[2]))
