"""From plain values to settings; every problem at once, in words that people can act on."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pydantic import ValidationError

from forebay.config import laws
from forebay.config.places import keys_of, places_of, section_in
from forebay.config.problems import Document, InvalidConfig, KeyPath, Problem, nearest
from forebay.config.schema import ForebayConfig
from forebay.config.settings import ForebaySettings

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from pydantic import BaseModel
    from pydantic_core import ErrorDetails

_MESSAGES = {
    "missing": "is required",
    "greater_than": "must be more than {gt:g}",
    "greater_than_equal": "must be at least {ge:g}",
    "less_than": "must be less than {lt:g}",
    "less_than_equal": "must be at most {le:g}",
    "literal_error": "must be one of {expected}",
    "too_short": "must not be empty",
    "bool_parsing": "must be true or false",
    "bool_type": "must be true or false",
    "string_type": "must be a text",
    "dict_type": "must be an object {{…}}",
    "model_type": "must be an object {{…}}",
    "tuple_type": "must be a list […]",
}
_LIMIT: KeyPath = ("forebay", "limit")


def validate(
    document: Document, failures: Iterable[tuple[KeyPath, str]] = ()
) -> tuple[ForebayConfig, laws.LawSettings]:
    """Check a document against the schema.

    Args:
        document: the values and where they stand.
        failures: what is already known to be wrong; what else is wrong there is left out.

    Raises:
        InvalidConfig: with every problem.
    """
    failed = dict(failures)
    problems = [document.problem(path, message) for path, message in failed.items()]
    config = law = None
    try:
        config = ForebayConfig.model_validate(document.value)
    except ValidationError as error:
        problems += _problems(error, ForebayConfig, document, (), failed)
    try:
        law_class, value = _law(document)
        law = law_class.model_validate(value)
    except ValidationError as error:
        problems += _problems(error, law_class, document, _LIMIT, failed)
    except KeyError:
        message = f"names no limit law; there are: {', '.join(laws.names())}"
        problems.append(document.problem(_LIMIT, message))
    if problems or config is None or law is None:
        raise InvalidConfig(problems)
    return config, law


def _law(document: Document) -> tuple[type[laws.LawSettings], object]:
    """Find a law's settings class and what is written for it; the default where it is unusable."""
    value = document.get(_LIMIT, default=None)
    if isinstance(value, str):
        value = {"law": value}
    if not isinstance(value, dict):
        # Nothing, or nothing that the schema lets pass.
        value = ForebaySettings().limit
    return laws.settings_class(str(value.get("law"))), value


def _problems(
    error: ValidationError,
    model: type[BaseModel],
    document: Document,
    prefix: KeyPath,
    failed: dict[KeyPath, str],
) -> Iterator[Problem]:
    details = error.errors(include_url=False, include_input=False)
    parents = {detail["loc"][:n] for detail in details for n in range(len(detail["loc"]))}
    for detail in details:
        if detail["type"] == "too_short" and detail["loc"] in parents:
            continue  # what it has is wrong, and was not counted
        inner: KeyPath = tuple(part for part in detail["loc"] if part != "[key]")
        path = prefix + inner
        if not any(path[:n] in failed for n in range(len(path) + 1)):
            yield document.problem(path, _message(detail, model, inner, document, path))


def _message(
    detail: ErrorDetails, model: type[BaseModel], inner: KeyPath, document: Document, path: KeyPath
) -> str:
    kind, context = detail["type"], detail.get("ctx", {})
    if kind == "extra_forbidden":
        return _unknown_key(model, inner)
    if kind == "value_error":
        message = str(context["error"])
    else:
        message = _MESSAGES.get(kind, detail["msg"]).format(**context)
    shown = document.shown(path)
    if kind == "missing" or (kind == "value_error" and shown == "got an object"):
        return message
    return f"{message} ({shown})" if shown else message


def _unknown_key(model: type[BaseModel], path: KeyPath) -> str:
    section, key = _section_at(model, path[:-1]), str(path[-1])
    keys = keys_of(section)
    meant = nearest(key, keys)
    places = places_of(key)
    if places:
        hint = f"; or did you mean {meant!r}?" if meant else ""
        return f"unknown key here; it belongs in {', or '.join(places)}{hint}"
    if meant is not None:
        return f"unknown key; did you mean {meant!r}?"
    return f"unknown key; there are: {', '.join(keys)}"


def _section_at(section: type[BaseModel], path: KeyPath) -> type[BaseModel]:
    for part in path:
        if isinstance(part, str):
            section = section_in(section, part)
    return section
