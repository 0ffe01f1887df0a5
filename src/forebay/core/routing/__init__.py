"""Which endpoint of a model a request starts on, where several could take it at once.

Theory of operation. Filter, score, pick: endpoints that admission would not let it start on now are
passed over; the others come in an order; the first of them is taken, in the same step in which it
was found to be free. There are two orders:

- *least in flight*: by the share of its limit that an endpoint has taken, so that one with twice
  the limit gets twice as much, and a slow one no more than it gets done. Equals come at random.
- *rendezvous hashing* (HRW), for requests that have a key: each key has its own order of the
  endpoints, the same for ever and in every process, so that what a host has cached of a
  conversation is of use. An endpoint that is added takes its share of the keys and moves no
  others; when one goes, only its keys move. A key that keeps its endpoint busy spills to its next
  one, and comes back.

A request that finds no free endpoint waits, and starts wherever a slot comes free first.

`pool` keeps the endpoints by their load, `rendezvous` the keys' orders, `pick` has the rules.
"""

from forebay.core.routing.pick import choices, pick
from forebay.core.routing.pool import Pool

__all__ = ["Pool", "choices", "pick"]
