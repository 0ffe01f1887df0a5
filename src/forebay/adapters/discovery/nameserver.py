"""The address of a DNS server, as it is written in a configuration."""

from __future__ import annotations

import ipaddress
import re

from forebay.errors import ConfigError

_DNS_PORT = 53
_MAX_PORT = 65535
_NAMESERVER = re.compile(r"(?:\[([0-9A-Fa-f:]+)\]|([0-9.]+))(?::([0-9]{1,5}))?")


def split_nameserver(text: str) -> tuple[str, int]:
    """Read the address of a DNS server, with or without a port: ``10.0.0.2``, ``[fd00::2]:8600``.

    Raises:
        ConfigError: it is none.
    """
    match = _NAMESERVER.fullmatch(text)
    host, port = (match[1] or match[2], int(match[3] or _DNS_PORT)) if match else (text, _DNS_PORT)
    try:
        ipaddress.ip_address(host)
    except ValueError:
        port = 0
    if not 0 < port <= _MAX_PORT:
        raise ConfigError("must be an address, with or without a port, e.g. 127.0.0.1:8600")
    return host, port
