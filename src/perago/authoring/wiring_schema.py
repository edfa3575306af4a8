"""Looking a path up in a JSON schema, and saying in words what is found there.

Doubt is silence: what a schema leaves open may hold anything, so that every dead end is a mistake.
"""

import difflib
import json
import operator
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, cast


class Each(Enum):
    """`[*]`: all items of a list."""

    ITEM = "[*]"


Step = str | int | Each

_UNIONS = ("anyOf", "oneOf", "allOf")
_BOUNDS: dict[str, tuple[Callable[[Any, Any], bool], str]] = {
    "minimum": (operator.ge, "at least"),
    "maximum": (operator.le, "at most"),
    "exclusiveMinimum": (operator.gt, "more than"),
    "exclusiveMaximum": (operator.lt, "less than"),
}
_LENGTHS = {"minLength": _BOUNDS["minimum"], "maxLength": _BOUNDS["maximum"]}
_NOUNS = {
    "object": "an object",
    "array": "a list",
    "string": "a string",
    "integer": "an integer",
    "number": "a number",
    "boolean": "a boolean",
    "null": "null",
}
_MOST_NAMES = 12


@dataclass(frozen=True)
class Schema:
    """A JSON schema and the definitions its references point into.

    A part of it may be a `Schema` of its own: a wired object takes its fields from several tasks' schemas.
    """

    node: Any
    definitions: Mapping[str, Any] = field(default_factory=dict[str, Any])

    @classmethod
    def of_root(cls, root: Mapping[str, Any]) -> "Schema":
        return cls(root, root.get("$defs", {}))

    @property
    def words(self) -> dict[str, Any]:
        node: object = self.node
        return cast("dict[str, Any]", node) if isinstance(node, dict) else {}

    def part(self, node: Any) -> "Schema":
        return node if isinstance(node, Schema) else Schema(node, self.definitions)


@dataclass(frozen=True)
class DeadEnd:
    """A path leaves the schema after the steps `walked`, because of `problem`."""

    walked: tuple[Step, ...]
    problem: str


def look_up(schema: Schema, steps: Sequence[Step]) -> Schema | DeadEnd:
    """The schema of what a path selects; a path that only some members of a union have is found."""
    members = members_of(schema)
    for walked, step in enumerate(steps):
        found = [part for member in members if (part := part_at(member, step)) is not None]
        if not found:
            return DeadEnd(tuple(steps[:walked]), _absence(members, step))
        members = [member for part in _distinct(found) for member in members_of(part)]
    node = members[0].node if len(members) == 1 else {"anyOf": [member.node for member in members]}
    return Schema({"type": "array", "items": node} if Each.ITEM in steps else node, schema.definitions)


def json_type(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, (int, float)):
        # 3.0 is an integer in JSON, and payload.py takes it for one.
        return "integer" if isinstance(value, int) or value.is_integer() else "number"
    if isinstance(value, str):
        return "string"
    return "array" if isinstance(value, (list, tuple)) else "object"


def noun(value: Any) -> str:
    return _NOUNS[json_type(value)]


def among(wrong: str, names: Iterable[str], has: str = "it has") -> str:
    """The names there are, with the one that `wrong` was probably meant to be."""
    known = list(names)
    if not known:
        return ""
    near = difflib.get_close_matches(wrong, known, 1)
    meant = f"; did you mean '{near[0]}'?" if near else ""
    more = ", …" if len(known) > _MOST_NAMES else ""
    return f" ({has}: {', '.join(known[:_MOST_NAMES])}{more}{meant})"


def shown_path(steps: Iterable[Step]) -> str:
    return "".join(map(_shown_step, steps)).removeprefix(".")


def _shown_step(step: Step) -> str:
    if isinstance(step, str):
        return f".{step}" if re.fullmatch(r"[\w-]+", step) else f"['{step}']"
    return step.value if isinstance(step, Each) else f"[{step}]"


def members_of(schema: Schema, met: frozenset[str] = frozenset()) -> list[Schema]:
    """What a union may be, references followed; `allOf` is read as loosely as `anyOf`."""
    words = schema.words
    if "$ref" in words:
        name = str(words["$ref"]).removeprefix("#/$defs/")
        if name in met or name not in schema.definitions:
            return [schema.part(True)]
        return members_of(_beside(schema, "$ref", schema.definitions[name]), met | {name})
    union = next((key for key in _UNIONS if key in words), None)
    if union is None:
        return [schema]
    return [member for option in words[union] for member in members_of(_beside(schema, union, option), met)]


def _beside(schema: Schema, key: str, option: Any) -> Schema:
    rest = {word: value for word, value in schema.words.items() if word != key}
    if not isinstance(option, dict):
        return schema.part(rest)
    words = {**rest, **cast("dict[str, Any]", option)}
    if "required" in rest:
        words["required"] = [*dict.fromkeys([*rest["required"], *words["required"]])]
    return schema.part(words)


def part_at(schema: Schema, step: Step) -> Schema | None:
    if isinstance(step, str):
        return field_of(schema, step)
    return _item(schema, step) if isinstance(step, int) else _each(schema)


def field_of(schema: Schema, name: str) -> Schema | None:
    words = schema.words
    if not may_be(schema, "object"):
        return None
    if name in words.get("properties", {}):
        return schema.part(words["properties"][name])
    others = words.get("additionalProperties", True)
    names = members_of(schema.part(words.get("propertyNames", True)))
    if others is False or all(refusal_of(name, written) for written in names):
        return None
    return schema.part(others)


def _item(schema: Schema, index: int) -> Schema | None:
    words = schema.words
    first: list[Any] = words.get("prefixItems", [])
    if not may_be(schema, "array") or index >= words.get("maxItems", index + 1):
        return None
    if first and index < len(first):
        return schema.part(first[index] if index >= 0 else True)
    others = words.get("items", True)
    return None if others is False else schema.part(others)


def _each(schema: Schema) -> Schema | None:
    if types_of(schema) == {"array"} and "prefixItems" not in schema.words:
        return schema.part(schema.words.get("items", True))
    return schema.part(True) if may_be(schema, "array") or may_be(schema, "object") else None


def _absence(members: list[Schema], step: Step) -> str:
    kinds = _either(map(typed, members))
    if not isinstance(step, str):
        is_list = any(may_be(member, "array") for member in members)
        return f"has no item {_shown_step(step)}" if is_list else f"is {kinds}, not a list"
    if any(may_be(member, "object") for member in members):
        names = dict.fromkeys(name for member in members for name in member.words.get("properties", {}))
        return f"has no field '{step}'{among(step, names)}"
    fix = ": take an item with [0] or [*]" if any(may_be(member, "array") for member in members) else ""
    return f"is {kinds} and has no field '{step}'{fix}"


def types_of(schema: Schema) -> set[str] | None:
    """The JSON types a schema admits, `None` when it does not say."""
    given: Any = schema.words.get("type")
    if given is not None:
        return {given} if isinstance(given, str) else set(given)
    values = values_of(schema)
    return None if values is None else {json_type(value) for value in values}


def values_of(schema: Schema) -> list[Any] | None:
    words = schema.words
    return [words["const"]] if "const" in words else words.get("enum")


def may_be(schema: Schema, name: str) -> bool:
    types = types_of(schema)
    return types is None or name in types


def refusal_of(value: Any, target: Schema) -> str | None:
    words, types, kind = target.words, types_of(target), json_type(value)
    if types is not None and kind not in types and not (kind == "integer" and "number" in types):
        return f"is {_NOUNS[kind]} where {described(target)} is needed"
    choices = values_of(target)
    if choices is not None and not any(json_type(choice) == kind and choice == value for choice in choices):
        return f"must be {_listed(choices)}"
    bounds, size, verb = (_LENGTHS, len(value), "have a length of") if kind == "string" else (_BOUNDS, value, "be")
    for word, (holds, phrase) in bounds.items() if kind in ("string", "integer", "number") else ():
        if word in words and not holds(size, words[word]):
            return f"must {verb} {phrase} {words[word]}"
    if kind == "string" and not _matches(words.get("pattern", ""), value):
        return f"must have the format {words['format']}" if "format" in words else f"must match {words['pattern']}"
    return None


def _matches(pattern: str, text: str) -> bool:
    try:
        return re.search(pattern, text) is not None
    except re.error:  # written for Pydantic's own engine
        return True


def described(schema: Schema) -> str:
    members = ((member, values_of(member)) for member in members_of(schema))
    return _either(typed(member) if values is None else _listed(values) for member, values in members)


def typed(schema: Schema) -> str:
    """By type alone: a literal of the workflow is not repeated, it may be a secret."""
    types = (types_of(member) for member in members_of(schema))
    return _either(_NOUNS.get(name, name) for admitted in types for name in sorted(admitted or ()))


def _listed(values: list[Any]) -> str:
    return _either(f"'{value}'" if isinstance(value, str) else json.dumps(value) for value in values)


def _either(words: Iterable[str]) -> str:
    return " or ".join(dict.fromkeys(words)) or "any value"


def _distinct(schemas: list[Schema]) -> list[Schema]:
    return [schema for place, schema in enumerate(schemas) if schema not in schemas[:place]]
