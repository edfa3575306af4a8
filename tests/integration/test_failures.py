"""Where an attempt fails: what Conductor is told, what the log keeps, and that nothing else is left."""

import re
import signal
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import pytest
import stamina
import structlog
from pydantic import SecretStr
from structlog.testing import capture_logs

from perago.attempt.lifecycle import Completed, Failed
from perago.attempt.log_fields import with_log_fields
from perago.authoring.errors import (
    PostGuardrailViolation,
    PreGuardrailViolation,
    PublishFenceError,
    StaleAttemptError,
    TaskExecutionError,
    TaskFailed,
    TaskInputError,
    TaskTerminalError,
)
from perago.authoring.guardrails import forbid_glob, require_file
from perago.authoring.task import definition_of, task
from perago.authoring.workspace import WorkspaceSpec
from perago.lake.control import LakeControl
from perago.lake.errors import LakeBadRequest, LakeConflict, LakeForbidden, LakeNotFound, LakeUnreachable
from tests.conftest import Servers
from tests.integration.support import (
    Conductor,
    Params,
    Result,
    Site,
    WatchedLake,
    WatchedObjects,
    failed,
    nothing,
    raising,
    task_of,
    writing,
)

FILES = {"features/a.txt": b"a", "other/b.txt": b"b"}
CHANGE = writing("new.txt")
STALE = {"status": "CANCELED", "retry_count": 7}


@pytest.fixture
def site(servers: Servers, repository: str, tmp_path: Path) -> Generator[Site]:
    made = Site.at(servers, repository, tmp_path / "root")
    with made.http:
        made.commit(FILES)
        yield made


@dataclass(frozen=True)
class Case:
    """One way to fail, and what Conductor is told of it."""

    run: Callable[[Site], Completed | Failed]
    error: type[BaseException]
    reason: str
    status: str = "FAILED"


def body(what: Callable[[Path], object], spec: WorkspaceSpec | None = None) -> Callable[[Site], Completed | Failed]:
    definition = task_of(what, spec or WorkspaceSpec(prefix="/features"))
    return lambda site: site.run(definition)


def conductor(*answers: Mapping[str, Any] | Exception) -> Callable[[Site], Completed | Failed]:
    return lambda site: site.run(task_of(CHANGE), conductor=Conductor(*answers))


def lake(call: str, error: Exception, what: Callable[[Path], object] = CHANGE) -> Callable[[Site], Completed | Failed]:
    return lambda site: site.run(task_of(what), lake=WatchedLake(site.servers, before={call: raising(error)}))


def upload(error: Exception) -> Callable[[Site], Completed | Failed]:
    return lambda site: site.run(task_of(CHANGE), objects=WatchedObjects(site.servers, meddle=raising(error)))


def elsewhere(**where: str) -> Callable[[Site], Completed | Failed]:
    def run(site: Site) -> Completed | Failed:
        payload = site.payload()
        return site.run(task_of(CHANGE), payload={**payload, "workspace": {**payload["workspace"], **where}})

    return run


def moved_away(what: Callable[[Path], object]) -> Callable[[Site], Completed | Failed]:
    def run(site: Site) -> Completed | Failed:
        input_ref = site.head()
        site.commit({"features/x": b"1"})
        site.commit({"features/x": b"2"})
        return site.run(task_of(what), input_ref)

    return run


def interrupted(workspace: Path) -> None:
    """Also where the run's own parent ignores the signal, as for a job in the background."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        signal.raise_signal(signal.SIGINT)
    finally:
        signal.signal(signal.SIGINT, before)


PRE = WorkspaceSpec(prefix="/features", pre=[require_file("a.txt"), require_file("missing.csv")])
POST = WorkspaceSpec(prefix="/features", post=[forbid_glob("*.tmp")])
REFUSED = raising(LakeBadRequest("too late"))
CASES = {
    "repository is missing": Case(
        elsewhere(repository="nowhere-at-all"), LakeNotFound, "LakeNotFound: .*nowhere-at-all"
    ),
    "commit is missing": Case(elsewhere(ref="0" * 64), LakeNotFound, "LakeNotFound: .*" + "0" * 64),
    "branch is missing": Case(elsewhere(branch="nowhere"), LakeNotFound, "LakeNotFound: .*branch nowhere"),
    "pre guardrail": Case(
        body(CHANGE, PRE),
        PreGuardrailViolation,
        r"PreGuardrailViolation: pre guardrail require_file\('missing.csv'\) failed: no such file$",
        "FAILED_WITH_TERMINAL_ERROR",
    ),
    "body error": Case(body(raising(ValueError("two words"))), ValueError, "ValueError: two words$"),
    "body error without words": Case(body(raising(KeyError())), KeyError, "KeyError"),
    "TaskFailed": Case(body(raising(TaskFailed("come back at noon"))), TaskFailed, "come back at noon$"),
    "TaskTerminalError": Case(
        body(raising(TaskTerminalError("no such customer"))),
        TaskTerminalError,
        "no such customer$",
        "FAILED_WITH_TERMINAL_ERROR",
    ),
    "SystemExit": Case(body(raising(SystemExit(3))), SystemExit, "SystemExit: 3$"),
    "clean SystemExit": Case(body(raising(SystemExit(0))), SystemExit, "SystemExit: 0$"),
    "KeyboardInterrupt": Case(body(raising(KeyboardInterrupt("stop"))), KeyboardInterrupt, "KeyboardInterrupt: stop$"),
    "a signal's KeyboardInterrupt": Case(body(interrupted), KeyboardInterrupt, "KeyboardInterrupt"),
    "result of another type": Case(
        body(lambda workspace: "a string"),
        TaskExecutionError,
        "TaskExecutionError: features.build returned str, but its annotation says Result$",
    ),
    "result that is NaN": Case(
        body(lambda workspace: (CHANGE(workspace), Result(score=float("nan")))[1]),
        TaskExecutionError,
        "TaskExecutionError: features.build returned a result that is not JSON",
    ),
    "post guardrail": Case(
        body(writing("left.tmp"), POST),
        PostGuardrailViolation,
        r"PostGuardrailViolation: post guardrail forbid_glob\('\*.tmp'\) failed: found 1 file \(left.tmp\)",
    ),
    "stale at the first fence": Case(
        conductor(STALE), StaleAttemptError, "StaleAttemptError: .*status is CANCELED.*retry_count is 7, polled 2"
    ),
    "stale at the second fence": Case(
        conductor({}, STALE), StaleAttemptError, "StaleAttemptError: .*status is CANCELED.*retry_count is 7, polled 2"
    ),
    "Conductor is silent at the first fence": Case(
        conductor(TimeoutError("no answer")),
        StaleAttemptError,
        "StaleAttemptError: Conductor could not be asked .*no answer",
    ),
    "Conductor is silent at the second fence": Case(
        conductor({}, OSError("cut off")),
        StaleAttemptError,
        "StaleAttemptError: Conductor could not be asked .*cut off",
    ),
    "head cannot be read": Case(
        lake("head", LakeForbidden("not for you"), nothing), LakeForbidden, "LakeForbidden: not for you$"
    ),
    "staging branch is refused": Case(
        lake("create_branch", LakeForbidden("no branches")), LakeForbidden, "LakeForbidden: no branches$"
    ),
    "staging branch is made, but an error comes back": Case(
        lambda site: site.run(task_of(CHANGE), lake=WatchedLake(site.servers, after={"create_branch": REFUSED})),
        LakeBadRequest,
        "LakeBadRequest: too late$",
    ),
    "upload": Case(upload(LakeBadRequest("not this object")), LakeBadRequest, "LakeBadRequest: not this object$"),
    "staging commit": Case(lake("commit", LakeBadRequest("no commit")), LakeBadRequest, "LakeBadRequest: no commit$"),
    "publish fence": Case(moved_away(CHANGE), PublishFenceError, "PublishFenceError: branch main of"),
    "publish fence without change": Case(moved_away(nothing), PublishFenceError, "PublishFenceError: branch main of"),
    "merge": Case(
        lake("merge", LakeConflict("moved")), PublishFenceError, "PublishFenceError: branch main moved .*moved$"
    ),
}


@pytest.mark.parametrize("case", [pytest.param(case, id=where) for where, case in CASES.items()])
def test_a_failure_is_told_logged_and_leaves_nothing_behind(site: Site, case: Case) -> None:
    input_ref = site.head()

    with attempt_log() as logs:
        outcome = failed(case.run(site))

    assert (outcome.failure.status, type(outcome.error)) == (case.status, case.error)
    assert re.match(case.reason, outcome.failure.reason), outcome.failure.reason
    assert {commit["message"] for commit in site.commits()} <= {"by hand", "Repository created"}
    assert site.tree(input_ref) == FILES
    assert site.leftovers() == []
    (told,) = [line for line in logs if line["event"] == "attempt failed"]
    assert "Traceback (most recent call last)" in told["exception"]
    assert case.error.__name__ in told["exception"]
    ids = {"task": "features.build", "workflow": "wf-1", "task_id": "t-1", "retry_count": 2, "seq": 5, "iteration": 3}
    assert {**ids, "reference": "build_ref"}.items() <= told.items()
    assert len(told["execution_id"]) == 32


@contextmanager
def attempt_log() -> Generator[list[Any]]:
    """The lines of the log as a worker writes them: with the attempt's ids, and tracebacks as text."""
    with capture_logs([with_log_fields, structlog.processors.format_exc_info]) as lines:
        yield cast("list[Any]", lines)


def test_the_head_seen_and_the_staged_reference_are_in_the_log_of_a_refused_publication(site: Site) -> None:
    moved: list[str] = []

    def move() -> None:
        site.commit({"features/x": b"1"})
        moved.append(site.commit({"features/x": b"2"}))

    input_ref = site.head()
    with attempt_log() as logs:
        failed(site.run(task_of(CHANGE), lake=WatchedLake(site.servers, after={"commit": move}), execution_id="e" * 32))

    (staged,) = [line for line in logs if line["event"] == "staged"]
    (fence,) = [line for line in logs if line["event"] == "publish fence"]
    assert staged["repository"] == site.repository
    assert staged["branch"].endswith("-exec-" + "e" * 32)
    assert site.commit_info(staged["commit"])["parents"] == [input_ref]
    assert (fence["head"], fence["input_ref"]) == (moved[0], input_ref)


@pytest.mark.parametrize(
    ("length", "reason"),
    [
        pytest.param(500, "ValueError: " + "x" * 100, id="fits"),
        pytest.param(112, "ValueError: " + "x" * 100, id="just fits"),
        pytest.param(50, "ValueError: " + "x" * 37 + "…", id="cut"),
    ],
)
def test_a_reason_is_cut_to_the_longest_allowed(site: Site, length: int, reason: str) -> None:
    outcome = failed(site.run(task_of(raising(ValueError("x" * 100))), reason_length=length))

    assert outcome.failure.reason == reason
    assert len(outcome.failure.reason) <= length


def test_an_authors_own_long_words_are_cut_too_and_whole_in_the_log(site: Site) -> None:
    with attempt_log() as logs:
        outcome = failed(site.run(task_of(raising(TaskTerminalError("é" * 1000))), reason_length=10))

    assert outcome.failure.reason == "é" * 9 + "…"
    assert "é" * 1000 in logs[-1]["exception"]


def wrong(**changes: Any) -> Callable[[dict[str, Any]], dict[str, Any]]:
    return lambda payload: {**payload, **changes}


def wrong_workspace(**changes: Any) -> Callable[[dict[str, Any]], dict[str, Any]]:
    return lambda payload: {**payload, "workspace": {**payload["workspace"], **changes}}


def without_workspace(payload: dict[str, Any]) -> dict[str, Any]:
    return {"params": payload["params"]}


@pytest.mark.parametrize(
    ("spoil", "named"),
    [
        pytest.param(wrong(params={"limit": "many"}), "params.limit", id="params of another type"),
        pytest.param(wrong(params={"limits": 1}), "params.limits: unknown field", id="unknown param"),
        pytest.param(wrong(params=None), "params", id="params null"),
        pytest.param(wrong(extra=1), "extra: unknown field", id="extra key"),
        pytest.param(without_workspace, "workspace: missing", id="no workspace"),
        pytest.param(wrong(workspace="main"), "workspace", id="workspace as text"),
        pytest.param(wrong_workspace(ref_type="branch"), "workspace.ref_type", id="another ref_type"),
        pytest.param(wrong_workspace(ref="  "), "workspace.ref", id="blank ref"),
        pytest.param(wrong_workspace(branch=""), "workspace.branch", id="empty branch"),
        pytest.param(wrong_workspace(prefix="/"), "workspace.prefix: unknown field", id="prefix from outside"),
    ],
)
def test_an_input_is_refused_by_field_before_any_server_is_asked(
    site: Site, spoil: Callable[[dict[str, Any]], dict[str, Any]], named: str
) -> None:
    objects = WatchedObjects(site.servers)
    nobody = LakeControl("http://127.0.0.1:9", "key", SecretStr("secret"))
    ran: list[Path] = []

    outcome = failed(site.run(task_of(ran.append), payload=spoil(site.payload()), lake=nobody, objects=objects))

    assert isinstance(outcome.error, TaskInputError)
    assert outcome.failure.status == "FAILED"
    assert named in outcome.failure.reason
    assert (ran, objects.fetched) == ([], [])
    assert not site.root.exists()


def test_an_unreachable_lakefs_is_an_ordinary_failure_that_names_the_setting(site: Site) -> None:
    nobody = LakeControl("http://127.0.0.1:9", "key", SecretStr("secret"))

    with stamina.set_testing(True, attempts=2):
        outcome = failed(site.run(task_of(CHANGE), lake=nobody))

    assert isinstance(outcome.error, LakeUnreachable)
    assert outcome.failure.status == "FAILED"
    assert "LAKECTL_SERVER_ENDPOINT_URL" in outcome.failure.reason
    assert site.leftovers() == []


def test_an_object_that_cannot_be_read_fails_the_download_by_name(site: Site) -> None:
    class Broken(WatchedObjects):
        def fetch(self, repository: str, ref: str, wanted: Any, sink: Any) -> int:
            return super().fetch(repository, ref, wanted._replace(path=f"{wanted.path}-gone"), sink)

    ran: list[Path] = []
    outcome = failed(site.run(task_of(ran.append), objects=Broken(site.servers)))

    assert isinstance(outcome.error, LakeNotFound)
    assert "features/a.txt-gone" in outcome.failure.reason
    assert ran == []
    assert site.leftovers() == []


def test_an_object_that_comes_short_fails_the_download_by_name(site: Site) -> None:
    class Short(WatchedObjects):
        def fetch(self, repository: str, ref: str, wanted: Any, sink: Any) -> int:
            sink.write(b"")
            return 0

    outcome = failed(site.run(task_of(CHANGE), objects=Short(site.servers)))

    assert "'features/a.txt' came with 0 bytes, but lakeFS lists 1" in outcome.failure.reason
    assert site.leftovers() == []


def test_the_first_fence_stands_before_staging_and_the_second_after(site: Site) -> None:
    before, after = WatchedLake(site.servers), WatchedLake(site.servers)

    site.run(task_of(CHANGE), lake=before, conductor=Conductor(STALE))
    site.run(task_of(CHANGE), lake=after, conductor=Conductor({}, STALE))

    assert before.calls == []
    assert after.calls == ["create_branch", "commit", "delete_branch"]


def test_a_stale_attempt_without_change_does_not_move_an_abandoned_target_back(site: Site) -> None:
    input_ref = site.head()
    left = site.publish(CHANGE, input_ref)

    failed(site.run(task_of(nothing), input_ref, conductor=Conductor(STALE)))

    assert site.head() == left


@pytest.mark.parametrize("reading_only", [True, False])
def test_guardrails_do_not_run_the_body_or_publish_when_they_fail(site: Site, reading_only: bool) -> None:
    ran: list[Path] = []
    spec = WorkspaceSpec(prefix="/features", read_only=reading_only, pre=[require_file("missing")])

    outcome = failed(site.run(task_of(ran.append, spec)))

    assert outcome.failure.status == "FAILED_WITH_TERMINAL_ERROR"
    assert ran == []


@pytest.mark.parametrize(
    ("error", "status", "reason"),
    [
        (None, None, None),
        (ValueError("no"), "FAILED", "ValueError: no"),
        (TaskTerminalError("never"), "FAILED_WITH_TERMINAL_ERROR", "never"),
        (SystemExit(1), "FAILED", "SystemExit: 1"),
    ],
)
def test_a_task_without_workspace_needs_no_lakefs(
    site: Site, error: BaseException | None, status: str | None, reason: str | None
) -> None:
    @task(name="features.count", owner_email="data@example.com")
    def count(params: Params) -> Result:
        if error:
            raise error
        return Result(score=params.limit / 2)

    definition = definition_of(count)
    assert definition is not None
    nobody = LakeControl("http://127.0.0.1:9", "key", SecretStr("secret"))

    outcome = site.run(definition, payload={"params": {"limit": 3}}, lake=nobody)

    if isinstance(outcome, Completed):
        assert outcome.output == {"result": {"score": 1.5}}
        assert error is None
    else:
        assert (outcome.failure.status, outcome.failure.reason) == (status, reason)
    assert not site.root.exists()
