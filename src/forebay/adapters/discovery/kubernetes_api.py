"""How the API server of a Kubernetes cluster is reached, and by whose right."""

from __future__ import annotations

import os
import ssl
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path


@dataclass(frozen=True, slots=True)
class Api:
    """How the API server is reached.

    Args:
        url: empty: from inside the cluster, where the environment tells.
        token_file: holds a bearer token, read anew each time, since it is replaced while it is in
            use; none is sent where there is no such file.
        ca_file: who signs the server's certificate; the system's own where there is no such file.
    """

    url: str
    token_file: Path
    ca_file: Path

    def base_url(self) -> str:
        """Where it is.

        Raises:
            OSError: it is not known.
        """
        if self.url:
            return self.url.rstrip("/")
        host = os.environ.get("KUBERNETES_SERVICE_HOST")
        port = os.environ.get("KUBERNETES_SERVICE_PORT", "443")
        if not host:
            raise OSError(
                "not inside a cluster (KUBERNETES_SERVICE_HOST is not set); "
                "set forebay.discovery.kubernetes_url"
            )
        return f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}"

    def read(self) -> tuple[dict[str, str], ssl.SSLContext]:
        """The headers to send, and whom to trust; it reads files.

        Raises:
            OSError: a file is there, but cannot be used.
        """
        context = ssl.create_default_context(
            cafile=str(self.ca_file) if self.ca_file.exists() else None
        )
        if not self.token_file.exists():
            return {}, context
        return {"Authorization": f"Bearer {self.token_file.read_text('ascii').strip()}"}, context
