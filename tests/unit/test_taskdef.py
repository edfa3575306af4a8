import json
import subprocess
import sys
from copy import deepcopy
from enum import Enum
from pathlib import Path
from typing import Annotated, Any, Literal

import pytest
from pydantic import AliasChoices, AliasPath, BaseModel, ConfigDict, Discriminator, Field, Tag, computed_field

from perago import (
    ExecutionLimits,
    RetryPolicy,
    TaskControls,
    TaskDefinition,
    TaskDefinitionError,
    TimeoutPolicy,
    WorkspaceSpec,
    build_taskdef,
    require_glob,
    task,
    write_taskdef,
)
from perago.authoring.task import definition_of
from perago.conductor.taskdefs import ABSENT, Difference, taskdef_differences


class Window(BaseModel):
    start: int
    width: int = 10


class Params(BaseModel):
    limit: int
    window: Window | None = None
    dry_run: bool = Field(default=False, alias="dryRun")


class Result(BaseModel):
    row_count: int

    @computed_field
    @property
    def is_empty(self) -> bool:
        return self.row_count == 0


class Node(BaseModel):
    """A tree."""

    window: Window
    children: list["Node"] = []


class Open(BaseModel):
    model_config = ConfigDict(extra="allow")


class Cat(BaseModel):
    kind: Literal["cat"] = "cat"
    lives: int


class Dog(BaseModel):
    kind: Literal["dog"] = "dog"
    tricks: list[str]


class Kind(Enum):
    CAT = "cat"


class Remark(BaseModel):
    defaults: dict[str, Any] = {"title": "kept", "$ref": "#/$defs/Window"}
    window: Window = Field(description="where", default=Window(start=1))


def declared(params: type[BaseModel], result: type[BaseModel] = Result) -> TaskDefinition:
    def build(params: BaseModel) -> BaseModel: ...

    build.__annotations__.update({"params": params, "return": result})
    definition = definition_of(task(name="features.build", owner_email="data@example.com")(build))
    assert definition is not None
    return definition


def params_schema(model: type[BaseModel]) -> dict[str, Any]:
    return build_taskdef(declared(model))["inputSchema"]["data"]["properties"]["params"]


@task(
    name="features.build",
    owner_email="data@example.com",
    workspace=WorkspaceSpec(prefix="/features", pre=[require_glob("raw/*.csv")]),
    controls=TaskControls(
        retry=RetryPolicy(count=5, logic="EXPONENTIAL_BACKOFF", delay_seconds=2, max_delay_seconds=90, jitter_ms=250),
        timeout=TimeoutPolicy(policy="RETRY", seconds=3600, response_seconds=120, poll_seconds=30, total_seconds=7200),
        limits=ExecutionLimits(
            concurrent_exec_limit=4, rate_limit_frequency_in_seconds=60, rate_limit_per_frequency=100
        ),
    ),
)
def build(workspace: Path, params: Params) -> Result:
    """Build the features."""
    return Result(row_count=params.limit)


EXAMPLE = definition_of(build)
assert EXAMPLE is not None
REFERENCE = {"minLength": 1, "pattern": r"^\S+$", "type": "string"}


def handed_over(title: str, description: str) -> dict[str, Any]:
    return {
        "additionalProperties": False,
        "description": description,
        "properties": {
            "repository": {**REFERENCE, "title": "Repository"},
            "branch": {**REFERENCE, "title": "Branch"},
            "ref_type": {"const": "commit", "title": "Ref Type", "type": "string"},
            "ref": {**REFERENCE, "title": "Ref"},
        },
        "required": ["repository", "branch", "ref_type", "ref"],
        "title": title,
        "type": "object",
    }


TASKDEF: dict[str, Any] = {
    "name": "features.build",
    "ownerEmail": "data@example.com",
    "description": "Build the features.",
    "retryCount": 5,
    "retryLogic": "EXPONENTIAL_BACKOFF",
    "retryDelaySeconds": 2,
    "maxRetryDelaySeconds": 90,
    "backoffJitterMs": 250,
    "totalTimeoutSeconds": 7200,
    "timeoutPolicy": "RETRY",
    "timeoutSeconds": 3600,
    "responseTimeoutSeconds": 120,
    "pollTimeoutSeconds": 30,
    "concurrentExecLimit": 4,
    "rateLimitFrequencyInSeconds": 60,
    "rateLimitPerFrequency": 100,
    "inputKeys": ["workspace", "params"],
    "outputKeys": ["workspace", "result"],
    "inputSchema": {
        "name": "features.build.input",
        "version": 1,
        "type": "JSON",
        "data": {
            "type": "object",
            "properties": {
                "workspace": handed_over(
                    "WorkspaceInput",
                    "Where a task reads (`ref`, an immutable commit) and where it publishes (`branch`).",
                ),
                "params": {
                    "additionalProperties": False,
                    "properties": {
                        "limit": {"title": "Limit", "type": "integer"},
                        "window": {
                            "anyOf": [
                                {
                                    "additionalProperties": False,
                                    "properties": {
                                        "start": {"title": "Start", "type": "integer"},
                                        "width": {"default": 10, "title": "Width", "type": "integer"},
                                    },
                                    "required": ["start"],
                                    "title": "Window",
                                    "type": "object",
                                },
                                {"type": "null"},
                            ],
                            "default": None,
                        },
                        "dryRun": {"default": False, "title": "Dryrun", "type": "boolean"},
                    },
                    "required": ["limit"],
                    "title": "Params",
                    "type": "object",
                },
            },
            "required": ["workspace", "params"],
            "additionalProperties": False,
        },
    },
    "outputSchema": {
        "name": "features.build.output",
        "version": 1,
        "type": "JSON",
        "data": {
            "type": "object",
            "properties": {
                "workspace": handed_over(
                    "WorkspaceOutput",
                    "The input with `ref` moved to what was published; the next task takes it as its input.",
                ),
                "result": {
                    "additionalProperties": False,
                    "properties": {
                        "row_count": {"title": "Row Count", "type": "integer"},
                        "is_empty": {"readOnly": True, "title": "Is Empty", "type": "boolean"},
                    },
                    "required": ["row_count", "is_empty"],
                    "title": "Result",
                    "type": "object",
                },
            },
            "required": ["workspace", "result"],
            "additionalProperties": False,
        },
    },
}


def test_a_taskdef_says_all_that_was_declared() -> None:
    assert EXAMPLE is not None
    assert build_taskdef(EXAMPLE) == TASKDEF


def test_a_taskdef_of_a_task_alone_has_no_workspace() -> None:
    taskdef = build_taskdef(declared(Params))

    assert (taskdef["inputKeys"], taskdef["outputKeys"]) == (["params"], ["result"])
    for schema, key in (("inputSchema", "params"), ("outputSchema", "result")):
        assert taskdef[schema]["data"]["required"] == [key]
        assert list(taskdef[schema]["data"]["properties"]) == [key]


def test_unset_limits_are_left_out() -> None:
    assert not {"concurrentExecLimit", "rateLimitFrequencyInSeconds", "rateLimitPerFrequency"} & set(
        build_taskdef(declared(Params))
    )


def test_a_written_taskdef_is_the_built_one_in_readable_json(tmp_path: Path) -> None:
    assert EXAMPLE is not None
    path = tmp_path / "not" / "there" / "yet.json"

    write_taskdef(EXAMPLE, path)

    text = path.read_text()
    assert json.loads(text) == TASKDEF
    assert text.startswith('{\n  "name": "features.build",\n')
    assert text.endswith("}\n")


def test_a_written_taskdef_is_utf_8_whatever_the_locale(tmp_path: Path) -> None:
    source = """
import sys, warnings
from pathlib import Path
from pydantic import BaseModel
from perago import task, write_taskdef
from perago.authoring.task import definition_of

class Params(BaseModel): ...

@task(name="t", owner_email="a@b.c", description="Größe")
def build(params: Params) -> Params: ...

warnings.simplefilter("error", EncodingWarning)
write_taskdef(definition_of(build), Path(sys.argv[1]))
"""
    path = tmp_path / "taskdef.json"

    subprocess.run([sys.executable, "-X", "warn_default_encoding", "-c", source, str(path)], check=True)

    assert json.loads(path.read_bytes().decode("utf-8"))["description"] == "Größe"


def test_recursion_is_kept_as_definitions_and_other_references_are_resolved() -> None:
    data = build_taskdef(declared(Node))["inputSchema"]["data"]

    node = data["$defs"]["Node"]
    assert list(data["$defs"]) == ["Node"]
    assert data["properties"]["params"] == {"$ref": "#/$defs/Node"}
    assert node["properties"]["children"]["items"] == {"$ref": "#/$defs/Node"}
    assert node["properties"]["window"]["title"] == "Window"
    assert node["additionalProperties"] is False


def test_a_default_is_data_whatever_its_keys_are_called() -> None:
    properties = params_schema(Remark)["properties"]

    assert properties["defaults"]["default"] == {"title": "kept", "$ref": "#/$defs/Window"}


def test_what_is_said_of_a_field_goes_before_what_is_said_of_its_model() -> None:
    window = params_schema(Remark)["properties"]["window"]

    assert (window["description"], window["default"]) == ("where", {"start": 1, "width": 10})
    assert window["title"] == "Window"
    assert "$ref" not in window


def test_a_discriminated_union_needs_its_tag_and_points_nowhere() -> None:
    class Home(BaseModel):
        pet: Annotated[Cat | Dog, Field(discriminator="kind")]

    pet = params_schema(Home)["properties"]["pet"]

    assert [choice["title"] for choice in pet["oneOf"]] == ["Cat", "Dog"]
    assert pet["required"] == ["kind"]
    assert "discriminator" not in pet


def test_a_dict_says_what_its_keys_look_like() -> None:
    class Days(BaseModel):
        by_day: dict[Annotated[str, Field(pattern=r"^\d+$")], int]
        by_name: dict[str, int]

    properties = params_schema(Days)["properties"]

    assert properties["by_day"]["additionalProperties"] == {"type": "integer"}
    assert properties["by_day"]["propertyNames"] == {"pattern": r"^\d+$"}
    assert "propertyNames" not in properties["by_name"]


def test_a_union_chosen_by_a_function_takes_what_several_members_take() -> None:
    class Chosen(BaseModel):
        number: Annotated[
            Annotated[int, Tag("int")] | Annotated[float, Tag("float")],
            Discriminator(lambda value: type(value).__name__),
        ]

    assert params_schema(Chosen)["properties"]["number"]["anyOf"] == [{"type": "integer"}, {"type": "number"}]


def test_an_output_has_every_field_also_one_that_holds_its_default() -> None:
    class Report(BaseModel):
        rows: int = 0
        note: str | None = None
        secret: str = Field(default="", exclude=True)
        errors: Annotated[int, Field(exclude_if=lambda count: count == 0)] = 0

    result = build_taskdef(declared(Params, Report))["outputSchema"]["data"]["properties"]["result"]

    assert list(result["properties"]) == ["rows", "note", "errors"]
    assert result["required"] == ["rows", "note"]


def test_a_literal_that_no_json_can_give_is_refused_with_the_fix() -> None:
    class Tagged(BaseModel):
        kind: Literal[Kind.CAT] = Kind.CAT

    assert build_taskdef(declared(Params, Tagged))["name"] == "features.build"
    with pytest.raises(TaskDefinitionError) as refusal:
        build_taskdef(declared(Tagged))

    assert str(refusal.value) == (
        "model `Tagged` has no JSON schema: Pydantic reads no Literal of Kind.CAT from JSON: write its value, or use a"
        " StrEnum"
    )


@pytest.mark.parametrize("side", ["params", "result"])
@pytest.mark.parametrize("nested", [False, True])
def test_a_model_open_to_extra_fields_is_refused_with_the_fix(side: str, nested: bool) -> None:
    class Holder(BaseModel):
        inner: list[Open]

    model = Holder if nested else Open

    with pytest.raises(TaskDefinitionError) as refusal:
        build_taskdef(declared(model) if side == "params" else declared(Params, model))

    assert str(refusal.value) == (
        "model `Open` has extra='allow', but a task's input and output are closed:"
        " declare a field of type dict[str, …] instead"
    )


class Handle(BaseModel):
    model_config = ConfigDict(arbitrary_types_allowed=True)

    path: memoryview


class Unfinished(BaseModel):
    later: "Missing"  # pyright: ignore[reportUndefinedVariable] # noqa: F821


@pytest.mark.parametrize(
    ("model", "why"),
    [
        (Handle, "Cannot generate a JsonSchema for core_schema.IsInstanceSchema (<class 'memoryview'>)"),
        (
            Unfinished,
            "`Unfinished` is not fully defined; you should define `Missing`, then call `Unfinished.model_rebuild()`.",
        ),
    ],
)
def test_a_model_that_json_cannot_describe_is_refused_in_one_line(model: type[BaseModel], why: str) -> None:
    with pytest.raises(TaskDefinitionError) as refusal:
        build_taskdef(declared(model))

    assert str(refusal.value) == f"model `{model.__name__}` has no JSON schema: {why}"


def test_a_registered_taskdef_like_the_code_s_does_not_differ() -> None:
    assert taskdef_differences(deepcopy(TASKDEF), TASKDEF) == []


def test_what_conductor_adds_of_its_own_is_no_difference() -> None:
    registered = deepcopy(TASKDEF)
    registered.update({"createTime": 1, "createdBy": "", "accessPolicy": {}, "inputTemplate": {}})
    for schema in ("inputSchema", "outputSchema"):
        registered[schema].update({"createTime": 17, "updateTime": 18, "createdBy": "x", "ownerApp": None})

    assert taskdef_differences(registered, TASKDEF) == []


@pytest.mark.parametrize(
    ("path", "registered", "wanted"),
    [
        pytest.param("retryCount", 3, 5, id="top"),
        pytest.param("description", ABSENT, "Build the features.", id="absent"),
        pytest.param("inputKeys", ["params"], ["workspace", "params"], id="list"),
        pytest.param("inputSchema.version", 2, 1, id="schema version"),
        pytest.param(
            "inputSchema.data.properties.params.properties.limit.type", "string", "integer", id="type of a field"
        ),
        pytest.param("outputSchema.data.properties.result.additionalProperties", 0, False, id="0 is not false"),
        pytest.param("outputSchema.data.properties.result.properties.extra", {"type": "null"}, ABSENT, id="field more"),
    ],
)
def test_a_difference_is_given_by_its_path_with_both_values(path: str, registered: Any, wanted: Any) -> None:
    other = deepcopy(TASKDEF)
    *parents, last = path.split(".")
    place = other
    for parent in parents:
        place = place[parent]
    if registered == ABSENT:
        del place[last]
    else:
        place[last] = registered

    assert taskdef_differences(other, TASKDEF) == [Difference(path, registered, wanted)]


def test_every_difference_is_given() -> None:
    registered = {**TASKDEF, "retryCount": 0, "ownerEmail": "else@example.com"}

    assert [difference.path for difference in taskdef_differences(registered, TASKDEF)] == ["ownerEmail", "retryCount"]


@pytest.mark.parametrize(
    "fill_ins",
    [
        pytest.param({}, id="nothing"),
        pytest.param({"rateLimitFrequencyInSeconds": 1, "rateLimitPerFrequency": 0}, id="as Conductor fills them in"),
        pytest.param(
            {"concurrentExecLimit": 0, "rateLimitFrequencyInSeconds": 0, "rateLimitPerFrequency": 0}, id="zeros"
        ),
        pytest.param(
            {"concurrentExecLimit": None, "rateLimitFrequencyInSeconds": None, "rateLimitPerFrequency": None},
            id="nulls",
        ),
    ],
)
def test_conductor_s_fill_ins_for_unset_limits_are_no_difference(fill_ins: dict[str, Any]) -> None:
    wanted = build_taskdef(declared(Params))

    assert taskdef_differences({**wanted, **fill_ins}, wanted) == []


@pytest.mark.parametrize("limit", ["concurrentExecLimit", "rateLimitFrequencyInSeconds", "rateLimitPerFrequency"])
def test_a_limit_registered_but_no_longer_declared_is_a_difference(limit: str) -> None:
    wanted = build_taskdef(declared(Params))

    assert taskdef_differences({**wanted, limit: 7}, wanted) == [Difference(limit, 7, ABSENT)]


@pytest.mark.parametrize(
    "alias",
    [AliasPath("outer", "inner"), AliasChoices("first", AliasPath("outer", "inner"))],
    ids=["path", "path among choices"],
)
def test_an_alias_that_leads_into_another_field_is_refused_with_the_fix(alias: AliasChoices | AliasPath) -> None:
    class Aliased(BaseModel):
        value: int = Field(validation_alias=alias)

    with pytest.raises(TaskDefinitionError) as refusal:
        build_taskdef(declared(Aliased))

    assert str(refusal.value) == (
        "model `Aliased` has no JSON schema: AliasPath('outer', 'inner') leads into another field: use a plain alias"
    )
