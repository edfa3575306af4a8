from typing import Any

import pytest

from perago.authoring.wiring import wiring_problems
from perago.authoring.workflow import workflow_task_names
from tests.unit.wiring import BUILD, TASKS, build, holder, ingest, problems, reader, simple, workflow

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
