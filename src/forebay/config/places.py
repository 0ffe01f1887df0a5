"""Where a key belongs that stands somewhere else."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeGuard, get_args

from pydantic import BaseModel

from forebay.config import laws
from forebay.config.schema import EndpointEntry, FallbackEntry, ForebayConfig, ModelEntry
from forebay.config.settings import ApiKey

if TYPE_CHECKING:
    from collections.abc import Iterator

_LISTED: dict[type[BaseModel], str] = {
    ModelEntry: "an entry of chat_models, embedding_models or rerank_models",
    EndpointEntry: "an entry of a model's endpoints",
    FallbackEntry: "a model's fallback",
    ApiKey: "an entry of forebay.api_keys",
}


def places_of(key: str) -> list[str]:
    """Where a key may stand, in words; what a model has, its servers and its fallback have too."""
    places = dict.fromkeys(place for place, section in _sections() if key in keys_of(section))
    if _LISTED[ModelEntry] in places:
        for section in (EndpointEntry, FallbackEntry):
            places.pop(_LISTED[section], None)
    return list(places)


def keys_of(section: type[BaseModel]) -> list[str]:
    """The keys of an object of the file."""
    return [field.alias or name for name, field in section.model_fields.items()]


def section_in(section: type[BaseModel], key: str) -> type[BaseModel]:
    """What stands under one key of an object of the file."""
    fields = {field.alias or name: field for name, field in section.model_fields.items()}
    return next(_sections_in(fields[key].annotation))


def _sections() -> Iterator[tuple[str, type[BaseModel]]]:
    yield "the file itself, outside of any other object", ForebayConfig
    yield from _below(ForebayConfig, "")
    for name in laws.names():
        yield "forebay.limit", laws.settings_class(name)


def _below(section: type[BaseModel], prefix: str) -> Iterator[tuple[str, type[BaseModel]]]:
    for name, field in section.model_fields.items():
        for inner in _sections_in(field.annotation):
            path = f"{prefix}{field.alias or name}"
            yield _LISTED.get(inner, path), inner
            yield from _below(inner, f"{path}.")


def _sections_in(annotation: Any) -> Iterator[type[BaseModel]]:  # noqa: ANN401 - any type form
    if _is_section(annotation):
        yield annotation
    for argument in get_args(annotation):
        yield from _sections_in(argument)


def _is_section(annotation: object) -> TypeGuard[type[BaseModel]]:
    return isinstance(annotation, type) and issubclass(annotation, BaseModel)
