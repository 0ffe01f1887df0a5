"""The configuration's JSON Schema, by which editors complete and check it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue

from forebay.adapters.engines import registry
from forebay.config import laws
from forebay.config.schema import ForebayConfig

if TYPE_CHECKING:
    from pydantic_core import core_schema


def json_schema() -> dict[str, Any]:
    """Describe the configuration file, with the settings of every limit law that is installed."""
    schema = ForebayConfig.model_json_schema(schema_generator=_Generator)
    schema["$schema"] = _Generator.schema_dialect
    limit = schema["$defs"]["ForebaySettings"]["properties"]["limit"]
    choices: list[dict[str, Any]] = [{"enum": list(laws.names())}]
    for name in laws.names():
        law = laws.settings_class(name).model_json_schema(schema_generator=_Generator)
        law["properties"]["law"] = {"const": name}
        choices.append(law)
    engines = _or_text({"enum": list(registry.names())}, r"\$\{")
    for section in schema["$defs"].values():
        if "engine" in section["properties"]:
            section["properties"]["engine"]["anyOf"][0] = engines
    limit.pop("type")
    limit.pop("additionalProperties", None)
    limit["anyOf"] = choices
    return schema


class _Generator(GenerateJsonSchema):
    """Describes what may be *written*: numbers and switches also as texts, for variables."""

    def int_schema(self, schema: core_schema.IntSchema) -> JsonSchemaValue:
        """Allow ``16``, ``"16"`` and ``"${VAR}"``."""
        return _or_text(super().int_schema(schema), r"^\s*[+-]?[0-9]+\s*$|\$\{")

    def float_schema(self, schema: core_schema.FloatSchema) -> JsonSchemaValue:
        """Allow ``0.9``, ``"0.9"`` and ``"${VAR}"``."""
        return _or_text(
            super().float_schema(schema), r"^\s*[+-]?[0-9.]+([eE][+-]?[0-9]+)?\s*$|\$\{"
        )

    def bool_schema(self, schema: core_schema.BoolSchema) -> JsonSchemaValue:
        """Allow ``true``, ``"true"`` and ``"${VAR}"``."""
        return _or_text(super().bool_schema(schema), r"^\s*(true|false|on|off|yes|no|1|0)\s*$|\$\{")

    def literal_schema(self, schema: core_schema.LiteralSchema) -> JsonSchemaValue:
        """Allow one of the words, and ``"${VAR}"``."""
        return _or_text(super().literal_schema(schema), r"\$\{")


def _or_text(schema: JsonSchemaValue, pattern: str) -> dict[str, Any]:
    return {"anyOf": [schema, {"type": "string", "pattern": pattern}]}
