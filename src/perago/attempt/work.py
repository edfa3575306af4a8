"""Steps 2 to 6 of an attempt: a workspace of either kind, and the body run in it between its guardrails."""

from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import structlog

from perago.attempt.directory import AttemptDirectory
from perago.attempt.phases import Watch
from perago.attempt.ports import WorkspaceFiles
from perago.attempt.publication import Publication
from perago.authoring.errors import TaskExecutionError
from perago.authoring.guardrails import Directory, FileTree, Guardrail, Phase, check_files
from perago.authoring.payload import dump_result
from perago.authoring.task import TaskDefinition
from perago.authoring.workspace import WorkspaceInput, WorkspaceSpec
from perago.data.manifest import Manifest
from perago.data.places import file_uri
from perago.data.plan import Plan
from perago.data.spark_files import Changed, SparkFiles
from perago.data.spark_session import carry_code_of
from perago.data.spark_workspace import PlacedWorkspace
from perago.data.tables import rule_violation

if TYPE_CHECKING:
    from pydantic import BaseModel
    from pyspark.sql.connect.session import SparkSession

_log = structlog.get_logger("perago.attempt")


class Changes(Protocol):
    """What a body changed."""

    @property
    def is_empty(self) -> bool: ...
    @property
    def added(self) -> int: ...
    @property
    def changed(self) -> int: ...
    @property
    def deleted(self) -> int: ...
    def lines(self) -> Iterator[str]: ...


class Work(Protocol):
    """A body that has succeeded: its result as JSON values, and what it left in its workspace."""

    @property
    def result(self) -> dict[str, Any]: ...
    @property
    def place(self) -> "Workplace": ...

    def changes(self, cleanups: ExitStack) -> Changes:
        """Find out what is different from the input."""
        ...

    def stage(self, changes: Any, cleanups: ExitStack) -> None:
        """Bring the changes to the staging branch, uncommitted; what is made there is cleaned by `cleanups`."""
        ...


def no_session() -> "SparkSession":
    raise TaskExecutionError("there is no Spark here: rules on tables cannot be checked")


@dataclass(frozen=True)
class Workplace:
    """What both kinds of work begin with."""

    definition: TaskDefinition
    spec: WorkspaceSpec
    target: WorkspaceInput
    params: "BaseModel"
    directory: AttemptDirectory
    publication: Publication
    session: "Callable[[], SparkSession]"
    watch: Watch

    def run(self, tree: Callable[[], FileTree], uri: Callable[[str], str], workspace: object) -> dict[str, Any]:
        """Steps 4 to 6; the tree is looked at anew after the body."""
        self.watch("pre")
        self._check(tree(), self.spec.pre, "pre", uri)
        self.watch("body")
        result = self.definition.function(workspace, self.params)
        self.watch("post")
        dumped = dump_result(self.definition, result)  # a result that cannot be sent must not be published
        self._check(tree(), self.spec.post, "post", uri)
        return dumped

    def _check(self, tree: FileTree, rules: Sequence[Guardrail], phase: Phase, uri: Callable[[str], str]) -> None:
        check_files(tree, rules, phase, lambda rule: rule_violation(rule, self.session, uri))


@dataclass(frozen=True)
class DirectoryWork:
    """Work in a local directory, compared with the manifest of what was downloaded."""

    result: dict[str, Any]
    place: Workplace
    files: WorkspaceFiles
    manifest: Manifest

    def changes(self, cleanups: ExitStack) -> Plan:
        plan = self.files.plan(self.manifest, self.place.directory.workspace)
        cleanups.callback(plan.close)
        return plan

    def stage(self, changes: Any, cleanups: ExitStack) -> None:
        branch = cleanups.enter_context(self.place.publication.staging())  # its exit is step 9
        target, workspace = self.place.target, self.place.directory.workspace
        self.files.apply(changes, target.repository, branch, self.place.spec.prefix, workspace)


@contextmanager
def worked_directory(place: Workplace, files: WorkspaceFiles) -> Generator[DirectoryWork]:
    """A directory filled from the input commit."""
    workspace = place.directory.workspace
    manifest = files.download(place.target, place.spec.prefix, workspace, place.directory.path)  # 3
    _log.info("downloaded", objects=manifest.objects, bytes=manifest.bytes)
    result = place.run(lambda: Directory(workspace), lambda path: file_uri(workspace, path), workspace)
    yield DirectoryWork(result, place, files, manifest)


@dataclass(frozen=True)
class SparkWork:
    """Work on lakeFS in place: what changed is on the staging branch already."""

    result: dict[str, Any]
    place: Workplace
    files: SparkFiles
    workspace: PlacedWorkspace

    def changes(self, cleanups: ExitStack) -> Changed:
        target, branch = self.place.target, self.place.publication.staging_branch
        return self.files.settle(self.workspace, target.repository, branch, self.place.spec.prefix)

    def stage(self, changes: Any, cleanups: ExitStack) -> None:
        pass


@contextmanager
def worked_in_place(place: Workplace, files: SparkFiles | None) -> Generator[SparkWork]:
    """A staging branch that is read and written through Spark; read-only, it is the input commit itself."""
    if files is None:
        raise TaskExecutionError(f"{place.definition.name} works on a SparkWorkspace, and there is no Spark here")
    target, spec = place.target, place.spec
    with ExitStack() as cleanups:
        # Before the branch is made: without a session nothing can be done on it.
        spark = place.session()
        ref = target.ref if spec.read_only else cleanups.enter_context(place.publication.staging())
        at = files.place(target.repository, ref, spec.prefix, writable=not spec.read_only)
        workspace = PlacedWorkspace(spark, at)
        carry_code_of(place.definition.function)

        def tree() -> FileTree:
            workspace.require_stored()
            return at

        result = place.run(tree, at.uri, workspace)
        yield SparkWork(result, place, files, workspace)
