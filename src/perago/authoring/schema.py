"""JSON schemas of a task's models: closed objects, references resolved, recursion kept as `$defs`.

A schema accepts what the attempt accepts: `payload.py` validates strictly and closed for the same reason.
"""

from typing import Any, Literal, cast

from pydantic import BaseModel

from perago.authoring.closed_schema import ClosedSchema, Data
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
        schema = model.model_json_schema(by_alias=True, mode=mode, schema_generator=ClosedSchema)
    except TaskDefinitionError:
        raise
    except Exception as error:
        first_line = str(error).partition("\n")[0]  # a link to Pydantic's own pages follows
        raise TaskDefinitionError(f"model `{model.__name__}` has no JSON schema: {first_line}") from error
    return _resolved(schema)


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
    if isinstance(result.get("default"), Data):
        result["default"] = result["default"].value
    # An OpenAPI word that points into definitions which are no longer there.
    result.pop("discriminator", None)
    name = str(result.get("$ref", "")).removeprefix(_DEFS)
    if not name or name in keep:
        return result
    beside = {key: value for key, value in result.items() if key != "$ref"}
    target = inline(definitions[name])
    return {**target, **beside} if beside.keys() <= _ANNOTATIONS else {"allOf": [target], **beside}
