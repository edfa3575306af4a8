"""The tasks of a Conductor workflow definition, however they are nested."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, cast

from perago.authoring.wiring_schema import noun

_CASES = ("decisionCases", "defaultCase")
_NESTED = {"SWITCH": _CASES, "DECISION": _CASES, "FORK_JOIN": ("forkTasks",), "DO_WHILE": ("loopOver",)}


@dataclass(frozen=True)
class Turn:
    """A place in a list of tasks; `container` is the type of the task that holds the list."""

    sequence: str
    index: int
    container: str


@dataclass(frozen=True)
class WorkflowTask:
    at: str
    reference: str
    name: str
    kind: str
    inputs: dict[str, Any]
    inline_definition: dict[str, Any] | None
    trail: tuple[Turn, ...]


def workflow_task_names(workflow: Mapping[str, Any]) -> set[str]:
    """The names of the SIMPLE tasks anywhere in a workflow, inline sub-workflows included."""
    tasks = [found for found in workflow_tasks(workflow) if isinstance(found, WorkflowTask)]
    names = {task.name for task in tasks if task.kind == "SIMPLE" and task.name}
    return names.union(*(workflow_task_names(task.inline_definition) for task in tasks if task.inline_definition))


def workflow_tasks(workflow: object) -> Iterator[WorkflowTask | str]:
    """The tasks of one workflow in the order they are written, and a sentence for what is malformed."""
    given = as_object(workflow)
    if given is None:
        yield f"the workflow definition is {noun(workflow)}: give one JSON object"
    elif not isinstance(given.get("tasks"), list):
        yield "the workflow definition has no list 'tasks': add one"
    else:
        yield from _walk(given["tasks"], "tasks", "", ())


def _walk(listed: object, at: str, container: str, trail: tuple[Turn, ...]) -> Iterator[WorkflowTask | str]:
    if not isinstance(listed, list):
        yield f"{at} is {noun(listed)}: write a list of tasks"
        return
    for index, entry in enumerate(cast("list[Any]", listed)):
        if isinstance(entry, dict):
            place = (*trail, Turn(at, index, container))
            yield from _walk_task(cast("dict[str, Any]", entry), f"{at}[{index}]", place)
        else:
            yield f"{at}[{index}] is {noun(entry)}: write a task as an object"


def _walk_task(given: dict[str, Any], at: str, trail: tuple[Turn, ...]) -> Iterator[WorkflowTask | str]:
    for key in ("name", "taskReferenceName"):
        if not isinstance(given.get(key), str) or not given[key].strip():
            yield f"{at} has no {key}: give it one"
    for key in ("inputParameters", "decisionCases"):
        if not isinstance(given.get(key), dict | None):
            yield f"{at}.{key} is {noun(given[key])}: write an object"
    kind = str(given.get("type") or "SIMPLE")
    yield WorkflowTask(
        at=at,
        reference=str(given.get("taskReferenceName") or ""),
        name=str(given.get("name") or ""),
        kind=kind,
        inputs=as_object(given.get("inputParameters")) or {},
        inline_definition=_inline_definition(given) if kind == "SUB_WORKFLOW" else None,
        trail=trail,
    )
    for label, listed in _sequences(given, kind):
        yield from _walk(listed, f"{at}.{label}", kind, trail)


def _sequences(given: dict[str, Any], kind: str) -> Iterator[tuple[str, Any]]:
    for key in _NESTED.get(kind, ()):
        held = given.get(key)
        if key == "decisionCases":
            yield from ((f"{key}.{case}", listed) for case, listed in (as_object(held) or {}).items())
        elif key == "forkTasks" and isinstance(held, list):
            yield from ((f"{key}[{branch}]", listed) for branch, listed in enumerate(cast("list[Any]", held)))
        elif held is not None:
            yield key, held


def _inline_definition(given: dict[str, Any]) -> dict[str, Any] | None:
    return as_object((as_object(given.get("subWorkflowParam")) or {}).get("workflowDefinition"))


def as_object(value: object) -> dict[str, Any] | None:
    return cast("dict[str, Any]", value) if isinstance(value, Mapping) else None
