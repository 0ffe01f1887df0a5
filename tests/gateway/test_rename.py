"""A request under the name that an endpoint has for its model: nothing else of it changes."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forebay.proxy.look import look_at
from forebay.proxy.message import Request
from forebay.proxy.rename import renamed


def post(body, kind=b"application/json", query=b""):
    return Request(b"POST", b"/v1/x", query, [(b"content-type", kind)], body)


def in_json(body, model="n"):
    return renamed(post(body), body, model)[0]


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (b'{"model":"m"}', b'{"model":"n"}'),
        (b' {\n\t"model" :\r\n "m" , "x": 1.50e3 } ', b' {\n\t"model" :\r\n "n" , "x": 1.50e3 } '),
        (b'{"x":{"model":"m"},"model":"m"}', b'{"x":{"model":"m"},"model":"n"}'),
        (
            b'{"x":[{"model":"m"},"model"],"model":"m"}',
            b'{"x":[{"model":"m"},"model"],"model":"n"}',
        ),
        (b'{"x":"model","model":"m"}', b'{"x":"model","model":"n"}'),
        (b'{"x":"\\"model\\":\\"m\\"}","model":"m"}', b'{"x":"\\"model\\":\\"m\\"}","model":"n"}'),
        (b'{"x":"\\\\","model":"m"}', b'{"x":"\\\\","model":"n"}'),
        (b'{"mod\\u0065l":"m"}', b'{"mod\\u0065l":"n"}'),
        (b'{"model":"\\u006d"}', b'{"model":"n"}'),
        (b'{"model":"a","model":"m"}', b'{"model":"n","model":"n"}'),
        (b'{"model":null,"model":"m"}', b'{"model":"n","model":"n"}'),
        (b'{"models":"m","mode":"m","model":"m"}', b'{"models":"m","mode":"m","model":"n"}'),
        ('{"x":"é🙂","model":"m"}'.encode(), '{"x":"é🙂","model":"n"}'.encode()),
    ],
)
def test_only_the_outermost_model_changes(before, after):
    assert in_json(before) == after


def test_a_name_is_written_as_json():
    body = in_json(b'{"model":"m"}', 'a"b\\c/é')
    assert json.loads(body) == {"model": 'a"b\\c/é'}


def test_a_text_of_megabytes_is_passed_over():
    text = json.dumps({"x": 'a"\n' * 3_000_000, "model": "m"}).encode()
    assert in_json(text) == text[: -len(b'"m"}')] + b'"n"}'


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(alphabet='model":{}[],\\é '),
    lambda inner: st.lists(inner) | st.dictionaries(st.sampled_from(["model", "x", '"']), inner),
    max_leaves=12,
)


@given(
    st.dictionaries(st.text(alphabet='model":{}\\é '), values),
    st.booleans(),
    st.sampled_from([None, 2]),
)
def test_the_rest_means_the_same(rest, ascii_only, indent):
    rest.pop("model", None)
    keys = list(rest)
    value = {key: rest[key] for key in keys[::2]} | {"model": "m"} | rest
    body = json.dumps(value, ensure_ascii=ascii_only, indent=indent).encode()
    assert json.loads(in_json(body)) == {**value, "model": "n"}


def test_a_form_keeps_its_file():
    def form(model):
        return (
            b'--x\r\nContent-Disposition: form-data; name="file"; filename="model"\r\n\r\n'
            b'RIFF\x00\xff{"model":"m"}\r\n'
            b'--x\r\nContent-Disposition: form-data; name="model"\r\n\r\n'
            + model
            + b"\r\n--x--\r\n"
        )

    request = post(form(b"m"), b"multipart/form-data; boundary=x")
    assert renamed(request, request.body, "other/n")[0] == form(b"other/n")


def test_a_form_with_the_model_twice_has_it_twice():
    part = b'--x\r\nContent-Disposition: form-data; name="model"\r\n\r\n%b\r\n'
    request = post(part % b"m" + part % b"k" + b"--x--", b"multipart/form-data; boundary=x")
    assert renamed(request, request.body, "n")[0] == part % b"n" * 2 + b"--x--"


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (b"model=m", b"model=a%2Fn"),
        (b"limit=1&model=m&after=model", b"limit=1&model=a%2Fn&after=model"),
        (b"mod%65l=m&x", b"model=a%2Fn&x"),
    ],
)
def test_a_query_names_it_where_there_is_no_body(before, after):
    request = Request(b"GET", b"/v1/x", before, [], b"")
    assert look_at(request, b"").model == "m"
    assert renamed(request, b"", "a/n") == (b"", after)
