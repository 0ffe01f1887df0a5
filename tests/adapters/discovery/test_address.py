"""The URLs that name a source of endpoints."""

from __future__ import annotations

import pytest

from forebay.adapters.discovery import parse
from forebay.adapters.discovery.address import DnsAddress, KubernetesAddress, SrvAddress
from forebay.errors import ConfigError


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("dns://vllm.lan:8000/v1", DnsAddress("vllm.lan", 8000, "/v1")),
        ("dns://VLLM.lan.:8000", DnsAddress("vllm.lan.", 8000, "")),
        ("srv://_http._tcp.vllm.lan/v1", SrvAddress("_http._tcp.vllm.lan", "/v1")),
        ("k8s://ml/vllm:8000/v1", KubernetesAddress("ml", "vllm", "8000", "/v1")),
        ("k8s://ml/vllm:http/v1/", KubernetesAddress("ml", "vllm", "http", "/v1")),
        ("k8s://ml/vllm", KubernetesAddress("ml", "vllm", None, "")),
    ],
)
def test_each_form_is_read(text: str, address: object) -> None:
    assert parse(text) == address


@pytest.mark.parametrize(
    "text",
    [
        "",
        "http://vllm.lan:8000",
        "dns://vllm.lan/v1",
        "dns://vllm.lan:0/v1",
        "dns://vllm.lan:70000/v1",
        "dns://-.lan:80",
        "dns://user@vllm.lan:80",
        "dns://vllm.lan:80?key=1",
        f"dns://{'a' * 254}:80",
        "srv://vllm.lan/v1",
        "k8s://vllm:80/v1",
        "k8s://ml/vllm:70000",
        "k8s://ml/vllm/../other",
    ],
)
def test_what_names_no_source_is_refused(text: str) -> None:
    with pytest.raises(ConfigError):
        parse(text)


@pytest.mark.parametrize(
    "text", ["dns://vllm.lan:8000/v1", "srv://_http._tcp.vllm.lan/v1", "k8s://ml/vllm:8000/v1"]
)
def test_messages_show_it_as_it_is_written(text: str) -> None:
    assert str(parse(text)) == text
