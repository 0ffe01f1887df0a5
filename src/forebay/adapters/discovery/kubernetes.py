"""Endpoints of a Kubernetes service: its EndpointSlices, listed and then watched.

The protocol is the API server's own ("Efficient detection of changes"): list, remember the list's
``resourceVersion``, watch from it on; every event and bookmark moves it. When the server no longer
has that version (410 Gone, as a status or as an event) everything is listed again. A watch that
ends is taken up where it stopped.

Which endpoints count: those that are ready, and do not terminate. A pod that terminates leaves the
set, so what runs there ends and nothing new starts, which is what its grace period is for.
"""

from __future__ import annotations

import asyncio
import json
import logging
import random
from typing import TYPE_CHECKING, Any

import aiohttp

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from forebay.adapters.discovery.address import KubernetesAddress
    from forebay.adapters.discovery.kubernetes_api import Api

_log = logging.getLogger(__name__)

_SERVICE_LABEL = "kubernetes.io/service-name"
_GONE = 410
_OK = 200
_WATCH_S = 240
_CONNECT_S = 5.0
# The server ends a watch after `_WATCH_S`; a connection that is silent for longer is dead.
_SILENCE_S = _WATCH_S + 30.0
_BACKOFF_S = (1.0, 30.0)
_BETWEEN_WATCHES_S = 1.0
_MAX_EVENT_BYTES = 16 * 2**20
# Slices of a dual-stack service list the same pods once for each family.
_FAMILIES = ("IPv4", "IPv6", "FQDN")


class KubernetesSource:
    """The endpoints of one service.

    Args:
        address: which one.
        api: the API server.
    """

    def __init__(self, address: KubernetesAddress, api: Api) -> None:
        self._address = address
        self._api = api
        self._slices: dict[str, dict[str, Any]] = {}
        self._version = ""
        self._found: frozenset[str] | None = None
        self._rng = random.Random()  # noqa: S311 - it spreads attempts, no more
        self.failure: str | None = None

    def __repr__(self) -> str:
        return f"<KubernetesSource {self._address}, failure={self.failure!r}>"

    async def run(self, tell: Callable[[frozenset[str]], None]) -> None:
        """See `Source.run`."""
        clock = asyncio.get_running_loop().time
        backoff_s = _BACKOFF_S[0]
        while True:
            started_at = clock()
            try:
                await self._follow(tell)
                continue  # what was watched is out of date: another list, at once
            except (aiohttp.ClientError, OSError) as error:
                self._failed(str(error) or type(error).__name__)
            except (ValueError, LookupError, TypeError, AttributeError) as error:
                self._failed(f"the API server's answer is not what it promises ({error!r})")
            if clock() - started_at > _BACKOFF_S[1]:
                backoff_s = _BACKOFF_S[0]
            await asyncio.sleep(backoff_s * self._rng.uniform(0.5, 1.0))
            backoff_s = min(2 * backoff_s, _BACKOFF_S[1])

    async def _follow(self, tell: Callable[[frozenset[str]], None]) -> None:
        """List, then watch, until the version that is watched from is gone."""
        timeout = aiohttp.ClientTimeout(total=None, connect=_CONNECT_S, sock_read=_SILENCE_S)
        async with aiohttp.ClientSession(timeout=timeout) as session:
            listed = await self._list(session)
            self._version = listed["metadata"]["resourceVersion"]
            self._slices = {each["metadata"]["name"]: each for each in listed.get("items") or ()}
            self._tell(tell)
            while True:
                if not await self._watch(session, tell):
                    return
                await asyncio.sleep(_BETWEEN_WATCHES_S)

    async def _watch(
        self, session: aiohttp.ClientSession, tell: Callable[[frozenset[str]], None]
    ) -> bool:
        """Take in the events of one watch; False once its version is gone."""
        query = {
            "watch": "1",
            "allowWatchBookmarks": "true",
            "resourceVersion": self._version,
            "timeoutSeconds": str(_WATCH_S),
        }
        async with await self._get(session, query) as response:
            if response.status == _GONE:
                return False
            self._check(response)
            async for line in _lines(response):
                event = json.loads(line)
                kind, item = event["type"], event["object"]
                if kind == "ERROR":
                    if item.get("code") == _GONE:
                        return False
                    raise OSError(f"the watch failed: {item.get('message')}")
                self._note(kind, item)
                self._tell(tell)
        return True

    def _note(self, kind: str, item: dict[str, Any]) -> None:
        self._version = item["metadata"]["resourceVersion"]
        name = item["metadata"].get("name", "")
        if kind == "DELETED":
            self._slices.pop(name, None)
        elif kind in {"ADDED", "MODIFIED"}:
            self._slices[name] = item

    async def _list(self, session: aiohttp.ClientSession) -> dict[str, Any]:
        async with await self._get(session, {}) as response:
            self._check(response)
            listed: dict[str, Any] = json.loads(await response.read())
            return listed

    async def _get(
        self, session: aiohttp.ClientSession, query: dict[str, str]
    ) -> aiohttp.ClientResponse:
        address = self._address
        headers, context = await asyncio.to_thread(self._api.read)
        return await session.get(
            f"{self._api.base_url()}/apis/discovery.k8s.io/v1/namespaces/{address.namespace}"
            "/endpointslices",
            params={"labelSelector": f"{_SERVICE_LABEL}={address.service}", **query},
            headers=headers,
            ssl=context,
            allow_redirects=False,
        )

    def _check(self, response: aiohttp.ClientResponse) -> None:
        if response.status == _OK:
            return
        hint = ""
        if response.status in {401, 403}:
            hint = (
                "; the service account needs a Role that may list and watch endpointslices of "
                f"discovery.k8s.io in namespace {self._address.namespace}"
            )
        raise OSError(f"the API server answers {response.status}{hint}")

    def _tell(self, tell: Callable[[frozenset[str]], None]) -> None:
        found = self._urls()
        self.failure = None
        if found != self._found:
            self._found = found
            tell(found)

    def _urls(self) -> frozenset[str]:
        by_family: dict[str, set[str]] = {family: set() for family in _FAMILIES}
        for each in self._slices.values():
            hosts = [e["addresses"][0] for e in each.get("endpoints") or () if _is_ready(e)]
            if hosts:
                port = self._port(each)
                urls = (_url(host, port, self._address.path) for host in hosts)
                by_family.setdefault(each["addressType"], set()).update(urls)
        return frozenset(next((by_family[name] for name in _FAMILIES if by_family[name]), ()))

    def _port(self, each: dict[str, Any]) -> int:
        """The port that a slice's endpoints listen on.

        Raises:
            OSError: which one of them?
        """
        wanted = self._address.port
        if wanted is not None and wanted.isdigit():
            return int(wanted)
        ports: dict[str, int] = {p.get("name") or "": p["port"] for p in each.get("ports") or ()}
        if wanted is None and len(ports) == 1:
            (wanted,) = ports
        if wanted is None or wanted not in ports:
            named = ", ".join(f"{name or '(no name)'} {port}" for name, port in ports.items())
            raise OSError(f"no port {wanted!r}; name one of: {named}")
        return ports[wanted]

    def _failed(self, why: str) -> None:
        failure = f"{self._address}: cannot be looked up: {why}"
        if failure != self.failure:
            _log.warning("%s; what was found before stays", failure)
        self.failure = failure


async def _lines(response: aiohttp.ClientResponse) -> AsyncIterator[bytes]:
    """The lines of an answer, however long: one event each."""
    buffer = bytearray()
    async for piece in response.content.iter_any():
        buffer += piece
        *lines, buffer = buffer.split(b"\n")
        if len(buffer) > _MAX_EVENT_BYTES:
            raise OSError(f"an event has more than {_MAX_EVENT_BYTES} bytes")
        for line in filter(None, lines):
            yield bytes(line)


def _is_ready(endpoint: dict[str, Any]) -> bool:
    """Whether an endpoint is ready. What a slice does not say is true, by the API's own rule."""
    conditions = endpoint.get("conditions") or {}
    return conditions.get("ready") is not False and conditions.get("terminating") is not True


def _url(host: str, port: int, path: str) -> str:
    return f"http://[{host}]:{port}{path}" if ":" in host else f"http://{host}:{port}{path}"
