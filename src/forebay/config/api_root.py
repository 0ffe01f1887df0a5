"""Where the API behind a pasted URL lives: with and without ``/v1``, or with a whole path."""

from __future__ import annotations

import re
from dataclasses import replace

from forebay.config.urls import BaseUrl, is_path, path_of, segments_of, split_url
from forebay.errors import ConfigError

DEFAULT_API_PREFIX = "/v1"

_VERSION = re.compile(r"v[0-9]+(?:alpha|beta)?[0-9]*")


def _paths(*paths: str) -> tuple[tuple[str, ...], ...]:
    return tuple(tuple(path.split("/")) for path in paths)


# What stands behind the prefix in a whole path. The longer of two that end alike comes first.
_OPERATIONS = _paths(
    "chat/completions",
    "completions",
    "embeddings",
    "responses",
    "rerank",
    "score",
    "messages",
    "models",
    "audio/speech",
    "audio/transcriptions",
    "audio/translations",
    "images/generations",
    "moderations",
)
# Pages of the server itself, at its root: FastAPI's, the engines' own, Ollama's native API.
_ROOT_PAGES = _paths(
    "health",
    "metrics",
    "docs",
    "redoc",
    "openapi.json",
    "index.html",
    "ping",
    "version",
    "props",
    "slots",
    "server_info",
    "get_model_info",
    "api/chat",
    "api/embed",
    "api/generate",
    "api/ps",
    "api/tags",
    "api/version",
)


def api_path(text: str) -> str:
    """Bring an API prefix such as ``v1/`` to its one form: ``/v1``, or "" for none.

    Raises:
        ConfigError: it is not a path.
    """
    segments = segments_of(text.strip())
    if "://" in text or not is_path(text.strip()) or {".", ".."} & set(segments):
        raise ConfigError('must be a path such as "/v1", or ""')
    return path_of(segments)


def normalise(text: str, *, api_prefix: str | None = None) -> BaseUrl:
    """Find out where the API behind a pasted URL lives.

    Args:
        text: any of the forms that people paste.
        api_prefix: as configured; None means ``/v1``, and that a path which contradicts it is
            questioned.

    Raises:
        ConfigError: the URL is invalid, or can be read in two ways.
    """
    url = split_url(text)
    api = segments_of(DEFAULT_API_PREFIX if api_prefix is None else api_prefix)
    segments = segments_of(url.prefix)
    pages: list[str] = []
    while page := _page(segments, api):
        segments = segments[: -len(page)]
        pages = [*page, *pages]
    if api_prefix is None:
        _question_operation(segments)
    _question_version(segments, api)
    while api and segments[-len(api) :] == api:
        segments = segments[: -len(api)]
    return replace(url, prefix=path_of(segments), api_prefix=path_of(api), page=path_of(pages))


def _page(segments: list[str], api: list[str]) -> tuple[str, ...]:
    """The page or operation that the path ends in, if any."""
    return _ending(segments, [], _ROOT_PAGES) or _ending(segments, api, _OPERATIONS)


def _ending(
    segments: list[str], before: list[str], endings: tuple[tuple[str, ...], ...]
) -> tuple[str, ...]:
    for ending in endings:
        tail = [*before, *ending]
        if segments[-len(tail) :] == tail:
            return ending
    return ()


def _question_operation(segments: list[str]) -> None:
    if operation := _ending(segments, [], _OPERATIONS):
        path = "/".join(operation)
        raise ConfigError(
            f"ends in /{path} without {DEFAULT_API_PREFIX} before it: if the API is at the "
            f'server\'s root, set "api_prefix": ""; if /{path} is a proxy\'s path, '
            f"add {DEFAULT_API_PREFIX}"
        )


def _question_version(segments: list[str], api: list[str]) -> None:
    ends_in_api = bool(api) and segments[-len(api) :] == api
    if segments and not ends_in_api and _VERSION.fullmatch(segments[-1]):
        raise ConfigError(
            f"ends in /{segments[-1]}, which is not the API's prefix: "
            f'set "api_prefix": "/{segments[-1]}", or write the prefix behind it'
        )
