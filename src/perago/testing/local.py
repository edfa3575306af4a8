from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar, cast

from pydantic import BaseModel

from perago.authoring.errors import TaskDefinitionError
from perago.authoring.guardrails import check_guardrails
from perago.authoring.payload import build_output, parse_input
from perago.authoring.task import TaskDefinition, definition_of

Result = TypeVar("Result", bound=BaseModel)

_SOMEWHERE = {"repository": "local", "branch": "local", "ref_type": "commit", "ref": "local"}


def run_task(
    function: Callable[..., Result], params: BaseModel | dict[str, Any], workspace: Path | None = None
) -> Result:
    """Run a task as an attempt would, less its servers: input, pre guardrails, body, result, post guardrails.

    `params` is the model, or JSON as Conductor would carry it. `workspace` is a directory that holds what the task
    would find below its prefix; it is changed in place.
    """
    definition = definition_of(function)
    if definition is None:
        raise TaskDefinitionError(f"{function!r} is not a task: decorate it with @task")
    return cast("Result", run_definition(definition, params, workspace))


def run_definition(definition: TaskDefinition, params: BaseModel | dict[str, Any], workspace: Path | None) -> BaseModel:
    if definition.workspace_kind == "spark":
        raise TaskDefinitionError(f"{definition.name} works on a SparkWorkspace, not on a directory")
    if (workspace is None) != (definition.workspace is None):
        fix = "give workspace=DIRECTORY" if workspace is None else "it takes no workspace"
        raise TaskDefinitionError(f"{definition.name}: {fix}")
    given = _validated(definition, params)
    if workspace is None or definition.workspace is None:
        result = definition.function(given)
        build_output(definition, None, result)
        return result
    check_guardrails(workspace, definition.workspace.pre, "pre")
    result = definition.function(workspace, given)
    build_output(definition, None, result)
    check_guardrails(workspace, definition.workspace.post, "post")
    return result


def _validated(definition: TaskDefinition, params: BaseModel | dict[str, Any]) -> BaseModel:
    if isinstance(params, definition.params_model):
        return params
    workspace = {} if definition.workspace is None else {"workspace": _SOMEWHERE}
    return parse_input(definition, {**workspace, "params": params}).params
