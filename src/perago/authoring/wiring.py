"""Whether a workflow definition hands its tasks what their models take, and reads what they give."""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, cast

from perago.authoring.payload import input_schema, output_schema
from perago.authoring.task import TaskDefinition
from perago.authoring.wiring_schema import DeadEnd, Each, Misfit, Schema, Step, among, look_up, misfits, noun, shown_path

_ANYTHING = Schema(True)
_NESTED = {
    "SWITCH": ("decisionCases", "defaultCase"),
    "DECISION": ("decisionCases", "defaultCase"),
    "FORK_JOIN": ("forkTasks",),
    "DO_WHILE": ("loopOver",),
}
# What Conductor offers of a task beside its payloads; any other word may be a property of its JVM.
_TASK_WORDS = set(
    "input output status taskId taskType taskDefName referenceTaskName retryCount pollCount correlationId workerId"
    " scheduledTime startTime endTime workflowInstanceId reasonForIncompletion callbackAfterSeconds iteration".split()
)
_EXPRESSION = re.compile(r"(?<!\$)\$\{([^{}]*)\}")
_NESTED_EXPRESSION = re.compile(r"(?<!\$)\$\{[^{}]*\$\{")
_STEP = re.compile(
    r"""(?:^|\.)(?P<name>[^.\[\]()'"*\s]++)(?!\()"""
    r"""|\.?\[\s*(?:'(?P<single>[^']*)'|"(?P<double>[^"]*)"|(?P<index>-?\d+)|(?P<each>\*))\s*\]"""
)


@dataclass(frozen=True)
class _Contract:
    """A Perago task's payloads as schemas."""

    name: str
    input: Schema
    output: Schema


@dataclass(frozen=True)
class _Turn:
    """A place in a list of tasks; `container` is the type of the task that holds the list."""

    sequence: str
    index: int
    container: str


@dataclass(frozen=True)
class _WorkflowTask:
    reference: str
    name: str
    kind: str
    inputs: dict[str, Any]
    inline_definition: Any
    trail: tuple[_Turn, ...]


@dataclass(frozen=True)
class _Scope:
    """One workflow's namespace of references."""

    title: str
    workflow: Mapping[str, Any]
    tasks: Mapping[str, _WorkflowTask]
    contracts: Mapping[str, _Contract]

    def contract_of(self, task: _WorkflowTask) -> _Contract | None:
        return self.contracts.get(task.name) if task.kind == "SIMPLE" else None


def wiring_problems(workflow: Mapping[str, Any], tasks: Iterable[TaskDefinition]) -> list[str]:
    """One sentence for each wrong path of a workflow definition; none when it is wired right.

    What the workflow's input and other systems' tasks hold is not known here and taken to fit.
    """
    contracts = {
        task.name: _Contract(task.name, Schema.of_root(input_schema(task)), Schema.of_root(output_schema(task)))
        for task in tasks
    }
    return list(_workflow_problems(workflow, contracts, ""))


def workflow_task_names(workflow: Mapping[str, Any]) -> set[str]:
    """The names of the SIMPLE tasks anywhere in a workflow, inline sub-workflows included."""
    tasks = [found for found in _walk_workflow(workflow) if isinstance(found, _WorkflowTask)]
    names = {task.name for task in tasks if task.kind == "SIMPLE" and task.name}
    return names.union(*(workflow_task_names(task.inline_definition) for task in tasks if task.inline_definition))


def _workflow_problems(workflow: Any, contracts: Mapping[str, _Contract], title: str) -> Iterator[str]:
    found = list(_walk_workflow(workflow))
    yield from (f"{title}{problem}" for problem in found if isinstance(problem, str))
    tasks: dict[str, _WorkflowTask] = {}
    everything = [task for task in found if isinstance(task, _WorkflowTask)]
    for task in everything:
        if tasks.setdefault(task.reference, task) is not task:
            yield f"{title}taskReferenceName '{task.reference}' is given to more than one task: make it unique"
    scope = _Scope(title, workflow, tasks, contracts)
    for task in everything:
        yield from _task_problems(scope, task)
        if task.inline_definition is not None:
            inside = f"{title}sub-workflow '{task.reference}', "
            yield from _workflow_problems(task.inline_definition, contracts, inside)
    if isinstance(workflow, Mapping):
        yield from _expression_problems(scope, None, workflow.get("outputParameters"))


def _walk_workflow(workflow: Any) -> Iterator[_WorkflowTask | str]:
    """The tasks of one workflow in the order they are written, and a sentence for what is malformed."""
    if not isinstance(workflow, Mapping):
        yield f"the workflow definition is {noun(workflow)}: give one JSON object"
    elif not isinstance(workflow.get("tasks"), list):
        yield "the workflow definition has no list 'tasks': add one"
    else:
        yield from _walk(workflow["tasks"], "tasks", "", ())


def _walk(listed: Any, at: str, container: str, trail: tuple[_Turn, ...]) -> Iterator[_WorkflowTask | str]:
    if not isinstance(listed, list):
        yield f"{at} is {noun(listed)}: write a list of tasks"
        return
    for index, entry in enumerate(cast("list[Any]", listed)):
        if isinstance(entry, dict):
            place = (*trail, _Turn(at, index, container))
            yield from _walk_task(cast("dict[str, Any]", entry), f"{at}[{index}]", place)
        else:
            yield f"{at}[{index}] is {noun(entry)}: write a task as an object"


def _walk_task(given: dict[str, Any], at: str, trail: tuple[_Turn, ...]) -> Iterator[_WorkflowTask | str]:
    for key in ("name", "taskReferenceName"):
        if not isinstance(given.get(key), str) or not given[key].strip():
            yield f"{at} has no {key}: give it one"
    inputs = given.get("inputParameters")
    if inputs is not None and not isinstance(inputs, dict):
        yield f"{at}.inputParameters is {noun(inputs)}: write an object"
    kind = str(given.get("type") or "SIMPLE")
    yield _WorkflowTask(
        reference=str(given.get("taskReferenceName") or at),
        name=str(given.get("name") or ""),
        kind=kind,
        inputs=cast("dict[str, Any]", inputs) if isinstance(inputs, dict) else {},
        inline_definition=_inline_definition(given) if kind == "SUB_WORKFLOW" else None,
        trail=trail,
    )
    for label, listed in _sequences(given, kind):
        yield from _walk(listed, f"{at}.{label}", kind, trail)


def _inline_definition(given: dict[str, Any]) -> dict[str, Any] | None:
    parameters = given.get("subWorkflowParam")
    inline = cast("dict[str, Any]", parameters).get("workflowDefinition") if isinstance(parameters, dict) else None
    return cast("dict[str, Any]", inline) if isinstance(inline, dict) else None


def _sequences(given: dict[str, Any], kind: str) -> Iterator[tuple[str, Any]]:
    for key in _NESTED.get(kind, ()):
        held = given.get(key)
        if key == "decisionCases" and isinstance(held, dict):
            yield from ((f"{key}.{case}", listed) for case, listed in cast("dict[str, Any]", held).items())
        elif key == "forkTasks" and isinstance(held, list):
            yield from ((f"{key}[{branch}]", listed) for branch, listed in enumerate(cast("list[Any]", held)))
        elif held is not None:
            yield key if key != "decisionCases" else f"{key}.<case>", held if key != "decisionCases" else None


def _task_problems(scope: _Scope, task: _WorkflowTask) -> Iterator[str]:
    yield from _expression_problems(scope, task, task.inputs)
    contract = scope.contract_of(task)
    if contract is not None:
        source = Schema(_as_source(scope, task, task.inputs))
        for misfit in misfits(source, contract.input):
            yield _misfit_sentence(scope, task, misfit)


def _expression_problems(scope: _Scope, reader: _WorkflowTask | None, value: Any) -> Iterator[str]:
    for path, text in _strings(value, ()):
        for expression in _EXPRESSION.finditer(text):
            problem = _resolved(scope, reader, expression[1])
            if isinstance(problem, str):
                verb = "is" if expression[0] == text else "uses"
                yield f"{_parameter(scope, reader, path)} {verb} {expression[0]}, but {problem}"


def _misfit_sentence(scope: _Scope, task: _WorkflowTask, misfit: Misfit) -> str:
    value: Any = task.inputs
    for depth, step in enumerate(misfit.path):
        if isinstance(value, str):
            break
        value = value[step] if step in value or isinstance(step, int) else None
    ...


def _parameter(scope: _Scope, task: _WorkflowTask | None, path: Iterable[Step]) -> str:
    if task is None:
        return f"{scope.title}workflow: {shown_path(['outputParameters', *path])}"
    known = f" ({task.name})" if scope.contract_of(task) else ""
    return f"{scope.title}task '{task.reference}'{known}: {shown_path(['inputParameters', *path])}"
