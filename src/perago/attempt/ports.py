"""What an attempt needs of the world, so that the same code meets real servers and the tests' explorer."""

from collections.abc import Mapping
from pathlib import Path
from typing import Protocol

from perago.authoring.workspace import WorkspaceInput
from perago.data.manifest import Manifest
from perago.data.plan import Plan
from perago.protocol.attempt import Attempt
from perago.protocol.publication import Commit


class Conductor(Protocol):
    def current(self, attempt: Attempt) -> Attempt:
        """The same task as Conductor has it now."""
        ...


class Lake(Protocol):
    """Refs of a repository. A change that got no answer raises `LakeOutcomeUnknown`."""

    def head(self, repository: str, branch: str) -> Commit: ...
    def commit_of(self, repository: str, ref: str) -> Commit: ...
    def branch_exists(self, repository: str, branch: str) -> bool: ...
    def create_branch(self, repository: str, name: str, source: str) -> None: ...
    def delete_branch(self, repository: str, name: str) -> None: ...
    def commit(self, repository: str, branch: str, message: str, metadata: Mapping[str, str]) -> str: ...
    def merge(
        self,
        repository: str,
        source: str,
        branch: str,
        message: str,
        metadata: Mapping[str, str],
        timeout: float | None = None,
    ) -> str: ...
    def reset(self, repository: str, branch: str, ref: str, timeout: float | None = None) -> None: ...


class WorkspaceFiles(Protocol):
    """The files of a directory workspace: down from a commit, compared, up to a staging branch."""

    def download(self, source: WorkspaceInput, prefix: str, into: Path, scratch: Path) -> Manifest: ...
    def plan(self, manifest: Manifest, workspace: Path) -> Plan: ...
    def apply(self, plan: Plan, repository: str, branch: str, prefix: str, workspace: Path) -> None: ...
