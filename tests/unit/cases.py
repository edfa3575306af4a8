"""Tasks of generated models, each with a value that its input may have, or nearly has."""

import json
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

from hypothesis import settings
from hypothesis import strategies as st
from pydantic import BaseModel, create_model

from perago import TaskDefinition, TaskInputError, build_taskdef, task
from perago.authoring.payload import build_output, parse_input
from perago.authoring.task import definition_of
from tests.unit.shapes import KEYS, Json, Shape

if TYPE_CHECKING:
    from jsonschema import Draft202012Validator

checked = settings(max_examples=100, deadline=None)


@dataclass(frozen=True)
class Case:
    definition: TaskDefinition
    value: Json

    def __repr__(self) -> str:
        return f"{self.definition.params_model.model_fields} with {json.dumps(self.value)}"


@cache
def declared(model: type[BaseModel]) -> TaskDefinition:
    def build(params: BaseModel) -> BaseModel: ...

    build.__annotations__.update({"params": model, "return": model})
    definition = definition_of(task(name="features.build", owner_email="data@example.com")(build))
    assert definition is not None
    return definition


@st.composite
def valid_cases(draw: st.DrawFn, shapes: st.SearchStrategy[Shape]) -> Case:
    shape = draw(shapes)
    return Case(declared(shape.annotation), draw(shape.values))


ODD_TEXTS = ["", "on", "text", "2020-02-30", "2020-01-01T25:00:00", "NaN", "P", "0x10"]
ODD_ONES = st.sampled_from([None, True, False, 0, 1, -1, 2.0, 2.5, 1e300, [], {}, [None], {"kind": "sum"}, *ODD_TEXTS])
ODD_KEYS = KEYS | st.sampled_from(["field_0", "kind", "children", "or title", "or type", "x7"])


@st.composite
def near_misses(draw: st.DrawFn, shapes: st.SearchStrategy[Shape]) -> Case:
    """A valid value changed in one or two places, at any depth."""
    case = draw(valid_cases(shapes))
    value = case.value
    for _ in range(draw(st.integers(1, 2))):
        value = draw(changed(value))
    return Case(case.definition, value)


def alone(shape: Shape) -> Shape:
    """A model of one field, which is given."""
    return Shape(create_model("Alone", value=(shape.annotation, ...)), st.fixed_dictionaries({"value": shape.values}))


@st.composite
def misspelt(draw: st.DrawFn, shapes: st.SearchStrategy[Shape]) -> Case:
    """A text in a value's place, one or two characters away from a valid one."""
    shape = draw(shapes)
    text = draw(shape.values.map(str))
    for _ in range(draw(st.integers(1, 2))):
        at = draw(st.integers(0, len(text)))
        text = (
            text[:at]
            + draw(st.sampled_from([*"0123459-+:.,TtZzPDMHSYWeE_ ", ""]))
            + text[at + draw(st.integers(0, 1)) :]
        )
    return Case(declared(alone(shape).annotation), {"value": text})


@st.composite
def changed(draw: st.DrawFn, value: Json) -> Json:
    if isinstance(value, (dict, list)) and value and draw(st.integers(0, 3)):
        keys = list(value) if isinstance(value, dict) else list(range(len(value)))
        key = draw(st.sampled_from(keys))
        result = value.copy()
        if draw(st.integers(0, 4)):
            result[key] = draw(changed(value[key]))
        else:
            del result[key]
        return result
    if isinstance(value, dict) and draw(st.booleans()):
        return {**value, draw(ODD_KEYS): draw(ODD_ONES | st.sampled_from([*value.values(), None]))}
    if isinstance(value, list) and draw(st.booleans()):
        return [*value, draw(ODD_ONES | st.sampled_from([*value, None]))]
    if type(value) is int and draw(st.booleans()):
        return float(value)
    return draw(ODD_ONES)


def accepted_by_the_attempt(case: Case) -> bool:
    try:
        parse_input(case.definition, {"params": case.value})
    except TaskInputError:
        return False
    return True


@cache
def validator(definition: TaskDefinition, side: str) -> "Draft202012Validator":
    from jsonschema import Draft202012Validator  # two seconds, in which it builds the grammars of its formats

    schema = build_taskdef(definition)[side]["data"]
    Draft202012Validator.check_schema(schema)
    return Draft202012Validator(schema, format_checker=Draft202012Validator.FORMAT_CHECKER)


def accepted_by_the_schema(case: Case) -> bool:
    return validator(case.definition, "inputSchema").is_valid({"params": case.value})


def sent(case: Case) -> Json:
    """The output of a body that returns its params."""
    result = parse_input(case.definition, {"params": case.value}).params
    return json.loads(json.dumps(build_output(case.definition, None, result)))
