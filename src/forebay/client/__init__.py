"""The library: slots and fan-out under the same admission as the gateway, without a proxy."""

from forebay.client.lease import Lease
from forebay.client.opening import open  # noqa: A004 - the public name is `forebay.open`
from forebay.client.opening_sync import open_sync
from forebay.client.progress import Progress
from forebay.client.retry import Retry
from forebay.client.session import Session

__all__ = ["Lease", "Progress", "Retry", "Session", "open", "open_sync"]
