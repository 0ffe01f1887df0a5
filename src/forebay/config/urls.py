"""URLs as people write them: with and without scheme, IPv6, with slips.

The grammar is RFC 3986's. Messages never repeat the URL: it may hold a secret.
"""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass, field

from forebay.config.problems import nearest
from forebay.errors import ConfigError

_DEFAULT_PORTS = {"http": 80, "https": 443}
_MAX_PORT = 65535
_MAX_HOST_CHARS = 253

# RFC 3986, appendix B, with the scheme and authority required.
_URL = re.compile(
    r"(?P<scheme>[^:/?#]*)://(?P<authority>[^/?#]*)(?P<path>[^?#]*)(?:\?(?P<query>[^#]*))?(?P<rest>#.*)?",
    re.DOTALL,
)
_AUTHORITY = re.compile(r"(?P<host>\[[^\]]*\]|[^:\[\]]*)(?::(?P<port>.*))?", re.DOTALL)
_HOST = re.compile(r"[a-z0-9_-]+(?:\.[a-z0-9_-]+)*", re.ASCII)
_PATH = re.compile(r"(?:[A-Za-z0-9\-._~!$&'()*+,;=:@/]|%[0-9A-Fa-f]{2})*")
_QUERY = re.compile(r"(?:[A-Za-z0-9\-._~!$&'()*+,;=:@/?]|%[0-9A-Fa-f]{2})*")
# What was meant to be a scheme. Read as a host it would send requests to one named "http".
_SLIP = re.compile(r"https?(?:[;/\\]|:(?![0-9]))|//|(?P<word>[a-z]+)[:;]?//", re.IGNORECASE)
_TWO_SCHEMES = re.compile(r"https?://https?(?:://|:/|//)", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class BaseUrl:
    """Where an endpoint's API lives.

    Args:
        scheme: http or https.
        hostname: a lower-case name or address; IPv6 in brackets.
        port: always known.
        prefix: the path before the API's own, e.g. ``/gpu-a`` behind a proxy; else "".
        api_prefix: ``/v1``, or "" for servers that have their API at the root.
        query: kept for API calls, without ``?``. Not shown by `repr`: it may hold a key.
        page: what the path ended in that is no part of where the API lives, e.g. ``/docs``.
    """

    scheme: str
    hostname: str
    port: int
    prefix: str
    api_prefix: str
    query: str = field(default="", repr=False)
    page: str = field(default="", repr=False, compare=False)

    @property
    def host(self) -> str:
        """The server's identity, e.g. ``gpu-a.lan:8000``."""
        return f"{self.hostname}:{self.port}"

    @property
    def root(self) -> str:
        """The server's own root, for ``/metrics`` and ``/health``; no trailing slash."""
        port = "" if self.port == _DEFAULT_PORTS[self.scheme] else f":{self.port}"
        return f"{self.scheme}://{self.hostname}{port}{self.prefix}"

    @property
    def api(self) -> str:
        """The API's base, e.g. ``http://gpu-a.lan:8000/v1``; no trailing slash, no query."""
        return self.root + self.api_prefix

    def at(self, operation: str) -> str:
        """The URL of an API operation such as ``/embeddings``, with the query."""
        return f"{self.api}{operation}" + (f"?{self.query}" if self.query else "")


def split_url(text: str) -> BaseUrl:
    """Read a URL without giving its path a meaning: all of it is `prefix`.

    Raises:
        ConfigError: what is wrong with it, without repeating it.
    """
    text = text.strip()
    if not text:
        raise ConfigError("is empty; write e.g. http://gpu-a.lan:8000")
    _question_scheme(text)
    match = _URL.fullmatch(text if "://" in text else f"http://{text}")
    if match is None:
        raise ConfigError("is not a URL; write e.g. http://gpu-a.lan:8000")
    scheme = match["scheme"].lower()
    if scheme not in _DEFAULT_PORTS:
        raise ConfigError("scheme must be http or https")
    if match["rest"]:
        raise ConfigError("a fragment (#…) is never sent to a server; remove it")
    query = match["query"] or ""
    if not _PATH.fullmatch(match["path"]) or not _QUERY.fullmatch(query):
        raise ConfigError("path or query has a character that a URL cannot have; percent-encode it")
    if "@" in match["authority"] + match["path"]:  # a password may hold a slash
        raise ConfigError(
            "must not hold a user or password; put the key in api_key (and write an @ of a path "
            "as %40)"
        )
    hostname, port = _split_authority(match["authority"])
    segments = segments_of(match["path"])
    if "." in segments or ".." in segments:
        raise ConfigError("path must not contain . or ..")
    if port is None:
        port = _DEFAULT_PORTS[scheme]
    return BaseUrl(scheme, hostname, port, path_of(segments), "", query)


def is_path(text: str) -> bool:
    """Whether `text` has only characters that a path may have."""
    return _PATH.fullmatch(text) is not None


def segments_of(path: str) -> list[str]:
    """Split a path, dropping empty segments and a ``v1`` that follows another."""
    segments: list[str] = []
    for segment in path.split("/"):
        if segment and not (segment == "v1" and segments[-1:] == ["v1"]):
            segments.append(segment)
    return segments


def path_of(segments: list[str]) -> str:
    """Put a path together; "" for none."""
    return "".join(f"/{segment}" for segment in segments)


def _question_scheme(text: str) -> None:
    if _TWO_SCHEMES.match(text):
        raise ConfigError("has two schemes; keep one http://")
    slip = None if "://" in text else _SLIP.match(text)
    if slip and (slip["word"] is None or nearest(slip["word"], _DEFAULT_PORTS)):
        raise ConfigError("must begin with http:// or https://; write e.g. http://gpu-a.lan:8000")


def _split_authority(authority: str) -> tuple[str, int | None]:
    match = _AUTHORITY.fullmatch(authority)
    if match is None or (match["port"] and ":" in match["port"]):
        raise ConfigError("an IPv6 address needs brackets here: http://[fd00::5]:8000")
    port = match["port"]
    if port is None:
        return _hostname(match["host"]), None
    if not re.fullmatch(r"[0-9]{1,5}", port) or not 0 < int(port) <= _MAX_PORT:
        raise ConfigError(f"port must be a number from 1 to {_MAX_PORT}")
    return _hostname(match["host"]), int(port)


def _hostname(host: str) -> str:
    if host.startswith("["):
        try:
            address = ipaddress.IPv6Address(host[1:-1])
        except ValueError:
            raise ConfigError("what stands in brackets is not an IPv6 address") from None
        if address.scope_id is not None:
            raise ConfigError("an IPv6 address with a zone (%…) is not supported; use a name")
        return f"[{address}]"
    if re.fullmatch(r"[0-9.]+", host):
        try:
            return str(ipaddress.IPv4Address(host))
        except ValueError:
            raise ConfigError("host is not a valid IPv4 address") from None
    try:
        name = host.removesuffix(".").encode("idna").decode("ascii").lower()
    except UnicodeError:
        name = ""
    if not _HOST.fullmatch(name) or len(name) > _MAX_HOST_CHARS:
        raise ConfigError("host is not a valid name or address")
    return name
