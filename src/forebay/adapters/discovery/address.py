"""The URLs that name a source of endpoints."""

from __future__ import annotations

import re
from dataclasses import dataclass

from forebay.errors import ConfigError

_FORMS = "write dns://name:port/v1, srv://_service._tcp.name/v1 or k8s://namespace/service:port/v1"
_LABEL = r"[A-Za-z0-9_](?:[A-Za-z0-9_-]*[A-Za-z0-9])?"
_NAME = rf"{_LABEL}(?:\.{_LABEL})*\.?"
_PATH = r"(?P<path>(?:/[A-Za-z0-9\-._~!$&'()*+,;=:@%]*)*)"
_DNS = re.compile(rf"dns://(?P<name>{_NAME}):(?P<port>[0-9]{{1,5}}){_PATH}")
_SRV = re.compile(rf"srv://(?P<name>_{_LABEL}\._(?:tcp|udp)\.{_NAME}){_PATH}", re.IGNORECASE)
_KUBERNETES = re.compile(
    rf"k8s://(?P<namespace>{_LABEL})/(?P<service>{_LABEL})(?::(?P<port>[a-z0-9-]{{1,15}}))?{_PATH}"
)
_MAX_PORT = 65535
_MAX_NAME_CHARS = 253


@dataclass(frozen=True, slots=True)
class DnsAddress:
    """Every address (A, else AAAA) of a name, on one port.

    Args:
        name: to look up; the resolver's search list applies to it.
        port: where the servers listen.
        path: of their API.
    """

    name: str
    port: int
    path: str

    def __str__(self) -> str:
        return f"dns://{self.name}:{self.port}{self.path}"


@dataclass(frozen=True, slots=True)
class SrvAddress:
    """Every target of a name's SRV records (RFC 2782) that has the best priority.

    Args:
        name: to look up, e.g. ``_http._tcp.vllm.example.org``.
        path: of the servers' API.
    """

    name: str
    path: str

    def __str__(self) -> str:
        return f"srv://{self.name}{self.path}"


@dataclass(frozen=True, slots=True)
class KubernetesAddress:
    """Every ready endpoint of a Kubernetes service.

    Args:
        namespace: the service's.
        service: its name.
        port: a name of one of its ports, or the number that its pods listen on; None: it has one.
        path: of the servers' API.
    """

    namespace: str
    service: str
    port: str | None
    path: str

    def __str__(self) -> str:
        port = f":{self.port}" if self.port else ""
        return f"k8s://{self.namespace}/{self.service}{port}{self.path}"


Address = DnsAddress | SrvAddress | KubernetesAddress


def parse(text: str) -> Address:
    """Read the URL of a source.

    Raises:
        ConfigError: it is none.
    """
    text = text.strip()
    if match := _DNS.fullmatch(text):
        address: Address = DnsAddress(_name(match["name"]), _port(match["port"]), _path(match))
    elif match := _SRV.fullmatch(text):
        address = SrvAddress(_name(match["name"]), _path(match))
    elif match := _KUBERNETES.fullmatch(text):
        port = match["port"]
        if port is not None and port.isdigit():
            _port(port)
        address = KubernetesAddress(match["namespace"], match["service"], port, _path(match))
    else:
        raise ConfigError(f"names no source of endpoints; {_FORMS}")
    return address


def _name(name: str) -> str:
    if len(name) > _MAX_NAME_CHARS:
        raise ConfigError("the name is too long")
    return name.lower()


def _port(text: str) -> int:
    if not 0 < int(text) <= _MAX_PORT:
        raise ConfigError(f"port must be a number from 1 to {_MAX_PORT}")
    return int(text)


def _path(match: re.Match[str]) -> str:
    path = match["path"].rstrip("/")
    if {".", ".."} & set(path.split("/")):
        raise ConfigError("path must not contain . or ..")
    return path
