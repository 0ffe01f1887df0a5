"""Endpoints of a Kubernetes service, against a served API on loopback."""

from __future__ import annotations

import ssl
from typing import TYPE_CHECKING

import pytest
import trustme

from forebay.adapters.discovery.address import KubernetesAddress, parse
from forebay.adapters.discovery.kubernetes import KubernetesSource
from forebay.adapters.discovery.kubernetes_api import Api
from support.cluster import Cluster, cluster, endpoint, endpoint_slice
from support.waiting import eventually
from support.watching import watching

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

pytestmark = pytest.mark.anyio

ONE, TWO = "http://10.1.0.1:8000/v1", "http://10.1.0.2:8000/v1"


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("forebay.adapters.discovery.kubernetes._BACKOFF_S", (0.02, 0.02))
    monkeypatch.setattr("forebay.adapters.discovery.kubernetes._BETWEEN_WATCHES_S", 0.02)


@pytest.fixture
async def served() -> AsyncIterator[Cluster]:
    async with cluster() as served:
        yield served


@pytest.fixture
def nowhere(tmp_path: Path) -> Path:
    return tmp_path / "nowhere"


def source_of(served: Cluster, nowhere: Path, url: str = "k8s://ml/vllm:http/v1"):
    address = parse(url)
    assert isinstance(address, KubernetesAddress)
    return KubernetesSource(address, Api(served.url, nowhere, nowhere))


async def test_ready_endpoints_are_listed_and_then_watched(served: Cluster, nowhere: Path) -> None:
    served.put(endpoint_slice(endpoint("10.1.0.1")))
    async with watching(source_of(served, nowhere)) as told:
        await told.becomes(ONE)
        await eventually(lambda: served.watches == 1)
        served.put(endpoint_slice(endpoint("10.1.0.1"), endpoint("10.1.0.2")))
        await told.becomes(ONE, TWO)
        served.put(endpoint_slice(endpoint("10.1.0.9"), name="vllm-fghij"))
        await told.becomes(ONE, TWO, "http://10.1.0.9:8000/v1")
        served.delete("vllm-abcde")
        await told.becomes("http://10.1.0.9:8000/v1")
    assert served.lists == 1


@pytest.mark.parametrize(
    "conditions",
    [
        {"ready": False, "serving": False},
        {"ready": False, "serving": True, "terminating": True},
        {"ready": True, "serving": True, "terminating": True},
    ],
)
async def test_what_is_not_ready_or_terminates_is_no_endpoint(
    served: Cluster, nowhere: Path, conditions: dict[str, bool]
) -> None:
    served.put(endpoint_slice(endpoint("10.1.0.1"), endpoint("10.1.0.2")))
    async with watching(source_of(served, nowhere)) as told:
        await told.becomes(ONE, TWO)
        await eventually(lambda: served.watches == 1)
        served.put(endpoint_slice(endpoint("10.1.0.1"), endpoint("10.1.0.2", **conditions)))
        await told.becomes(ONE)


async def test_conditions_that_are_not_said_are_fulfilled(served: Cluster, nowhere: Path) -> None:
    served.put(endpoint_slice({"addresses": ["10.1.0.1"], "conditions": {}}))
    async with watching(source_of(served, nowhere)) as told:
        await told.becomes(ONE)


async def test_a_service_without_endpoints_has_none(served: Cluster, nowhere: Path) -> None:
    served.put(endpoint_slice())
    async with watching(source_of(served, nowhere)) as told:
        await told.becomes()


async def test_a_pod_with_an_address_of_each_family_is_one_endpoint(
    served: Cluster, nowhere: Path
) -> None:
    served.put(
        endpoint_slice(endpoint("fd00::1"), name="vllm-6", family="IPv6"),
        endpoint_slice(endpoint("10.1.0.1"), name="vllm-4"),
    )
    async with watching(source_of(served, nowhere)) as told:
        await told.becomes(ONE)
        await eventually(lambda: served.watches == 1)
        served.delete("vllm-4")
        await told.becomes("http://[fd00::1]:8000/v1")


@pytest.mark.parametrize(
    ("url", "port"),
    [
        ("k8s://ml/vllm:metrics/v1", 9000),
        ("k8s://ml/vllm:7000/v1", 7000),
    ],
)
async def test_the_port_is_named_or_given(
    served: Cluster, nowhere: Path, url: str, port: int
) -> None:
    served.put(endpoint_slice(endpoint("10.1.0.1"), ports=(("http", 8000), ("metrics", 9000))))
    async with watching(source_of(served, nowhere, url)) as told:
        await told.becomes(f"http://10.1.0.1:{port}/v1")


async def test_a_port_that_is_not_clear_is_told_with_the_choice(
    served: Cluster, nowhere: Path
) -> None:
    served.put(endpoint_slice(endpoint("10.1.0.1"), ports=(("http", 8000), ("metrics", 9000))))
    source = source_of(served, nowhere, "k8s://ml/vllm/v1")
    async with watching(source) as told:
        await eventually(lambda: source.failure is not None)
        assert "http 8000, metrics 9000" in str(source.failure)
        served.put(endpoint_slice(endpoint("10.1.0.1")))
        await told.becomes(ONE)


async def test_a_watch_that_ends_goes_on_where_it_stopped(served: Cluster, nowhere: Path) -> None:
    served.put(endpoint_slice(endpoint("10.1.0.1")))
    async with watching(source_of(served, nowhere)) as told:
        await told.becomes(ONE)
        await eventually(lambda: served.watches == 1)
        version = served.bookmark()
        served.end_watches()
        await eventually(lambda: len(served.watched_from) == 2 and served.watches == 1)
        assert served.watched_from[1] == version, "a bookmark is a place to go on from"
        served.put(endpoint_slice(endpoint("10.1.0.2")))
        await told.becomes(TWO)
    assert served.lists == 1


@pytest.mark.parametrize("as_event", [True, False])
async def test_a_version_that_is_gone_is_listed_again(
    served: Cluster, nowhere: Path, as_event: bool
) -> None:
    served.put(endpoint_slice(endpoint("10.1.0.1")))
    async with watching(source_of(served, nowhere)) as told:
        await told.becomes(ONE)
        await eventually(lambda: served.watches == 1)
        served.expire(as_event=as_event)
        await eventually(lambda: served.lists == 2 and served.watches == 1)
        served.put(endpoint_slice(endpoint("10.1.0.2")))
        await told.becomes(TWO)
    assert told.sets == [frozenset({ONE}), frozenset({TWO})], "nobody left in between"


@pytest.mark.parametrize("status", [403, 500])
async def test_a_server_that_refuses_keeps_what_was_found(
    served: Cluster, nowhere: Path, status: int
) -> None:
    served.put(endpoint_slice(endpoint("10.1.0.1")))
    source = source_of(served, nowhere)
    async with watching(source) as told:
        await told.becomes(ONE)
        await eventually(lambda: served.watches == 1)
        served.status = status
        served.end_watches()
        await eventually(lambda: source.failure is not None)
        assert str(status) in str(source.failure)
        served.put(endpoint_slice(endpoint("10.1.0.2")))
        served.status = 200
        await told.becomes(TWO)
        assert source.failure is None


async def test_the_token_is_read_each_time_and_never_told(served: Cluster, nowhere: Path) -> None:
    token_file = nowhere.with_name("token")
    token_file.write_text("first-secret\n", "ascii")
    served.token = "second-secret"
    served.put(endpoint_slice(endpoint("10.1.0.1")))
    address = parse("k8s://ml/vllm/v1")
    source = KubernetesSource(address, Api(served.url, token_file, nowhere))
    async with watching(source) as told:
        await eventually(lambda: source.failure is not None)
        assert "401" in str(source.failure)
        assert "secret" not in str(source.failure) + repr(source)
        token_file.write_text("second-secret\n", "ascii")
        await told.becomes(ONE)


def test_inside_a_cluster_the_environment_tells_where_the_server_is(
    nowhere: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    api = Api("", nowhere, nowhere)
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    with pytest.raises(OSError, match="not inside a cluster"):
        api.base_url()
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.96.0.1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", "6443")
    assert api.base_url() == "https://10.96.0.1:6443"
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "fd00::1")
    assert api.base_url() == "https://[fd00::1]:6443"


def test_the_cluster_s_own_authority_is_the_only_one_that_counts(tmp_path: Path) -> None:
    authority = trustme.CA()
    ca_file = tmp_path / "ca.crt"
    authority.cert_pem.write_to_path(str(ca_file))
    _, context = Api("", tmp_path / "none", ca_file).read()
    assert context.verify_mode is ssl.CERT_REQUIRED
    assert [entry["serialNumber"] for entry in context.get_ca_certs()]
    assert len(context.get_ca_certs()) == 1
