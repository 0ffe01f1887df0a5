"""Where an endpoint listens."""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import urlsplit

from forebay.errors import ConfigError

_DEFAULT_PORTS = {"http": 80, "https": 443}


@dataclass(frozen=True, slots=True)
class Origin:
    """Scheme, host and port of a URL (RFC 6454); the text of it names the endpoint in errors."""

    scheme: str
    host: str
    port: int

    @classmethod
    def parse(cls, base_url: str) -> Origin:
        """Take the origin out of an ``http`` or ``https`` URL.

        Raises:
            ConfigError: another scheme, no host, a bad port, or credentials in the URL.
        """
        shown = base_url.rpartition("@")[2]  # without credentials
        try:
            url = urlsplit(base_url)
            host, port = url.hostname or "", url.port
            host.encode("idna")
        except ValueError as error:
            raise ConfigError(f"base URL {shown!r}: {error}") from error
        if url.username is not None or url.password is not None:
            raise ConfigError(
                f"base URL {shown!r}: take the credentials out of it, and configure an API key"
            )
        if url.scheme not in _DEFAULT_PORTS or not host or len(host.split()) != 1:
            raise ConfigError(f"base URL {shown!r}: must be http://host[:port][/path] or https")
        return cls(url.scheme, host, _DEFAULT_PORTS[url.scheme] if port is None else port)

    @property
    def is_tls(self) -> bool:
        """Whether connections to it are encrypted."""
        return self.scheme == "https"

    @property
    def authority(self) -> str:
        """Value of the ``Host`` header: the port only when it is not the scheme's default."""
        host, _, _zone = self.host.partition("%")  # a zone id means something on this machine only
        if ":" in host:
            host = f"[{host}]"
        elif not host.isascii():
            host = host.encode("idna").decode("ascii")
        return host if self.port == _DEFAULT_PORTS[self.scheme] else f"{host}:{self.port}"

    def __str__(self) -> str:
        return f"{self.scheme}://{self.authority}"
