"""Find the file, read it, and make a plan of it.

It works as a whole or not at all: no defaults ever stand in for a file that cannot be read.
"""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, TypeAlias

from forebay.config import env, jsonc
from forebay.config.problems import Document, InvalidConfig, Problem
from forebay.config.resolve import resolve
from forebay.config.schema import override_keys
from forebay.config.validate import validate
from forebay.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from forebay.config.plan import Plan


# What sources have found, by their URL.
Found: TypeAlias = "Mapping[str, Collection[str]]"
_NOTHING: Found = MappingProxyType({})


def find_config(path: str | Path | None, environ: Mapping[str, str]) -> Path:
    """Where the configuration is: `path`, else ``FOREBAY_CONFIG``, else the user's own.

    The user's own is ``$XDG_CONFIG_HOME/forebay/config.json`` (``~/.config`` where that is not set,
    as the XDG Base Directory Specification has it).
    """
    if path is not None:
        return Path(path)
    if named := environ.get("FOREBAY_CONFIG"):
        return Path(named).expanduser()
    home = environ.get("XDG_CONFIG_HOME")
    base = Path(home) if home else Path("~/.config").expanduser()
    return base / "forebay" / "config.json"


def load(
    path: str | Path | None = None,
    *,
    environ: Mapping[str, str] | None = None,
    found: Found = _NOTHING,
) -> Plan:
    """Load the configuration.

    Args:
        path: the file; None: `find_config` decides.
        environ: the environment; None: the process's own.
        found: base URLs that each of the file's sources has found.

    Raises:
        ConfigError: there is no such file, or it must not start (`InvalidConfig`).
    """
    environ = os.environ if environ is None else environ
    file = find_config(path, environ)
    return plan_from(read(file), file=str(file), environ=environ, found=found)


def read(file: str | Path) -> bytes:
    """What a configuration file holds.

    Raises:
        ConfigError: it cannot be read.
    """
    try:
        return Path(file).read_bytes()
    except OSError as error:
        raise ConfigError(
            f"{file}: cannot be read ({error.strerror}); name the configuration with --config or "
            "FOREBAY_CONFIG"
        ) from None


def plan_from(
    data: bytes | str, *, file: str, environ: Mapping[str, str], found: Found = _NOTHING
) -> Plan:
    """Make a plan of a configuration's text.

    Args:
        data: what the file holds.
        file: its name, for messages.
        environ: the environment.
        found: base URLs that each of the file's sources has found.

    Raises:
        InvalidConfig: with every problem that was found.
    """
    parsed = jsonc.parse(data, file=file)
    if not isinstance(parsed.value, dict):
        raise InvalidConfig([Problem(file, "", "must be an object {…} at the top")])
    expanded = env.expand(parsed.value, environ)
    overrides = env.overrides(override_keys(), environ)
    document = Document(
        file=file,
        value={**expanded.value, **overrides.value},  # type: ignore[dict-item]
        positions=parsed.positions,
        variables=expanded.variables,
        overrides=frozenset(overrides.value),  # type: ignore[arg-type]
    )
    # What the environment replaces need not be right in the file.
    failures = [(path, why) for path, why in expanded.failures if path[0] not in document.overrides]
    config, law = validate(document, [*failures, *overrides.failures])
    text = data if isinstance(data, bytes) else data.encode(errors="surrogatepass")
    return replace(resolve(config, law, document, found), text=text)
