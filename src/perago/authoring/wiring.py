"""Whether a workflow definition hands its tasks what their models take, and reads what they give."""

import difflib
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, cast

from perago.authoring.payload import input_schema, output_schema
from perago.authoring.task import TaskDefinition
from perago.authoring.wiring_fit import Misfit, misfits
from perago.authoring.wiring_schema import Each, Schema, Step, among, look_up, shown_path
from perago.authoring.workflow import WorkflowTask, as_object, workflow_tasks

_ANYTHING = Schema(True)
# Words only a task has: `${java.version}` may be a property of Conductor's JVM.
_TASK_WORDS = ("input", "output", "status", "taskId", "taskType", "retryCount", "workerId", "reasonForIncompletion")
_EXPRESSION = re.compile(r"(?<!\$)\$\{([^{}]*)\}")
_EXPRESSION_IN_EXPRESSION = re.compile(r"(?<!\$)\$\{[^{}]*\$\{")
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
class _Scope:
    """One workflow's namespace of references."""

    title: str
    workflow: Mapping[str, Any]
    tasks: Mapping[str, WorkflowTask]
    contracts: Mapping[str, _Contract]

    def contract_of(self, task: WorkflowTask) -> _Contract | None:
        return self.contracts.get(task.name) if task.kind == "SIMPLE" else None

    def parameter(self, task: WorkflowTask | None, path: Iterable[Step]) -> str:
        if task is None:
            return f"{self.title}workflow: {shown_path(['outputParameters', *path])}"
        known = f" ({task.name})" if self.contract_of(task) else ""
        return f"{self.title}task '{task.reference or task.at}'{known}: {shown_path(['inputParameters', *path])}"


def wiring_problems(workflow: Mapping[str, Any], tasks: Iterable[TaskDefinition]) -> list[str]:
    """One sentence for each wrong path of a workflow definition; none when it is wired right.

    What the workflow's own input and tasks of other workers hold is not known here, so it is taken to fit.
    """
    contracts = {
        task.name: _Contract(task.name, Schema.of_root(input_schema(task)), Schema.of_root(output_schema(task)))
        for task in tasks
    }
    return list(_workflow_problems(workflow, contracts, ""))


def _workflow_problems(workflow: object, contracts: Mapping[str, _Contract], title: str) -> Iterator[str]:
    found = list(workflow_tasks(workflow))
    yield from (f"{title}{problem}" for problem in found if isinstance(problem, str))
    everything = [task for task in found if isinstance(task, WorkflowTask)]
    tasks: dict[str, WorkflowTask] = {}
    for task in everything:
        if task.reference and tasks.setdefault(task.reference, task) is not task:
            yield f"{title}taskReferenceName '{task.reference}' is given to more than one task: make it unique"
    given = as_object(workflow) or {}
    scope = _Scope(title, given, tasks, contracts)
    for task in everything:
        yield from _task_problems(scope, task)
        if task.inline_definition is not None:
            inside = f"{title}sub-workflow '{task.reference or task.at}', "
            yield from _workflow_problems(task.inline_definition, contracts, inside)
    yield from _expression_problems(scope, None, given.get("outputParameters"))


def _task_problems(scope: _Scope, task: WorkflowTask) -> Iterator[str]:
    yield from _expression_problems(scope, task, task.inputs)
    contract = scope.contract_of(task)
    if contract is not None:
        wired = Schema(_wired(scope, task, task.inputs))
        yield from (_misfit_sentence(scope, task, misfit) for misfit in misfits(wired, contract.input))


def _expression_problems(scope: _Scope, reader: WorkflowTask | None, value: object) -> Iterator[str]:
    for path, text in _texts(value, ()):
        for expression in _EXPRESSION.finditer(text):
            problem = _resolved(scope, reader, expression[1])
            if isinstance(problem, str):
                verb = "is" if expression[0] == text else "uses"
                yield f"{scope.parameter(reader, path)} {verb} {expression[0]}, but {problem}"


def _texts(value: object, path: tuple[Step, ...]) -> Iterator[tuple[tuple[Step, ...], str]]:
    if isinstance(value, str):
        yield path, value
    elif isinstance(value, dict):
        for key, part in cast("dict[str, Any]", value).items():
            yield from _texts(part, (*path, key))
    elif isinstance(value, list):
        for index, part in enumerate(cast("list[Any]", value)):
            yield from _texts(part, (*path, index))


def _misfit_sentence(scope: _Scope, task: WorkflowTask, misfit: Misfit) -> str:
    value: Any = task.inputs
    depth = 0
    while depth < len(misfit.path) and not isinstance(value, str):
        value = _held(value, misfit.path[depth])
        depth += 1
    where, inside = scope.parameter(task, misfit.path[:depth]), misfit.path[depth:]
    expressions = [found[0] for found in _EXPRESSION.finditer(value)] if isinstance(value, str) else []
    if not expressions or (misfit.of_the_name and not inside):
        return f"{where} {misfit.problem}"
    given = value if value == expressions[0] else f"a text with {' and '.join(expressions)}"
    subject = f"whose '{shown_path(inside)}'" if inside else "which"
    return f"{where} is {given}, {subject} {misfit.problem}"


def _held(value: Any, step: Step) -> Any:
    return value[step] if isinstance(step, int) else (as_object(value) or {}).get(str(step))


def _wired(scope: _Scope, reader: WorkflowTask, value: object) -> Any:
    """A wired value as the schema of what Conductor makes of it."""
    if isinstance(value, str):
        return _wired_text(scope, reader, value)
    if isinstance(value, dict):
        fields = {key: _wired(scope, reader, part) for key, part in cast("dict[str, Any]", value).items()}
        return {"type": "object", "properties": fields, "required": list(fields), "additionalProperties": False}
    if isinstance(value, list):
        items = [_wired(scope, reader, part) for part in cast("list[Any]", value)]
        return {"type": "array", "prefixItems": items, "minItems": len(items), "maxItems": len(items)}
    return {"const": value}


def _wired_text(scope: _Scope, reader: WorkflowTask, text: str) -> Any:
    whole = _EXPRESSION.fullmatch(text)
    if whole:
        found = _resolved(scope, reader, whole[1])
        return found if isinstance(found, Schema) else _ANYTHING
    if _EXPRESSION_IN_EXPRESSION.search(text):
        return _ANYTHING
    return {"type": "string"} if _EXPRESSION.search(text) else {"const": text.replace("$${", "${")}


def _resolved(scope: _Scope, reader: WorkflowTask | None, path: str) -> Schema | str:
    """The schema of what an expression selects, or what is wrong with it."""
    steps, complete = _steps(path)
    if len(steps) < 2 or not isinstance(steps[0], str) or not isinstance(steps[1], str):
        return _ANYTHING  # also a name of the server's own, such as CPEWF_TASK_ID
    reference, word, inside = steps[0], steps[1], steps[2:]
    if reference != "workflow" and reference not in scope.tasks:
        return _unknown_reference(scope, reference, word, path)
    if word not in ("input", "output"):
        meant = difflib.get_close_matches(word, ("input", "output"), 1, 0.8)
        return f"'{reference}' has no '{word}' (did you mean '{meant[0]}'?)" if meant else _ANYTHING
    if reference == "workflow":
        return _workflow_value(scope, word, inside)
    source = scope.tasks[reference]
    found = (_disorder(reader, source) if reader else None) or _payload_value(scope, source, word, inside)
    return found if complete or isinstance(found, str) else _ANYTHING


def _steps(path: str) -> tuple[list[Step], bool]:
    """The steps of a JSON path up to a filter, slice or function, and whether there was none of these."""
    rest = path.strip().removeprefix("$.")
    steps: list[Step] = []
    at = 0
    while match := _STEP.match(rest, at):
        name, single, double, index, _ = match.groups()
        quoted = single if single is not None else double
        steps.append(name or (quoted if quoted is not None else Each.ITEM if index is None else int(index)))
        at = match.end()
    return steps, at == len(rest)


def _unknown_reference(scope: _Scope, reference: str, word: str, path: str) -> Schema | str:
    dotted = next((name for name in scope.tasks if "." in name and path.startswith(f"{name}.")), None)
    if dotted:
        return f"Conductor takes the dots of '{dotted}' for a path: use a taskReferenceName without dots"
    if word not in _TASK_WORDS:
        return _ANYTHING
    return f"no task has the taskReferenceName '{reference}'{among(reference, scope.tasks, 'there is')}"


def _workflow_value(scope: _Scope, word: str, inside: list[Step]) -> Schema | str:
    name = inside[0] if inside else None
    declared: Any = scope.workflow.get("inputParameters")
    if word != "input" or not isinstance(name, str) or not isinstance(declared, list) or not declared:
        return _ANYTHING
    names = [*cast("list[Any]", declared), *(as_object(scope.workflow.get("inputTemplate")) or {})]
    if name in names or not all(isinstance(listed, str) for listed in names):
        return _ANYTHING
    return f"the workflow's inputParameters do not list '{name}'{among(name, names, 'they list')}"


def _payload_value(scope: _Scope, source: WorkflowTask, word: str, inside: list[Step]) -> Schema | str:
    contract = scope.contract_of(source)
    if contract is None:
        return _ANYTHING
    found = look_up(contract.input if word == "input" else contract.output, inside)
    if isinstance(found, Schema):
        return found
    subject = f"'{shown_path(found.walked)}'" if found.walked else f"the {word}"
    return f"{subject} of {contract.name} {found.problem}"


def _disorder(reader: WorkflowTask, source: WorkflowTask) -> str | None:
    """Why `source` cannot have run when `reader` is scheduled, if so; a loop may have run it the time before."""
    shared = sum(mine == theirs for mine, theirs in zip(reader.trail, source.trail, strict=False))
    mine, theirs = reader.trail[shared:], source.trail[shared:]
    if source is not reader and not theirs:
        return None  # the reader is inside of it
    apart = bool(mine and theirs) and mine[0].sequence != theirs[0].sequence
    if apart and mine[0].container == "FORK_JOIN":
        return f"'{source.reference}' runs in another branch of the same FORK_JOIN: read it after the JOIN"
    containers = [turn.container for turn in reader.trail[: shared + 1]]
    if "DO_WHILE" in (containers if mine else [*containers, reader.kind]):
        return None
    if apart:
        return f"'{source.reference}' is in another case of the same {mine[0].container} and never runs beside this one"
    if source is reader:
        return f"'{source.reference}' cannot read itself: read an earlier task"
    earlier = bool(mine) and theirs[0].index < mine[0].index
    return None if earlier else f"'{source.reference}' runs only after '{reader.reference}': read an earlier task"
