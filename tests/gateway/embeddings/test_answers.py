"""The quick look at an answer agrees with the thorough one."""

from __future__ import annotations

import json

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from forebay.proxy.embeddings import answers
from forebay.proxy.embeddings.held import InvalidAnswer
from support.embedder import packed

floats = st.lists(st.floats(-2, 2, width=32), min_size=2, max_size=2)
vectors = st.one_of(
    floats,
    floats,
    floats.map(packed),
    st.sampled_from([[], "", "AAA=", None, [[0.5]], ["a"], "index", [1]]),
)
items = st.fixed_dictionaries(
    {"index": st.sampled_from([0, 1, 2, -1, None, "0", 1.0]), "embedding": vectors},
    optional={"object": st.just("embedding"), "text": st.sampled_from(['"index":0,', "]", "\\"])},
)
right = st.integers(0, 4).flatmap(
    lambda count: st.tuples(
        *[
            st.fixed_dictionaries({"embedding": floats, "index": st.just(index)})
            for index in range(count)
        ]
    ).map(list)
)
spacing = st.sampled_from([(",", ":"), (", ", ": "), (" ,\n", "\t:\n ")])


@example([{"index": 0, "embedding": [0.5]}, {"index": None, "embedding": []}], 1, (",", ":"), False)
@given(st.one_of(right, st.lists(items, max_size=3)), st.integers(1, 4), spacing, st.booleans())
def test_what_is_passed_on_unread_would_not_have_been_changed(data, inputs, spaces, encoded):
    encoding = "base64" if encoded else "float"
    body = json.dumps({"object": "list", "data": data, "model": "m"}, separators=spaces).encode()
    if not answers.needs_nothing(body, inputs, encoding):
        return
    try:
        answer = answers.read(body, inputs, encoding)
    except InvalidAnswer as invalid:
        # What only who computes with it will see: other lengths, values that are no numbers.
        assert "embedding" in str(invalid)  # noqa: PT017
        assert encoded
        return
    assert [msgspec.json.decode(item["index"]) for item in answer.items] == list(range(inputs))
    assert json.loads(answers.merged([(0, answer)]))["data"] == data


@pytest.mark.parametrize("encoding", ["float", "base64"])
@pytest.mark.parametrize("spaces", [(",", ":"), (", ", ": "), (" ,\n", "\t:\n ")])
@pytest.mark.parametrize("order", ["index first", "embedding first"])
def test_a_right_answer_needs_nothing(encoding, spaces, order):
    data = []
    for index in range(12):
        vector = [0.25 * index, -1e-7, 3]
        item = {"index": index, "embedding": packed(vector) if encoding == "base64" else vector}
        if order == "embedding first":
            item = dict(reversed(item.items()))
        data.append({"object": "embedding", **item})
    body = json.dumps({"data": data, "model": "embedding"}, separators=spaces).encode()
    assert answers.needs_nothing(body, 12, encoding)
    assert not answers.needs_nothing(body, 11, encoding)
    assert not answers.needs_nothing(body, 13, encoding)
    other = "float" if encoding == "base64" else "base64"
    assert not answers.needs_nothing(body, 12, other)


@pytest.mark.parametrize(
    "body", [b"", b'"embedding":[1', b'{"embedding":"', b'{"index":0,"embedding":"AAAA']
)
def test_a_torn_answer_needs_more(body):
    assert not answers.needs_nothing(body, 1, "float")
    assert not answers.needs_nothing(body, 1, "base64")
