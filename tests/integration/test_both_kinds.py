"""One behaviour for directory and Spark workspaces: every row of the contract's tables, with both."""

import uuid
from collections.abc import Callable, Generator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from perago.attempt.lifecycle import Completed, Failed
from perago.authoring.controls import TaskControls
from perago.authoring.errors import PublishFenceError, StaleAttemptError, TaskFailed, TaskTerminalError
from perago.authoring.guardrails import Guardrail, forbid_glob, require_dir, require_file, require_glob
from perago.authoring.spark import SparkWorkspace
from perago.authoring.task import TaskDefinition, definition_of, task
from perago.authoring.workspace import WorkspaceSpec
from perago.lake.errors import LakeBadRequest, LakeOutcomeUnknown
from perago.protocol.names import staging_branch_name
from tests.conftest import Servers
from tests.integration.support import (
    ATTEMPT,
    Conductor,
    Params,
    Result,
    Site,
    WatchedLake,
    failed,
    output_ref,
    raising,
)

FILES = {"features/a.txt": b"a", "features/sub/c.txt": b"c", "featuresque/x.txt": b"x", "other/d.txt": b"d"}


class Files:
    """What a body does to files, in either kind of workspace."""

    def __init__(self, workspace: Any) -> None:
        self._workspace = workspace

    def read(self, path: str) -> bytes:
        if isinstance(self._workspace, Path):
            return (self._workspace / path).read_bytes()
        with self._workspace.open(path) as file:
            return file.read()

    def write(self, path: str, content: bytes = b"new") -> None:
        if isinstance(self._workspace, Path):
            (self._workspace / path).parent.mkdir(parents=True, exist_ok=True)
            (self._workspace / path).write_bytes(content)
        else:
            with self._workspace.open(path, "wb") as file:
                file.write(content)

    def delete(self, path: str) -> None:
        if isinstance(self._workspace, Path):
            (self._workspace / path).unlink()
        else:
            self._workspace.remove(path)

    def names(self) -> set[str]:
        if isinstance(self._workspace, Path):
            return {str(file.relative_to(self._workspace)) for file in self._workspace.rglob("*") if file.is_file()}
        return set(self._workspace.files())


Body = Callable[[Files], object]


@dataclass(frozen=True)
class Tasks:
    """Attempts of one kind of task on one repository."""

    kind: str
    site: Site
    spark: str | None

    def of(self, body: Body, **spec: Any) -> TaskDefinition:
        declared = {"name": "features.build", "owner_email": "d@example.com", "controls": TaskControls()}
        workspace = WorkspaceSpec(prefix="/features", **spec)

        def on_path(workspace: Path, params: Params) -> Result:
            returned = body(Files(workspace))
            return returned if isinstance(returned, Result) else Result()

        def on_spark(workspace: SparkWorkspace, params: Params) -> Result:
            returned = body(Files(workspace))
            return returned if isinstance(returned, Result) else Result()

        made = task(**declared, workspace=workspace)(on_path if self.kind == "path" else on_spark)  # pyright: ignore[reportCallIssue, reportArgumentType]
        definition = definition_of(made)
        assert definition is not None
        return definition

    def run(self, body: Body, ref: str | None = None, spec: dict[str, Any] | None = None, **given: Any) -> Any:
        outcome: Completed | Failed = self.site.run(self.of(body, **(spec or {})), ref, spark=self.spark, **given)
        return outcome


@pytest.fixture
def site(servers: Servers, repository: str, tmp_path: Path) -> Generator[Site]:
    made = Site.at(servers, repository, tmp_path / "root")
    with made.http:
        made.protect("protected-*")
        made.commit(FILES)
        yield made


@pytest.fixture(params=["path", "spark"])
def tasks(request: pytest.FixtureRequest, site: Site) -> Tasks:
    spark = request.getfixturevalue("spark_remote") if request.param == "spark" else None
    return Tasks(request.param, site, spark)


def writes(files: Files) -> None:
    files.write("new.txt")


def does_nothing(files: Files) -> None:
    files.names()


def abandoned(tasks: Tasks) -> tuple[str, str]:
    """An input, and the publication that an earlier attempt left on it."""
    before = tasks.site.head()
    return before, output_ref(tasks.run(lambda files: files.write("abandoned.txt")))


def test_a_body_sees_the_input_below_its_prefix_and_its_own_writes(tasks: Tasks) -> None:
    seen: list[Any] = []

    def body(files: Files) -> None:
        seen.append((files.names(), files.read("a.txt")))
        files.write("sub/new.txt", b"n")
        seen.append((files.names(), files.read("sub/new.txt")))

    tasks.run(body)

    assert seen == [({"a.txt", "sub/c.txt"}, b"a"), ({"a.txt", "sub/c.txt", "sub/new.txt"}, b"n")]


def test_a_change_is_merged_onto_the_input_with_two_fences(tasks: Tasks) -> None:
    before, conductor = tasks.site.head(), Conductor()

    def body(files: Files) -> None:
        files.write("new.txt")
        files.write("a.txt", b"changed")
        files.delete("sub/c.txt")

    published = output_ref(tasks.run(body, conductor=conductor))

    assert published == tasks.site.head()
    assert tasks.site.commit_info(published)["parents"] == [before]
    untouched = {path: content for path, content in FILES.items() if not path.startswith("features/")}
    assert tasks.site.tree() == {**untouched, "features/new.txt": b"new", "features/a.txt": b"changed"}
    assert conductor.asked == 2
    assert tasks.site.leftovers() == []


def test_an_unchanged_workspace_makes_no_commit(tasks: Tasks) -> None:
    before, conductor = tasks.site.history(), Conductor()

    assert output_ref(tasks.run(does_nothing, conductor=conductor)) == before[0]

    assert tasks.site.history() == before
    assert conductor.asked == 1
    assert tasks.site.leftovers() == []


def test_what_was_written_and_taken_back_is_no_change(tasks: Tasks) -> None:
    before = tasks.site.history()

    def body(files: Files) -> None:
        files.write("new.txt")
        files.delete("new.txt")

    assert output_ref(tasks.run(body)) == before[0]
    assert tasks.site.history() == before


def test_an_unchanged_workspace_moves_an_abandoned_target_back(tasks: Tasks) -> None:
    before, left = abandoned(tasks)

    assert output_ref(tasks.run(does_nothing, before)) == before

    assert tasks.site.head() == before
    assert tasks.site.commit_info(left)["id"] == left


def test_a_change_replaces_an_abandoned_publication(tasks: Tasks) -> None:
    before, left = abandoned(tasks)

    published = output_ref(tasks.run(writes, before))

    assert tasks.site.history()[:2] == [published, before]
    assert left not in tasks.site.history()
    assert tasks.site.tree() == {**FILES, "features/new.txt": b"new"}
    assert tasks.site.leftovers() == []


@pytest.mark.parametrize("body", [writes, does_nothing], ids=["changed", "unchanged"])
def test_a_target_somebody_else_moved_is_left_untouched(tasks: Tasks, body: Body) -> None:
    before = tasks.site.head()
    tasks.site.commit({"features/x": b"1"})
    head = tasks.site.commit({"features/x": b"2"})

    outcome = failed(tasks.run(body, before))

    assert isinstance(outcome.error, PublishFenceError)
    assert head in outcome.failure.reason and before in outcome.failure.reason
    assert tasks.site.head() == head
    assert tasks.site.leftovers() == []


def test_a_read_only_task_asks_nobody_and_writes_nothing(tasks: Tasks) -> None:
    before, conductor, lake = tasks.site.history(), Conductor(), WatchedLake(tasks.site.servers)
    seen: list[bytes] = []

    outcome = tasks.run(
        lambda files: seen.append(files.read("a.txt")), spec={"read_only": True}, conductor=conductor, lake=lake
    )

    assert output_ref(outcome) == before[0]
    assert seen == [b"a"]
    assert (conductor.asked, lake.calls) == (0, [])
    assert tasks.site.history() == before


def test_an_existing_staging_branch_fails_closed_and_is_left_alone(tasks: Tasks) -> None:
    execution = uuid.uuid4().hex
    name = staging_branch_name(ATTEMPT, execution)
    tasks.site.branch(name, "main")

    outcome = failed(tasks.run(writes, execution_id=execution))

    assert name in outcome.failure.reason
    assert tasks.site.staging_branches() == [name]
    assert tasks.site.tree() == FILES


def test_uncommitted_changes_of_the_target_are_named(tasks: Tasks) -> None:
    tasks.site.put("features/uncommitted", b"u")

    outcome = failed(tasks.run(writes))

    assert isinstance(outcome.error, PublishFenceError)
    assert "uncommitted" in outcome.failure.reason
    assert tasks.site.leftovers() == []


@pytest.mark.parametrize("lost", ["create_branch", "commit", "merge"])
def test_a_lost_answer_is_resolved_by_looking(tasks: Tasks, lost: str) -> None:
    before = tasks.site.head()
    lake = WatchedLake(tasks.site.servers, after={lost: raising(LakeOutcomeUnknown("cut off"))})

    published = output_ref(tasks.run(writes, lake=lake))

    assert tasks.site.history()[:2] == [published, before]
    assert lake.calls.count(lost) == 1
    assert tasks.site.leftovers() == []


STALE = {"status": "CANCELED"}


@pytest.mark.parametrize(
    ("answers", "commits"), [([STALE], False), ([{}, STALE], True)], ids=["before the commit", "before Confirm"]
)
def test_a_stale_attempt_publishes_nothing(tasks: Tasks, answers: list[Any], commits: bool) -> None:
    lake = WatchedLake(tasks.site.servers)

    outcome = failed(tasks.run(writes, conductor=Conductor(*answers), lake=lake))

    assert isinstance(outcome.error, StaleAttemptError)
    assert ("commit" in lake.calls) is commits
    assert "merge" not in lake.calls
    assert tasks.site.tree() == FILES
    assert tasks.site.leftovers() == []


FAILURES: dict[str, tuple[Body, dict[str, Any], str, str]] = {
    "the author's words": (raising(TaskFailed("no luck")), {}, "FAILED", "no luck"),
    "the author's last words": (raising(TaskTerminalError("never")), {}, "FAILED_WITH_TERMINAL_ERROR", "never"),
    "an error of the body": (raising(KeyError("k")), {}, "FAILED", "KeyError: 'k'"),
    "SystemExit": (raising(SystemExit(3)), {}, "FAILED", "SystemExit: 3"),
    "a result that is no model": (lambda files: Result(score=float("nan")), {}, "FAILED", "not JSON"),
    "pre": (writes, {"pre": [require_file("a.txt"), require_file("b.txt")]}, "FAILED_WITH_TERMINAL_ERROR", "'b.txt'"),
    "pre directory": (writes, {"pre": [require_dir("a.txt")]}, "FAILED_WITH_TERMINAL_ERROR", "it is a file"),
    "post": (writes, {"post": [forbid_glob("**/*.txt")]}, "FAILED", "found 3 files"),
    "post glob": (writes, {"post": [require_glob("*.csv")]}, "FAILED", "found 0 files"),
}


@pytest.mark.parametrize("case", FAILURES)
def test_a_failure_is_told_and_leaves_nothing(tasks: Tasks, case: str) -> None:
    body, spec, status, reason = FAILURES[case]
    before = tasks.site.history()

    outcome = failed(tasks.run(body, spec=spec))

    assert outcome.failure.status == status
    assert reason in outcome.failure.reason
    assert tasks.site.history() == before
    assert tasks.site.leftovers() == []


def test_guardrails_of_files_hold(tasks: Tasks) -> None:
    rules: list[Guardrail] = [require_file("a.txt"), require_dir("sub"), require_glob("**/*.txt", 2, 2)]

    output_ref(tasks.run(writes, spec={"pre": rules, "post": [require_glob("**/*.txt", 3, 3)]}))


@pytest.mark.parametrize("call", ["create_branch", "commit", "head", "merge"])
def test_trouble_with_lakefs_fails_and_leaves_no_branch(tasks: Tasks, call: str) -> None:
    lake = WatchedLake(tasks.site.servers, before={call: raising(LakeBadRequest("too late"))})

    assert failed(tasks.run(writes, lake=lake)).failure.status == "FAILED"

    assert tasks.site.tree() == FILES
    assert tasks.site.leftovers() == []


def test_failed_cleanups_are_logged_and_do_not_change_the_result(tasks: Tasks, monkeypatch: pytest.MonkeyPatch) -> None:
    lake = WatchedLake(tasks.site.servers, before={"delete_branch": raising(LakeBadRequest("no"))})
    monkeypatch.setattr("perago.attempt.directory.AttemptDirectory.remove", raising(OSError("busy")))

    with capture_logs() as logs:
        published = output_ref(tasks.run(writes, lake=lake))

    assert published == tasks.site.head()
    events = [line["event"] for line in logs]
    assert events.index("failed to clean staging workspace") < events.index("failed to clean attempt workspace")
