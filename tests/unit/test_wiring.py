import copy
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perago.authoring.wiring import wiring_problems
from perago.authoring.workflow import workflow_task_names
from tests.unit.cases import validator
from tests.unit.wiring import (
    BUILD,
    INGEST,
    TASKS,
    WORKSPACE,
    BuildParams,
    build,
    ingest,
    problems,
    reader,
    realistic,
    simple,
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
    "result.note",
    "result.late",
    "result.late.last",
    "result.late_files[0].last",
    "result.by_number.5.last",
    "result.by_number['-5']",
    "result.hasRows",
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
    "result.has_rows": "'result' of orders.ingest has no field 'has_rows'",
    "result.late.frist": "'result.late' of orders.ingest has no field 'frist' (it has: first, last; did you mean"
    " 'first'?)",
    "result.by_number.monday": "'result.by_number' of orders.ingest has no field 'monday'",
    "result.by_number[5]": "'result.by_number' of orders.ingest is an object, not a list",
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
    {"tags": ["a", "a"]},
    {"by_number": {"5": 1}},
    {"day": "2024-02-29"},
    {"price": "1.50"},
    {"price": 2},
    {"colour": "red"},
    {"color": "red"},
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
    ({"origin": {"delimiter": ";"}}, "origin.kind is missing: 'csv' is needed (given: delimiter)"),
    ({"by_number": {"monday": 1}}, "by_number.monday is unknown"),
    ({"day": "2023-02-29"}, "day must have the format date"),
    ({"price": "much"}, "price must have the format decimal"),
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


def test_an_optional_field_of_an_input_may_be_left_out_and_is_not_called_unknown() -> None:
    first = simple("first", "orders.schedule", params={"first": 1})
    assert problems(first, simple("tell", "orders.notify", params="${first.input.params}")) == []
    always = simple("first", "orders.remind", params={"first": 1, "zone": "UTC"})
    assert problems(always, simple("tell", "orders.notify", params="${first.input.params}")) == [
        "task 'tell' (orders.notify): inputParameters.params is ${first.input.params}, whose 'zone' is unknown"
        " (known: first, last)"
    ]


def test_a_field_of_an_output_is_always_there_even_with_its_default() -> None:
    first = simple("first", "orders.schedule", params={"first": 1})
    assert problems(first, simple("tell", "orders.notify", params="${first.output.result}")) == [
        "task 'tell' (orders.notify): inputParameters.params is ${first.output.result}, whose 'zone' is unknown"
        " (known: first, last)"
    ]


def test_an_optional_field_may_fill_a_required_one() -> None:
    first = simple("first", "orders.schedule", params={"first": 1})
    assert problems(first, simple("ring", "orders.remind", params="${first.input.params}")) == []


def test_a_path_that_does_not_exist_is_reported_once_not_as_a_misfit_too() -> None:
    assert len(problems(ingest(), build(limit="${ingest.output.result.nowhere}"))) == 1


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
    assert (found == []) == validator(TASKS[1], "inputSchema").is_valid(task_input)


@settings(deadline=None)
@given(TASK_SHAPED, st.lists(TASK_SHAPED, max_size=3))
def test_no_workflow_raises(given: Any, tasks: list[Any]) -> None:
    for candidate in (given, {"tasks": given}, {"tasks": tasks, "inputParameters": given}):
        assert all(isinstance(problem, str) for problem in wiring_problems(candidate, TASKS))
        workflow_task_names(candidate)
