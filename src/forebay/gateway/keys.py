"""API keys: who calls."""

from __future__ import annotations

from hashlib import sha256
from typing import TYPE_CHECKING

from forebay.proxy.caller import ANYONE, Caller
from forebay.proxy.refusal import Refused

if TYPE_CHECKING:
    from collections.abc import Iterable

    from forebay.config.settings import ApiKey
    from forebay.proxy.message import Headers


class Keys:
    """The keys that open the gateway; without any it is open to whoever reaches it."""

    def __init__(self, keys: Iterable[ApiKey]) -> None:
        self.use(keys)

    def use(self, keys: Iterable[ApiKey]) -> None:
        """Let these keys count, and no others."""
        # Looked up by digest, so that the time it takes tells nothing about a key.
        self._callers = {
            _digest(key.key.get_secret_value().encode()): Caller(
                key.name, may_raise=key.may_raise, admin=key.admin
            )
            for key in keys
        }

    def caller(self, headers: Headers) -> Caller:
        """Who presents the key in these headers (names in lower case).

        Raises:
            Refused: no key, or one that is not known.
        """
        if not self._callers:
            return ANYONE
        caller = self._callers.get(_digest(_key(headers)))
        if caller is None:
            raise Refused(
                401,
                "the API key is missing or not known; send it as 'Authorization: Bearer <key>'",
                code="invalid_api_key",
            )
        return caller

    def admin(self, headers: Headers) -> Caller:
        """The same for the admin pages.

        Raises:
            Refused: a caller without the right to see them, too.
        """
        caller = self.caller(headers)
        if not caller.admin:
            raise Refused(403, f"the key {caller.name!r} is not an admin key", code="not_admin")
        return caller


def _digest(key: bytes) -> bytes:
    return sha256(key).digest()


def _key(headers: Headers) -> bytes:
    for name, value in headers:
        if name == b"authorization":
            scheme, _, token = value.strip().partition(b" ")
            if scheme.lower() == b"bearer":
                return token.strip()
        elif name in {b"x-api-key", b"api-key"}:
            return value.strip()
    return b""
