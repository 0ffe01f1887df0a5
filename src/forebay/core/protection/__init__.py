"""Chat's own latency steers best-effort work on the same GPU.

Theory of operation. A `Guard` watches one GPU: every endpoint on it, whatever shares a budget.

- `expected` predicts what chat's first token, its time per output token and its whole answers would
  take *without* best-effort work, from readings that were taken while none was in flight: in
  natural gaps, else in brief pauses that the guard makes for the purpose.
- `window` gathers what chat's requests took under the present share, against that.
- `share` is the law: how many best-effort slots chat bears, a real number. Under one it is a duty:
  one request at a time, with pauses between them, busy time / wall time = share.
- `guard` is the gate that admission asks, and the accounts that it needs for an answer.

Chat that is idle needs no protection: pauses end at once, and more may run. How much is steered by
counting how often chat is slow when it comes back.
"""

from __future__ import annotations

from forebay.core.protection.guard import Guard
from forebay.core.protection.settings import ProtectionSettings

__all__ = ["Guard", "ProtectionSettings"]
