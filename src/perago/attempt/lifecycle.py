"""One attempt from top to bottom: the ten steps of the contract."""

from collections.abc import Generator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import structlog

from perago.attempt.directory import AttemptDirectory
from perago.attempt.phases import Watch
from perago.attempt.ports import Conductor, Lake, WorkspaceFiles
from perago.attempt.publication import PATIENCE, Publication
from perago.authoring.errors import TaskExecutionError, TaskInputError
from perago.authoring.guardrails import check_guardrails
from perago.authoring.payload import TaskInput, build_output, dump_result, output_of, parse_input
from perago.authoring.task import TaskDefinition
from perago.authoring.workspace import WorkspaceInput, WorkspaceOutput, WorkspaceSpec
from perago.data.manifest import Manifest
from perago.protocol.attempt import Attempt
from perago.protocol.failures import Failure, classify

_log = structlog.get_logger("perago.attempt")


@dataclass(frozen=True)
class Servers:
    conductor: Conductor
    lake: Lake
    files: WorkspaceFiles
    #: The pauses between looks for a publish that got no answer.
    patience: Sequence[float] = PATIENCE
    #: Told each phase as the attempt enters it.
    watch: Watch = lambda _: None


@dataclass(frozen=True)
class Execution:
    """One actual run of an attempt."""

    definition: TaskDefinition
    attempt: Attempt
    execution_id: str
    payload: Mapping[str, Any]


@dataclass(frozen=True)
class Completed:
    output: dict[str, Any]


@dataclass(frozen=True)
class Failed:
    failure: Failure
    error: BaseException


@dataclass(frozen=True)
class Worked:
    """A body that has succeeded: its result as JSON values, and the directory it left."""

    target: WorkspaceInput
    spec: WorkspaceSpec
    result: dict[str, Any]
    manifest: Manifest
    workspace: Path


def run_attempt(execution: Execution, servers: Servers, root: Path, reason_length: int = 500) -> Completed | Failed:
    """Run an attempt to its end; whatever goes wrong is a `Failed`, with the evidence in the log."""
    with structlog.contextvars.bound_contextvars(
        task=execution.definition.name,
        workflow=execution.attempt.workflow_instance_id,
        reference=execution.attempt.reference_task_name,
        seq=execution.attempt.seq,
        iteration=execution.attempt.iteration,
        task_id=execution.attempt.task_id,
        retry_count=execution.attempt.retry_count,
        execution_id=execution.execution_id,
    ):
        try:
            return Completed(_output(execution, servers, root))
        except BaseException as error:  # a body's SystemExit or KeyboardInterrupt is an ordinary failure too
            failure = classify(error, reason_length)
            _log.error("attempt failed", status=failure.status, reason=failure.reason, exc_info=error)
            return Failed(failure, error)


def _output(execution: Execution, servers: Servers, root: Path) -> dict[str, Any]:
    definition = execution.definition
    given = parse_input(definition, execution.payload)  # 1
    if given.workspace is None:
        return build_output(definition, None, definition.function(given.params))
    with ExitStack() as cleanups:  # 9 and 10 run in this order, whatever happens, each once its object exists
        worked = cleanups.enter_context(worked_directory(execution, given, servers, root))
        ref = _published(execution, servers, worked, cleanups)
        output = WorkspaceOutput.model_validate({**given.workspace.model_dump(), "ref": ref})
        servers.watch("cleanup")
        return output_of(output, worked.result)  # 8


@contextmanager
def worked_directory(execution: Execution, given: TaskInput, servers: Servers, root: Path) -> Generator[Worked]:
    """Steps 2 to 6: a directory filled from the input commit, and the body run in it between its guardrails."""
    definition, spec, target = execution.definition, execution.definition.workspace, given.workspace
    if spec is None or target is None or definition.workspace_kind != "path":
        raise TaskExecutionError(f"{definition.name} does not work on a directory")
    directory = AttemptDirectory.create(root, execution.attempt, execution.execution_id, definition.name)  # 2
    try:
        servers.watch("download")
        _require_commit(servers.lake, target)
        manifest = servers.files.download(target, spec.prefix, directory.workspace, directory.path)  # 3
        _log.info("downloaded", objects=manifest.objects, bytes=manifest.bytes)
        servers.watch("pre")
        check_guardrails(directory.workspace, spec.pre, "pre")  # 4
        servers.watch("body")
        result = definition.function(directory.workspace, given.params)  # 5
        servers.watch("post")
        dumped = dump_result(definition, result)  # 6: a result that cannot be sent must not be published
        check_guardrails(directory.workspace, spec.post, "post")
        yield Worked(target, spec, dumped, manifest, directory.workspace)
    finally:
        try:
            directory.remove()  # 10
        except Exception as error:
            _log.warning("failed to clean attempt workspace", directory=str(directory.path), error=str(error))


def _require_commit(lake: Lake, target: WorkspaceInput) -> None:
    """LakeFS takes a branch's name or a shortened id for a ref too, and neither is immutable."""
    found = lake.commit_of(target.repository, target.ref)
    if found.id != target.ref:
        raise TaskInputError(f"workspace.ref: {target.ref!r} is not a whole commit id; it names {found.id} just now")


def _published(execution: Execution, servers: Servers, worked: Worked, cleanups: ExitStack) -> str:
    """Step 7: the read-only, no-op or publication path; gives the ref for the output."""
    if worked.spec.read_only:
        return worked.target.ref
    servers.watch("compare")
    plan = servers.files.plan(worked.manifest, worked.workspace)
    cleanups.callback(plan.close)
    publication = _publication(execution, servers, worked.target)
    if plan.is_empty:
        servers.watch("unchanged")
    publication.fence()
    if plan.is_empty:
        return publication.finish_unchanged()
    _log.info("changes", added=plan.added, changed=plan.changed, deleted=plan.deleted, bytes=plan.bytes)
    servers.watch("try")
    branch = cleanups.enter_context(publication.staging())  # its exit is 9
    servers.files.apply(plan, worked.target.repository, branch, worked.spec.prefix, worked.workspace)
    servers.watch("uploaded")
    staged = publication.commit()
    servers.watch("staged")
    _log.info("staged", repository=staged.repository, branch=staged.branch, commit=staged.commit)
    publication.fence()
    servers.watch("confirm")
    ref = publication.confirm(staged)
    servers.watch("published")
    _log.info("published", ref=ref)
    return ref


def _publication(execution: Execution, servers: Servers, target: WorkspaceInput) -> Publication:
    budget = execution.definition.controls.publish_budget
    return Publication(
        servers.conductor,
        servers.lake,
        execution.definition.name,
        execution.attempt,
        execution.execution_id,
        target,
        merge_timeout=budget.lakefs_merge_timeout_seconds if budget else None,
        patience=servers.patience,
    )
