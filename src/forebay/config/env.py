"""Values from the environment: ``${VAR}`` in texts, and variables that replace top-level keys."""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from forebay.config.jsonc import JsonValue, parse
from forebay.config.problems import InvalidConfig, KeyPath

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

# `$${` is tried first, so that the second `$` never begins a variable.
_REFERENCE = re.compile(r"\$\$\{|\$\{(?P<body>[^}]*)(?P<end>\}?)")
_BODY = re.compile(r"(?P<name>[A-Za-z_][A-Za-z0-9_]*)(?::-(?P<default>.*))?", re.DOTALL)
_FORMS = "write ${NAME} or ${NAME:-default}, and $${ for a literal ${"

# Free text, where "${" may well be prose.
_NOT_EXPANDED = "note"


@dataclass(slots=True)
class Expansion:
    """A configuration with the environment put in.

    Args:
        value: the values, with every reference replaced.
        variables: which variables went into the text at a key path.
        failures: key paths that could not be filled, and why.
    """

    value: JsonValue = field(repr=False)
    variables: dict[KeyPath, tuple[str, ...]] = field(default_factory=dict)
    failures: list[tuple[KeyPath, str]] = field(default_factory=list)


def expand(value: JsonValue, environ: Mapping[str, str]) -> Expansion:
    """Replace ``${VAR}`` and ``${VAR:-default}`` in every text; ``$${`` stands for ``${``.

    As in a shell, the default also replaces a variable that is set but empty. Any other ``$`` is
    itself. An IPv6 address that lands where a URL has its host gets the brackets it needs there.
    """
    result = Expansion(None)
    result.value = _expand(value, (), environ, result)
    return result


def _expand(
    value: JsonValue, path: KeyPath, environ: Mapping[str, str], result: Expansion
) -> JsonValue:
    if isinstance(value, list):
        return [_expand(item, (*path, n), environ, result) for n, item in enumerate(value)]
    if isinstance(value, dict):
        expanded = {}
        for name, item in value.items():
            if "${" in name:
                result.failures.append(((*path, name), "variables work in values, not in keys"))
            expanded[name] = _expand(item, (*path, name), environ, result)
        return expanded
    if not isinstance(value, str) or "${" not in value or path[-1:] == (_NOT_EXPANDED,):
        return value
    return _expand_text(value, path, environ, result)


def _expand_text(text: str, path: KeyPath, environ: Mapping[str, str], result: Expansion) -> str:
    is_url = bool(path) and str(path[-1]).endswith("_url")
    pieces: list[str] = []
    names: list[str] = []
    done = 0
    for match in _REFERENCE.finditer(text):
        pieces.append(text[done : match.start()])
        done = match.end()
        if match["body"] is None:
            pieces.append("${")
            continue
        body = _BODY.fullmatch(match["body"])
        if not match["end"] or body is None or "${" in (body["default"] or ""):
            result.failures.append((path, f"a variable that cannot be read; {_FORMS}"))
            return text
        name, default = body["name"], body["default"]
        found = environ.get(name)
        if default is not None:
            found = found or default
        if found is None:
            result.failures.append(
                (path, f"environment variable {name} is not set; set it, or write ${{{name}:-…}}")
            )
            continue
        names.append(name)
        at_host = is_url and _host_begins("".join(pieces)) and _host_ends(text[done:])
        pieces.append(_bracketed(found) if at_host else found)
    pieces.append(text[done:])
    if names:
        result.variables[path] = tuple(names)
    return "".join(pieces)


def _host_begins(before: str) -> bool:
    return not before or before.endswith("://")


def _host_ends(after: str) -> bool:
    return not after or after[0] in ":/?#"


def _bracketed(host: str) -> str:
    try:
        return f"[{ipaddress.IPv6Address(host.strip())}]"
    except ValueError:
        return host


def overrides(keys: Iterable[str], environ: Mapping[str, str]) -> Expansion:
    """Read the environment variables that have the names of top-level keys.

    Text that begins like a JSON object or list is read as JSON; anything else stays a text, and the
    schema makes numbers and lists of it.
    """
    found: dict[str, JsonValue] = {}
    failures: list[tuple[KeyPath, str]] = []
    for key in keys:
        text = environ.get(key)
        if text is None:
            continue
        found[key] = text
        if not text.strip():
            failures.append(((key,), "is set but empty; give it a value, or unset it"))
        elif text.lstrip()[0] in "{[":
            try:
                found[key] = parse(text, file=key).value
            except InvalidConfig as error:
                failures.append(((key,), "; ".join(problem.message for problem in error.problems)))
    return Expansion(found, failures=failures)
