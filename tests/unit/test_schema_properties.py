"""The TaskDef's schemas and the attempt's own checks are two readings of the same models: they must agree."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Annotated, Any, Literal, Union

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator
from pydantic import BaseModel, ConfigDict, Field, computed_field, create_model

from perago import TaskDefinition, TaskInputError, build_taskdef, task
from perago.authoring.payload import build_output, parse_input
from perago.authoring.task import definition_of

Json = Any
checked = settings(max_examples=100, deadline=None)


@dataclass(frozen=True)
class Shape:
    """A type as an author annotates it, and the JSON values that are of it."""

    annotation: Any
    values: st.SearchStrategy[Json]
    # Whether a value can be written as a default as it stands.
    plain: bool = True


TEXT = st.text(max_size=5)
LETTERS = st.text("abc", min_size=1, max_size=3)
KEYS = st.sampled_from(["title", "$ref", "$defs", "a", "b c", "é", ""])

LEAVES = st.sampled_from(
    [
        Shape(int, st.integers(-(2**40), 2**40)),
        Shape(Annotated[int, Field(ge=-2, le=7)], st.integers(-2, 7)),
        Shape(Annotated[int, Field(gt=0, multiple_of=3)], st.integers(1, 9).map(lambda n: 3 * n)),
        Shape(float, st.floats(-1e6, 1e6) | st.integers(-9, 9)),
        Shape(Annotated[float, Field(gt=0, lt=1)], st.floats(0.01, 0.99)),
        Shape(bool, st.booleans()),
        Shape(str, TEXT),
        Shape(Annotated[str, Field(min_length=1, max_length=3)], st.text(min_size=1, max_size=3)),
        Shape(Annotated[str, Field(pattern="^[abc]+$")], LETTERS),
        Shape(Literal["on", "off"], st.sampled_from(["on", "off"])),
        Shape(Literal["on", 2, None], st.sampled_from(["on", 2, None])),
        Shape(None, st.none()),
        Shape(dict[str, Any], st.dictionaries(KEYS, TEXT | st.integers(0, 3), max_size=3)),
    ]
)


def lists(inner: Shape) -> Shape:
    return Shape(list[inner.annotation], st.lists(inner.values, max_size=3), inner.plain)


def short_lists(inner: Shape) -> Shape:
    bounded = Annotated[list[inner.annotation], Field(min_length=1, max_length=2)]
    return Shape(bounded, st.lists(inner.values, min_size=1, max_size=2), inner.plain)


def pairs(inner: Shape) -> Shape:
    return Shape(tuple[inner.annotation, str], st.tuples(inner.values, TEXT).map(list), plain=False)


def dicts(inner: Shape) -> Shape:
    return Shape(dict[str, inner.annotation], st.dictionaries(KEYS, inner.values, max_size=2), inner.plain)


def dicts_by_pattern(inner: Shape) -> Shape:
    keys = Annotated[str, Field(pattern="^[abc]+$")]
    return Shape(dict[keys, inner.annotation], st.dictionaries(LETTERS, inner.values, max_size=2), inner.plain)


def either(one: Any, other: Any) -> Any:
    return Union[one, other]  # noqa: UP007 - `None | None` is no annotation


def optional(inner: Shape) -> Shape:
    return Shape(either(inner.annotation, None), inner.values | st.none(), inner.plain)


@st.composite
def models(draw: st.DrawFn, shapes: st.SearchStrategy[Shape], base: type[BaseModel] = BaseModel) -> Shape:
    """A model of up to three fields: required or with a default, under its name or under aliases."""
    fields: dict[str, Any] = {}
    required: dict[str, st.SearchStrategy[Json]] = {}
    left_out: dict[str, st.SearchStrategy[Json]] = {}
    aliases = st.lists(
        st.sampled_from(["title", "$ref", "default", "a-b", "type"]), min_size=3, max_size=3, unique=True
    )
    for index, alias in enumerate(draw(aliases)[: draw(st.integers(0, 3))]):
        name, shape = f"field_{index}", draw(shapes)
        naming: dict[str, Any] = draw(
            st.sampled_from(
                [{}, {"alias": alias}, {"validation_alias": alias}, {"serialization_alias": f"out {alias}"}]
            )
        )
        key = naming.get("alias") or naming.get("validation_alias") or name
        if shape.plain and draw(st.booleans()):
            fields[name] = (shape.annotation, Field(default=draw(shape.values), **naming))
            left_out[key] = shape.values
        else:
            fields[name] = (shape.annotation, Field(**naming))
            required[key] = shape.values
    model = create_model(f"Model{draw(st.integers(0, 3))}", __base__=base, **fields)
    return Shape(model, st.fixed_dictionaries(required, optional=left_out), plain=False)


def deeper(shapes: st.SearchStrategy[Shape]) -> st.SearchStrategy[Shape]:
    unions = st.tuples(shapes, shapes).map(
        lambda two: Shape(either(two[0].annotation, two[1].annotation), two[0].values | two[1].values, plain=False)
    )
    wrappers: list[Callable[[Shape], Shape]] = [lists, short_lists, pairs, dicts, dicts_by_pattern, optional]
    wrapped = st.tuples(st.sampled_from(wrappers), shapes).map(lambda both: both[0](both[1]))
    return wrapped | unions | models(shapes)


SHAPES = st.recursive(LEAVES, deeper, max_leaves=5)


class Counted(BaseModel):
    @computed_field(alias="field count")
    @property
    def field_count(self) -> int:
        return len(type(self).model_fields)


class Node(BaseModel):
    value: int
    next: "Node | None" = None
    children: list["Node"] = Field(default=[], alias="childNodes")

    @computed_field
    @property
    def size(self) -> int:
        return 1 + sum(child.size for child in self.children)


class Number(BaseModel):
    kind: Literal["number"] = "number"
    value: float


class Sum(BaseModel):
    kind: Literal["sum"] = "sum"
    terms: "list[Expression]"


class Named(BaseModel):
    kind: Literal["named"]
    by_name: "dict[str, Expression]" = {}


Expression = Annotated[Number | Sum | Named, Field(discriminator="kind")]


class Formula(BaseModel):
    expression: Expression
    unit: str | None = None


class Folder(BaseModel):
    model_config = ConfigDict(extra="ignore", populate_by_name=True)

    files: "dict[str, File]" = {}


class File(BaseModel):
    beside: Folder | None = None


for recursive in (Sum, Named, Formula, Folder, File):
    recursive.model_rebuild()


def inner_node(nodes: st.SearchStrategy[Json]) -> st.SearchStrategy[Json]:
    further = {"next": nodes | st.none(), "childNodes": st.lists(nodes, max_size=2)}
    return st.fixed_dictionaries({"value": st.integers(0, 9)}, optional=further)


def inner_expression(inner: st.SearchStrategy[Json]) -> st.SearchStrategy[Json]:
    sums = st.fixed_dictionaries({"kind": st.just("sum"), "terms": st.lists(inner, max_size=2)})
    named = st.fixed_dictionaries({"kind": st.just("named")}, optional={"by_name": st.dictionaries(KEYS, inner)})
    return sums | named


def inner_folder(folders: st.SearchStrategy[Json]) -> st.SearchStrategy[Json]:
    return st.fixed_dictionaries({"files": st.dictionaries(KEYS, st.fixed_dictionaries({"beside": folders}))})


NUMBERS = st.fixed_dictionaries({"kind": st.just("number"), "value": st.integers(0, 9)})
NODES = st.recursive(st.fixed_dictionaries({"value": st.integers(0, 9)}), inner_node, max_leaves=5)
EXPRESSIONS = st.recursive(NUMBERS, inner_expression, max_leaves=5)
FOLDERS = st.recursive(st.just({}), inner_folder, max_leaves=4)
RECURSIVE = [
    Shape(Node, NODES),
    Shape(Formula, st.fixed_dictionaries({"expression": EXPRESSIONS}, optional={"unit": TEXT | st.none()})),
    Shape(Folder, FOLDERS),
]


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


ODD_ONES = st.sampled_from([None, True, False, 0, 1, -1, 2.0, 2.5, "", "on", "text", [], {}, [None], {"kind": "sum"}])


@st.composite
def near_misses(draw: st.DrawFn, shapes: st.SearchStrategy[Shape]) -> Case:
    """A valid value changed in one or two places, at any depth."""
    case = draw(valid_cases(shapes))
    value = case.value
    for _ in range(draw(st.integers(1, 2))):
        value = draw(changed(value))
    return Case(case.definition, value)


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
        return {**value, draw(KEYS | st.sampled_from(["field_0", "kind", "children"])): draw(ODD_ONES)}
    if isinstance(value, list) and draw(st.booleans()):
        return [*value, draw(ODD_ONES)]
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
def validator(definition: TaskDefinition, side: str) -> Draft202012Validator:
    schema = build_taskdef(definition)[side]["data"]
    Draft202012Validator.check_schema(schema)
    return Draft202012Validator(schema, format_checker=Draft202012Validator.FORMAT_CHECKER)


def accepted_by_the_schema(case: Case) -> bool:
    return validator(case.definition, "inputSchema").is_valid({"params": case.value})


def assert_output_obeys_its_schema(case: Case) -> None:
    result = parse_input(case.definition, {"params": case.value}).params

    output = json.loads(json.dumps(build_output(case.definition, None, result)))

    validator(case.definition, "outputSchema").validate(output)


@checked
@given(valid_cases(models(SHAPES)))
def test_what_a_model_is_made_of_is_accepted_by_the_attempt_and_by_the_schema(case: Case) -> None:
    assert accepted_by_the_attempt(case)
    assert accepted_by_the_schema(case)


@checked
@given(near_misses(models(SHAPES)))
def test_the_schema_accepts_exactly_what_the_attempt_accepts(case: Case) -> None:
    assert accepted_by_the_schema(case) == accepted_by_the_attempt(case)


@checked
@given(valid_cases(models(SHAPES, base=Counted)))
def test_every_output_obeys_the_output_schema(case: Case) -> None:
    assert_output_obeys_its_schema(case)


@checked
@given(valid_cases(st.sampled_from(RECURSIVE)))
def test_recursive_models_are_accepted_and_given_back_at_any_depth(case: Case) -> None:
    assert accepted_by_the_attempt(case)
    assert accepted_by_the_schema(case)
    assert_output_obeys_its_schema(case)


@checked
@given(near_misses(st.sampled_from(RECURSIVE)))
@example(Case(declared(Formula), {"expression": {"value": 1}}))
@example(Case(declared(Formula), {"expression": {"kind": "sum", "terms": [{"value": 1}]}}))
@example(Case(declared(Node), {"value": 1, "children": []}))
@example(Case(declared(Folder), {"files": {"a": {"beside": {"files": {}, "more": 1}}}}))
def test_the_schema_of_a_recursive_model_accepts_exactly_what_the_attempt_accepts(case: Case) -> None:
    assert accepted_by_the_schema(case) == accepted_by_the_attempt(case)


@pytest.mark.parametrize("name", ["title", "$ref", "$defs", "properties"])
def test_a_default_with_a_key_of_json_schema_s_own_stays_data(name: str) -> None:
    default = {name: "#/$defs/Node", "tree": {name: [{"$ref": "x"}]}}
    model = create_model("Holder", options=(dict[str, Any], default), tree=(Node, ...))

    schema = build_taskdef(declared(model))["inputSchema"]["data"]

    assert schema["properties"]["params"]["properties"]["options"]["default"] == default
    assert accepted_by_the_schema(Case(declared(model), {"tree": {"value": 1}}))
