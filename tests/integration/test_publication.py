"""What a user finds in lakeFS after an attempt, for every state its target may be in."""

from collections.abc import Callable, Generator
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from perago.attempt.directory import AttemptDirectory
from perago.attempt.publication import Publication
from perago.authoring.errors import PublishFenceError
from perago.authoring.guardrails import require_file
from perago.authoring.workspace import StagedWorkspace, WorkspaceInput, WorkspaceSpec
from perago.lake.errors import LakeOutcomeUnknown
from perago.protocol.names import staging_branch_name
from tests.conftest import Servers
from tests.integration.support import (
    ATTEMPT,
    FEATURES,
    Body,
    Conductor,
    Site,
    WatchedLake,
    WatchedObjects,
    failed,
    nothing,
    output_ref,
    raising,
    task_of,
    writing,
)

FILES = {"features/a.txt": b"a", "features/b.txt": b"b", "features/sub/c.txt": b"c", "other/d.txt": b"d"}
EITHER_WAY = pytest.mark.parametrize("body", [writing("new.txt"), nothing], ids=["changed", "unchanged"])


@pytest.fixture
def site(servers: Servers, repository: str, tmp_path: Path) -> Generator[Site]:
    made = Site.at(servers, repository, tmp_path / "root")
    with made.http:
        made.protect("protected-*")
        made.commit(FILES)
        yield made


def abandoned(site: Site) -> tuple[str, str]:
    """An input, and the publication an earlier attempt left on it."""
    input_ref = site.head()
    left = site.publish(writing("abandoned.txt"), input_ref)
    assert site.commit_info(left)["parents"] == [input_ref]
    return input_ref, left


@pytest.mark.parametrize("moved", [False, True], ids=["head is the input", "head is far away"])
def test_a_read_only_task_asks_nobody_and_leaves_nothing(site: Site, moved: bool) -> None:
    input_ref = site.head()
    if moved:
        site.commit({"features/x": b"1"})
        site.commit({"features/x": b"2"})
    before, conductor, lake = site.history(), Conductor(), WatchedLake(site.servers)
    seen: list[bytes] = []

    def body(workspace: Path) -> None:
        seen.append((workspace / "a.txt").read_bytes())
        (workspace / "a.txt").write_bytes(b"discarded")
        (workspace / "b.txt").unlink()
        (workspace / "link").symlink_to("a.txt")

    spec = WorkspaceSpec(prefix="/features", read_only=True, post=[require_file("a.txt")])
    outcome = site.run(task_of(body, spec), input_ref, conductor=conductor, lake=lake)

    assert output_ref(outcome) == input_ref
    assert seen == [b"a"]
    assert conductor.asked == 0
    assert lake.calls == []
    assert site.history() == before
    assert site.leftovers() == []


def test_an_unchanged_workspace_completes_with_the_input_and_makes_no_commit(site: Site) -> None:
    before, conductor, lake = site.history(), Conductor(), WatchedLake(site.servers)

    outcome = site.run(task_of(nothing), conductor=conductor, lake=lake)

    assert output_ref(outcome) == before[0]
    assert site.history() == before
    assert conductor.asked == 1
    assert lake.calls == ["head"]
    assert site.leftovers() == []


def test_an_unchanged_workspace_moves_an_abandoned_target_back_to_the_input(site: Site) -> None:
    input_ref, left = abandoned(site)
    lake = WatchedLake(site.servers)

    outcome = site.run(task_of(nothing), input_ref, lake=lake)

    assert output_ref(outcome) == input_ref
    assert site.head() == input_ref
    assert site.tree() == FILES
    assert "create_branch" not in lake.calls
    assert site.commit_info(left)["id"] == left  # kept as evidence


def test_a_change_is_squash_merged_onto_the_input(site: Site) -> None:
    input_ref, conductor = site.head(), Conductor()

    outcome = site.run(task_of(writing("new.txt")), conductor=conductor)

    published = output_ref(outcome)
    assert published == site.head()
    assert site.commit_info(published)["parents"] == [input_ref]
    assert site.tree() == {**FILES, "features/new.txt": b"new"}
    assert conductor.asked == 2
    assert site.leftovers() == []


def test_the_output_names_repository_branch_and_published_commit_alone(site: Site) -> None:
    outcome = site.run(task_of(writing("new.txt")))

    output_ref(outcome)
    assert vars(outcome)["output"] == {
        "workspace": {"repository": site.repository, "branch": "main", "ref_type": "commit", "ref": site.head()},
        "result": {"score": 0.0},
    }


@pytest.mark.parametrize("replaces", [False, True], ids=["merge", "replacement"])
def test_the_published_commit_tells_people_who_made_it_and_from_what(site: Site, replaces: bool) -> None:
    input_ref = abandoned(site)[0] if replaces else site.head()

    site.run(task_of(writing("new.txt")), input_ref, execution_id="e" * 32)

    told = site.commit_info("main")
    assert "features.build" in told["message"]
    assert "build_ref" in told["message"]
    assert "wf-1" in told["message"]
    told_to_audits = set(told["metadata"].values())
    assert {"features.build", "wf-1", "t-1", "2", "build_ref", "e" * 32, input_ref} <= told_to_audits


def test_a_change_replaces_an_abandoned_publication(site: Site) -> None:
    input_ref, left = abandoned(site)
    before = site.history(input_ref)

    published = site.publish(writing("new.txt"), input_ref)

    assert site.head() == published
    assert site.history() == [published, *before]
    assert left not in site.history()
    assert site.tree() == {**FILES, "features/new.txt": b"new"}
    assert site.leftovers() == []


def test_retry_after_retry_leaves_one_commit_on_the_input(site: Site) -> None:
    before = site.history()

    refs = [site.publish(writing("new.txt", bytes([number])), before[0]) for number in range(3)]

    assert len(set(refs)) == 3
    assert site.history() == [refs[-1], *before]


def two_ahead(site: Site, input_ref: str) -> None:
    site.commit({"features/x": b"1"})
    site.commit({"features/x": b"2"})


def sibling(site: Site, input_ref: str) -> None:
    site.branch("sibling", site.commit_info(input_ref)["parents"][0])
    site.reset("main", site.commit({"features/x": b"1"}, "sibling"))


def behind(site: Site, input_ref: str) -> None:
    site.reset("main", site.commit_info(input_ref)["parents"][0])


def child_by_second_parent(site: Site, input_ref: str) -> None:
    sibling(site, input_ref)
    site.branch("ours", input_ref)
    site.ask("POST", "/refs/ours/merge/main", json={"message": "a true merge"})
    assert site.commit_info("main")["parents"][1] == input_ref


@EITHER_WAY
@pytest.mark.parametrize("moved", [two_ahead, sibling, behind, child_by_second_parent])
def test_a_target_somebody_else_moved_is_left_untouched(
    site: Site, moved: Callable[[Site, str], None], body: Body
) -> None:
    input_ref = site.head()
    moved(site, input_ref)
    head, tree = site.head(), site.tree()

    outcome = failed(site.run(task_of(body), input_ref))

    assert isinstance(outcome.error, PublishFenceError)
    assert head in outcome.failure.reason
    assert input_ref in outcome.failure.reason
    assert site.head() == head
    assert site.tree() == tree
    assert site.leftovers() == []


def test_only_new_and_changed_files_are_sent_and_only_gone_ones_deleted(site: Site) -> None:
    objects = WatchedObjects(site.servers)

    def body(workspace: Path) -> None:
        (workspace / "a.txt").write_bytes(b"changed")
        (workspace / "b.txt").unlink()
        (workspace / "sub" / "new.txt").write_bytes(b"new")

    site.run(task_of(body), objects=objects)

    assert sorted(objects.stored) == ["features/a.txt", "features/sub/new.txt"]
    assert objects.deleted == ["features/b.txt"]
    assert site.tree() == {
        "features/a.txt": b"changed",
        "features/sub/c.txt": b"c",
        "features/sub/new.txt": b"new",
        "other/d.txt": b"d",
    }


def test_a_body_sees_its_prefix_alone_and_can_empty_only_that(site: Site) -> None:
    around = {"a/b": b"the prefix as an object", "a/bc/x": b"x", "a/b.txt": b"t", "a/B/x": b"B", "b/y": b"y"}
    site.commit({**around, "a/b/in.txt": b"in", "a/b/deep/er.txt": b"er"})
    seen: list[str] = []

    def body(workspace: Path) -> None:
        for file in sorted(workspace.rglob("*"), reverse=True):
            if file.is_file():
                seen.append(file.relative_to(workspace).as_posix())
                file.unlink()
        (workspace / "out.txt").write_bytes(b"out")

    site.publish(body, spec=WorkspaceSpec(prefix="/a/b"))

    assert sorted(seen) == ["deep/er.txt", "in.txt"]
    assert site.tree() == {**FILES, **around, "a/b/out.txt": b"out"}


def test_a_prefix_with_nothing_below_it_is_an_empty_workspace(site: Site) -> None:
    def body(workspace: Path) -> None:
        assert list(workspace.iterdir()) == []
        (workspace / "first.txt").write_bytes(b"1")

    site.publish(body, spec=WorkspaceSpec(prefix="/feat"))

    assert site.tree() == {**FILES, "feat/first.txt": b"1"}


def test_a_task_may_work_on_the_whole_repository(site: Site) -> None:
    def body(workspace: Path) -> None:
        (workspace / "other" / "d.txt").rename(workspace / "moved.txt")

    site.publish(body, spec=WorkspaceSpec(prefix="/"))

    kept = {path: content for path, content in FILES.items() if path != "other/d.txt"}
    assert site.tree() == {**kept, "moved.txt": b"d"}


def test_an_existing_staging_branch_fails_closed_and_is_left_alone(site: Site) -> None:
    input_ref = site.head()
    taken = staging_branch_name(ATTEMPT, "f" * 32)
    site.branch(taken, input_ref)
    theirs = site.commit({"features/theirs.txt": b"!"}, taken)

    outcome = failed(site.run(task_of(writing("new.txt")), execution_id="f" * 32))

    assert taken in outcome.failure.reason
    assert site.head(taken) == theirs
    assert site.head() == input_ref
    assert site.leftovers() == [taken]


@EITHER_WAY
def test_a_protected_branch_takes_a_merge_but_no_reset_and_the_operator_is_told_what_to_do(
    site: Site, body: Body
) -> None:
    site.branch("protected-one", site.head())
    on_it = site.payload(site.head(), "protected-one")
    left = output_ref(site.run(task_of(writing("abandoned.txt")), payload=on_it))

    outcome = failed(site.run(task_of(body), payload=on_it))

    assert isinstance(outcome.error, PublishFenceError)
    assert "hard reset of branch protected-one" in outcome.failure.reason
    assert "protection rules" in outcome.failure.reason
    assert site.head("protected-one") == left
    assert site.leftovers() == []


def test_uncommitted_changes_of_the_target_are_named(site: Site) -> None:
    input_ref = site.head()
    site.put("features/loose.txt", b"uncommitted")

    outcome = failed(site.run(task_of(writing("new.txt"))))

    assert "branch main has uncommitted changes" in outcome.failure.reason
    assert site.head() == input_ref
    assert site.tree()["features/loose.txt"] == b"uncommitted"
    assert site.leftovers() == []


def test_failed_cleanups_are_logged_and_do_not_change_the_result(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    lake = WatchedLake(site.servers, before={"delete_branch": raising(RuntimeError("no delete today"))})
    monkeypatch.setattr(AttemptDirectory, "remove", raising(PermissionError("no removal today")))

    with capture_logs() as logs:
        outcome = site.run(task_of(writing("new.txt")), lake=lake, execution_id="f" * 32)

    assert output_ref(outcome) == site.head()
    assert site.tree()["features/new.txt"] == b"new"
    assert site.leftovers() == [staging_branch_name(ATTEMPT, "f" * 32), f"t-1-{'f' * 32}"]
    assert [line["event"] for line in logs if "clean" in line["event"]] == [
        "failed to clean staging workspace",
        "failed to clean attempt workspace",
    ]


@pytest.mark.parametrize("reference", ["main", "short", "tag", "main~0", "main@"])
def test_an_input_ref_that_can_move_is_refused(site: Site, reference: str) -> None:
    head = site.head()
    site.ask("POST", "/tags", json={"id": "tag", "ref": head})
    given = head[:12] if reference == "short" else reference
    ran: list[Path] = []

    outcome = failed(site.run(task_of(ran.append), given))

    assert "workspace.ref" in outcome.failure.reason
    assert repr(given) in outcome.failure.reason
    assert head in outcome.failure.reason
    assert ran == []
    assert site.leftovers() == []


def test_a_target_that_moves_at_the_moment_of_the_merge_fails_with_all_ids(site: Site) -> None:
    input_ref = site.head()
    raced: list[str] = []
    lake = WatchedLake(site.servers, before={"merge": lambda: raced.append(site.commit({"other/raced": b"r"}))})

    outcome = failed(site.run(task_of(writing("new.txt")), lake=lake))

    assert isinstance(outcome.error, PublishFenceError)
    for commit in (input_ref, raced[0], site.head()):
        assert commit in outcome.failure.reason
    assert site.leftovers() == []


@pytest.mark.parametrize("lost", ["create_branch", "commit", "merge", "reset"])
def test_a_lost_answer_is_resolved_by_looking_and_nothing_is_sent_twice(site: Site, lost: str) -> None:
    input_ref = abandoned(site)[0] if lost == "reset" else site.head()
    before = site.history(input_ref)
    lake = WatchedLake(site.servers, after={lost: raising(LakeOutcomeUnknown("no answer"))})

    outcome = site.run(task_of(writing("new.txt")), input_ref, lake=lake)

    assert site.history() == [output_ref(outcome), *before]
    assert site.tree() == {**FILES, "features/new.txt": b"new"}
    assert lake.calls.count(lost) == 1
    assert site.leftovers() == []


@pytest.mark.parametrize("lost", ["merge", "reset"])
def test_a_publish_that_never_landed_fails_and_shows_the_head_seen(site: Site, lost: str) -> None:
    input_ref = abandoned(site)[0] if lost == "reset" else site.head()
    head = site.head()
    site.branch("staged", input_ref)
    staged = StagedWorkspace(
        repository=site.repository, branch="staged", commit=site.commit({"features/s": b"s"}, "staged")
    )
    target = WorkspaceInput(repository=site.repository, branch="main", ref_type="commit", ref=input_ref)
    lake = WatchedLake(site.servers, before={lost: raising(LakeOutcomeUnknown("no answer"))})
    publication = Publication(Conductor(), lake, "features.build", ATTEMPT, "f" * 32, target, patience=())

    with pytest.raises(PublishFenceError) as unresolved:
        publication.confirm(staged)

    for told in ("no answer", head, input_ref):
        assert told in str(unresolved.value)
    assert lake.calls.count(lost) == 1
    assert site.head() == head


def test_an_attempt_that_failed_does_not_stand_in_the_way_of_the_next(site: Site) -> None:
    site.run(task_of(raising(ValueError("first"))))

    assert site.publish(writing("new.txt"), spec=FEATURES) == site.head()
