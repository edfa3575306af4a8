"""The TaskDef's schemas and the attempt's own checks are two readings of the same models: they must agree."""

from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Annotated, Any, Literal
from uuid import UUID

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from pydantic import UUID4, AliasChoices, AwareDatetime, Field, NaiveDatetime, create_model

from perago import build_taskdef
from perago.authoring.payload import parse_input
from tests.unit.cases import (
    Case,
    accepted_by_the_attempt,
    accepted_by_the_schema,
    alone,
    checked,
    declared,
    misspelt,
    near_misses,
    sent,
    valid_cases,
    validator,
)
from tests.unit.shapes import (
    LEAVES,
    RECURSIVE,
    SHAPES,
    TEXTUAL,
    Counted,
    Folder,
    Formula,
    Json,
    Level,
    Node,
    Unit,
    models,
)


def assert_output_obeys_its_schema(case: Case) -> None:
    validator(case.definition, "outputSchema").validate(sent(case))


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
@given(valid_cases(st.sampled_from(LEAVES).map(alone)))
def test_a_result_is_read_back_as_it_was(case: Case) -> None:
    given = parse_input(case.definition, {"params": case.value}).params

    assert parse_input(case.definition, {"params": sent(case)["result"]}).params == given


@checked
@given(misspelt(st.sampled_from(TEXTUAL)))
def test_a_text_that_fits_the_schema_fits_the_task(case: Case) -> None:
    if accepted_by_the_schema(case):
        assert accepted_by_the_attempt(case)


@pytest.mark.parametrize(
    ("annotation", "value", "accepted"),
    [
        pytest.param(set[int], [1, 1], True, id="repeated item of a set"),
        pytest.param(frozenset[str], ["a", "a"], True, id="repeated item of a frozenset"),
        pytest.param(Annotated[set[int], Field(min_length=2)], [1, 1], False, id="two items of a set that are one"),
        pytest.param(Annotated[set[int], Field(max_length=2)], [1, 2, 3], False, id="too many items of a set"),
        pytest.param(
            Annotated[set[int], Field(max_length=2)], [1, 2], True, id="as many items of a set as it may have"
        ),
        pytest.param(dict[int, str], {"-5": "x", "1_000": "y"}, True, id="whole number for a key"),
        pytest.param(dict[int, str], {"x": "x"}, False, id="text for an integer key"),
        pytest.param(dict[int, str], {"1.5": "x"}, False, id="fraction for an integer key"),
        pytest.param(dict[float, str], {"1e3": "x"}, True, id="number for a key"),
        pytest.param(dict[float, str], {"x": "x"}, False, id="text for a number key"),
        pytest.param(dict[UUID, str], {"123e4567-e89b-12d3-a456-426614174000": "x"}, True, id="UUID for a key"),
        pytest.param(dict[UUID, str], {"123": "x"}, False, id="other text for a UUID key"),
        pytest.param(dict[date, str], {"2020-02-30": "x"}, False, id="no day of the calendar for a key"),
        pytest.param(dict[Unit, str], {"m": "x"}, True, id="member of an Enum for a key"),
        pytest.param(dict[Unit, str], {"METRE": "x"}, False, id="name of a member for a key"),
        pytest.param(dict[Level, str], {"7": "x"}, True, id="member of an IntEnum for a key"),
        pytest.param(dict[Level, str], {"3": "x"}, False, id="other number for an IntEnum key"),
        pytest.param(dict[Literal["on"], str], {"off": "x"}, False, id="other text for a Literal key"),
        pytest.param(dict[Literal[2], str], {"2": "x"}, False, id="text for a number's Literal key"),
        pytest.param(dict[tuple[int, int], str], {"1,2": "x"}, False, id="what is no key"),
        pytest.param(dict[Annotated[str, Field(min_length=2)], str], {"a": "x"}, False, id="too short a key"),
        pytest.param(datetime, "2020-02-29T12:00:00", True, id="datetime without zone"),
        pytest.param(datetime, "2020-02-29 12:00+01:00", True, id="datetime with a space and a zone"),
        pytest.param(datetime, "2019-02-29T12:00:00", False, id="no day of the calendar"),
        pytest.param(AwareDatetime, "2020-02-29T12:00:00", False, id="no zone where one is asked for"),
        pytest.param(NaiveDatetime, "2020-02-29T12:00:00Z", False, id="zone where none is asked for"),
        pytest.param(time, "12:00", True, id="time without zone"),
        pytest.param(time, "24:00", False, id="no time of the day"),
        pytest.param(timedelta, "-P1DT0.5S", True, id="duration"),
        pytest.param(timedelta, "PT", False, id="duration of nothing"),
        pytest.param(timedelta, "P999999999DT00000000001S", True, id="longest duration"),
        pytest.param(timedelta, "P1000000000D", False, id="duration of too many days"),
        pytest.param(timedelta, "P999999Y99999999D", True, id="duration of years"),
        pytest.param(timedelta, "-P100DT4590999999S", False, id="duration of too many seconds"),
        pytest.param(Decimal, "1.50E+3", True, id="decimal as text"),
        pytest.param(Decimal, "x", False, id="other text for a decimal"),
        pytest.param(Decimal, "NaN", False, id="no number for a decimal"),
        pytest.param(UUID4, "9b2b1b1a-0d0e-4c3e-8f3a-2b1b1a0d0e4c", True, id="UUID of a version"),
        pytest.param(UUID4, "123e4567-e89b-12d3-a456-426614174000", False, id="UUID of another version"),
        pytest.param(int, 1e300, True, id="integer beyond what a double counts"),
        pytest.param(Annotated[float, Field(multiple_of=0.5)], 2.25, False, id="between two steps"),
    ],
)
def test_the_schema_and_the_attempt_agree_on(annotation: Any, value: Json, accepted: bool) -> None:
    case = Case(declared(create_model("Holder", value=(annotation, ...))), {"value": value})

    assert (accepted_by_the_schema(case), accepted_by_the_attempt(case)) == (accepted, accepted)


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


@pytest.mark.parametrize(
    ("given", "accepted"),
    [
        ({"old": 1}, True),
        ({"new": 1}, True),
        ({"new": 1, "hint": "x"}, True),
        ({"new": 1, "note": "x"}, True),
        ({}, False),
        ({"value": 1}, False),
        ({"old": 1, "new": 1}, False),
        ({"new": "1"}, False),
        ({"new": 1, "hint": "x", "note": "x"}, False),
    ],
)
def test_a_field_of_several_names_is_given_by_one_of_them(given: Json, accepted: bool) -> None:
    value = (int, Field(validation_alias=AliasChoices("new", "old")))
    note = (str, Field(default="", validation_alias=AliasChoices("note", "hint")))
    case = Case(declared(create_model("Renamed", value=value, note=note)), given)

    assert (accepted_by_the_schema(case), accepted_by_the_attempt(case)) == (accepted, accepted)


@pytest.mark.parametrize("name", ["title", "$ref", "$defs", "properties"])
def test_a_default_with_a_key_of_json_schema_s_own_stays_data(name: str) -> None:
    default = {name: "#/$defs/Node", "tree": {name: [{"$ref": "x"}]}}
    model = create_model("Holder", options=(dict[str, Any], default), tree=(Node, ...))

    schema = build_taskdef(declared(model))["inputSchema"]["data"]

    assert schema["properties"]["params"]["properties"]["options"]["default"] == default
    assert accepted_by_the_schema(Case(declared(model), {"tree": {"value": 1}}))
