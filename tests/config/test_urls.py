from __future__ import annotations

import string
from typing import TYPE_CHECKING

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from forebay.config.api_root import normalise
from forebay.errors import ConfigError

if TYPE_CHECKING:
    from forebay.config.urls import BaseUrl

SEGMENTS = st.sampled_from(
    [
        "",
        "v1",
        "v2",
        "embeddings",
        "chat",
        "completions",
        "models",
        "health",
        "metrics",
        "gpu-a",
        "%2F",
    ]
) | st.text(string.ascii_letters + string.digits + "-._~!$&'()*+,;=:", max_size=5)
HOSTS = st.sampled_from(
    ["gpu-a.lan", "GPU-A.lan.", "10.0.0.5", "[fd00:10::5]", "[FD00:10:0::5]", "localhost", "a_b"]
)


@st.composite
def pasted(draw: st.DrawFn) -> str:
    scheme = draw(st.sampled_from(["", "http://", "https://", "HTTP://"]))
    port = draw(st.sampled_from(["", ":80", ":443", ":8000", ":65535"]))
    path = "/".join(["", *draw(st.lists(SEGMENTS, max_size=6))])
    query = draw(st.sampled_from(["", "?", "?api-version=2", "?a=b&c=/v1/v1//"]))
    return f" {scheme}{draw(HOSTS)}{port}{path}{query}"


def normalised(text: str, api_prefix: str | None) -> BaseUrl:
    try:
        return normalise(text, api_prefix=api_prefix)
    except ConfigError:
        assume(False)
        raise


@settings(deadline=None)
@given(pasted(), st.sampled_from([None, "", "/v1", "/api/v3"]))
def test_what_was_normalised_stays_as_it_is(text: str, api_prefix: str | None) -> None:
    once = normalised(text, api_prefix)
    assert normalise(once.at(""), api_prefix=api_prefix) == once


@settings(deadline=None)
@given(pasted(), st.sampled_from([None, "", "/v1"]))
def test_no_request_goes_to_a_doubled_slash_or_version(text: str, api_prefix: str | None) -> None:
    path = normalised(text, api_prefix).at("/embeddings").partition("?")[0].partition("://")[2]
    assert "//" not in path
    assert "/v1/v1/" not in path


@pytest.mark.parametrize(
    "text",
    [
        "http://gpu-a.lan:8000",
        "http://gpu-a.lan:8000/",
        "http://gpu-a.lan:8000/v1",
        "http://gpu-a.lan:8000/v1/",
        "http://gpu-a.lan:8000//v1//",
        "http://gpu-a.lan:8000/v1/v1",
        "http://gpu-a.lan:8000/v1/embeddings",
        "http://gpu-a.lan:8000/v1/chat/completions/",
        "http://gpu-a.lan:8000/v1/models",
        "http://gpu-a.lan:8000/metrics",
        "http://gpu-a.lan:8000/health",
        "gpu-a.lan:8000",
        "gpu-a.lan:8000/v1",
        "GPU-A.LAN:8000",
        " http://gpu-a.lan.:8000/v1\n",
        "HTTP://gpu-a.lan:08000/v1",
    ],
)
def test_all_pasted_forms_of_one_server_are_one_server(text: str) -> None:
    url = normalise(text)
    assert url == normalise("http://gpu-a.lan:8000")
    assert url.at("/embeddings") == "http://gpu-a.lan:8000/v1/embeddings"
    assert url.root + "/metrics" == "http://gpu-a.lan:8000/metrics"
    assert url.host == "gpu-a.lan:8000"


@pytest.mark.parametrize(
    ("text", "api", "root", "host"),
    [
        (
            "https://llm.example.org/gpu-a/v1/",
            "https://llm.example.org/gpu-a/v1",
            "https://llm.example.org/gpu-a",
            "llm.example.org:443",
        ),
        (
            "https://llm.example.org/embeddings/v1",
            "https://llm.example.org/embeddings/v1",
            "https://llm.example.org/embeddings",
            "llm.example.org:443",
        ),
        ("https://h:443", "https://h/v1", "https://h", "h:443"),
        ("http://h:80", "http://h/v1", "http://h", "h:80"),
        ("http://h:443", "http://h:443/v1", "http://h:443", "h:443"),
        (
            "http://[fd00:10::5]:8000/v1",
            "http://[fd00:10::5]:8000/v1",
            "http://[fd00:10::5]:8000",
            "[fd00:10::5]:8000",
        ),
        (
            "http://[FD00:10:0:0::5]:8000",
            "http://[fd00:10::5]:8000/v1",
            "http://[fd00:10::5]:8000",
            "[fd00:10::5]:8000",
        ),
        ("http://[::1]/v1", "http://[::1]/v1", "http://[::1]", "[::1]:80"),
        ("[::1]:8000", "http://[::1]:8000/v1", "http://[::1]:8000", "[::1]:8000"),
        ("vllm_chat:8000", "http://vllm_chat:8000/v1", "http://vllm_chat:8000", "vllm_chat:8000"),
    ],
)
def test_prefixes_ports_and_ipv6_are_kept(text: str, api: str, root: str, host: str) -> None:
    url = normalise(text)
    assert (url.api, url.root, url.host) == (api, root, host)


def test_the_query_is_kept_for_api_calls() -> None:
    url = normalise("http://gpu-a.lan:8000/v1?api-version=2")
    assert url.at("/embeddings") == "http://gpu-a.lan:8000/v1/embeddings?api-version=2"
    assert url.api == "http://gpu-a.lan:8000/v1"


def test_the_query_is_not_shown() -> None:
    assert "2f9c" not in repr(normalise("http://gpu-a.lan:8000/v1?code=2f9c"))


@pytest.mark.parametrize("text", ["http://gpu-b.lan:7997", "gpu-b.lan:7997/embeddings"])
def test_an_empty_prefix_puts_the_api_at_the_root(text: str) -> None:
    url = normalise(text, api_prefix="")
    assert url.at("/embeddings") == "http://gpu-b.lan:7997/embeddings"
    assert url.root == "http://gpu-b.lan:7997"


def test_another_prefix_is_taken_as_said() -> None:
    url = normalise("https://h/api/v3/", api_prefix="/api/v3")
    assert (url.api, url.root) == ("https://h/api/v3", "https://h")


@pytest.mark.parametrize(
    ("text", "api_prefix", "hint"),
    [
        ("http://gpu-b.lan:7997/embeddings", None, '"api_prefix": ""'),
        ("http://h/api/v3", None, '"api_prefix": "/v3"'),
        ("http://h/v1", "", '"api_prefix": "/v1"'),
    ],
)
def test_a_path_with_two_readings_is_questioned(
    text: str, api_prefix: str | None, hint: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        normalise(text, api_prefix=api_prefix)
    assert hint in str(caught.value)


@pytest.mark.parametrize(
    "text", ["http:8000", "http://http", "http://http/v1", "https.lan/v1", "http-proxy/v1", "h//v1"]
)
def test_a_host_may_have_a_name_that_begins_like_a_scheme(text: str) -> None:
    assert (
        normalise(text).hostname == text.removeprefix("http://").partition(":")[0].partition("/")[0]
    )


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("http://::1:8000/v1", "needs brackets"),
        ("::1", "needs brackets"),
        ("fd00:10::5:8000", "needs brackets"),
        ("http://[::1:8000/v1", "needs brackets"),
        ("http://[gpu]:8000", "not an IPv6 address"),
        ("http://[10.0.0.5]:8000", "not an IPv6 address"),
        ("http://[fe80::1%25eth0]:8000", "zone|not an IPv6 address"),
        ("http://[fe80::1%eth0]:8000", "zone"),
        ("http://gpu-a.lan:80a0/v1", "port"),
        ("http://gpu-a.lan:", "port"),
        ("http://gpu-a.lan:0", "port"),
        ("http://gpu-a.lan:65536", "port"),
        ("http://gpu-a.lan:-1", "port"),
        ("http://gpu-a.lan:٨٠", "port"),
        ("ftp://gpu-a.lan/v1", "scheme"),
        ("unix:///run/vllm.sock", "scheme"),
        ("http//gpu-a.lan:8000/v1", "must begin with http://"),
        ("HTTPS//gpu-a.lan", "must begin with http://"),
        ("http/gpu-a.lan", "must begin with http://"),
        ("http:/gpu-a.lan", "must begin with http://"),
        ("http:gpu-a.lan:8000", "must begin with http://"),
        ("http;//gpu-a.lan", "must begin with http://"),
        ("htp//gpu-a.lan", "must begin with http://"),
        ("https:", "must begin with http://"),
        ("//gpu-a.lan:8000", "must begin with http://"),
        ("http:\\\\gpu-a.lan\\v1", "must begin with http://"),
        ("http://http://gpu-a.lan", "two schemes"),
        ("http://https//gpu-a.lan", "two schemes"),
        ("https://http:/gpu-a.lan", "two schemes"),
        ("http://", "host"),
        ("http:///v1", "host"),
        ("", "empty"),
        ("   ", "empty"),
        ("http://gpu a.lan", "host"),
        ("http://<host>/v1", "host"),
        ("http://gpu..lan", "host"),
        ("http://10.0.0.256:8000", "IPv4"),
        ("http://h/v1 /x", "character"),
        ("http://h/v1?a=b c", "character"),
        ("http://h/v1#frag", "fragment"),
        ("http://h/../v1", r"\.\."),
        ("http://user:pass@h/v1", "api_key"),
        ("user:pass@h", "api_key"),
        ("http://user:p/ass@h/v1", "api_key"),
        ("http://us/er:pass@h/v1", "api_key"),
    ],
)
def test_what_is_no_base_url_is_refused_with_the_reason(text: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said) as caught:
        normalise(text)
    assert "pass" not in str(caught.value).replace("password", "")


@settings(deadline=None)
@given(st.text())
def test_any_text_is_a_base_url_or_refused(text: str) -> None:
    try:
        url = normalise(text)
    except ConfigError:
        return
    assert url.root.startswith(("http://", "https://"))
    assert 0 < url.port <= 65535
