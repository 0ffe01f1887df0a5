"""Field types of the configuration: what people may write, and what it becomes."""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING, Annotated, Literal, TypeAlias

from pydantic import BeforeValidator, Field, SecretStr, WithJsonSchema

from forebay.adapters import discovery
from forebay.adapters.discovery.nameserver import split_nameserver
from forebay.adapters.engines import registry
from forebay.config import api_root, urls
from forebay.config.problems import looks_like_key
from forebay.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable

Kind: TypeAlias = Literal["chat", "embedding", "rerank"]
Routing: TypeAlias = Literal["least_inflight", "hrw"]

# Stands for a server's host in the name of its group, and of that group's budget.
HOST = "{host}"
_PLACEHOLDER = re.compile(r"\{[^{}]*\}")
_INTEGER = re.compile(r"\s*[+-]?[0-9]{1,18}\s*", re.ASCII)


def _integer(value: object) -> object:
    if isinstance(value, str) and _INTEGER.fullmatch(value):
        return int(value)
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, bool) or not isinstance(value, int):
        raise ValueError("must be a whole number")  # noqa: TRY004 - pydantic collects ValueErrors
    return value


def _number(value: object) -> object:
    if isinstance(value, str):
        try:
            value = float(value)
        except ValueError:
            value = math.nan
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise ValueError("must be a number")
    return value


def _stripped(value: object) -> object:
    return value.strip() if isinstance(value, str) else value


def _folded(value: object) -> object:
    return value.strip().casefold() if isinstance(value, str) else value


def _engine(value: object) -> object:
    folded = _folded(value)
    known = registry.names()
    if folded not in known:
        raise ValueError(f"must be one of {', '.join(map(repr, known))}")
    return folded


def _text(value: object) -> object:
    if not isinstance(value, str):
        raise ValueError("must be a text")  # noqa: TRY004 - pydantic collects ValueErrors
    if not value.strip():
        raise ValueError("must not be empty")
    if not value.isprintable():
        raise ValueError("must not hold a line break or a control character")
    if looks_like_key(value):
        raise ValueError('looks like an API key; keys belong in "api_key"')
    return value.strip()


def _name(value: object) -> object:
    return _folded(_text(value))


def _group(value: object) -> object:
    name = str(_name(value))
    for placeholder in _PLACEHOLDER.findall(name):
        if placeholder != HOST:
            raise ValueError(f"has the unknown placeholder {placeholder}; did you mean {HOST}?")
    return name


def _url(value: object) -> object:
    text = str(_text(value))
    _read(urls.split_url, text)
    return text


def _discover(value: object) -> object:
    return str(_read(discovery.parse, str(_text(value))))


def _nameserver(value: object) -> object:
    text = str(_text(value))
    _read(split_nameserver, text)
    return text


def _api_prefix(value: object) -> object:
    return "" if value == "" else _read(api_root.api_path, str(_text(value)))


def _read(reader: Callable[[str], object], text: str) -> object:
    try:
        return reader(text)
    except ConfigError as error:  # pydantic collects ValueErrors
        raise ValueError(str(error)) from None


def _secret(value: object) -> object:
    if not isinstance(value, str):
        raise ValueError("must be a text")  # noqa: TRY004 - see above
    key = value.strip()
    if not key:
        raise ValueError("must not be empty")
    # RFC 9110: a field value carries visible ASCII; anything else would break or split the header.
    if not key.isascii() or not key.isprintable():
        raise ValueError("must be printable ASCII, since it is sent in a header")
    return key


def _optional_secret(value: object) -> object:
    # "${KEY:-}" is how people write a key that only some set-ups have.
    return None if value is None or value == "" else _secret(value)


def _role_list(value: object) -> object:
    if not isinstance(value, str):
        return value
    roles = [role.strip() for role in value.split(",") if role.strip()]
    if not roles:
        raise ValueError("must not be empty; write [] in the file to reserve nothing")
    return roles


# Bounds stand before the validator, inside the number's own schema: JSON Schema can say them then.
Natural = Annotated[int, Field(ge=0), BeforeValidator(_integer)]
Count = Annotated[int, Field(ge=1), BeforeValidator(_integer)]
Window = Annotated[int, Field(ge=2), BeforeValidator(_integer)]
Seconds = Annotated[float, Field(gt=0), BeforeValidator(_number)]
SecondsOrOff = Annotated[float, Field(ge=0), BeforeValidator(_number)]
Fraction = Annotated[float, Field(gt=0, lt=1), BeforeValidator(_number)]
Factor = Annotated[float, Field(ge=1), BeforeValidator(_number)]
Multiple = Annotated[float, Field(gt=1), BeforeValidator(_number)]
Part = Annotated[float, Field(gt=0, le=1), BeforeValidator(_number)]
Flag = Annotated[bool, BeforeValidator(_folded)]
Text = Annotated[str, BeforeValidator(_text)]
Name = Annotated[str, BeforeValidator(_name)]
GroupName = Annotated[str, BeforeValidator(_group)]
Url = Annotated[str, BeforeValidator(_url)]
DiscoverUrl = Annotated[str, BeforeValidator(_discover)]
Nameserver = Annotated[str, BeforeValidator(_nameserver)]
ApiPrefix = Annotated[str, BeforeValidator(_api_prefix)]
EngineName = Annotated[str, BeforeValidator(_engine)]
Secret = Annotated[SecretStr, BeforeValidator(_secret)]
OptionalSecret = Annotated[SecretStr | None, BeforeValidator(_optional_secret)]
RoleList = Annotated[
    tuple[Name, ...],
    BeforeValidator(_role_list),
    WithJsonSchema({"anyOf": [{"type": "array", "items": {"type": "string"}}, {"type": "string"}]}),
]
LogLevel = Annotated[Literal["debug", "info", "warning", "error"], BeforeValidator(_folded)]
