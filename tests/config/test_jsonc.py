from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from forebay.config import InvalidConfig
from forebay.config.jsonc import MAX_DEPTH, parse
from forebay.config.problems import Position

VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)
FILLERS = st.sampled_from(
    ["", " ", "\n", "\r\n", "\t", '// , ] } " /*\n', '/* // " { */', "/**/", "/***/", "//\r\n"]
)


def read(text: str | bytes) -> object:
    return parse(text, file="f").value


def refusal(text: str | bytes) -> str:
    with pytest.raises(InvalidConfig) as caught:
        parse(text, file="f")
    return str(caught.value)


def decorated(value: object, data: st.DataObject) -> str:
    """JSON of `value` with comments between all tokens, and commas after last items."""

    def gap() -> str:
        return data.draw(FILLERS)

    if isinstance(value, list):
        items = [gap() + decorated(item, data) + gap() for item in value]
    elif isinstance(value, dict):
        items = [
            f"{gap()}{json.dumps(key)}{gap()}:{gap()}{decorated(item, data)}{gap()}"
            for key, item in value.items()
        ]
    else:
        return json.dumps(value, ensure_ascii=data.draw(st.booleans()))
    last = f",{gap()}" if items and data.draw(st.booleans()) else gap()
    begin, end = "[]" if isinstance(value, list) else "{}"
    return f"{begin}{','.join(items)}{last}{end}"


@settings(deadline=None)
@given(VALUES)
def test_whatever_json_writes_is_read_back(value: object) -> None:
    assert read(json.dumps(value)) == value


@settings(deadline=None)
@given(VALUES, st.data())
def test_comments_and_trailing_commas_change_no_value(value: object, data: st.DataObject) -> None:
    assert read(decorated(value, data)) == value


def test_comment_marks_and_urls_inside_texts_stay() -> None:
    text = '{ "note": "a // b /* c */ , ] }", "base_url": "http://gpu-a.lan:8000/v1", } // end'
    assert read(text) == {
        "note": "a // b /* c */ , ] }",
        "base_url": "http://gpu-a.lan:8000/v1",
    }


def test_byte_order_mark_and_crlf_are_accepted() -> None:
    assert read(b'\xef\xbb\xbf// lab\r\n{\r\n  "a": 1,\r\n}\r\n') == {"a": 1}


def test_positions_point_at_keys_and_items() -> None:
    parsed = parse('{\r\n  "a": [\r\n    1,\r\n    {"b": 2}\r\n  ]\r\n}', file="f")
    assert parsed.positions == {
        (): Position(1, 1),
        ("a",): Position(2, 3),
        ("a", 0): Position(3, 5),
        ("a", 1): Position(4, 5),
        ("a", 1, "b"): Position(4, 6),
    }


def test_every_duplicate_key_is_refused_with_both_lines() -> None:
    message = refusal('{\n"a": 1,\n"\\u0061": 2,\n"b": {\n"c": 1, "c": 2}}')
    assert message.splitlines() == [
        "f:3:1: key a is already there on line 2; keep one of the two",
        "f:5:9: key c is already there on line 5; keep one of the two",
    ]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "f:1:1: empty"),
        ("  \n// nothing\n", "f:3:1: the file ends here"),
        ("\\{", "f:1:1: unexpected '\\\\'"),
        ('{"a": 1', "f:1:8: the file ends here"),
        ('{\n  "a": 1 /* never closed\n}', "f:2:10: this comment is never closed"),
        ('{"a": 1\n "b": 2}', "f:2:2: unexpected text; is a comma missing"),
        ('{"a": 1,, "b": 2}', "f:1:9: unexpected ','; is there one comma too many"),
        ("{,}", "f:1:2: unexpected ','"),
        ('{"a" 1}', "f:1:6: unexpected number; ':' must follow a key"),
        ('{"a": "x\n"}', "f:1:7: this text is not closed on its line"),
        (r'{"a": "\x41"}', "f:1:7: this text is not closed on its line, or holds a backslash"),
        ('{"a": "\t"}', "f:1:7: "),
        ("{'a': 1}", "f:1:2: texts stand in double quotes"),
        ("{a: 1}", "f:1:2: unexpected word that begins with 'a'"),
        ("# lab\n{}", "f:1:1: comments begin with //"),
        ('{"a": NaN}', "f:1:7: JSON has no NaN"),
        ('{"a": Infinity}', "f:1:7: JSON has no Infinity"),
        ('{"a": -Infinity}', "f:1:7: a number must follow the minus sign"),
        ('{"a": 1e400}', "f:1:7: this number is too large"),
        ('{"a": 1' + "0" * 5000 + "}", "f:1:7: this number is too large"),
        ('{"a": 01}', "f:1:8: unexpected number"),
        ('{"a": .5}', "f:1:7: unexpected '.'"),
        ('{"a": 1}}', "f:1:9: unexpected '}'"),
        ('{"a":\u00a01}', "f:1:6: unexpected U+00A0"),
        (r'{"a": "\ud800"}', "f:1:7: this text holds half of a surrogate pair"),
        (b'{\n"a": "\xff"}', "f:2:7: not UTF-8"),
        ("[" * 100 + "]" * 100, "nested more than"),
    ],
)
def test_what_is_not_json_is_refused_with_line_and_column(text: str | bytes, said: str) -> None:
    assert said in refusal(text)


def test_ordinary_depth_is_no_problem() -> None:
    text = "[" * MAX_DEPTH + "]" * MAX_DEPTH
    assert json.dumps(read(text)) == text
