"""Base URLs as people paste them, brought to one form.

With and without scheme, ``/v1``, trailing slash or a whole API path; behind a proxy's path; IPv6.
The grammar is RFC 3986's. Messages never repeat the URL: it may hold a secret.
"""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass, field

from forebay.errors import ConfigError

DEFAULT_API_PREFIX = "/v1"

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
_VERSION = re.compile(r"v[0-9]+(?:alpha|beta)?[0-9]*")

# What stands behind the prefix in a whole path. The longer of two that end alike comes first.
_OPERATIONS = tuple(
    tuple(path.split("/"))
    for path in (
        "chat/completions",
        "completions",
        "embeddings",
        "responses",
        "rerank",
        "score",
        "messages",
        "models",
        "audio/speech",
        "audio/transcriptions",
        "audio/translations",
        "images/generations",
        "moderations",
    )
)
# Pages of the server itself, at its root.
_ROOT_PAGES = ("health", "metrics")


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
    """

    scheme: str
    hostname: str
    port: int
    prefix: str
    api_prefix: str
    query: str = field(default="", repr=False)

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
    hostname, port = _split_authority(match["authority"])
    segments = _segments(match["path"])
    if "." in segments or ".." in segments:
        raise ConfigError("path must not contain . or ..")
    if port is None:
        port = _DEFAULT_PORTS[scheme]
    return BaseUrl(scheme, hostname, port, _path(segments), "", query)


def api_path(text: str) -> str:
    """Bring an API prefix such as ``v1/`` to its one form: ``/v1``, or "" for none.

    Raises:
        ConfigError: it is not a path.
    """
    segments = _segments(text.strip())
    if "://" in text or not _PATH.fullmatch(text.strip()) or {".", ".."} & set(segments):
        raise ConfigError('must be a path such as "/v1", or ""')
    return _path(segments)


def normalise(text: str, *, api_prefix: str | None = None) -> BaseUrl:
    """Find out where the API behind a pasted URL lives.

    Args:
        text: any of the forms that people paste.
        api_prefix: as configured; None means ``/v1``, and that a path which contradicts it is
            questioned.

    Raises:
        ConfigError: the URL is invalid, or can be read in two ways.
    """
    url = split_url(text)
    api = _segments(DEFAULT_API_PREFIX if api_prefix is None else api_prefix)
    segments = _segments(url.prefix)
    while (page := _page(segments, api)) is not None:
        segments = segments[: -len(page)]
    if api_prefix is None:
        _question_operation(segments)
    _question_version(segments, api)
    while api and segments[-len(api) :] == api:
        segments = segments[: -len(api)]
    return BaseUrl(url.scheme, url.hostname, url.port, _path(segments), _path(api), url.query)


def _split_authority(authority: str) -> tuple[str, int | None]:
    if "@" in authority:
        raise ConfigError("must not hold a user or password; put the key in api_key")
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


def _segments(path: str) -> list[str]:
    """Split a path, dropping empty segments and a ``v1`` that follows another."""
    segments: list[str] = []
    for segment in path.split("/"):
        if segment and not (segment == "v1" and segments[-1:] == ["v1"]):
            segments.append(segment)
    return segments


def _path(segments: list[str]) -> str:
    return "".join(f"/{segment}" for segment in segments)


def _page(segments: list[str], api: list[str]) -> tuple[str, ...] | None:
    if segments and segments[-1] in _ROOT_PAGES:
        return (segments[-1],)
    return _operation(segments, api)


def _operation(segments: list[str], api: list[str]) -> tuple[str, ...] | None:
    for operation in _OPERATIONS:
        tail = [*api, *operation]
        if segments[-len(tail) :] == tail:
            return operation
    return None


def _question_operation(segments: list[str]) -> None:
    if (operation := _operation(segments, [])) is not None:
        path = "/".join(operation)
        raise ConfigError(
            f"ends in /{path} without {DEFAULT_API_PREFIX} before it: if the API is at the "
            f'server\'s root, set "api_prefix": ""; if /{path} is a proxy\'s path, '
            f"add {DEFAULT_API_PREFIX}"
        )


def _question_version(segments: list[str], api: list[str]) -> None:
    ends_in_api = bool(api) and segments[-len(api) :] == api
    if segments and not ends_in_api and _VERSION.fullmatch(segments[-1]):
        raise ConfigError(
            f"ends in /{segments[-1]}, which is not the API's prefix: "
            f'set "api_prefix": "/{segments[-1]}", or write the prefix behind it'
        )
