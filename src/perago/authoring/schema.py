"""JSON schemas of a task's models: closed objects, references resolved, recursion kept as `$defs`.

A schema accepts what the attempt accepts: `payload.py` validates strictly and closed for the same reason.
"""

from dataclasses import dataclass
from typing import Any, Literal, cast

from pydantic import BaseModel
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue

from perago.authoring.errors import TaskDefinitionError

Json = Any
_DEFS = "#/$defs/"
_ONE = ("additionalProperties", "items", "contains", "not", "propertyNames", "unevaluatedProperties")
_MANY = ("anyOf", "oneOf", "allOf", "prefixItems")
_NAMED = ("properties", "patternProperties", "$defs")
_ANNOTATIONS = {"default", "description", "title", "examples", "deprecated", "readOnly", "writeOnly"}


def model_schema(model: type[BaseModel], mode: Literal["validation", "serialization"]) -> dict[str, Json]:
    """The closed schema of what Perago accepts for `model`, or of what it sends from it."""
    try:
        schema = model.model_json_schema(mode=mode, schema_generator=_ClosedSchema)
    except TaskDefinitionError:
        raise
    except Exception as error:
        raise TaskDefinitionError(f"model `{model.__name__}` has no JSON schema: {error}") from error
    return _resolved(schema)


@dataclass(frozen=True, eq=False)
class _Data:
    """A default out of the reach of Pydantic, which takes any key `$ref` in it for a reference."""

    value: Json


class _ClosedSchema(GenerateJsonSchema):
    def default_schema(self, schema: Any) -> JsonSchemaValue:
        found = super().default_schema(schema)
        return (
            {**found, "default": _Data(found["default"])} if isinstance(found.get("default"), (dict, list)) else found
        )

    def dict_schema(self, schema: Any) -> JsonSchemaValue:
        found = super().dict_schema(schema)
        # Keys under a pattern are all there may be, which Pydantic checks and leaves out of its schema.
        return {"additionalProperties": False, **found} if "patternProperties" in found else found

    def tagged_union_schema(self, schema: Any) -> JsonSchemaValue:
        found = super().tagged_union_schema(schema)
        # The tag chooses the model, so it must be there even where the chosen model gives it a default.
        return {**found, "required": [found["discriminator"]["propertyName"]]} if "discriminator" in found else found

    def model_schema(self, schema: Any) -> JsonSchemaValue:
        return _closed(super().model_schema(schema), schema["cls"].__name__)

    def typed_dict_schema(self, schema: Any) -> JsonSchemaValue:
        return _closed(super().typed_dict_schema(schema), schema.get("cls_name", "TypedDict"))

    def dataclass_schema(self, schema: Any) -> JsonSchemaValue:
        return _closed(super().dataclass_schema(schema), schema["cls"].__name__)

    def model_field_schema(self, schema: Any) -> JsonSchemaValue:
        if self.mode == "validation" and isinstance(schema.get("validation_alias"), list):
            # A schema names one key; these stand for several, or for a place further down.
            raise TaskDefinitionError(
                f"field alias {schema['validation_alias']} is an AliasChoices or AliasPath, which a JSON schema"
                " cannot say: use one plain alias"
            )
        return super().model_field_schema(schema)


def _closed(schema: JsonSchemaValue, name: str) -> JsonSchemaValue:
    if "properties" not in schema and "$ref" in schema:
        return schema
    if schema.get("additionalProperties", False) is not False:
        raise TaskDefinitionError(
            f"model `{name}` has extra='allow', but a task's input and output are closed:"
            " declare a field of type dict[str, …] instead"
        )
    if schema.get("type") == "object":
        schema["additionalProperties"] = False
    return schema


def _resolved(schema: dict[str, Json]) -> dict[str, Json]:
    definitions: dict[str, Json] = schema.pop("$defs", {})
    recursive = {name for name in definitions if name in _reachable(name, definitions)}
    resolved = _inlined(schema, definitions, recursive)
    kept = {name: _inlined(definitions[name], definitions, recursive) for name in sorted(recursive)}
    return {**resolved, "$defs": kept} if kept else resolved


def _reachable(start: str, definitions: dict[str, Json]) -> set[str]:
    found: set[str] = set()
    waiting = [definitions[start]]
    while waiting:
        for name in _references(waiting.pop()):
            if name not in found:
                found.add(name)
                waiting.append(definitions[name])
    return found


def _references(schema: Json) -> set[str]:
    if not isinstance(schema, dict):
        return set()
    given = cast("dict[str, Json]", schema)
    found = {str(given["$ref"]).removeprefix(_DEFS)} if "$ref" in given else set[str]()
    return found.union(*(_references(part) for part in _parts(given)))


def _parts(schema: dict[str, Json]) -> list[Json]:
    """Subschemas only: a default or an example is data, whatever its keys are called."""
    parts = [schema[key] for key in _ONE if key in schema]
    parts += [part for key in _MANY for part in schema.get(key, [])]
    parts += [part for key in _NAMED for part in schema.get(key, {}).values()]
    return parts


def _inlined(schema: Json, definitions: dict[str, Json], keep: set[str]) -> Json:
    if not isinstance(schema, dict):
        return schema

    def inline(part: Json) -> Json:
        return _inlined(part, definitions, keep)

    result = dict(cast("dict[str, Json]", schema))
    for key in _ONE:
        if key in result:
            result[key] = inline(result[key])
    for key in _MANY:
        if key in result:
            result[key] = [inline(part) for part in result[key]]
    for key in _NAMED:
        if key in result:
            result[key] = {name: inline(part) for name, part in result[key].items()}
    if isinstance(result.get("default"), _Data):
        result["default"] = result["default"].value
    # An OpenAPI word that points into definitions which are no longer there.
    result.pop("discriminator", None)
    name = str(result.get("$ref", "")).removeprefix(_DEFS)
    if not name or name in keep:
        return result
    beside = {key: value for key, value in result.items() if key != "$ref"}
    target = inline(definitions[name])
    return {**target, **beside} if beside.keys() <= _ANNOTATIONS else {"allOf": [target], **beside}
