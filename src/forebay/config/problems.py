"""What is wrong with a configuration, and where. Nothing here ever shows a secret."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import TYPE_CHECKING

from forebay.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

KeyPath = tuple[str | int, ...]

# Issuers mark their keys so that they can be found where they do not belong.
_ISSUED_KEY = re.compile(
    r"(?:sk|pk|hf|gsk|ghp|xai|nvapi)[-_][A-Za-z0-9_-]{12,}|\bBearer\s", re.IGNORECASE
)
_SECRET_NAME = re.compile(r"key|token|secret|password|authorization", re.IGNORECASE)
_LONGEST_SHOWN = 60
# Shorter secrets are found only where they stand alone: every other text would contain them.
_SHORTEST_SEARCHED = 8


@dataclass(frozen=True, slots=True)
class Position:
    """A place in a text; both count from 1, columns in characters."""

    line: int
    column: int


@dataclass(frozen=True, slots=True)
class Problem:
    """One reason why a configuration must not start.

    Args:
        where: ``file:line:column``, or the environment variable.
        key: the key path, e.g. ``chat_models[0].base_url``; empty for the whole file.
        message: what is wrong and the way out.
    """

    where: str
    key: str
    message: str

    def __str__(self) -> str:
        return ": ".join(part for part in (self.where, self.key, self.message) if part)


@dataclass(frozen=True, slots=True)
class ConfigWarning:
    """Something that starts, but is probably not meant; an error under ``check --strict``.

    Args:
        code: short and stable, for programs.
        where: ``file:line:column``, or the environment variable.
        key: the key path.
        message: what a person should read.
    """

    code: str
    where: str
    key: str
    message: str

    def __str__(self) -> str:
        return ": ".join(part for part in (self.where, self.key, self.message) if part)


class InvalidConfig(ConfigError):  # noqa: N818 - it reads as what it is
    """A configuration with every problem that was found in it, one a line."""

    def __init__(self, problems: Iterable[Problem]) -> None:
        self.problems = tuple(problems)
        super().__init__("\n".join(map(str, self.problems)))


@dataclass(frozen=True, slots=True)
class Document:
    """A configuration as it was written, with what is needed to point into it.

    Args:
        file: the file's name, as messages show it.
        value: the plain values, after variables were put in.
        positions: where each key path begins.
        variables: the variables that went into the text at a key path.
        overrides: top-level keys whose value came from the environment.
    """

    file: str
    value: object = field(repr=False)
    positions: Mapping[KeyPath, Position] = field(default_factory=dict, repr=False)
    variables: Mapping[KeyPath, tuple[str, ...]] = field(default_factory=dict, repr=False)
    overrides: frozenset[str] = frozenset()

    def where(self, path: KeyPath) -> str:
        """Say where `path` is written, or the nearest thing around it that is."""
        if path and path[0] in self.overrides:
            return f"environment variable {path[0]}"
        while path and path not in self.positions:
            path = path[:-1]
        at = self.positions.get(path)
        return f"{self.file}:{at.line}:{at.column}" if at else self.file

    def problem(self, path: KeyPath, message: str) -> Problem:
        """Describe what is wrong at `path`."""
        return Problem(self.where(path), self._named(path), self._scrubbed(message))

    def warning(self, code: str, path: KeyPath, message: str) -> ConfigWarning:
        """Describe what is probably not meant at `path`."""
        return ConfigWarning(code, self.where(path), self._named(path), self._scrubbed(message))

    def key(self, path: KeyPath) -> str:
        """Write a key path as people do, without showing a key that is itself a secret."""
        text = ""
        for part in path:
            if isinstance(part, int):
                text += f"[{part}]"
            elif self._is_secret(part):
                text += "[hidden]"
            elif re.fullmatch(r"[\w$-]+", part):
                text += f".{part}" if text else part
            else:
                text += f"[{json.dumps(part)}]"
        return text

    def _named(self, path: KeyPath) -> str:
        # The place of a whole overridden key is the variable, which has its name.
        return "" if len(path) == 1 and path[0] in self.overrides else self.key(path)

    def shown(self, path: KeyPath) -> str:
        """What stands at `path`, fit for a message: ``got "80a0"``, or "" where it is a secret."""
        source = "".join(f", from ${{{name}}}" for name in self.variables.get(path, ()))
        value = self.get(path, default=_ABSENT)
        if value is _ABSENT or any(_SECRET_NAME.search(str(part)) for part in path):
            return source.removeprefix(", ")
        if isinstance(value, dict):
            return "got an object"
        if isinstance(value, list):
            return "got a list"
        if self._is_secret(str(value)):
            return f"got a hidden value{source}"
        return f"got {_shortened(value)}{source}"

    def _is_secret(self, text: str) -> bool:
        return looks_like_key(text) or any(
            secret == text or (len(secret) >= _SHORTEST_SEARCHED and secret in text)
            for secret in _secrets(self.value)
        )

    def _scrubbed(self, message: str) -> str:
        for secret in _secrets(self.value):
            if len(secret) >= _SHORTEST_SEARCHED:
                message = message.replace(secret, "(hidden)")
        return _ISSUED_KEY.sub("(hidden)", message)

    def get(self, path: KeyPath, *, default: object) -> object:
        """What stands at `path`, or `default` where there is nothing."""
        value = self.value
        for part in path:
            try:
                value = value[part]  # type: ignore[index]
            except (KeyError, IndexError, TypeError):
                return default
        return value


_ABSENT = object()


def _shortened(value: object) -> str:
    if isinstance(value, str):
        value = re.sub(r"^(https?:?/*)?.*@", r"\1(hidden)@", value, flags=re.DOTALL)
        value = re.sub(r"\?.*", "?(hidden)", value)
        if len(value) > _LONGEST_SHOWN:
            return f"a text of {len(value)} characters"
    return json.dumps(value, ensure_ascii=False)


def _secrets(value: object, *, secret: bool = False) -> Iterator[str]:
    """Every text that stands under a key whose name says that it is a secret."""
    if isinstance(value, dict):
        for name, item in value.items():
            yield from _secrets(item, secret=secret or bool(_SECRET_NAME.search(name)))
    elif isinstance(value, list):
        for item in value:
            yield from _secrets(item, secret=secret)
    elif secret and isinstance(value, str) and value.strip():
        yield value.strip()


def looks_like_key(text: str) -> bool:
    """Whether `text` holds an API key by the marks that issuers put on theirs."""
    return bool(_ISSUED_KEY.search(text))


def nearest(name: str, choices: Iterable[str]) -> str | None:
    """Return the choice that `name` was probably meant to be."""
    by_folded = {choice.casefold(): choice for choice in choices}
    found = get_close_matches(name.casefold(), by_folded, n=1, cutoff=0.6)
    return by_folded[found[0]] if found else None
