"""Request heads and origins, as bytes."""

from __future__ import annotations

import pytest

from forebay.adapters.upstream.origin import Origin
from forebay.adapters.upstream.request import encode_head, protocol_and_host
from forebay.errors import ConfigError

FIXED = protocol_and_host("gpu:8000")


@pytest.mark.parametrize(
    ("url", "authority"),
    [
        ("http://gpu-b.lan:7997/v1", "gpu-b.lan:7997"),
        ("http://gpu:80", "gpu"),
        ("https://gpu:443/", "gpu"),
        ("http://gpu:443", "gpu:443"),
        ("https://GPU.Example", "gpu.example"),
        ("http://[::1]:8000/v1", "[::1]:8000"),
        ("http://[2001:db8::1]", "[2001:db8::1]"),
        ("http://[fe80::1%25eth0]:8000", "[fe80::1]:8000"),
        ("http://bücher.example", "xn--bcher-kva.example"),
    ],
)
def test_host_names_the_endpoint(url, authority):
    assert Origin.parse(url).authority == authority


@pytest.mark.parametrize(
    "url",
    [
        "ftp://gpu",
        "gpu:8000",
        "http://",
        "http://gpu:x",
        "http://[::1",
        "http://a..b",
        "http://a b",
    ],
)
def test_a_url_that_names_no_endpoint_is_refused(url):
    with pytest.raises(ConfigError):
        Origin.parse(url)


@pytest.mark.parametrize("rest", ["gpu:8000", "gpu:x", "[::1"])
def test_credentials_in_a_url_are_refused_and_not_repeated(rest):
    with pytest.raises(ConfigError) as caught:
        Origin.parse(f"http://me:secret@{rest}")
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize("method", [b"POST", b"PUT", b"PATCH"])
def test_no_content_is_said_where_content_is_usual(method):
    assert encode_head(method, b"/", [], 0, FIXED).endswith(b"\r\nContent-Length: 0\r\n\r\n")


@pytest.mark.parametrize("method", [b"GET", b"HEAD", b"DELETE", b"OPTIONS"])
def test_no_content_is_not_said_where_it_is_usual(method):
    assert b"Content-Length" not in encode_head(method, b"/", [], 0, FIXED)


@pytest.mark.parametrize(
    "name",
    [
        b"Host",
        b"content-length",
        b"Transfer-Encoding",
        b"CONNECTION",
        b"TE",
        b"keep-alive",
        b"Upgrade",
        b"expect",
    ],
)
def test_headers_of_one_hop_are_left_out(name):
    head = encode_head(b"GET", b"/", [(name, b"sentinel"), (b"x", b"y")], 0, FIXED)
    assert head == b"GET / HTTP/1.1\r\nHost: gpu:8000\r\nx: y\r\n\r\n"


@pytest.mark.parametrize("poison", [b"a\r\nX-Evil: 1", b"a\nb", b"a\rb", b"a\0b"])
def test_nothing_can_be_smuggled_into_a_head(poison):
    for target, header in [
        (b"/" + poison, (b"x", b"y")),
        (b"/", (poison, b"y")),
        (b"/", (b"x", poison)),
    ]:
        with pytest.raises(ValueError, match="line"):
            encode_head(b"GET", target, [header], 0, FIXED)


@pytest.mark.parametrize("target", [b"", b"/a b", b"/ HTTP/1.1"])
def test_a_target_is_one_word(target):
    with pytest.raises(ValueError, match="request line"):
        encode_head(b"GET", target, [], 0, FIXED)
