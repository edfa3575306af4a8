"""Try and Confirm: one staging branch, two fences, one decision, one change of the target."""

import time
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Literal

import structlog

from perago.attempt.ports import Conductor, Lake
from perago.authoring.errors import PublishFenceError, StaleAttemptError
from perago.authoring.workspace import StagedWorkspace, WorkspaceInput
from perago.lake.errors import (
    LakeBadRequest,
    LakeConflict,
    LakeError,
    LakeForbidden,
    LakeOutcomeUnknown,
    LakeRefusedByHook,
)
from perago.protocol.attempt import Attempt, assert_current_attempt_snapshot
from perago.protocol.names import commit_message, commit_metadata, staging_branch_name
from perago.protocol.publication import (
    Commit,
    Complete,
    Merge,
    Refuse,
    Relocate,
    Replace,
    assert_published_onto,
    decide,
    is_this_publication,
)

_log = structlog.get_logger("perago.attempt")

# How long to look for a publish that got no answer; it may still be on its way inside lakeFS.
PATIENCE = (0.1, 0.2, 0.4, 0.8, 1.5)


@dataclass(frozen=True)
class Publication:
    """The transaction of one execution on one target branch. It holds no state between its steps."""

    #: None in a run by hand: nobody else can have the attempt, and none came before it.
    conductor: Conductor | None
    lake: Lake
    task_name: str
    polled: Attempt
    execution_id: str
    target: WorkspaceInput
    merge_timeout: float | None = None
    patience: Sequence[float] = field(default=PATIENCE)

    @property
    def staging_branch(self) -> str:
        return staging_branch_name(self.polled, self.execution_id)

    def fence(self) -> None:
        """The attempt fence; when Conductor cannot be asked, it does not hold."""
        if self.conductor is None:
            self._decide(changed=True)  # what would be refused at the end is refused before anything is written
            return
        try:
            fresh = self.conductor.current(self.polled)
        except Exception as error:
            raise StaleAttemptError(
                f"Conductor could not be asked whether task {self.polled.task_id} is still this attempt's"
                f" ({type(error).__name__}: {error}): nothing was published"
            ) from error
        assert_current_attempt_snapshot(self.polled, fresh)
        _log.info("attempt fence passed", status=fresh.status, retry_count=fresh.retry_count)

    def finish_unchanged(self) -> str:
        """The no-op path: the target ends at the input ref, or is left alone."""
        match self._decide(changed=False):
            case Relocate():
                self._reset(self.target.ref, "moving the target back to the input ref")
            case _:
                pass
        return self.target.ref

    @contextmanager
    def staging(self) -> Generator[str]:
        """The execution's own branch from the input ref, deleted at the end; one that was there before is not ours."""
        try:
            self._create_branch()
        except LakeConflict:
            raise
        except BaseException:
            self.clean()  # it may have been made all the same
            raise
        try:
            yield self.staging_branch
        finally:
            self.clean()

    def commit(self) -> StagedWorkspace:
        """Commit what was made equal on the staging branch."""
        repository = self.target.repository
        return StagedWorkspace(repository=repository, branch=self.staging_branch, commit=self._commit_staging())

    def confirm(self, staged: StagedWorkspace) -> str:
        """Publish the staged commit as the publish fence allows; gives the target's new head."""
        match self._decide(changed=True):
            case Replace():
                self._reset(staged.commit, "replacing an abandoned publication")
                return staged.commit
            case _:
                return self._merge(staged)

    def clean(self) -> None:
        """Delete the staging branch; a failure is only logged."""
        try:
            self.lake.delete_branch(self.target.repository, self.staging_branch)
        except Exception as error:
            _log.warning("failed to clean staging workspace", branch=self.staging_branch, error=str(error))

    def _decide(self, *, changed: bool) -> Complete | Relocate | Merge | Replace:
        head = self.lake.head(self.target.repository, self.target.branch)
        decision = decide(head, self.target.ref, changed, by_hand=self.conductor is None)
        _log.info("publish fence", decision=type(decision).__name__, head=head.id, input_ref=self.target.ref)
        if isinstance(decision, Refuse):
            raise PublishFenceError(f"branch {self.target.branch} of {self.target.repository}: {decision.reason}")
        if isinstance(decision, Relocate | Replace):
            # What looks abandoned may be a newer attempt's, made after this one's last fence: a reset would undo it.
            self.fence()
        return decision

    def _create_branch(self) -> None:
        try:
            self.lake.create_branch(self.target.repository, self.staging_branch, self.target.ref)
        except LakeOutcomeUnknown:
            # The name carries this execution's own id: if it is there now, the unanswered call made it.
            if not self.lake.branch_exists(self.target.repository, self.staging_branch):
                raise

    def _commit_staging(self) -> str:
        message = commit_message(self.task_name, self.polled)
        metadata = self._metadata("try")
        try:
            return self.lake.commit(self.target.repository, self.staging_branch, message, metadata)
        except LakeOutcomeUnknown:
            head = self.lake.head(self.target.repository, self.staging_branch)
            if head.first_parent != self.target.ref:
                raise
            return head.id

    def _merge(self, staged: StagedWorkspace) -> str:
        repository, branch = self.target.repository, self.target.branch
        message = commit_message(self.task_name, self.polled)
        try:
            published = self.lake.merge(
                repository, staged.commit, branch, message, self._metadata("confirm"), self.merge_timeout
            )
        except LakeOutcomeUnknown as error:
            return self._found_published(staged, error)
        except (LakeBadRequest, LakeConflict, LakeRefusedByHook) as error:
            raise PublishFenceError(self._why_refused(error)) from error
        commit = self.lake.commit_of(repository, published)
        assert_published_onto(self.target.ref, commit)
        return commit.id

    def _reset(self, ref: str, doing: str) -> None:
        repository, branch = self.target.repository, self.target.branch
        try:
            self.lake.reset(repository, branch, ref, self.merge_timeout)
        except LakeOutcomeUnknown as error:
            head = self._settled(lambda head: head.id == ref)
            if head.id != ref:
                raise self._unresolved(head, error) from error
        except LakeForbidden as error:
            raise PublishFenceError(
                f"{doing} needs a hard reset of branch {branch}, which lakeFS refuses ({error}): take the branch out of"
                " the repository's protection rules, or start a new workflow from its head"
            ) from error

    def _found_published(self, staged: StagedWorkspace, error: LakeError) -> str:
        made = self.lake.commit_of(self.target.repository, staged.commit)
        head = self._settled(lambda head: is_this_publication(head, self.target.ref, made))
        if not is_this_publication(head, self.target.ref, made):
            raise self._unresolved(head, error) from error
        return head.id

    def _settled(self, landed: Callable[[Commit], bool]) -> Commit:
        """Read the target until an unanswered change shows, or patience ends. Nothing is ever sent again."""
        head = self.lake.head(self.target.repository, self.target.branch)
        for pause in self.patience:
            if landed(head):
                return head
            time.sleep(pause)
            head = self.lake.head(self.target.repository, self.target.branch)
        return head

    def _unresolved(self, head: Commit, error: LakeError) -> PublishFenceError:
        then = "a retry then replaces it" if self.conductor else "look at the branch before you run this again"
        return PublishFenceError(
            f"the head of branch {self.target.branch} is {head.id} (parent {head.first_parent}), which is not this"
            f" attempt's publication on {self.target.ref}; it may still land, and {then}: {error}"
        )

    def _why_refused(self, error: LakeError) -> str:
        branch = self.target.branch
        if not isinstance(error, LakeBadRequest):
            return f"branch {branch} moved while this attempt published, or a hook refused: {error}"
        if "uncommitted" not in str(error).lower():
            return f"lakeFS refuses the merge into branch {branch}: {error}"
        return (
            f"branch {branch} has uncommitted changes, so lakeFS refuses the merge: commit or reset them, since"
            f" nobody but Perago should write to it ({error})"
        )

    def _metadata(self, phase: Literal["try", "confirm"]) -> dict[str, str]:
        return commit_metadata(self.task_name, self.polled, self.execution_id, self.target.ref, phase)
