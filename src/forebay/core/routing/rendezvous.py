"""Rendezvous hashing: every key has an order of the endpoints of its own.

Each endpoint gets a score for the key, from a hash of both, and the highest is first (highest
random weight: Thaler and Ravishankar, 1998). A score depends on nothing but the key, the endpoint's
id and its weight: so an endpoint that comes takes some keys from every other one and moves no
others, and the keys of one that goes are shared by all. With log(uniform) / weight the shares are
proportional to the weights.

Keys are first hashed to one of 16,384 *buckets*, and an order is that of a bucket. It is computed
once, with one hash for each endpoint; a key that was never seen mostly finds it there.

Hashes are BLAKE2, the same in every process; Python's own are not.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from hashlib import blake2b
from heapq import nlargest
from math import log
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from forebay.core.endpoint import EndpointState

# Of each order, so many endpoints are kept: a key that finds all of these busy goes anywhere.
_CHOICES = 8
_BUCKETS = 1 << 14
_BITS = (1 << 64) - 1


@dataclass(slots=True, eq=False, repr=False)
class Rendezvous:
    """The keys' orders of some endpoints, whose weights are their ceilings."""

    _hashes: dict[EndpointState, int] = field(default_factory=dict, init=False)
    _orders: dict[int, tuple[EndpointState, ...]] = field(default_factory=dict, init=False)

    @property
    def states(self) -> tuple[EndpointState, ...]:
        """The endpoints."""
        return tuple(self._hashes)

    def add(self, state: EndpointState) -> None:
        """Let an endpoint have its share of the keys."""
        self._hashes[state] = _hash(state.endpoint.id)
        self.changed()

    def remove(self, state: EndpointState) -> None:
        """Let the others share an endpoint's keys."""
        del self._hashes[state]
        self.changed()

    def changed(self) -> None:
        """Note that an endpoint's ceiling changed."""
        self._orders.clear()

    def order(self, key: str) -> tuple[EndpointState, ...]:
        """The endpoints that requests with this key prefer, the best first."""
        bucket = _hash(key) % _BUCKETS
        order = self._orders.get(bucket)
        if order is None:
            order = self._orders[bucket] = self._rank(bucket)
        return order

    def _rank(self, bucket: int) -> tuple[EndpointState, ...]:
        scores = {
            state: log(_uniform(hash_ ^ bucket)) / state.ceiling
            for state, hash_ in self._hashes.items()
        }
        return tuple(nlargest(_CHOICES, scores, key=scores.__getitem__))


def _hash(text: str) -> int:
    return int.from_bytes(blake2b(text.encode(), digest_size=8).digest())


def _uniform(bits: int) -> float:
    """A number in (0, 1) from 64 bits, all of which matter: the end of splitmix64."""
    bits = ((bits ^ (bits >> 30)) * 0xBF58476D1CE4E5B9) & _BITS
    bits = ((bits ^ (bits >> 27)) * 0x94D049BB133111EB) & _BITS
    return ((bits ^ (bits >> 31)) + 0.5) / (_BITS + 1)
