"""One protocol for all sources of endpoints, and what they need to know of their surroundings."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from forebay.adapters.discovery.address import KubernetesAddress
from forebay.adapters.discovery.kubernetes_api import Api

if TYPE_CHECKING:
    from collections.abc import Callable

    from forebay.adapters.discovery.address import Address


class Source(Protocol):
    """Base URLs that change.

    Attributes:
        failure: why they could not be looked up last, else None.
    """

    failure: str | None

    async def run(self, tell: Callable[[frozenset[str]], None]) -> None:
        """Tell all base URLs, as soon as they are known and whenever they have changed.

        It goes on until it is cancelled, whatever fails.
        """
        ...


@dataclass(frozen=True, slots=True)
class Discovery:
    """How sources look up what they look up.

    Args:
        nameservers: ``address`` or ``address:port`` of DNS servers; none: the system's.
        interval_s: names are looked up again at least so often, however long they are valid.
        kubernetes: the API server.
    """

    nameservers: tuple[str, ...]
    interval_s: float
    kubernetes: Api

    @classmethod
    def of(
        cls,
        *,
        nameservers: tuple[str, ...],
        interval_s: float,
        kubernetes_url: str,
        kubernetes_token_file: str,
        kubernetes_ca_file: str,
    ) -> Discovery:
        """Put together what the configuration says."""
        api = Api(kubernetes_url, Path(kubernetes_token_file), Path(kubernetes_ca_file))
        return cls(nameservers, interval_s, api)

    def source(self, address: Address) -> Source:
        """The source that `address` names."""
        # Here: what they need takes long to import, and few deployments use it.
        if isinstance(address, KubernetesAddress):
            from forebay.adapters.discovery.kubernetes import KubernetesSource  # noqa: PLC0415

            return KubernetesSource(address, self.kubernetes)
        from forebay.adapters.discovery.dns import DnsSource  # noqa: PLC0415

        return DnsSource(address, self.nameservers, interval_s=self.interval_s)
