from __future__ import annotations

import base64
import json
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forebay.proxy.embeddings.vectors import InvalidVector, to_base64, to_floats

float32 = st.floats(width=32, allow_nan=False, allow_infinity=False)


@given(st.lists(float32, min_size=1))
def test_base64_to_floats_and_back_changes_no_bit(values):
    packed = b'"' + base64.b64encode(struct.pack(f"<{len(values)}f", *values)) + b'"'
    floats = to_floats(packed)
    assert json.loads(floats) == values
    assert to_base64(floats) == packed


@given(st.lists(st.floats(-1e38, 1e38), min_size=1))
def test_doubles_become_the_nearest_float32(values):
    packed = base64.b64decode(to_base64(json.dumps(values).encode()))
    assert packed == struct.pack(f"<{len(values)}f", *values)


@given(st.text().map(json.dumps).map(str.encode))
def test_any_other_text_is_refused_or_whole_values(text):
    try:
        floats = json.loads(to_floats(text))
    except InvalidVector:
        return
    assert len(floats) * 4 == len(base64.b64decode(json.loads(text)))


@pytest.mark.parametrize("text", [b"null", b"[", b'{"a":1}', b'["1"]', b"[1e39]", b"[[1]]"])
def test_what_is_no_list_of_numbers_is_refused(text):
    with pytest.raises(InvalidVector):
        to_base64(text)
