"""Pydantic's JSON schemas, made to say what an attempt accepts and what it sends, no more and no less.

Values that JSON has no type for are written as text. Pydantic's schemas say too little of these texts, or ask for
more than Pydantic does; here they are patterns. Where Pydantic reads several spellings, the usual ones are offered.
"""

from dataclasses import dataclass
from enum import Enum
from itertools import combinations
from typing import Any, cast

from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue
from pydantic_core import core_schema

from perago.authoring.errors import TaskDefinitionError

_DAY = (
    r"(?!0000)(?:\d{4}-(?:(?:0[13578]|1[02])-(?:0[1-9]|[12]\d|3[01])|(?:0[469]|11)-(?:0[1-9]|[12]\d|30)"
    r"|02-(?:0[1-9]|1\d|2[0-8]))|(?:\d\d(?:0[48]|[2468][048]|[13579][26])|(?:[02468][048]|[13579][26])00)-02-29)"
)
_CLOCK = r"(?:[01]\d|2[0-3]):[0-5]\d(?::[0-5]\d(?:[.,]\d{1,9})?)?"
_ZONE = r"(?:[Zz]|[+-](?:[01]\d|2[0-3]):?[0-5]\d)"
_ZONES = {None: f"{_ZONE}?", "naive": ""}
# As many digits of each unit as never make more than the 999,999,999 days of a timedelta, and the 2**32 seconds that
# Pydantic counts of hours, minutes and seconds together.
_DAYS = r"(?:0*\d{1,6}Y)?(?:0*\d{1,7}M)?(?:0*\d{1,8}D)?|0*[12]\d{6}Y(?:\d{1,3}D)?|0*\d{1,9}D"
_HOURS = r"T(?=\d)(?:0*\d{1,6}H)?(?:0*\d{1,6}M)?(?:0*\d{1,8}(?:\.\d+)?S)?"
_DURATION = rf"[+-]?P(?:0*\d{{1,8}}W|(?=\d|T\d)(?:{_DAYS})(?:{_HOURS})?)"
_HEX = "[0-9A-Fa-f]"
_NUMBER = r"^\s*[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?\s*$"
# Keys of JSON are texts, from which Pydantic reads numbers and truths too.
_KEYS: dict[Any, JsonSchemaValue] = {
    "integer": {"pattern": r"^\s*[+-]?[0-9]+(?:_[0-9]+)*(?:\.0+)?\s*$"},
    "number": {"pattern": _NUMBER},
    "boolean": {"enum": ["true", "false"]},
}


@dataclass(frozen=True, eq=False)
class Data:
    """A default out of the reach of Pydantic, which takes any key `$ref` in it for a reference."""

    value: Any


class ClosedSchema(GenerateJsonSchema):
    """The schema of what Perago accepts for a model (`validation`), or sends from it (`serialization`)."""

    def default_schema(self, schema: Any) -> JsonSchemaValue:
        found = super().default_schema(schema)
        return {**found, "default": Data(found["default"])} if isinstance(found.get("default"), (dict, list)) else found

    def datetime_schema(self, schema: Any) -> JsonSchemaValue:
        # JSON Schema's own date-time and time have a zone, Python's need not.
        zone = _ZONES.get(schema.get("tz_constraint"), _ZONE)
        return _as_text(super().datetime_schema(schema), "iso-date-time", f"{_DAY}[Tt _]{_CLOCK}{zone}")

    def time_schema(self, schema: Any) -> JsonSchemaValue:
        zone = _ZONES.get(schema.get("tz_constraint"), _ZONE)
        return _as_text(super().time_schema(schema), "iso-time", f"{_CLOCK}{zone}")

    def date_schema(self, schema: Any) -> JsonSchemaValue:
        return _as_text(super().date_schema(schema), "date", _DAY)

    def timedelta_schema(self, schema: Any) -> JsonSchemaValue:
        return _as_text(super().timedelta_schema(schema), "duration", _DURATION)

    def uuid_schema(self, schema: Any) -> JsonSchemaValue:
        version = schema.get("version", _HEX)
        digits = f"{_HEX}{{8}}-{_HEX}{{4}}-{version}{_HEX}{{3}}-{_HEX}{{4}}-{_HEX}{{12}}"
        return _as_text(super().uuid_schema(schema), "uuid", digits)

    def decimal_schema(self, schema: Any) -> JsonSchemaValue:
        found = super().decimal_schema(schema)
        text: JsonSchemaValue = {"type": "string", "format": "decimal"}
        if not schema.get("allow_inf_nan"):
            text["pattern"] = _NUMBER
        return {"anyOf": [found["anyOf"][0], text]} if self.mode == "validation" else text

    def literal_schema(self, schema: Any) -> JsonSchemaValue:
        unread = [value for value in schema["expected"] if isinstance(value, Enum) and not isinstance(value, str | int)]
        if unread and self.mode == "validation":
            raise ValueError(f"Pydantic reads no Literal of {unread[0]} from JSON: write its value, or use a StrEnum")
        return _without_number_type(super().literal_schema(schema))

    def enum_schema(self, schema: Any) -> JsonSchemaValue:
        found = super().enum_schema(schema)
        return found if issubclass(schema["cls"], int) else _without_number_type(found)

    def set_schema(self, schema: Any) -> JsonSchemaValue:
        return self._set(super().set_schema(schema))

    def frozenset_schema(self, schema: Any) -> JsonSchemaValue:
        return self._set(super().frozenset_schema(schema))

    def dict_schema(self, schema: Any) -> JsonSchemaValue:
        anything = core_schema.any_schema()
        found = super().dict_schema(cast("core_schema.DictSchema", {**schema, "keys_schema": anything}))
        names = self._names(self.generate_inner(schema.get("keys_schema", anything)))
        return {**found, "propertyNames": names} if names else found

    ordered_dict_schema = counter_schema = frozendict_schema = dict_schema

    def tagged_union_schema(self, schema: Any) -> JsonSchemaValue:
        found = super().tagged_union_schema(schema)
        if "discriminator" not in found:
            # A function chooses the model, and a value may fit others too.
            return {"anyOf": found["oneOf"]}
        # The tag chooses the model, so it must be there even where the chosen model gives it a default.
        return {**found, "required": [found["discriminator"]["propertyName"]]}

    def model_schema(self, schema: Any) -> JsonSchemaValue:
        return _closed(super().model_schema(schema), schema["cls"].__name__)

    def typed_dict_schema(self, schema: Any) -> JsonSchemaValue:
        found = _closed(super().typed_dict_schema(schema), schema.get("cls_name", "TypedDict"))
        return self._with_every_alias(found, schema["fields"].values())

    def dataclass_schema(self, schema: Any) -> JsonSchemaValue:
        return _closed(super().dataclass_schema(schema), schema["cls"].__name__)

    def model_fields_schema(self, schema: Any) -> JsonSchemaValue:
        return self._with_every_alias(super().model_fields_schema(schema), schema["fields"].values())

    def dataclass_args_schema(self, schema: Any) -> JsonSchemaValue:
        return self._with_every_alias(super().dataclass_args_schema(schema), schema["fields"])

    def field_is_required(self, field: Any, total: bool) -> bool:
        if self.mode == "serialization" and field["type"] != "typed-dict-field":
            # A field that holds its default is sent like any other.
            return field.get("serialization_exclude_if") is None
        return super().field_is_required(field, total)

    def _set(self, found: JsonSchemaValue) -> JsonSchemaValue:
        # A repeated item is read as one. Only where distinct items are counted must it be told without repetition.
        counted = found.get("minItems", 0) > 1 or "maxItems" in found
        if self.mode == "validation" and not counted:
            del found["uniqueItems"]
        return found

    def _names(self, schema: JsonSchemaValue) -> JsonSchemaValue:
        """How values of a schema are written where they are the keys of an object."""
        schema = self.resolve_ref_schema(schema)
        if "anyOf" in schema:
            return {"anyOf": [self._names(option) for option in schema["anyOf"]]}
        kind = schema.get("type")
        values: Any = [schema["const"]] if "const" in schema else schema.get("enum")
        if values is not None:
            as_text = kind == "integer" or self.mode == "serialization"
            return {"enum": [str(value) for value in values if isinstance(value, str) or as_text]}
        if kind in (None, "string"):
            return {word: value for word, value in schema.items() if word not in ("type", "title")}
        # Nothing else is read from a key, though everything is written to one.
        return _KEYS.get(kind) or ({"enum": []} if self.mode == "validation" else {})

    def _with_every_alias(self, found: JsonSchemaValue, fields: Any) -> JsonSchemaValue:
        """`found`, where a field with AliasChoices is given by any one of its names."""
        one_of_each: list[JsonSchemaValue] = []
        not_both: list[JsonSchemaValue] = []
        choices = [_alias_choices(field) for field in fields if self.mode == "validation"]
        for names in filter(None, choices):
            found["properties"].update(dict.fromkeys(names, found["properties"][names[0]]))
            if names[0] in found.get("required", []):
                found["required"].remove(names[0])
                one_of_each.append({"oneOf": [{"required": [name]} for name in names]})
            else:
                not_both += [{"required": list(pair)} for pair in combinations(names, 2)]
        rules: JsonSchemaValue = {"allOf": one_of_each, "not": not_both and {"anyOf": not_both}}
        return {**found, **{word: rule for word, rule in rules.items() if rule}}


def _as_text(schema: JsonSchemaValue, its_format: str, pattern: str) -> JsonSchemaValue:
    """`schema`, unless the model's configuration makes it a number."""
    return {**schema, "format": its_format, "pattern": f"^{pattern}$"} if schema.get("type") == "string" else schema


def _without_number_type(schema: JsonSchemaValue) -> JsonSchemaValue:
    """The values say it already; only of an IntEnum are keys read, and its type tells it apart."""
    return {word: value for word, value in schema.items() if (word, value) != ("type", "integer")}


def _alias_choices(field: dict[str, Any]) -> list[str]:
    """The names of a field that has several; each is a path, as an AliasPath alone is."""
    alias: Any = field.get("validation_alias")
    if not isinstance(alias, list):
        return []
    paths = cast("list[Any]", alias if isinstance(alias[0], list) else [alias])
    for path in paths:
        if len(path) != 1:
            raise ValueError(f"AliasPath({', '.join(map(repr, path))}) leads into another field: use a plain alias")
    return [path[0] for path in paths]


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
