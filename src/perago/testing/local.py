from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel

from perago.authoring.errors import TaskDefinitionError
from perago.authoring.guardrails import check_guardrails
from perago.authoring.payload import build_output, parse_input
from perago.authoring.task import TaskDefinition, definition_of
from perago.authoring.workspace import WorkspaceOutput

Result = TypeVar("Result", bound=BaseModel)

_SOMEWHERE = WorkspaceOutput(repository="local", branch="local", ref_type="commit", ref="local")


def run_task(function: Callable[..., Result], params: BaseModel, workspace: Path | None = None) -> Result:
    """Run a task as an attempt would, less its servers: input, pre guardrails, body, result, post guardrails.

    `workspace` is a directory that holds what the task would find below its prefix; it is changed in place.
    """
    definition = definition_of(function)
    if definition is None:
        raise TaskDefinitionError(f"{function!r} is not a task: decorate it with @task")
    if definition.workspace_kind == "spark":
        raise TaskDefinitionError(f"{definition.name} works on a SparkWorkspace, not on a directory")
    if (workspace is None) != (definition.workspace is None):
        fix = "give workspace=DIRECTORY" if workspace is None else "it takes no workspace"
        raise TaskDefinitionError(f"{definition.name}: {fix}")
    given = parse_input(definition, _payload(definition, params)).params
    if workspace is None or definition.workspace is None:
        result = function(given)
        build_output(definition, None, result)
        return result
    check_guardrails(workspace, definition.workspace.pre, "pre")
    result = function(workspace, given)
    build_output(definition, _SOMEWHERE, result)
    check_guardrails(workspace, definition.workspace.post, "post")
    return result


def _payload(definition: TaskDefinition, params: BaseModel) -> dict[str, Any]:
    """The input as Conductor would carry it, so that aliases and JSON's types are tried too."""
    sent = params.model_dump(mode="json", by_alias=True, exclude=set(type(params).model_computed_fields))
    return {"params": sent} if definition.workspace is None else {"workspace": _SOMEWHERE.model_dump(), "params": sent}
