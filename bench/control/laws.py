"""The laws of the comparison, each as a function of the endpoint."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bench.laws.aimd import Aimd
from bench.laws.envoy import Envoy
from bench.laws.gradient2 import Gradient2
from bench.laws.kv_headroom import KvHeadroom
from bench.laws.vegas import Vegas
from forebay.core.limits.fixed import Fixed
from forebay.core.limits.gradient_aimd import GradientAimd
from forebay.core.limits.knee import Knee

if TYPE_CHECKING:
    from collections.abc import Callable

    from forebay.core.limits.protocol import Limit
    from forebay.core.model import Endpoint

OURS = "knee"
NO_LIMIT = "none"  # the ceiling
_CLASSES: dict[str, Callable[[int, int], Limit]] = {
    OURS: Knee,
    "gradient_aimd": GradientAimd,
    "aimd": Aimd,
    "vegas": Vegas,
    "gradient2": Gradient2,
    "envoy": Envoy,
    "kv_headroom": KvHeadroom,
    NO_LIMIT: Fixed,
}
NAMES = tuple(_CLASSES)


def make(name: str) -> Callable[[Endpoint], Limit]:
    """A law by name."""
    law = _CLASSES[name]
    return lambda endpoint: law(endpoint.floor, endpoint.ceiling)
