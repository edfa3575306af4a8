import math
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from enum import Enum
from pathlib import Path
from typing import Annotated, Any

import pytest
from pydantic import BaseModel, ConfigDict, Field, computed_field

from perago import (
    TaskDefinition,
    TaskExecutionError,
    TaskInputError,
    WorkspaceInput,
    WorkspaceOutput,
    WorkspaceSpec,
    task,
)
from perago.authoring.payload import TaskInput, build_output, parse_input
from perago.authoring.task import definition_of

HANDED_OVER = {"repository": "lake", "branch": "main", "ref_type": "commit", "ref": "c0ffee"}


class Unit(Enum):
    METRE = "m"
    SECOND = "s"


class Window(BaseModel):
    start: int
    width: Annotated[int, Field(ge=1)] = 10


class Params(BaseModel):
    model_config = ConfigDict(populate_by_name=True)

    limit: int
    ratio: float = 1.0
    name: Annotated[str, Field(min_length=1)] | None = None
    window: Window | None = None
    windows: list[Window] = []
    by_day: dict[str, Window] = {}
    unit: Unit = Unit.METRE
    dry_run: bool = Field(default=False, alias="dryRun")


class Result(BaseModel):
    row_count: int = Field(serialization_alias="rowCount")
    share: float = 0.5
    unit: Unit = Unit.SECOND

    @computed_field(alias="isEmpty")
    @property
    def is_empty(self) -> bool:
        return self.row_count == 0


class Report(BaseModel):
    value: Any


class DetailedResult(Result):
    secret_plan: str = "keep"


def declared(spec: WorkspaceSpec | None = None) -> TaskDefinition:
    def alone(params: Params) -> Result: ...

    def on_workspace(workspace: Path, params: Params) -> Result: ...

    function: Callable[..., Result] = alone if spec is None else on_workspace
    definition = definition_of(task(name="features.build", owner_email="data@example.com", workspace=spec)(function))
    assert definition is not None
    return definition


ALONE, ON_WORKSPACE = declared(), declared(WorkspaceSpec())
OPEN = replace(ALONE, result_model=Report)


def refusal(definition: TaskDefinition, payload: dict[str, Any]) -> str:
    with pytest.raises(TaskInputError) as refused:
        parse_input(definition, payload)
    return str(refused.value)


def test_the_input_of_a_workspace_task_is_its_workspace_and_its_params() -> None:
    payload = {"workspace": HANDED_OVER, "params": {"limit": 3}}

    assert parse_input(ON_WORKSPACE, payload) == TaskInput(WorkspaceInput.model_validate(HANDED_OVER), Params(limit=3))


def test_the_input_of_a_task_alone_is_its_params() -> None:
    assert parse_input(ALONE, {"params": {"limit": 3}}) == TaskInput(None, Params(limit=3))


@pytest.mark.parametrize(
    ("definition", "payload", "problems"),
    [
        pytest.param(ALONE, {}, "'params': params: missing", id="nothing"),
        pytest.param(ALONE, {"limit": 3}, "'params': limit: unknown field; params: missing", id="params bare"),
        pytest.param(ALONE, {"params": {"limit": 3}, "x": 1}, "'params': x: unknown field", id="one key more"),
        pytest.param(
            ALONE,
            {"params": {"limit": 3}, "workspace": HANDED_OVER},
            "'params': workspace: unknown field",
            id="workspace for a task without one",
        ),
        pytest.param(
            ON_WORKSPACE,
            {"params": {"limit": 3}},
            "'workspace' and 'params': workspace: missing",
            id="workspace missing",
        ),
        pytest.param(
            ON_WORKSPACE,
            {"workspace": HANDED_OVER},
            "'workspace' and 'params': params: missing",
            id="params missing",
        ),
        pytest.param(
            ON_WORKSPACE,
            {"workspace": HANDED_OVER, "params": {"limit": 3}, "prefix": "/x", "lakefs": {}},
            "'workspace' and 'params': prefix: unknown field; lakefs: unknown field",
            id="further keys",
        ),
    ],
)
def test_the_keys_are_exactly_those_of_the_contract(
    definition: TaskDefinition, payload: dict[str, Any], problems: str
) -> None:
    assert refusal(definition, payload) == f"input of features.build must be exactly {problems}"


@pytest.mark.parametrize(
    ("workspace", "problem"),
    [
        pytest.param({**HANDED_OVER, "ref_type": "branch"}, "workspace.ref_type: Input should be 'commit'", id="type"),
        pytest.param({**HANDED_OVER, "prefix": "/x"}, "workspace.prefix: unknown field", id="prefix"),
        pytest.param(
            {key: value for key, value in HANDED_OVER.items() if key != "ref"}, "workspace.ref: missing", id="no ref"
        ),
        pytest.param(
            {**HANDED_OVER, "branch": ""}, "workspace.branch: String should have at least 1 character", id="empty"
        ),
        pytest.param(
            {**HANDED_OVER, "ref": "  "}, "workspace.ref: String should match pattern '^\\S+$'", id="blank ref"
        ),
        pytest.param({**HANDED_OVER, "repository": 5}, "workspace.repository: Input should be a valid string", id="5"),
    ],
)
def test_a_wrong_workspace_is_refused_by_field(workspace: dict[str, Any], problem: str) -> None:
    payload = {"workspace": workspace, "params": {"limit": 3}}

    assert refusal(ON_WORKSPACE, payload) == f"input of features.build is refused: {problem}"


@pytest.mark.parametrize("workspace", [None, "lake", [], 5, {}])
def test_a_workspace_that_is_no_workspace_is_refused(workspace: Any) -> None:
    assert "input of features.build is refused: workspace" in refusal(
        ON_WORKSPACE, {"workspace": workspace, "params": {"limit": 3}}
    )


@pytest.mark.parametrize(
    ("params", "problem"),
    [
        pytest.param({}, "params.limit: missing", id="missing"),
        pytest.param({"limit": 3, "limits": 4}, "params.limits: unknown field", id="unknown"),
        pytest.param(
            {"limit": 3, "window": {"start": 1, "end": 2}}, "params.window.end: unknown field", id="unknown within"
        ),
        pytest.param(
            {"limit": 3, "windows": [{"start": 1}, {"start": 1, "end": 2}]},
            "params.windows.1.end: unknown field",
            id="unknown in a list",
        ),
        pytest.param(
            {"limit": 3, "by_day": {"monday": {"start": 1, "end": 2}}},
            "params.by_day.monday.end: unknown field",
            id="unknown in a dict",
        ),
        pytest.param({"limit": 3, "window": {}}, "params.window.start: missing", id="missing within"),
        pytest.param({"limit": "3"}, "params.limit: Input should be a valid integer", id="text for a number"),
        pytest.param({"limit": True}, "params.limit: Input should be a valid integer", id="truth for a number"),
        pytest.param({"limit": None}, "params.limit: Input should be a valid integer", id="null"),
        pytest.param({"limit": 3.5}, "params.limit: Input should be a valid integer", id="fraction"),
        pytest.param({"limit": 3, "ratio": "1"}, "params.ratio: Input should be a valid number", id="text for a float"),
        pytest.param({"limit": 3, "dryRun": 1}, "params.dryRun: Input should be a valid boolean", id="1 for true"),
        pytest.param({"limit": 3, "dry_run": True}, "params.dry_run: unknown field", id="by name where aliased"),
        pytest.param({"limit": 3, "unit": "kg"}, "params.unit: Input should be 'm' or 's'", id="not of the enum"),
        pytest.param(
            {"limit": 3, "name": ""}, "params.name: String should have at least 1 character", id="shorter than allowed"
        ),
        pytest.param(
            {"limit": 3, "window": {"start": 1, "width": 0}},
            "params.window.width: Input should be greater than or equal to 1",
            id="out of bounds within",
        ),
    ],
)
def test_wrong_params_are_refused_by_field(params: dict[str, Any], problem: str) -> None:
    assert refusal(ALONE, {"params": params}) == f"input of features.build is refused: {problem}"


def test_every_wrong_field_is_named_at_once() -> None:
    message = refusal(ALONE, {"params": {"limit": "x", "extra": 1}})

    assert message.endswith("params.limit: Input should be a valid integer; params.extra: unknown field")


def test_a_refusal_never_echoes_the_value() -> None:
    assert "hunter2" not in refusal(ALONE, {"params": {"limit": "hunter2", "ratio": "hunter2"}})


def test_params_nested_deeper_than_python_s_stack_are_refused() -> None:
    deep: list[Any] = []
    for _ in range(2000):
        deep = [deep]

    assert refusal(ALONE, {"params": {"limit": deep}}) == "input of features.build is refused: params: nested too deep"


@pytest.mark.parametrize("params", [None, "x", [], 5])
def test_params_that_are_no_object_are_refused(params: Any) -> None:
    assert refusal(ALONE, {"params": params}).startswith("input of features.build is refused: params: ")


@pytest.mark.parametrize(
    ("params", "parsed"),
    [
        pytest.param({"limit": 3.0}, Params(limit=3), id="integral float is an integer"),
        pytest.param({"limit": -0.0}, Params(limit=0), id="minus nothing is nothing"),
        pytest.param({"limit": 1, "ratio": 2}, Params(limit=1, ratio=2.0), id="integer is a float"),
        pytest.param(
            {"limit": 1, "windows": [{"start": 4.0}]}, Params(limit=1, windows=[Window(start=4)]), id="also within"
        ),
        pytest.param({"limit": 1, "unit": "s"}, Params(limit=1, unit=Unit.SECOND), id="enum by value"),
        pytest.param({"limit": 1, "dryRun": True}, Params(limit=1, dryRun=True), id="alias"),
        pytest.param({"limit": 1, "name": None, "window": None}, Params(limit=1), id="null where allowed"),
        pytest.param({"limit": 2**70}, Params(limit=2**70), id="integer beyond 64 bits"),
    ],
)
def test_params_are_taken_as_json_has_them(params: dict[str, Any], parsed: Params) -> None:
    assert parse_input(ALONE, {"params": params}).params == parsed


def test_the_payload_itself_is_left_as_it_was() -> None:
    payload = {"params": {"limit": 3.0, "windows": [{"start": 1.0}]}}

    parse_input(ALONE, payload)

    assert type(payload["params"]["limit"]) is float
    assert repr(payload) == "{'params': {'limit': 3.0, 'windows': [{'start': 1.0}]}}"


def test_the_output_is_the_result_by_alias_with_computed_fields() -> None:
    assert build_output(ALONE, None, Result(row_count=0)) == {
        "result": {"rowCount": 0, "share": 0.5, "unit": "s", "isEmpty": True}
    }


def test_the_output_of_a_workspace_task_carries_the_workspace() -> None:
    published = WorkspaceOutput.model_validate({**HANDED_OVER, "ref": "beef"})

    output = build_output(ON_WORKSPACE, published, Result(row_count=2))

    assert list(output) == ["workspace", "result"]
    assert output["workspace"] == {**HANDED_OVER, "ref": "beef"}


def test_an_output_workspace_is_the_next_task_s_input() -> None:
    output = build_output(ON_WORKSPACE, WorkspaceOutput.model_validate(HANDED_OVER), Result(row_count=2))

    following = parse_input(ON_WORKSPACE, {"workspace": output["workspace"], "params": {"limit": 1}})

    assert following.workspace == WorkspaceInput.model_validate(HANDED_OVER)


def test_what_a_subclass_adds_is_not_part_of_the_declared_output() -> None:
    assert build_output(ALONE, None, DetailedResult(row_count=1)) == build_output(ALONE, None, Result(row_count=1))


@pytest.mark.parametrize(
    ("returned", "shown"),
    [
        pytest.param(None, "NoneType", id="nothing"),
        pytest.param({"row_count": 1}, "dict", id="a dict"),
        pytest.param(Params(limit=1), "Params", id="another model"),
        pytest.param(Result, "ModelMetaclass", id="the model itself"),
    ],
)
def test_a_body_that_returns_something_else_is_told_so(returned: object, shown: str) -> None:
    with pytest.raises(TaskExecutionError) as refused:
        build_output(ALONE, None, returned)

    assert str(refused.value) == f"features.build returned {shown}, but its annotation says Result"


@pytest.mark.parametrize("share", [math.nan, math.inf, -math.inf])
def test_a_number_json_does_not_have_is_refused(share: float) -> None:
    with pytest.raises(TaskExecutionError, match=r"features\.build returned a result that is not JSON"):
        build_output(ALONE, None, Result(row_count=1, share=share))


@pytest.mark.parametrize(
    ("value", "why"),
    [
        pytest.param({"deep": [math.nan]}, "Out of range float values are not JSON compliant", id="no number"),
        pytest.param(b"\xff", "invalid utf-8", id="bytes that are no text"),
        pytest.param("\ud800", "surrogates not allowed", id="half a character"),
        pytest.param(object(), "Unable to serialize unknown type", id="what Pydantic does not know"),
        pytest.param(10**5000, "Exceeds the limit", id="number of thousands of digits"),
    ],
)
def test_a_value_json_does_not_have_is_refused_where_the_type_is_open(value: object, why: str) -> None:
    with pytest.raises(TaskExecutionError, match=rf"features\.build returned a result that is not JSON: .*{why}"):
        build_output(OPEN, None, Report(value=value))


@pytest.mark.parametrize(
    ("value", "sent"),
    [
        pytest.param(2**200, 2**200, id="huge integer"),
        pytest.param(Decimal("1E+400"), "1E+400", id="huge decimal"),
        pytest.param("é".encode(), "é", id="bytes"),
        pytest.param(datetime(2020, 2, 29, 12, 30), "2020-02-29T12:30:00", id="datetime without zone"),
        pytest.param(datetime(2020, 2, 29, 12, 30, tzinfo=UTC), "2020-02-29T12:30:00Z", id="datetime with zone"),
        pytest.param(timedelta(days=1), "P1D", id="duration"),
        pytest.param({1: Unit.METRE, None: {2}}, {"1": "m", "None": [2]}, id="keys that are no texts"),
        pytest.param(Path("raw/a.csv"), "raw/a.csv", id="path"),
    ],
)
def test_a_value_is_sent_as_json_has_it_where_the_type_is_open(value: object, sent: object) -> None:
    assert build_output(OPEN, None, Report(value=value)) == {"result": {"value": sent}}


def test_a_model_s_choice_of_how_values_are_written_is_kept() -> None:
    class Timed(BaseModel):
        model_config = ConfigDict(ser_json_timedelta="float")

        took: timedelta
        more: Any

    timed = replace(ALONE, result_model=Timed)

    assert build_output(timed, None, Timed(took=timedelta(minutes=1), more=timedelta(minutes=2))) == {
        "result": {"took": 60.0, "more": 120.0}
    }


def test_a_result_larger_than_conductor_keeps_is_refused_with_the_fix() -> None:
    room = 3_000_000 - len('{"value": ""}')
    assert build_output(OPEN, None, Report(value="é" * (room // 2)))["result"]["value"]

    with pytest.raises(TaskExecutionError) as refused:
        build_output(OPEN, None, Report(value="é" * (room // 2 + 1)))

    assert str(refused.value) == (
        "features.build returned a result of 3,000,001 bytes, more than Conductor keeps in a task (3,000,000):"
        " write it to the workspace and return where it is"
    )


def test_a_result_spoilt_after_its_validation_is_refused() -> None:
    result = Result(row_count=1)
    object.__setattr__(result, "row_count", "many")

    with pytest.raises(TaskExecutionError, match="returned a result that is not JSON"):
        build_output(ALONE, None, result)
