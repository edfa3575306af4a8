"""Models of every kind an author may write, each with the JSON values that are of it."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from enum import Enum, IntEnum, StrEnum
from typing import Annotated, Any, Generic, Literal, NamedTuple, TypeVar, Union
from uuid import UUID

from hypothesis import strategies as st
from pydantic import (
    AliasChoices,
    AwareDatetime,
    BaseModel,
    ConfigDict,
    Discriminator,
    Field,
    NaiveDatetime,
    RootModel,
    Tag,
    TypeAdapter,
    computed_field,
    create_model,
)
from typing_extensions import TypedDict

Json = Any


@dataclass(frozen=True)
class Shape:
    """A type as an author annotates it, and the JSON values that are of it."""

    annotation: Any
    values: st.SearchStrategy[Json]
    # Whether a value can be written as a default as it stands.
    plain: bool = True


class Unit(Enum):
    METRE = "m"
    SECOND = "s"


class Mixed(Enum):
    TEXT = "on"
    NUMBER = 2
    NOTHING = None


class Level(IntEnum):
    LOW = 2
    HIGH = 7


class Colour(StrEnum):
    RED = "red"


class Point(NamedTuple):
    x: int
    label: str = ""


class Options(TypedDict, total=False):
    depth: int


@dataclass
class Interval:
    first: int
    last: int | None = None


class Numbers(RootModel[list[int]]): ...


Item = TypeVar("Item")


class Box(BaseModel, Generic[Item]):
    content: Item
    others: list[Item] = []


def json_of(kind: type, values: st.SearchStrategy[Any]) -> st.SearchStrategy[str]:
    """Values as Pydantic writes them, which is how one task's result reaches another."""
    adapter: TypeAdapter[Any] = TypeAdapter(kind)
    return values.map(lambda value: adapter.dump_python(value, mode="json"))


TEXT = st.text(max_size=5)
LETTERS = st.text("abc", min_size=1, max_size=3)
KEYS = st.sampled_from(["title", "$ref", "$defs", "a", "b c", "é", ""])
WHOLE = st.integers(-9, 9)
ZONES = st.sampled_from([UTC, timezone(timedelta(hours=5, minutes=30)), timezone(-timedelta(hours=11))])
NAIVE = st.datetimes()
AWARE = st.datetimes(datetime(2, 1, 1), datetime(9998, 1, 1), timezones=ZONES)
AGE = timedelta(days=100_000)
DECIMALS = st.decimals(allow_nan=False, allow_infinity=False)
DATES = json_of(date, st.dates())
UUIDS = json_of(UUID, st.uuids())

TEXTUAL = [
    Shape(datetime, json_of(datetime, NAIVE | AWARE) | NAIVE.map(str) | AWARE.map(str), plain=False),
    Shape(AwareDatetime, json_of(datetime, AWARE), plain=False),
    Shape(NaiveDatetime, json_of(datetime, NAIVE), plain=False),
    Shape(date, DATES, plain=False),
    Shape(time, json_of(time, st.times() | st.times(timezones=ZONES)), plain=False),
    Shape(timedelta, json_of(timedelta, st.timedeltas(-AGE, AGE)), plain=False),
    Shape(UUID, UUIDS, plain=False),
    Shape(Decimal, json_of(Decimal, DECIMALS) | st.floats(-1e6, 1e6) | WHOLE, plain=False),
]
SCALARS = [
    *TEXTUAL,
    Shape(int, st.integers(-(2**70), 2**70)),
    Shape(int, st.sampled_from([2.0, 1e16, 1e300]), plain=False),
    Shape(Annotated[int, Field(ge=-2, le=7)], st.integers(-2, 7)),
    Shape(Annotated[int, Field(gt=0, multiple_of=3)], st.integers(1, 9).map(lambda n: 3 * n)),
    Shape(float, st.floats(-1e6, 1e6) | WHOLE),
    Shape(Annotated[float, Field(gt=0, lt=1)], st.floats(0.01, 0.99)),
    Shape(bool, st.booleans()),
    Shape(str, TEXT),
    Shape(bytes, TEXT, plain=False),
    Shape(Annotated[str, Field(min_length=1, max_length=3)], st.text(min_size=1, max_size=3)),
    Shape(Annotated[str, Field(pattern="^[abc]+$")], LETTERS),
    Shape(Literal["on", "off"], st.sampled_from(["on", "off"])),
    Shape(Literal["on", 2, None], st.sampled_from(["on", 2, None])),
    Shape(Unit, st.sampled_from(["m", "s"]), plain=False),
    Shape(Mixed, st.sampled_from(["on", 2, None]), plain=False),
    Shape(Level, st.sampled_from([2, 7]), plain=False),
    Shape(None, st.none()),
]
LEAVES = [
    *SCALARS,
    Shape(dict[str, Any], st.dictionaries(KEYS, TEXT | st.integers(0, 3), max_size=3)),
    Shape(tuple[()], st.just([]), plain=False),
    Shape(Point, st.lists(WHOLE, min_size=1, max_size=1), plain=False),
    Shape(Options, st.fixed_dictionaries({}, optional={"depth": WHOLE})),
    Shape(Interval, st.fixed_dictionaries({"first": WHOLE}, optional={"last": WHOLE | st.none()}), plain=False),
    Shape(Numbers, st.lists(WHOLE, max_size=3), plain=False),
]
KEY_TYPES = [
    (str, KEYS),
    (Annotated[str, Field(pattern="^[abc]+$")], LETTERS),
    (Annotated[str, Field(min_length=2, max_length=3)], st.text(min_size=2, max_size=3)),
    (int, st.integers().map(str) | st.sampled_from(["+5", " 7 ", "1_000", "2.0", "007"])),
    (float, st.floats(allow_nan=False, allow_infinity=False).map(str)),
    (bool, st.sampled_from(["true", "false"])),
    (Decimal, json_of(Decimal, DECIMALS)),
    (date, DATES),
    (UUID, UUIDS),
    (int | UUID, UUIDS | st.integers().map(str)),
    (Literal["on", "off"], st.sampled_from(["on", "off"])),
    (Unit, st.sampled_from(["m", "s"])),
    (Colour, st.just("red")),
    (Level, st.sampled_from(["2", "7"])),
    # No text is read as one of these, so such a dict is given empty or not at all.
    (Literal[2, 3], st.nothing()),
    (Mixed, st.just("on")),
]


def lists(inner: Shape) -> Shape:
    return Shape(list[inner.annotation], st.lists(inner.values, max_size=3), inner.plain)


def short_lists(inner: Shape) -> Shape:
    bounded = Annotated[list[inner.annotation], Field(min_length=1, max_length=2)]
    return Shape(bounded, st.lists(inner.values, min_size=1, max_size=2), inner.plain)


def pairs(inner: Shape) -> Shape:
    return Shape(tuple[inner.annotation, str], st.tuples(inner.values, TEXT).map(list), plain=False)


def tuples(inner: Shape) -> Shape:
    return Shape(tuple[inner.annotation, ...], st.lists(inner.values, max_size=3), plain=False)


def dicts(inner: Shape) -> Shape:
    return Shape(dict[str, inner.annotation], st.dictionaries(KEYS, inner.values, max_size=2), inner.plain)


def boxes(inner: Shape) -> Shape:
    given = {"content": inner.values}
    return Shape(Box[inner.annotation], st.fixed_dictionaries(given), plain=False)


def either(one: Any, other: Any) -> Any:
    return Union[one, other]  # noqa: UP007 - `None | None` is no annotation


def optional(inner: Shape) -> Shape:
    return Shape(either(inner.annotation, None), inner.values | st.none(), inner.plain)


@st.composite
def keyed(draw: st.DrawFn, shapes: st.SearchStrategy[Shape]) -> Shape:
    key, names = draw(st.sampled_from(KEY_TYPES))
    inner = draw(shapes)
    entries = st.just({}) if names.is_empty else st.dictionaries(names, inner.values, max_size=2)
    return Shape(dict[key, inner.annotation], entries, plain=False)


@st.composite
def sets(draw: st.DrawFn) -> Shape:
    """Their items may repeat; a set that must not be empty is one of them."""
    inner = draw(st.sampled_from(SCALARS))
    kind = draw(st.sampled_from([set, frozenset]))[inner.annotation]
    if draw(st.booleans()):
        return Shape(kind, st.lists(inner.values, max_size=4), plain=False)
    return Shape(Annotated[kind, Field(min_length=1)], st.lists(inner.values, min_size=1, max_size=4), plain=False)


class Forgiving(BaseModel):
    model_config = ConfigDict(extra="ignore", populate_by_name=True)


class ByName(BaseModel):
    model_config = ConfigDict(validate_by_name=True, validate_by_alias=False)


@st.composite
def models(draw: st.DrawFn, shapes: st.SearchStrategy[Shape], base: type[BaseModel] | None = None) -> Shape:
    """A model of up to three fields: required or with a default, under its name or under aliases."""
    fields: dict[str, Any] = {}
    required: dict[str, st.SearchStrategy[Json]] = {}
    left_out: dict[str, st.SearchStrategy[Json]] = {}
    aliases = st.lists(
        st.sampled_from(["title", "$ref", "default", "a-b", "type"]), min_size=3, max_size=3, unique=True
    )
    for index, alias in enumerate(draw(aliases)[: draw(st.integers(0, 3))]):
        name, shape = f"field_{index}", draw(shapes)
        naming, key = draw(
            st.sampled_from(
                [
                    ({}, name),
                    ({"alias": alias}, alias),
                    ({"validation_alias": alias}, alias),
                    ({"serialization_alias": f"out {alias}"}, name),
                    ({"validation_alias": AliasChoices(alias, f"or {alias}")}, alias),
                    ({"validation_alias": AliasChoices(alias, f"or {alias}")}, f"or {alias}"),
                ]
            )
        )
        if shape.plain and draw(st.booleans()):
            fields[name] = (shape.annotation, Field(default=draw(shape.values), **naming))
            left_out[key] = shape.values
        else:
            fields[name] = (shape.annotation, Field(**naming))
            required[key] = shape.values
    chosen = base or draw(st.sampled_from([BaseModel, Forgiving, ByName]))
    model = create_model(f"Model{draw(st.integers(0, 3))}", __base__=chosen, **fields)
    return Shape(model, st.fixed_dictionaries(required, optional=left_out), plain=False)


def deeper(shapes: st.SearchStrategy[Shape]) -> st.SearchStrategy[Shape]:
    unions = st.tuples(shapes, shapes).map(
        lambda two: Shape(either(two[0].annotation, two[1].annotation), two[0].values | two[1].values, plain=False)
    )
    wrappers: list[Callable[[Shape], Shape]] = [lists, short_lists, pairs, tuples, dicts, boxes, optional]
    wrapped = st.tuples(st.sampled_from(wrappers), shapes).map(lambda both: both[0](both[1]))
    return wrapped | unions | models(shapes) | keyed(shapes)


SHAPES = st.recursive(st.sampled_from(LEAVES) | sets(), deeper, max_leaves=5)


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


class Tree(BaseModel, Generic[Item]):
    item: Item
    branches: "list[Tree[Item]]" = []


class Forest(BaseModel):
    trees: dict[int, Tree[date]]


def leaf_or_tree(value: Any) -> str:
    return "number" if isinstance(value, int | float) else "tree"


class Either(BaseModel):
    """A union chosen by a function, where a value of one member may fit another."""

    one: Annotated[
        Annotated[float, Tag("number")] | Annotated[int | dict[str, "Either"], Tag("tree")],
        Discriminator(leaf_or_tree),
    ]


for recursive in (Sum, Named, Formula, Folder, File, Tree, Forest, Either):
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


def inner_tree(trees: st.SearchStrategy[Json]) -> st.SearchStrategy[Json]:
    return st.fixed_dictionaries({"item": DATES, "branches": st.lists(trees, max_size=2)})


def inner_either(inner: st.SearchStrategy[Json]) -> st.SearchStrategy[Json]:
    return st.fixed_dictionaries({"one": st.dictionaries(KEYS, inner, max_size=2)})


NUMBERS = st.fixed_dictionaries({"kind": st.just("number"), "value": st.integers(0, 9)})
NODES = st.recursive(st.fixed_dictionaries({"value": st.integers(0, 9)}), inner_node, max_leaves=5)
EXPRESSIONS = st.recursive(NUMBERS, inner_expression, max_leaves=5)
FOLDERS = st.recursive(st.just({}), inner_folder, max_leaves=4)
TREES = st.recursive(st.fixed_dictionaries({"item": DATES}), inner_tree, max_leaves=4)
RECURSIVE = [
    Shape(Node, NODES),
    Shape(Formula, st.fixed_dictionaries({"expression": EXPRESSIONS}, optional={"unit": TEXT | st.none()})),
    Shape(Folder, FOLDERS),
    Shape(Forest, st.fixed_dictionaries({"trees": st.dictionaries(WHOLE.map(str), TREES, max_size=2)})),
    Shape(Either, st.recursive(st.fixed_dictionaries({"one": WHOLE}), inner_either, max_leaves=4)),
]
