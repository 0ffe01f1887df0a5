"""Reads for scrapes over HTTP; small, short, and apart from the requests that Forebay governs."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import aiohttp

from forebay.adapters.engines.reply import MAX_BODY_BYTES, Reply
from forebay.errors import ScrapeFailed

if TYPE_CHECKING:
    from collections.abc import Mapping

_ACCEPT = "text/plain;version=0.0.4, application/json;q=0.9, */*;q=0.1"


def scrape_session(*, timeout_s: float = 3.0) -> aiohttp.ClientSession:
    """A session for all scrapes of a process; the caller closes it.

    It keeps no cookies and unpacks nothing: `Reply.text` does, within bounds.
    """
    return aiohttp.ClientSession(
        auto_decompress=False,
        cookie_jar=aiohttp.DummyCookieJar(),
        timeout=aiohttp.ClientTimeout(total=timeout_s),
        headers={"Accept": _ACCEPT, "Accept-Encoding": "gzip"},
    )


class HttpFetch:
    """Reads a URL with a session that it shares.

    Args:
        session: see `scrape_session`.
        api_key: sent as a bearer token, if given. Redirects are not followed, so it stays here.
    """

    def __init__(self, session: aiohttp.ClientSession, *, api_key: str | None = None) -> None:
        self._session = session
        self._headers: Mapping[str, str] = (
            {} if api_key is None else {"Authorization": f"Bearer {api_key}"}
        )

    async def __call__(self, url: str) -> Reply:
        """Read `url`. Errors name it without what may be secret: its query and user info.

        Raises:
            ScrapeFailed: no complete answer in time, or one over the size limit.
        """
        try:
            async with self._session.get(
                url, headers=self._headers, allow_redirects=False
            ) as response:
                body = await _read(response, url)
                return Reply(response.status, dict(response.headers), body)
        except TimeoutError as error:
            raise ScrapeFailed(f"{_named(url)}: no answer in time") from error
        except (aiohttp.ClientError, OSError, ValueError) as error:
            raise ScrapeFailed(f"{_named(url)}: {_what(error)}") from error


async def _read(response: aiohttp.ClientResponse, url: str) -> bytes:
    body = bytearray()
    async for chunk in response.content.iter_any():
        body += chunk
        if len(body) > MAX_BODY_BYTES:
            raise ScrapeFailed(f"{_named(url)}: body over the limit of {MAX_BODY_BYTES} bytes")
    return bytes(body)


def _named(url: str) -> str:
    """The URL without query and user info."""
    scheme, separator, rest = re.split(r"[?#]", url, maxsplit=1)[0].rpartition("://")
    host, slash, path = rest.partition("/")
    return scheme + separator + host.rpartition("@")[2] + slash + path


def _what(error: Exception) -> str:
    """What went wrong; some of aiohttp's errors would repeat the whole URL."""
    if isinstance(error, ValueError):  # aiohttp's errors about URLs are of this kind
        return "this is no URL to read from"
    if isinstance(error, aiohttp.ClientResponseError):
        return error.message or type(error).__name__
    return str(error) or type(error).__name__
