import copy
from enum import Enum
from pathlib import Path
from typing import Annotated, Any, Literal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator
from pydantic import BaseModel, Field

from perago.authoring.payload import input_schema
from perago.authoring.task import TaskDefinition, definition_of, task
from perago.authoring.wiring import wiring_problems, workflow_task_names
from perago.authoring.workspace import WorkspaceSpec

INGEST = "task 'ingest' (orders.ingest): inputParameters"
BUILD = "task 'build' (features.build): inputParameters"


class Mode(Enum):
    FULL = "full"
    DELTA = "delta"


class Window(BaseModel):
    first: int
    last: int | None = None


class IngestParams(BaseModel):
    source: str = Field(min_length=2, pattern="^[a-z0-9:/]+$")
    limit: int = Field(default=10, ge=1, lt=1000)
    mode: Mode = Mode.FULL


class Node(BaseModel):
    label: str
    children: list["Node"] = []


class Csv(BaseModel):
    kind: Literal["csv"] = "csv"
    delimiter: str


class Parquet(BaseModel):
    kind: Literal["parquet"] = "parquet"
    rows_per_group: int


class IngestResult(BaseModel):
    row_count: int
    table: str
    share: float
    checked: bool
    window: Window
    files: list[Window]
    counts: dict[str, int]
    tree: Node
    origin: Csv | Parquet
    maybe: int | None
    span: tuple[int, str]
    anything: Any
    codes: dict[Annotated[str, Field(pattern="^x")], int] = {}
    days: dict[Literal["monday", "friday"], int] = {}
    cost: int = Field(alias="total-cost")


class BuildParams(BaseModel):
    limit: int
    ratio: float = 1.0
    table: str = "orders"
    mode: Literal["full", "delta"] = "full"
    window: Window | None = None
    windows: list[Window] = []
    numbers: list[int] = []
    pair: tuple[int, str] | None = None
    counts: dict[str, int] = {}
    tree: Node | None = None
    origin: Annotated[Csv | Parquet, Field(discriminator="kind")] | None = None
    anything: Any = None
    dry: bool = False


class BuildResult(BaseModel):
    features: int


class NotifyParams(BaseModel):
    first: int
    last: int | None = None


def ingest_task() -> TaskDefinition:
    @task(name="orders.ingest", owner_email="data@example.com", workspace=WorkspaceSpec(prefix="/raw"))
    def ingest(workspace: Path, params: IngestParams) -> IngestResult: ...

    return defined(ingest)


def build_task() -> TaskDefinition:
    @task(name="features.build", owner_email="data@example.com", workspace=WorkspaceSpec(prefix="/features"))
    def build(workspace: Path, params: BuildParams) -> BuildResult: ...

    return defined(build)


def notify_task() -> TaskDefinition:
    @task(name="orders.notify", owner_email="data@example.com")
    def notify(params: NotifyParams) -> BuildResult: ...

    return defined(notify)


def defined(function: object) -> TaskDefinition:
    definition = definition_of(function)
    assert definition is not None
    return definition


TASKS = [ingest_task(), build_task(), notify_task()]
WORKSPACE = {
    "repository": "${workflow.input.repository}",
    "branch": "${workflow.input.branch}",
    "ref_type": "commit",
    "ref": "${workflow.input.ref}",
}


def simple(reference: str, name: str, **inputs: Any) -> dict[str, Any]:
    return {"name": name, "taskReferenceName": reference, "type": "SIMPLE", "inputParameters": inputs}


def ingest(reference: str = "ingest", **params: Any) -> dict[str, Any]:
    return simple(reference, "orders.ingest", workspace=WORKSPACE, params={"source": "s3://orders", **params})


def build(reference: str = "build", **params: Any) -> dict[str, Any]:
    given = {"limit": 5, **params}
    return simple(reference, "features.build", workspace="${ingest.output.workspace}", params=given)


def reader(reference: str, **inputs: Any) -> dict[str, Any]:
    """A task of another worker: only its expressions are checked."""
    return simple(reference, "elsewhere", **inputs)


def holder(reference: str, kind: str, **nested: Any) -> dict[str, Any]:
    return {"name": reference, "taskReferenceName": reference, "type": kind, **nested}


def workflow(*tasks: Any, **more: Any) -> dict[str, Any]:
    return {"name": "orders", "version": 1, "tasks": list(tasks), **more}


def problems(*tasks: Any, **more: Any) -> list[str]:
    return wiring_problems(workflow(*tasks, **more), TASKS)


def realistic() -> dict[str, Any]:
    """As Conductor exports it: every task carries empty lists of what it does not nest."""
    empty: dict[str, Any] = {"decisionCases": {}, "defaultCase": [], "forkTasks": [], "loopOver": [], "joinOn": []}
    features = build(
        limit="${ingest.output.result.row_count}",
        ratio="${ingest.output.result.row_count}",
        table="lake.${ingest.output.result.table}_${workflow.input.day}",
        mode="${ingest.input.params.mode}",
        window="${ingest.output.result.window}",
        windows="${ingest.output.result.files}",
        numbers="${ingest.output.result.files[*].first}",
        pair="${ingest.output.result.span}",
        counts="${ingest.output.result.counts}",
        tree="${ingest.output.result.tree.children[0]}",
        origin="${ingest.output.result.origin}",
        anything={"free": ["${ingest.status}", "$${not.an.expression}", "${CPEWF_TASK_ID}"]},
    )
    return workflow(
        {**empty, **ingest(limit="${workflow.input.limit}", mode="delta")},
        {**empty, **features},
        inputParameters=["repository", "branch", "ref", "limit", "day"],
        outputParameters={"workspace": "${build.output.workspace}", "features": "${build.output.result.features}"},
    )


def test_a_workflow_wired_right_has_no_problems() -> None:
    assert wiring_problems(realistic(), TASKS) == []


def test_checking_leaves_the_workflow_as_it_was() -> None:
    given = realistic()
    before = copy.deepcopy(given)
    wiring_problems(given, TASKS)
    assert given == before


def test_a_renamed_field_is_named_in_every_place_that_reads_it() -> None:
    given = realistic()
    given["tasks"][1]["inputParameters"]["params"]["limit"] = "${ingest.output.result.rows}"
    given["outputParameters"]["features"] = "${build.output.result.feature}"
    fields = "row_count, table, share, checked, window, files, counts, tree, origin, maybe, span, anything, …"
    assert wiring_problems(given, TASKS) == [
        f"{BUILD}.params.limit is ${{ingest.output.result.rows}}, but 'result' of orders.ingest has no field 'rows'"
        f" (it has: {fields})",
        "workflow: outputParameters.features is ${build.output.result.feature}, but 'result' of features.build has no"
        " field 'feature' (it has: features; did you mean 'features'?)",
    ]


PATHS_THAT_EXIST = [
    "workspace",
    "workspace.ref",
    "result.window.first",
    "result.window['first']",
    'result["window"].last',
    "result.files[0].first",
    "result.files[-1].first",
    "result.files[*].first",
    "result.counts.monday",
    "result.tree.children[0].children[1].label",
    "result.origin.delimiter",
    "result.origin.rows_per_group",
    "result.span[1]",
    "result.anything.of.any[3].shape",
    "result.total-cost",
    "result.codes.x1",
    "result.days.friday",
    "result.files.length()",
    "result.files[?(@.first > 3)].nowhere",
    "result..nowhere",
    "result.${workflow.input.field}",
]


@pytest.mark.parametrize("path", PATHS_THAT_EXIST)
def test_a_path_its_output_may_have_is_fine(path: str) -> None:
    assert problems(ingest(), reader("next", value=f"${{ingest.output.{path}}}")) == []


PATHS_THAT_DO_NOT = {
    "results": "the output of orders.ingest has no field 'results' (it has: workspace, result; did you mean 'result'?)",
    "workspace.commit": "'workspace' of orders.ingest has no field 'commit' (it has: repository, branch, ref_type,"
    " ref)",
    "result.window.frist": "'result.window' of orders.ingest has no field 'frist' (it has: first, last; did you mean"
    " 'first'?)",
    "result.row_count.x": "'result.row_count' of orders.ingest is an integer and has no field 'x'",
    "result.maybe.x": "'result.maybe' of orders.ingest is an integer or null and has no field 'x'",
    "result.files.first": "'result.files' of orders.ingest is a list and has no field 'first': take an item with [0]"
    " or [*]",
    "result.files[0].frist": "'result.files[0]' of orders.ingest has no field 'frist'",
    "result.files[*].frist": "'result.files[*]' of orders.ingest has no field 'frist'",
    "result.window[0]": "'result.window' of orders.ingest is an object, not a list",
    "result.table[*]": "'result.table' of orders.ingest is a string, not a list",
    "result.span[2]": "'result.span' of orders.ingest has no item [2]",
    "result.counts.monday.x": "'result.counts.monday' of orders.ingest is an integer and has no field 'x'",
    "result.tree.children[0].lable": "'result.tree.children[0]' of orders.ingest has no field 'lable' (it has: label,"
    " children; did you mean 'label'?)",
    "result.origin.nowhere": "'result.origin' of orders.ingest has no field 'nowhere' (it has: kind, delimiter,"
    " rows_per_group)",
    "result.codes.x1.y": "'result.codes.x1' of orders.ingest is an integer and has no field 'y'",
    "result.days.sunday": "'result.days' of orders.ingest has no field 'sunday'",
    "result.cost": "'result' of orders.ingest has no field 'cost'",
    "result.nowhere.length()": "'result' of orders.ingest has no field 'nowhere'",
}


@pytest.mark.parametrize("path", PATHS_THAT_DO_NOT)
def test_a_path_its_output_never_has_is_named_with_what_there_is(path: str) -> None:
    [problem] = problems(ingest(), reader("next", deep={"value": [f"${{ingest.output.{path}}}"]}))
    where = "task 'next': inputParameters.deep.value[0] is"
    assert problem.startswith(f"{where} ${{ingest.output.{path}}}, but {PATHS_THAT_DO_NOT[path]}")


def test_an_input_is_read_by_its_own_schema() -> None:
    assert problems(ingest(), reader("next", value="${ingest.input.params.source}")) == []
    [problem] = problems(ingest(), reader("next", value="${ingest.input.result.source}"))
    assert problem.endswith("but the input of orders.ingest has no field 'result' (it has: workspace, params)")


def test_an_expression_inside_a_longer_text_is_checked_too() -> None:
    [problem] = problems(ingest(), reader("next", value="s3://${ingest.output.result.bucket}/${ingest.taskId}"))
    assert problem.startswith("task 'next': inputParameters.value uses ${ingest.output.result.bucket}, but 'result' of")


WORKSPACE_PROBLEMS: list[tuple[Any, list[str]]] = [
    (WORKSPACE, []),
    ("${workflow.input.workspace}", []),
    ({**WORKSPACE, "ref_type": "branch"}, [f"{INGEST}.workspace.ref_type must be 'commit'"]),
    ({**WORKSPACE, "ref": ""}, [f"{INGEST}.workspace.ref must have a length of at least 1"]),
    ({**WORKSPACE, "ref": "a b"}, [f"{INGEST}.workspace.ref must match ^\\S+$"]),
    ("main", [f"{INGEST}.workspace is a string where an object is needed"]),
    (
        {**WORKSPACE, "repo": "x"},
        [f"{INGEST}.workspace.repo is unknown (known: repository, branch, ref_type, ref)"],
    ),
    (
        {key: WORKSPACE[key] for key in ("repository", "branch", "ref")},
        [f"{INGEST}.workspace.ref_type is missing: 'commit' is needed (given: repository, branch, ref)"],
    ),
]


@pytest.mark.parametrize(("workspace", "expected"), WORKSPACE_PROBLEMS)
def test_a_workspace_has_exactly_its_four_keys(workspace: Any, expected: list[str]) -> None:
    assert problems(simple("ingest", "orders.ingest", workspace=workspace, params={"source": "s3://a"})) == expected


def test_a_workspace_may_be_put_together_from_several_sources() -> None:
    mixed = {**WORKSPACE, "repository": "lake", "ref": "${ingest.output.workspace.ref}"}
    assert problems(ingest(), simple("build", "features.build", workspace=mixed, params={"limit": 1})) == []


def test_a_whole_payload_given_for_its_workspace_is_named_field_by_field() -> None:
    given = simple("build", "features.build", workspace="${ingest.output}", params={"limit": 1})
    found = problems(ingest(), given)
    where = f"{BUILD}.workspace is ${{ingest.output}}, whose"
    assert f"{where} 'result' is unknown (known: repository, branch, ref_type, ref)" in found
    assert f"{where} 'repository' is missing: a string is needed (given: workspace, result)" in found


TOP_LEVEL_PROBLEMS: list[tuple[str, dict[str, Any], list[str]]] = [
    ("orders.notify", {"params": {"first": 1}}, []),
    (
        "orders.notify",
        {"first": 1},
        ["first is unknown (known: params)", "params is missing: an object is needed (given: first)"],
    ),
    (
        "orders.notify",
        {"params": {"first": 1}, "workspace": WORKSPACE},
        ["workspace is unknown (known: params)"],
    ),
    (
        "orders.ingest",
        {"params": {"source": "s3://a"}},
        ["workspace is missing: an object is needed (given: params)"],
    ),
    ("orders.ingest", {}, ["workspace is missing: an object is needed", "params is missing: an object is needed"]),
]


@pytest.mark.parametrize(("name", "inputs", "expected"), TOP_LEVEL_PROBLEMS)
def test_the_top_level_keys_are_exactly_those_of_the_task(
    name: str, inputs: dict[str, Any], expected: list[str]
) -> None:
    where = f"task 'only' ({name}): inputParameters."
    assert problems(simple("only", name, **inputs)) == [where + problem for problem in expected]


LITERALS_THAT_FIT: list[dict[str, Any]] = [
    {"limit": 3.0},
    {"ratio": 3},
    {"ratio": 0.5, "dry": True, "window": None},
    {"windows": [{"first": 1}, {"first": 2, "last": None}]},
    {"pair": [1, "a"]},
    {"counts": {"monday": 1}},
    {"tree": {"label": "a", "children": [{"label": "b", "children": []}]}},
    {"origin": {"kind": "csv", "delimiter": ";"}},
    {"anything": {"deep": [1, None]}},
]


@pytest.mark.parametrize("params", LITERALS_THAT_FIT)
def test_a_literal_the_model_accepts_is_fine(params: dict[str, Any]) -> None:
    assert problems(ingest(), build(**params)) == []


LITERALS_THAT_DO_NOT: list[tuple[dict[str, Any], str]] = [
    ({"limit": "5"}, "limit is a string where an integer is needed"),
    ({"limit": 2.5}, "limit is a number where an integer is needed"),
    ({"limit": True}, "limit is a boolean where an integer is needed"),
    ({"limit": None}, "limit is null where an integer is needed"),
    ({"dry": "yes"}, "dry is a string where a boolean is needed"),
    ({"mode": "ful"}, "mode must be 'full' or 'delta'"),
    ({"limits": 5}, "limits is unknown (known: limit, ratio, table, "),
    ({"window": 3}, "window is an integer where an object or null is needed"),
    ({"window": {"first": "a"}}, "window.first is a string where an integer is needed"),
    ({"window": {"last": 1}}, "window.first is missing: an integer is needed (given: last)"),
    ({"windows": {"first": 1}}, "windows is an object where a list is needed"),
    ({"windows": [{"first": 1}, {"first": "a"}]}, "windows[1].first is a string where an integer is needed"),
    ({"pair": [1]}, "pair must have a length of at least 2, not 1"),
    ({"pair": [1, "a", 2]}, "pair must have a length of at most 2, not 3"),
    ({"counts": {"mon.day": "x"}}, "counts['mon.day'] is a string where an integer is needed"),
    ({"tree": {"label": "a", "children": [{"label": 1}]}}, "tree.children[0].label is an integer where a string"),
    ({"origin": {"kind": "parquet", "rows_per_group": "x"}}, "origin.rows_per_group is a string where an integer"),
]


@pytest.mark.parametrize(("params", "expected"), LITERALS_THAT_DO_NOT)
def test_a_literal_the_model_refuses_is_named(params: dict[str, Any], expected: str) -> None:
    [problem] = problems(ingest(), build(**params))
    assert problem.startswith(f"{BUILD}.params.{expected}")


@pytest.mark.parametrize(
    ("params", "expected"),
    [
        ({"limit": 0}, "limit must be at least 1"),
        ({"limit": 1000}, "limit must be less than 1000"),
        ({"source": "a"}, "source must have a length of at least 2"),
        ({"source": "S3"}, "source must match ^[a-z0-9:/]+$"),
        ({"source": "$${workflow}"}, "source must match ^[a-z0-9:/]+$"),
        ({"mode": 1}, "mode is an integer where 'full' or 'delta' is needed"),
    ],
)
def test_a_literal_out_of_bounds_is_named_with_the_bound(params: dict[str, Any], expected: str) -> None:
    assert problems(ingest(**params)) == [f"{INGEST}.params.{expected}"]


def test_a_wrong_literal_is_not_repeated() -> None:
    [problem] = problems(ingest(), build(limit="hunter2"))
    assert "hunter2" not in problem


EXPRESSIONS_THAT_MAY_FIT = [
    {"limit": "${workflow.input.limit}"},
    {"limit": "${ingest.output.result.anything}"},
    {"limit": "${ingest.output.result.maybe}"},
    {"limit": "${ingest.output.result.share}"},
    {"limit": "${elsewhere.output.rows}"},
    {"limit": "${ingest.output.result.files.length()}"},
    {"limit": "${ingest.output.result.${workflow.input.field}}"},
    {"limit": "${ingest.retryCount}"},
    {"mode": "${ingest.output.result.table}"},
    {"anything": "${ingest.output.result}"},
    {"tree": "${ingest.output.result.tree}"},
    {"origin": "${ingest.output.result.origin}"},
]


@pytest.mark.parametrize("params", EXPRESSIONS_THAT_MAY_FIT)
def test_an_expression_that_may_fit_is_fine(params: dict[str, Any]) -> None:
    assert problems(ingest(), reader("elsewhere"), build(**params)) == []


EXPRESSIONS_THAT_NEVER_FIT: list[tuple[dict[str, Any], str]] = [
    ({"limit": "${ingest.output.result.table}"}, "which is a string where an integer is needed"),
    ({"limit": "${ingest.output.result.files[*].first}"}, "which is a list where an integer is needed"),
    ({"limit": "${ingest.output.result.checked}"}, "which is a boolean where an integer is needed"),
    ({"table": "${ingest.output.result.maybe}"}, "which is an integer or null where a string is needed"),
    ({"mode": "${ingest.output.workspace.ref_type}"}, "which must be 'full' or 'delta'"),
    ({"windows": "${ingest.output.result.window}"}, "which is an object where a list is needed"),
    ({"numbers": "${ingest.output.result.files}"}, "whose '[*]' is an object where an integer is needed"),
    ({"window": "${ingest.output.result.origin}"}, "whose "),
    ({"tree": "${ingest.output.result.window}"}, "whose 'first' is unknown (known: label, children)"),
    ({"counts": "${ingest.output.workspace}"}, "whose 'repository' is a string where an integer is needed"),
]


@pytest.mark.parametrize(("params", "expected"), EXPRESSIONS_THAT_NEVER_FIT)
def test_an_expression_that_can_never_fit_is_named(params: dict[str, Any], expected: str) -> None:
    [(field, expression)] = params.items()
    first, *_ = problems(ingest(), build(**params))
    assert first.startswith(f"{BUILD}.params.{field} is {expression}, {expected}")


def test_an_expression_inside_a_longer_text_gives_a_string() -> None:
    assert problems(ingest(), build(table="${ingest.output.result.row_count} rows")) == []
    assert problems(ingest(), build(limit="${ingest.output.result.row_count}0")) == [
        f"{BUILD}.params.limit is a text with ${{ingest.output.result.row_count}}, which is a string where an integer"
        " is needed"
    ]


def test_whole_params_come_from_an_object_with_their_fields() -> None:
    fitting = simple("tell", "orders.notify", params="${ingest.output.result.window}")
    assert problems(ingest(), fitting) == []
    given = simple("tell", "orders.notify", params="${build.output.result}")
    where = "task 'tell' (orders.notify): inputParameters.params is ${build.output.result}, whose"
    assert problems(ingest(), build(), given) == [
        f"{where} 'features' is unknown (known: first, last)",
        f"{where} 'first' is missing: an integer is needed (given: features)",
    ]


def test_a_path_that_does_not_exist_is_reported_once_not_as_a_misfit_too() -> None:
    assert len(problems(ingest(), build(limit="${ingest.output.result.nowhere}"))) == 1


REFERENCES: list[tuple[str, str | None]] = [
    ("${ingst.output.result.table}", "no task has the taskReferenceName 'ingst' (there is: ingest, next; did you mean"),
    ("${ingst.status}", "no task has the taskReferenceName 'ingst'"),
    ("${ingest.ouput.result.table}", "'ingest' has no 'ouput' (did you mean 'output'?)"),
    ("${workflow.inputs.day}", "'workflow' has no 'inputs' (did you mean 'input'?)"),
    ("${ingest.status}", None),
    ("${ingest.reasonForIncompletion}", None),
    ("${$.ingest.output.result.table}", None),
    ("${ ingest.output.result.table }", None),
    ("${workflow.workflowId}", None),
    ("${workflow.variables.x}", None),
    ("${workflow.input.day}", None),
    ("${CPEWF_TASK_ID}", None),
    ("${java.version}", None),
    ("${}", None),
    ("$${ingst.output.x}", None),
    ("${unfinished", None),
]


@pytest.mark.parametrize(("expression", "expected"), REFERENCES)
def test_a_reference_names_a_task_of_the_workflow(expression: str, expected: str | None) -> None:
    found = problems(ingest(), reader("next", value=expression))
    if expected is None:
        assert found == []
    else:
        [problem] = found
        assert problem.startswith(f"task 'next': inputParameters.value is {expression}, but {expected}")


def test_a_reference_name_with_dots_cannot_be_read_and_says_so() -> None:
    dotted = ingest("orders.ingest")
    assert problems(dotted, reader("next", value="${orders.ingest.output.result.table}")) == [
        "task 'next': inputParameters.value is ${orders.ingest.output.result.table}, but Conductor takes the dots of"
        " 'orders.ingest' for a path: use a taskReferenceName without dots"
    ]
    assert problems(dotted, reader("next", value="${['orders.ingest'].output.result.table}")) == []


def test_a_workflow_input_is_one_the_workflow_lists() -> None:
    reading = reader("next", value="${workflow.input.dya}")
    assert problems(reading, inputParameters=["day", "limit"]) == [
        "task 'next': inputParameters.value is ${workflow.input.dya}, but the workflow's inputParameters do not list"
        " 'dya' (they list: day, limit; did you mean 'day'?)"
    ]
    assert problems(reading) == []
    assert problems(reading, inputParameters=[]) == []
    assert problems(reading, inputParameters=["day"], inputTemplate={"dya": 1}) == []
    assert problems(reader("next", value="${workflow.input}"), inputParameters=["day"]) == []


EARLIER = reader("earlier")
READS_A = reader("b", value="${a.output.x}")
ORDERS: dict[str, tuple[list[dict[str, Any]], str | None]] = {
    "an earlier task": ([reader("a"), READS_A], None),
    "a later task": ([READS_A, reader("a")], "'a' runs only after 'b': read an earlier task"),
    "itself": ([reader("a", value="${a.output.x}")], "'a' cannot read itself: read an earlier task"),
    "another branch of a fork": (
        [holder("fork", "FORK_JOIN", forkTasks=[[reader("a")], [EARLIER, READS_A]])],
        "'a' runs in another branch of the same FORK_JOIN: read it after the JOIN",
    ),
    "the same branch of a fork": ([holder("fork", "FORK_JOIN", forkTasks=[[reader("a"), READS_A], []])], None),
    "a branch of a fork after it": (
        [holder("fork", "FORK_JOIN", forkTasks=[[reader("a")], [EARLIER]]), holder("join", "JOIN"), READS_A],
        None,
    ),
    "a case from after its switch": ([holder("s", "SWITCH", decisionCases={"x": [reader("a")]}), READS_A], None),
    "a case from before its switch": (
        [READS_A, holder("s", "SWITCH", defaultCase=[reader("a")])],
        "'a' runs only after 'b': read an earlier task",
    ),
    "another case of the same switch": (
        [holder("s", "DECISION", decisionCases={"x": [reader("a")]}, defaultCase=[READS_A])],
        "'a' is in another case of the same DECISION and never runs beside this one",
    ),
    "what a switch was given, from inside of it": (
        [holder("a", "SWITCH", decisionCases={"x": [READS_A]})],
        None,
    ),
    "a case from its own switch": (
        [holder("b", "SWITCH", inputParameters={"value": "${a.output.x}"}, defaultCase=[reader("a")])],
        "'a' runs only after 'b': read an earlier task",
    ),
    "a later task of the same loop": ([holder("l", "DO_WHILE", loopOver=[READS_A, reader("a")])], None),
    "itself in a loop": ([holder("l", "DO_WHILE", loopOver=[reader("a", value="${a.output.x}")])], None),
    "another case in a loop": (
        [
            holder(
                "l",
                "DO_WHILE",
                loopOver=[holder("s", "SWITCH", decisionCases={"x": [reader("a")], "y": [READS_A]})],
            )
        ],
        None,
    ),
    "another branch of a fork in a loop": (
        [holder("l", "DO_WHILE", loopOver=[holder("f", "FORK_JOIN", forkTasks=[[reader("a")], [READS_A]])])],
        "'a' runs in another branch of the same FORK_JOIN: read it after the JOIN",
    ),
    "a loop's body from its own loop": (
        [holder("b", "DO_WHILE", inputParameters={"value": "${a.output.x}"}, loopOver=[reader("a")])],
        None,
    ),
    "a loop from inside of it": ([holder("a", "DO_WHILE", loopOver=[READS_A])], None),
    "a later task after the loop": (
        [holder("l", "DO_WHILE", loopOver=[READS_A]), reader("a")],
        "'a' runs only after 'b': read an earlier task",
    ),
}


@pytest.mark.parametrize("case", ORDERS)
def test_a_task_reads_only_what_has_run_before_it(case: str) -> None:
    tasks, expected = ORDERS[case]
    found = problems(*tasks)
    if expected is None:
        assert found == []
    else:
        [problem] = found
        assert problem.endswith(f" is ${{a.output.x}}, but {expected}")


def test_the_order_of_tasks_does_not_matter_to_their_other_words() -> None:
    assert problems(reader("b", value="${a.status}"), reader("a")) == []


WRONG = build(limit="5")


@pytest.mark.parametrize(
    "nesting",
    [
        holder("h", "SWITCH", decisionCases={"x": [WRONG]}),
        holder("h", "DECISION", decisionCases={}, defaultCase=[WRONG]),
        holder("h", "FORK_JOIN", forkTasks=[[], [WRONG]]),
        holder("h", "DO_WHILE", loopOver=[WRONG]),
    ],
)
def test_a_nested_task_is_checked_like_any_other(nesting: dict[str, Any]) -> None:
    assert problems(ingest(), nesting) == [f"{BUILD}.params.limit is a string where an integer is needed"]


def test_an_inline_sub_workflow_has_its_own_references() -> None:
    inner = workflow(
        ingest(),
        reader("inner", value="${outer.output.x}"),
        inputParameters=["repository", "branch"],
        outputParameters={"rows": "${ingest.output.result.rows}"},
    )
    sub = holder("sub", "SUB_WORKFLOW", subWorkflowParam={"name": "inner", "workflowDefinition": inner})
    first, second, third = problems(reader("outer"), sub, ingest(), reader("last", value="${sub.output.rows}"))
    assert first.startswith(
        "sub-workflow 'sub', task 'ingest' (orders.ingest): inputParameters.workspace.ref is ${workflow.input.ref}, but"
    )
    assert second.startswith(
        "sub-workflow 'sub', task 'inner': inputParameters.value is ${outer.output.x}, but no task has the"
        " taskReferenceName 'outer'"
    )
    assert third.startswith("sub-workflow 'sub', workflow: outputParameters.rows is ${ingest.output.result.rows}, but")


def test_only_a_simple_task_is_a_task_of_perago() -> None:
    inputs = {"url": "${workflow.input.url}"}
    named = {"name": "orders.notify", "taskReferenceName": "a", "inputParameters": inputs}
    assert problems({**named, "type": "HTTP"}) == []
    for simple_task in (named, {**named, "type": "SIMPLE"}):
        assert problems(simple_task) == [
            "task 'a' (orders.notify): inputParameters.url is unknown (known: params)",
            "task 'a' (orders.notify): inputParameters.params is missing: an object is needed (given: url)",
        ]


MALFORMED: list[tuple[Any, list[str]]] = [
    ([], ["the workflow definition is a list: give one JSON object"]),
    (None, ["the workflow definition is null: give one JSON object"]),
    ({"name": "x"}, ["the workflow definition has no list 'tasks': add one"]),
    ({"tasks": {}}, ["the workflow definition has no list 'tasks': add one"]),
    ({"tasks": ["a"]}, ["tasks[0] is a string: write a task as an object"]),
    ({"tasks": [{}]}, ["tasks[0] has no name: give it one", "tasks[0] has no taskReferenceName: give it one"]),
    (workflow({"name": " ", "taskReferenceName": 3}), ["tasks[0] has no name", "tasks[0] has no taskReferenceName"]),
    (
        workflow({**reader("a"), "inputParameters": "${workflow.input}"}),
        ["tasks[0].inputParameters is a string: write an object"],
    ),
    (
        workflow(reader("a"), holder("s", "SWITCH", defaultCase=[reader("a")])),
        ["taskReferenceName 'a' is given to more than one task: make it unique"],
    ),
    (
        workflow(holder("s", "SWITCH", decisionCases=[reader("a")])),
        ["tasks[0].decisionCases is a list: write an object"],
    ),
    (
        workflow(holder("s", "SWITCH", decisionCases={"x": {}})),
        ["tasks[0].decisionCases.x is an object: write a list of tasks"],
    ),
    (
        workflow(holder("f", "FORK_JOIN", forkTasks=[reader("a")])),
        ["tasks[0].forkTasks[0] is an object: write a list of tasks"],
    ),
    (
        workflow(holder("l", "DO_WHILE", loopOver=3)),
        ["tasks[0].loopOver is an integer: write a list of tasks"],
    ),
    (
        workflow(holder("s", "SUB_WORKFLOW", subWorkflowParam={"workflowDefinition": {"tasks": 1}})),
        ["sub-workflow 's', the workflow definition has no list 'tasks': add one"],
    ),
    (
        workflow({"name": "orders.notify", "inputParameters": {"params": {}}}),
        [
            "tasks[0] has no taskReferenceName: give it one",
            "task 'tasks[0]' (orders.notify): inputParameters.params.first is missing: an integer is needed",
        ],
    ),
]


@pytest.mark.parametrize(("given", "expected"), MALFORMED)
def test_a_malformed_workflow_gives_sentences(given: Any, expected: list[str]) -> None:
    found = wiring_problems(given, TASKS)
    assert [problem.startswith(start) for problem, start in zip(found, expected, strict=True)] == [True] * len(found)


def test_the_names_of_all_simple_tasks_are_known() -> None:
    inner = workflow(simple("x", "deep"), holder("http", "HTTP"))
    given = workflow(
        {"name": "untyped", "taskReferenceName": "untyped"},
        holder("f", "FORK_JOIN", forkTasks=[[simple("a", "forked")]]),
        holder("s", "SWITCH", decisionCases={"x": [holder("l", "DO_WHILE", loopOver=[simple("b", "looped")])]}),
        holder("sub", "SUB_WORKFLOW", subWorkflowParam={"workflowDefinition": inner}),
    )
    assert workflow_task_names(given) == {"untyped", "forked", "looped", "deep"}
    assert workflow_task_names({"tasks": [None, {}]}) == set()


BUILD_INPUT = Draft202012Validator(input_schema(TASKS[1]))
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["first", "last", "label"]), inner),
    max_leaves=6,
)
KEYS = (
    "name taskReferenceName type inputParameters outputParameters inputTemplate tasks decisionCases defaultCase"
    " forkTasks loopOver subWorkflowParam workflowDefinition workspace params"
)
TASK_SHAPED = st.recursive(
    JSON | st.sampled_from(["SWITCH", "FORK_JOIN", "DO_WHILE", "SUB_WORKFLOW", "orders.ingest", "${a.output.x[0]}"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(KEYS.split()), inner),
    max_leaves=20,
)


@settings(deadline=None)
@given(field=st.sampled_from(sorted(BuildParams.model_fields)), value=JSON)
def test_a_literal_is_refused_exactly_when_the_schema_refuses_it(field: str, value: Any) -> None:
    workspace = {"repository": "lake", "branch": "main", "ref_type": "commit", "ref": "c0ffee"}
    task_input = {"workspace": workspace, "params": {"limit": 1, field: value}}
    found = problems(simple("build", "features.build", **task_input))
    assert (found == []) == BUILD_INPUT.is_valid(task_input)


@settings(deadline=None)
@given(TASK_SHAPED, st.lists(TASK_SHAPED, max_size=3))
def test_no_workflow_raises(given: Any, tasks: list[Any]) -> None:
    for candidate in (given, {"tasks": given}, {"tasks": tasks, "inputParameters": given}):
        assert all(isinstance(problem, str) for problem in wiring_problems(candidate, TASKS))
        workflow_task_names(candidate)
