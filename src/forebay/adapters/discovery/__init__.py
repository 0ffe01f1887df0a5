"""Where endpoints are found: sources of base URLs that change while they are watched.

A source is named by a URL: ``dns://`` (a name's addresses), ``srv://`` (a name's SRV records) or
``k8s://`` (the EndpointSlices of a Kubernetes service). It tells the whole set each time that it
has changed. A lookup that fails says nothing of the endpoints: the last set stays, `failure` says
what went wrong, and the lookup is tried again.
"""

from __future__ import annotations

from forebay.adapters.discovery.address import Address, parse
from forebay.adapters.discovery.source import Discovery, Source

__all__ = ["Address", "Discovery", "Source", "parse"]
