"""Sixteen publications at one moment, with and without the server's own check."""

import io
import uuid
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from threading import Barrier

import pytest

from perago.attempt.publication import Publication
from perago.authoring.errors import PublishFenceError
from perago.authoring.workspace import StagedWorkspace, WorkspaceInput
from perago.lake.control import LakeControl
from perago.lake.errors import LakeError
from perago.lake.hard_fence import install
from perago.lake.objects import LakeObjects
from perago.protocol.attempt import Attempt
from perago.protocol.publication import Commit
from tests.conftest import Servers

WRITERS = 16


@dataclass(frozen=True)
class MeetAfterTheCheck:
    """A lake whose users all read the head before any of them goes on: the window of the soft fence, wide open."""

    lake: LakeControl
    barrier: Barrier

    def __getattr__(self, name: str) -> object:
        return getattr(self.lake, name)

    def head(self, repository: str, branch: str) -> Commit:
        found = self.lake.head(repository, branch)
        self.barrier.wait(30)
        return found


@pytest.fixture
def objects(servers: Servers) -> LakeObjects:
    return LakeObjects(*servers.config.require_lakefs())


def staged(lake: LakeControl, objects: LakeObjects, target: WorkspaceInput, number: int) -> StagedWorkspace:
    branch = f"work-{number}"
    lake.create_branch(target.repository, branch, target.ref)
    objects.store(target.repository, branch, f"file-{number}", lambda: io.BytesIO(b"x"), 1)
    commit = lake.commit(target.repository, branch, "staged", {})
    return StagedWorkspace(repository=target.repository, branch=branch, commit=commit)


def publish_at_once(lake: LakeControl, objects: LakeObjects, target: WorkspaceInput) -> list[str | PublishFenceError]:
    waiting = MeetAfterTheCheck(lake, Barrier(WRITERS))
    work = [staged(lake, objects, target, number) for number in range(WRITERS)]

    def confirm(number: int) -> str | PublishFenceError:
        attempt = Attempt(f"workflow-{number}", uuid.uuid4().hex, 0, "write", 1, 0, "IN_PROGRESS")
        publication = Publication(None, waiting, "test", attempt, uuid.uuid4().hex, target)  # pyright: ignore[reportArgumentType]
        try:
            return publication.confirm(work[number])
        except PublishFenceError as error:
            return error

    with ThreadPoolExecutor(WRITERS) as pool:
        return list(pool.map(confirm, range(WRITERS)))


def merged_from_a_fenced_branch(lake: LakeControl, objects: LakeObjects, repository: str) -> str:
    """The fence of another branch comes to the target with that branch's changes."""
    install(lake, objects, repository, "main")
    lake.create_branch(repository, "dev", "main")
    install(lake, objects, repository, "dev")
    objects.store(repository, "dev", "by dev", lambda: io.BytesIO(b"x"), 1)
    lake.merge(repository, lake.commit(repository, "dev", "by dev", {}), "main", "by hand", {})
    return lake.head(repository, "main").id


def installed(lake: LakeControl, objects: LakeObjects, repository: str) -> str:
    return install(lake, objects, repository, "main")


@pytest.mark.parametrize("fenced", [installed, merged_from_a_fenced_branch])
def test_the_hard_fence_lets_one_of_many_through_and_keeps_the_rest_out(
    lake: LakeControl,
    objects: LakeObjects,
    repository: str,
    fenced: Callable[[LakeControl, LakeObjects, str], str],
) -> None:
    start = fenced(lake, objects, repository)
    target = WorkspaceInput(repository=repository, branch="main", ref_type="commit", ref=start)

    outcomes = publish_at_once(lake, objects, target)

    published = [outcome for outcome in outcomes if isinstance(outcome, str)]
    refused = [str(outcome) for outcome in outcomes if isinstance(outcome, PublishFenceError)]
    assert len(published) == 1
    assert len(refused) == WRITERS - 1
    head = lake.head(repository, "main")
    assert (head.id, head.first_parent) == (published[0], start)
    assert all("branch main moved while this attempt published" in reason for reason in refused)
    assert len(list(objects.list(repository, "main", "file-"))) == 1


def test_without_it_a_race_is_found_out_afterwards_and_told_with_all_ids(
    lake: LakeControl, objects: LakeObjects, repository: str
) -> None:
    start = lake.head(repository, "main").id
    target = WorkspaceInput(repository=repository, branch="main", ref_type="commit", ref=start)

    outcomes = publish_at_once(lake, objects, target)

    published = [outcome for outcome in outcomes if isinstance(outcome, str)]
    assert len(published) <= 1
    for outcome in outcomes:
        if isinstance(outcome, PublishFenceError):
            assert start in str(outcome) or "moved" in str(outcome)


def test_merges_by_people_pass_the_hard_fence(lake: LakeControl, objects: LakeObjects, repository: str) -> None:
    start = install(lake, objects, repository, "main")
    target = WorkspaceInput(repository=repository, branch="main", ref_type="commit", ref=start)
    work = staged(lake, objects, target, 1)

    merged = lake.merge(repository, work.commit, "main", "by hand", {})

    assert lake.head(repository, "main").id == merged


def test_it_is_installed_once_and_never_commits_what_others_have_not(
    lake: LakeControl, objects: LakeObjects, repository: str
) -> None:
    start = install(lake, objects, repository, "main")
    assert install(lake, objects, repository, "main") == start

    objects.store(repository, "main", "by somebody", lambda: io.BytesIO(b"x"), 1)
    with pytest.raises(LakeError, match="uncommitted changes"):
        install(lake, objects, repository, "main")

    assert lake.head(repository, "main").id == start
    assert [change.path for change in objects.uncommitted(repository, "main")] == ["by somebody"]
    assert list(lake.branches(repository, "perago-fence-")) == []
