"""JSON for people: RFC 8259 with ``//`` and ``/* */`` comments and trailing commas.

`parse` also says where everything stands, so that whoever reads the values can point into the text.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from functools import cache
from typing import TypeAlias

from lark import Lark, Token, Tree
from lark.exceptions import UnexpectedCharacters, UnexpectedInput, UnexpectedToken

from forebay.config.problems import Document, InvalidConfig, KeyPath, Position, Problem

JsonValue: TypeAlias = "bool | int | float | str | list[JsonValue] | dict[str, JsonValue] | None"

MAX_DEPTH = 64

_GRAMMAR = r"""
?start: value
?value: object | array | STRING | NUMBER | TRUE | FALSE | NULL
object: "{" (member ("," member)* ","?)? "}"
array: "[" (value ("," value)* ","?)? "]"
member: STRING ":" value

TRUE: "true"
FALSE: "false"
NULL: "null"
STRING: /"(?:[^"\\\x00-\x1f]|\\(?:["\\\/bfnrt]|u[0-9a-fA-F]{4}))*"/
NUMBER: /-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?/

COMMENT: /\/\/[^\n\r]*/ | /\/\*[\s\S]*?\*\//
WHITESPACE: /[ \t\n\r]+/
%ignore COMMENT
%ignore WHITESPACE
"""

_BEGINNINGS = {"STRING", "NUMBER", "LBRACE", "LSQB", "TRUE", "FALSE", "NULL"}
_MISTAKES = {
    "/*": "this comment is never closed with */",
    '"': "this text is not closed on its line, or holds a backslash that escapes nothing",
    "#": "comments begin with //, not #",
    "'": "texts stand in double quotes, not single ones",
    "NaN": "JSON has no NaN",
    "Infinity": "JSON has no Infinity",
    "-": "a number must follow the minus sign",
}
_NAMES = {"STRING": "text", "NUMBER": "number", "COLON": "':'", "COMMA": "','"}
_NAMES |= {"LBRACE": "'{'", "RBRACE": "'}'", "LSQB": "'['", "RSQB": "']'"}


@dataclass(frozen=True, slots=True)
class Parsed:
    """Plain values, and where each key path begins (for a member: its key)."""

    value: JsonValue
    positions: dict[KeyPath, Position]


def parse(data: bytes | str, *, file: str) -> Parsed:
    """Parse JSON with comments and trailing commas.

    A UTF-8 byte-order mark and CRLF line ends are accepted.

    Raises:
        InvalidConfig: with line and column; for duplicate keys, all of them with both lines.
    """
    text = (_decoded(data, file) if isinstance(data, bytes) else data).removeprefix("\ufeff")
    try:
        tree = _parser().parse(text)
    except UnexpectedInput as error:
        raise _syntax_problem(error, text, file) from None
    reader = _Reader(file)
    value = reader.read(tree, ())
    if reader.problems:
        raise InvalidConfig(reader.problems)
    return Parsed(value, reader.positions)


@cache
def _parser() -> Lark:
    return Lark(_GRAMMAR, parser="lalr", propagate_positions=True)


class _Reader:
    """Turns the syntax tree into values, noting positions and what the grammar cannot refuse."""

    def __init__(self, file: str) -> None:
        self.file = file
        self.positions: dict[KeyPath, Position] = {}
        self.problems: list[Problem] = []

    def read(self, node: Tree[Token] | Token, path: KeyPath) -> JsonValue:
        at = _position(node)
        self.positions.setdefault(path, at)
        if isinstance(node, Token):
            return self._scalar(node, at)
        if len(path) >= MAX_DEPTH:
            self._refuse(at, f"nested more than {MAX_DEPTH} deep")
            return None
        if node.data == "array":
            return [self.read(item, (*path, n)) for n, item in enumerate(node.children)]
        return self._object(node, path)

    def _object(self, node: Tree[Token], path: KeyPath) -> JsonValue:
        value: dict[str, JsonValue] = {}
        for member in node.children:
            name_token, item = member.children  # type: ignore[union-attr]
            at = _position(name_token)
            name = str(self._scalar(name_token, at))  # type: ignore[arg-type]
            if name in value:
                first = self.positions[*path, name]
                shown = Document(self.file, value).key((name,))
                self._refuse(
                    at, f"key {shown} is already there on line {first.line}; keep one of the two"
                )
                continue
            self.positions[*path, name] = at
            value[name] = self.read(item, (*path, name))
        return value

    def _scalar(self, token: Token, at: Position) -> JsonValue:
        try:
            value: JsonValue = json.loads(token)
        except ValueError:  # Python reads no integer of more than 4,300 digits
            value = math.inf
        if isinstance(value, float) and math.isinf(value):
            self._refuse(at, "this number is too large")
        if isinstance(value, str) and any("\ud800" <= char <= "\udfff" for char in value):
            self._refuse(at, r"this text holds half of a surrogate pair (\ud800 to \udfff)")
            return ""
        return value

    def _refuse(self, at: Position, message: str) -> None:
        self.problems.append(_problem(self.file, at, message))


def _position(node: Tree[Token] | Token) -> Position:
    place = node if isinstance(node, Token) else node.meta
    return Position(place.line or 1, place.column or 1)


def _problem(file: str, at: Position, message: str) -> Problem:
    return Problem(f"{file}:{at.line}:{at.column}", "", message)


def _decoded(data: bytes, file: str) -> str:
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        at = _end(data[: error.start].decode("utf-8-sig", errors="replace"))
        raise InvalidConfig([_problem(file, at, "not UTF-8; save the file as UTF-8")]) from None


def _end(text: str) -> Position:
    return Position(text.count("\n") + 1, len(text) - (text.rfind("\n") + 1) + 1)


def _syntax_problem(error: UnexpectedInput, text: str, file: str) -> InvalidConfig:
    # Never more than one character of the text is quoted: it may be a part of a key.
    at = Position(error.line, error.column)
    message = "not JSON"
    if isinstance(error, UnexpectedCharacters):
        message = _bad_character(text[error.pos_in_stream :])
    elif isinstance(error, UnexpectedToken):
        if error.token.type == "$END":
            at = _end(text)
            message = "the file ends here, but is not complete" if text.strip() else "empty"
        else:
            message = f"unexpected {_NAMES.get(error.token.type, 'word')}"
            message += _hint(error)
    return InvalidConfig([_problem(file, at, message)])


def _hint(error: UnexpectedToken) -> str:
    if error.token.type == "COMMA":
        return "; is there one comma too many?"
    if "COLON" in error.expected:
        return "; ':' must follow a key"
    if "COMMA" in error.expected and error.token.type in _BEGINNINGS:
        return "; is a comma missing before it?"
    return ""


def _bad_character(rest: str) -> str:
    for beginning, message in _MISTAKES.items():
        if rest.startswith(beginning):
            return message
    char = rest[0]
    if char.isalpha():
        return f"unexpected word that begins with {char!r}; texts and keys stand in double quotes"
    return f"unexpected {char!r}" if char.isprintable() else f"unexpected U+{ord(char):04X}"
