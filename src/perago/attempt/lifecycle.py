"""One attempt from top to bottom: the ten steps of the contract."""

from collections.abc import Generator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import structlog

from perago.attempt.budgets import check_budgets
from perago.attempt.directory import AttemptDirectory
from perago.attempt.log_fields import log_fields
from perago.attempt.phases import Watch
from perago.attempt.ports import Conductor, Lake, WorkspaceFiles
from perago.attempt.publication import PATIENCE, Publication
from perago.attempt.work import Work, Workplace, no_session, worked_directory, worked_in_place
from perago.authoring.errors import TaskExecutionError, TaskInputError
from perago.authoring.payload import TaskInput, build_output, output_of, parse_input
from perago.authoring.task import TaskDefinition
from perago.authoring.workspace import WorkspaceInput, WorkspaceOutput
from perago.data.spark_files import SparkFiles
from perago.protocol.attempt import Attempt
from perago.protocol.failures import Failure, classify

_log = structlog.get_logger("perago.attempt")


@dataclass(frozen=True)
class Servers:
    #: None in a run by hand, which replaces nobody's publication.
    conductor: Conductor | None
    lake: Lake
    files: WorkspaceFiles
    #: The pauses between looks for a publish that got no answer.
    patience: Sequence[float] = PATIENCE
    #: Told each phase as the attempt enters it.
    watch: Watch = lambda _: None
    #: Needed by Spark workspaces, and by rules on tables and budgets of any.
    spark: SparkFiles | None = None


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


def run_attempt(execution: Execution, servers: Servers, root: Path, reason_length: int = 500) -> Completed | Failed:
    """Run an attempt to its end; whatever goes wrong is a `Failed`, with the evidence in the log."""
    with log_fields(
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
        servers.watch("body")
        return build_output(definition, None, definition.function(given.params))
    with ExitStack() as cleanups:  # 9 and 10 run in this order, whatever happens, each once its object exists
        work = cleanups.enter_context(worked(execution, given, servers, root))
        ref = _published(work, servers, cleanups)
        output = WorkspaceOutput.model_validate({**given.workspace.model_dump(), "ref": ref})
        servers.watch("cleanup")
        return output_of(output, work.result)  # 8


@contextmanager
def worked(execution: Execution, given: TaskInput, servers: Servers, root: Path) -> Generator[Work]:
    """Steps 2 to 6: a workspace of the input commit, and the body run in it between its guardrails."""
    definition, spec, target = execution.definition, execution.definition.workspace, given.workspace
    if spec is None or target is None:
        raise TaskExecutionError(f"{definition.name} has no workspace")
    directory = AttemptDirectory.create(root, execution.attempt, execution.execution_id, definition.name)  # 2
    try:
        servers.watch("download")
        _require_commit(servers.lake, target)
        session = servers.spark.session if servers.spark is not None else no_session
        publication = _publication(execution, servers, target)
        place = Workplace(definition, spec, target, given.params, directory, publication, session, servers.watch)
        if definition.workspace_kind == "path":
            working = worked_directory(place, servers.files)
        else:
            working = worked_in_place(place, servers.spark)
        with working as work:
            yield work
    finally:
        if servers.spark is not None:
            servers.spark.session.close()
        try:
            directory.remove()  # 10
        except Exception as error:
            _log.warning("failed to clean attempt workspace", directory=str(directory.path), error=str(error))


def _require_commit(lake: Lake, target: WorkspaceInput) -> None:
    """LakeFS takes a branch's name or a shortened id for a ref too, and neither is immutable."""
    found = lake.commit_of(target.repository, target.ref)
    if found.id != target.ref:
        raise TaskInputError(f"workspace.ref: {target.ref!r} is not a whole commit id; it names {found.id} just now")


def _published(work: Work, servers: Servers, cleanups: ExitStack) -> str:
    """Step 7: the read-only, no-op or publication path; gives the ref for the output."""
    place, publication = work.place, work.place.publication
    if place.spec.read_only:
        return place.target.ref
    servers.watch("compare")
    changes = work.changes(cleanups)
    if changes.is_empty:
        servers.watch("unchanged")
    publication.fence()
    if changes.is_empty:
        return publication.finish_unchanged()
    _log.info("changes", added=changes.added, changed=changes.changed, deleted=changes.deleted)
    servers.watch("try")
    work.stage(changes, cleanups)
    servers.watch("uploaded")
    staged = publication.commit()
    servers.watch("staged")
    _log.info("staged", repository=staged.repository, branch=staged.branch, commit=staged.commit)
    check_budgets(place.spec, place.target, staged, servers.spark, place.session)
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
