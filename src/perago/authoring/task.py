"""`@task`: a typed function becomes a task, or is refused with the fix."""

import inspect
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import FunctionType
from typing import Any, Literal, TypeVar, get_type_hints

from pydantic import BaseModel, RootModel

from perago.authoring.controls import TaskControls
from perago.authoring.errors import TaskDefinitionError
from perago.authoring.spark import SparkWorkspace
from perago.authoring.tables import RequireTable
from perago.authoring.workspace import WorkspaceSpec

WorkspaceKind = Literal["path", "spark"]
Body = TypeVar("Body", bound=Callable[..., BaseModel])

_DEFINITION = "__perago_task__"
_KINDS: dict[Any, WorkspaceKind] = {Path: "path", SparkWorkspace: "spark"}
# Part of Conductor's URLs and queue names, where '/' and ':' have meanings of their own.
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*")
_EMAIL = re.compile(r"[^@\s]+@[^@\s]+")
_ARGUMENTS: dict[str, tuple[Any, str]] = {
    "name": (str, "name='features.build'"),
    "owner_email": (str, "owner_email='team@example.com'"),
    "description": (str | None, "description='What it does.'"),
    "workspace": (WorkspaceSpec | None, "workspace=WorkspaceSpec(prefix='/features')"),
    "controls": (TaskControls | None, "controls=TaskControls(retry=RetryPolicy(count=3))"),
}


@dataclass(frozen=True)
class TaskDefinition:
    """All that is known of a task once its module is imported."""

    name: str
    owner_email: str
    description: str
    function: Callable[..., BaseModel]
    params_model: type[BaseModel]
    result_model: type[BaseModel]
    workspace: WorkspaceSpec | None
    workspace_kind: WorkspaceKind | None
    controls: TaskControls

    @property
    def needs_spark(self) -> bool:
        """Whether every attempt uses Spark: for its workspace, or for a rule on a table."""
        rules = () if self.workspace is None else (*self.workspace.pre, *self.workspace.post)
        return self.workspace_kind == "spark" or any(isinstance(rule, RequireTable) for rule in rules)


def task(
    *,
    name: str,
    owner_email: str,
    description: str | None = None,
    workspace: WorkspaceSpec | None = None,
    controls: TaskControls | None = None,
) -> Callable[[Body], Body]:
    """Declare a function as a Conductor task; it stays an ordinary function.

    Its shape is `(workspace: Path, params: Model) -> Model` or `(workspace: SparkWorkspace, params: Model)
    -> Model` with a `WorkspaceSpec`, and `(params: Model) -> Model` without one. `description` is the first
    line of the function's docstring unless given.
    """
    arguments = {
        "name": name,
        "owner_email": owner_email,
        "description": description,
        "workspace": workspace,
        "controls": controls,
    }

    def declare(function: Body) -> Body:
        _refuse_second_task(_plain_function(function))
        _refuse_wrong_types(function, arguments)
        definition = TaskDefinition(
            **_shape(function, workspace),
            name=_checked_name(name, function),
            owner_email=_checked_email(owner_email, function),
            description=_summary(function) if description is None else description,
            function=function,
            workspace=workspace,
            controls=TaskControls() if controls is None else controls,
        )
        setattr(function, _DEFINITION, definition)
        return function

    return declare


def definition_of(candidate: object) -> TaskDefinition | None:
    """The definition `@task` left on a function, if any."""
    found = getattr(candidate, _DEFINITION, None) if inspect.isfunction(candidate) else None
    return found if isinstance(found, TaskDefinition) else None


def _plain_function(candidate: object) -> FunctionType:
    if not inspect.isfunction(candidate):
        raise TaskDefinitionError(f"@task takes a function, got {candidate!r}: decorate a plain `def`")
    return candidate


def _shape(function: Callable[..., Any], workspace: WorkspaceSpec | None) -> Any:
    if inspect.iscoroutinefunction(function) or inspect.isasyncgenfunction(function):
        raise _refused(function, "is async: write a plain `def`; the worker runs attempts in parallel")
    if inspect.isgeneratorfunction(function):
        raise _refused(function, "is a generator: return one result model instead of yielding")

    names = _parameter_names(function)
    hints = _hints(function)
    if workspace is None:
        if names == ["workspace", "params"]:
            raise _refused(function, "takes a workspace but @task declares none: add workspace=WorkspaceSpec(…)")
        if names != ["params"]:
            raise _refused(function, f"takes ({', '.join(names)}): without a WorkspaceSpec write (params: Model)")
        kind = None
    else:
        if names != ["workspace", "params"]:
            raise _refused(
                function,
                f"takes ({', '.join(names)}): with a WorkspaceSpec write (workspace: Path, params: Model)",
            )
        kind = _kind(function, hints)
    return {
        "params_model": _model(function, hints, "params"),
        "result_model": _model(function, hints, "return"),
        "workspace_kind": kind,
    }


def _parameter_names(function: Callable[..., Any]) -> list[str]:
    parameters = inspect.signature(function).parameters.values()
    for parameter in parameters:
        if parameter.kind is not inspect.Parameter.POSITIONAL_OR_KEYWORD:
            raise _refused(function, f"has parameter `{parameter}`: write ordinary parameters, no *, / or **")
        if parameter.default is not inspect.Parameter.empty:
            raise _refused(
                function,
                f"gives `{parameter.name}` a default: put defaults into the params model's fields",
            )
    return [parameter.name for parameter in parameters]


def _hints(function: Callable[..., Any]) -> dict[str, Any]:
    try:
        return get_type_hints(function)
    except Exception as error:
        raise _refused(
            function, f"has annotations that cannot be resolved ({error}): define its models at module level"
        ) from error


def _kind(function: Callable[..., Any], hints: dict[str, Any]) -> WorkspaceKind:
    annotated = hints.get("workspace")
    if annotated not in _KINDS:
        shown = "not at all" if annotated is None else f"as {_shown(annotated)}"
        raise _refused(function, f"annotates `workspace` {shown}: write `workspace: Path` or `SparkWorkspace`")
    return _KINDS[annotated]


def _model(function: Callable[..., Any], hints: dict[str, Any], which: str) -> type[BaseModel]:
    where, fix = ("its return", "-> Result") if which == "return" else ("`params`", "params: Params")
    if which not in hints:
        raise _refused(function, f"does not annotate {where}: write `{fix}` with a Pydantic model")
    model = hints[which]
    if not (isinstance(model, type) and issubclass(model, BaseModel)):
        raise _refused(function, f"annotates {where} as {_shown(model)}: use a subclass of pydantic.BaseModel")
    if model is BaseModel or issubclass(model, RootModel):
        raise _refused(function, f"annotates {where} as {_shown(model)}: use a model with named fields")
    return model


def _refuse_second_task(function: FunctionType) -> None:
    if "<locals>" in function.__qualname__:
        return
    for other in list(function.__globals__.values()):
        if definition_of(other) and other.__module__ == function.__module__ and other.__name__ != function.__name__:
            raise _refused(function, f"is the second task of its module after `{other.__name__}`: one task a module")


def _refuse_wrong_types(function: Callable[..., Any], arguments: dict[str, Any]) -> None:
    for argument, value in arguments.items():
        wanted, example = _ARGUMENTS[argument]
        if not isinstance(value, wanted):
            raise _refused(function, f"has {argument}={value!r}: write {example}")


def _checked_name(name: str, function: Callable[..., Any]) -> str:
    if not _NAME.fullmatch(name):
        raise _refused(function, f"has the task name {name!r}: use letters, digits, '.', '_' and '-'")
    return name


def _checked_email(owner_email: str, function: Callable[..., Any]) -> str:
    if not _EMAIL.fullmatch(owner_email):
        raise _refused(function, f"has owner_email {owner_email!r}: give an address like 'team@example.com'")
    return owner_email


def _summary(function: Callable[..., Any]) -> str:
    return (inspect.getdoc(function) or "").partition("\n")[0]


def _shown(annotation: Any) -> str:
    return annotation.__name__ if isinstance(annotation, type) else str(annotation)


def _refused(function: Callable[..., Any], problem: str) -> TaskDefinitionError:
    return TaskDefinitionError(f"task function `{function.__module__}.{function.__qualname__}` {problem}")
