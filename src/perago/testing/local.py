import shutil
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, TypeVar, cast

from pydantic import BaseModel

from perago.authoring.errors import TaskDefinitionError
from perago.authoring.guardrails import Directory, Phase, check_files
from perago.authoring.payload import build_output, parse_input
from perago.authoring.task import TaskDefinition, definition_of
from perago.authoring.workspace import WorkspaceSpec
from perago.data.places import DirectoryPlace, file_uri
from perago.data.spark_session import carry_code_of
from perago.data.spark_workspace import PlacedWorkspace
from perago.data.tables import rule_violation

if TYPE_CHECKING:
    from pyspark.sql.connect.session import SparkSession

Result = TypeVar("Result", bound=BaseModel)
OpenSession = Callable[[], "SparkSession"]

_SOMEWHERE = {"repository": "local", "branch": "local", "ref_type": "commit", "ref": "local"}


def run_task(
    function: Callable[..., Result],
    params: BaseModel | dict[str, Any],
    workspace: Path | None = None,
    spark: "SparkSession | None" = None,
) -> Result:
    """Run a task as an attempt would, less its servers: input, pre guardrails, body, result, post guardrails.

    `params` is the model, or JSON as Conductor would carry it. `workspace` is a directory that holds what the task
    would find below its prefix; it is changed in place, or a copy of it if the task is read-only. A task with a
    SparkWorkspace or rules on tables needs a Spark Connect session as `spark`. A change budget is not checked: there is
    no commit to compare with.
    """
    definition = definition_of(function)
    if definition is None:
        raise TaskDefinitionError(f"{function!r} is not a task: decorate it with @task")
    session = (lambda: spark) if spark is not None else None
    return cast("Result", run_definition(definition, params, workspace, session))


def run_definition(
    definition: TaskDefinition,
    params: BaseModel | dict[str, Any],
    workspace: Path | None,
    session: OpenSession | None = None,
) -> BaseModel:
    if (workspace is None) != (definition.workspace is None):
        fix = "give workspace=DIRECTORY" if workspace is None else "it takes no workspace"
        raise TaskDefinitionError(f"{definition.name}: {fix}")
    given = _validated(definition, params)
    if workspace is None or definition.workspace is None:
        result = definition.function(given)
        build_output(definition, None, result)
        return result
    with _at_hand(definition, definition.workspace, workspace) as root:
        return _worked(definition, definition.workspace, given, root, session or _no_session(definition))


@contextmanager
def _at_hand(definition: TaskDefinition, spec: WorkspaceSpec, directory: Path) -> Generator[Path]:
    """The directory a body works on: what a read-only task writes is its own and goes with its copy."""
    if not spec.read_only or definition.workspace_kind != "path":
        yield directory
        return
    with TemporaryDirectory(prefix="perago-run-") as copies:
        yield shutil.copytree(directory, Path(copies) / "workspace", symlinks=True)


def _worked(
    definition: TaskDefinition, spec: WorkspaceSpec, given: BaseModel, workspace: Path, opened: OpenSession
) -> BaseModel:
    def uri(path: str) -> str:
        return file_uri(workspace, path)

    def check(phase: Phase) -> None:
        rules = spec.pre if phase == "pre" else spec.post
        check_files(Directory(workspace), rules, phase, lambda rule: rule_violation(rule, opened, uri))

    check("pre")
    handed = _handed(definition, spec, workspace, opened)
    result = definition.function(handed, given)
    if isinstance(handed, PlacedWorkspace):
        handed.require_stored()
    build_output(definition, None, result)
    check("post")
    return result


def _handed(
    definition: TaskDefinition, spec: WorkspaceSpec, workspace: Path, session: OpenSession
) -> Path | PlacedWorkspace:
    if definition.workspace_kind == "path":
        return workspace
    carry_code_of(definition.function)
    return PlacedWorkspace(session(), DirectoryPlace(workspace, writable=not spec.read_only))


def _no_session(definition: TaskDefinition) -> OpenSession:
    def refuse() -> "SparkSession":
        raise TaskDefinitionError(f"{definition.name} needs Spark: give a Spark Connect session as spark=")

    return refuse


def _validated(definition: TaskDefinition, params: BaseModel | dict[str, Any]) -> BaseModel:
    if isinstance(params, definition.params_model):
        return params
    workspace = {} if definition.workspace is None else {"workspace": _SOMEWHERE}
    return parse_input(definition, {**workspace, "params": params}).params
