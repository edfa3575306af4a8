"""Real attempts on a real lakeFS whose answers get lost, late, refused or cut on the way."""

from collections import Counter
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from io import BytesIO
from pathlib import Path
from uuid import uuid4

import pytest
import stamina
from pydantic import BaseModel
from structlog.testing import capture_logs

from perago import PublishBudget, TaskControls, WorkspaceSpec, task
from perago.attempt import lifecycle
from perago.attempt.lifecycle import Completed, Execution, Failed, run_attempt
from perago.authoring.task import TaskDefinition, definition_of
from perago.data.workspace import DirectoryFiles
from perago.lake.control import LakeControl
from perago.lake.objects import LakeObjects
from perago.protocol.attempt import Attempt
from perago.protocol.names import STAGING_PREFIX
from tests.conftest import Servers
from tests.integration.proxy import Call, Matches, Proxy

LARGE = bytes(range(256)) * 4096
INPUT = {"data/gone": b"old", "data/large": LARGE, "data/kept": b"kept", "data/text": b"first", "outside": b"o"}
CHANGED = {"data/kept": b"kept", "data/large": LARGE, "data/new": LARGE[7:], "data/text": b"second", "outside": b"o"}
BUDGET = PublishBudget(
    observed_merge_p99_seconds=0.5,
    safety_margin_seconds=0.1,
    lakefs_merge_timeout_seconds=1,
    conductor_completion_timeout_seconds=1,
    worker_shutdown_grace_seconds=1,
    heartbeat_interval_seconds=1,
)
READS = (Call.GET_BRANCH, Call.GET_COMMIT, Call.LIST, Call.DOWNLOAD)
IDEMPOTENT = (*READS, Call.UPLOAD, Call.BULK_DELETE, Call.DELETE_BRANCH)
SENT_ONCE = (Call.CREATE_BRANCH, Call.COMMIT, Call.MERGE, Call.RESET)
MERGING = (Call.CREATE_BRANCH, Call.COMMIT, Call.MERGE)

Body = Callable[[Path], None]


class Nothing(BaseModel):
    pass


class RunningTask:
    """A Conductor that still waits for every attempt it is asked about."""

    def current(self, attempt: Attempt) -> Attempt:
        return replace(attempt, status="IN_PROGRESS")


def change(workspace: Path) -> None:
    (workspace / "gone").unlink()
    (workspace / "new").write_bytes(LARGE[7:])
    (workspace / "text").write_bytes(b"second")


def change_otherwise(workspace: Path) -> None:
    (workspace / "text").write_bytes(b"abandoned")


def leave(_: Path) -> None:
    pass


@dataclass
class Lab:
    """A repository with an input commit, and attempts that reach its lakeFS through the proxy."""

    proxy: Proxy
    direct: LakeControl
    objects: LakeObjects
    servers: lifecycle.Servers
    repository: str
    root: Path
    input_ref: str
    retries: int = 0

    def attempt(self, body: Body = change, budget: PublishBudget | None = None) -> Completed | Failed:
        polled = Attempt("wf", "task", self.retries, "build_ref", 1, 0, "IN_PROGRESS")
        self.retries += 1
        workspace = {"repository": self.repository, "branch": "main", "ref_type": "commit", "ref": self.input_ref}
        execution = Execution(declared(body, budget), polled, uuid4().hex, {"workspace": workspace, "params": {}})
        return run_attempt(execution, self.servers, self.root)

    def abandoned(self) -> str:
        """The head once an earlier attempt has published and then failed to say so."""
        self.assert_published(self.attempt(change_otherwise), {**INPUT, "data/text": b"abandoned"})
        return self.head()

    def head(self) -> str:
        return self.direct.head(self.repository, "main").id

    def content(self, ref: str) -> dict[str, bytes]:
        found: dict[str, bytes] = {}
        for listed in self.objects.list(self.repository, ref, ""):
            arrived = Arrived()
            self.objects.fetch(self.repository, ref, listed, arrived)
            found[listed.path] = bytes(arrived.content)
        return found

    def sent(self, call: Matches) -> int:
        return len(self.proxy.seen(call))

    def assert_published(self, outcome: Completed | Failed, content: Mapping[str, bytes] = CHANGED) -> None:
        assert isinstance(outcome, Completed), outcome
        head = self.direct.head(self.repository, "main")
        assert outcome.output["workspace"]["ref"] == head.id
        assert head.parents == (self.input_ref,)
        assert self.content(head.id) == content
        self.assert_nothing_left()

    def assert_refused(self, outcome: Completed | Failed, reason: str, head: str) -> None:
        assert isinstance(outcome, Failed), outcome
        assert outcome.failure.status == "FAILED"
        assert reason in outcome.failure.reason
        assert self.head() == head
        self.assert_nothing_left()

    def assert_nothing_left(self) -> None:
        assert list(self.direct.branches(self.repository, STAGING_PREFIX)) == []
        assert list(self.root.iterdir()) == []


class Arrived:
    def restart(self) -> None:
        self.content = bytearray()

    def write(self, chunk: bytes) -> None:
        self.content += chunk


def declared(body: Body, budget: PublishBudget | None) -> TaskDefinition:
    @task(
        name="build",
        owner_email="team@example.com",
        workspace=WorkspaceSpec(prefix="data"),
        controls=TaskControls(publish_budget=budget),
    )
    def build(workspace: Path, params: Nothing) -> Nothing:
        body(workspace)
        return params

    definition = definition_of(build)
    assert definition is not None
    return definition


@pytest.fixture
def lab(servers: Servers, lake: LakeControl, repository: str, tmp_path: Path) -> Generator[Lab]:
    address, key, secret = servers.config.require_lakefs()
    objects = LakeObjects(address, key, secret)
    for path, content in INPUT.items():
        objects.store(repository, "main", path, partial(BytesIO, content), len(content))
    input_ref = lake.commit(repository, "main", "input", {})
    with Proxy(address) as proxy:
        files = DirectoryFiles(LakeObjects(proxy.url, key, secret))
        ports = lifecycle.Servers(RunningTask(), LakeControl(proxy.url, key, secret), files, patience=(0.05, 0.1))
        yield Lab(proxy, lake, objects, ports, repository, tmp_path / "attempts", input_ref)


@pytest.fixture(autouse=True)
def impatient() -> Generator[None]:
    """As many tries as ever, without the pauses between them, and no tracebacks to draw."""
    with stamina.set_testing(True, attempts=6), capture_logs():
        yield


@pytest.mark.parametrize("lost", [*MERGING, *IDEMPOTENT], ids=str)
def test_a_change_whose_answer_is_lost_is_published_once(lab: Lab, lost: Call) -> None:
    lab.proxy.drop_answer(lost)

    outcome = lab.attempt()

    lab.assert_published(outcome)
    assert [lab.sent(call) for call in SENT_ONCE] == [1, 1, 1, 0]


def test_an_attempt_completes_though_each_of_its_first_answers_is_lost(lab: Lab) -> None:
    for call in Call:
        lab.proxy.drop_answer(call)

    outcome = lab.attempt()

    lab.assert_published(outcome)
    assert [lab.sent(call) for call in SENT_ONCE] == [1, 1, 1, 0]


def test_a_replacement_whose_answer_is_lost_is_found_and_not_repeated(lab: Lab) -> None:
    lab.abandoned()
    lab.proxy.drop_answer(Call.RESET)

    outcome = lab.attempt()

    lab.assert_published(outcome)
    assert (lab.sent(Call.MERGE), lab.sent(Call.RESET)) == (1, 1)  # the merge was the abandoned one


def test_a_relocation_whose_answer_is_lost_is_found_and_not_repeated(lab: Lab) -> None:
    lab.abandoned()
    lab.proxy.drop_answer(Call.RESET)

    outcome = lab.attempt(leave)

    assert isinstance(outcome, Completed)
    assert outcome.output["workspace"]["ref"] == lab.head() == lab.input_ref
    assert lab.sent(Call.RESET) == 1
    lab.assert_nothing_left()


@pytest.mark.parametrize("lost", MERGING, ids=str)
def test_a_change_that_never_arrives_fails_and_leaves_the_target_alone(lab: Lab, lost: Call) -> None:
    lab.proxy.drop_request(lost)

    outcome = lab.attempt()

    lab.assert_refused(outcome, "it may still land" if lost is Call.MERGE else "outcome is unknown", lab.input_ref)
    assert lab.sent(lost) == 1


@pytest.mark.parametrize("body", [change, leave])
def test_a_reset_that_never_arrives_fails_and_leaves_the_target_alone(lab: Lab, body: Body) -> None:
    abandoned = lab.abandoned()
    lab.proxy.drop_request(Call.RESET)

    outcome = lab.attempt(body)

    lab.assert_refused(outcome, "it may still land", abandoned)
    assert lab.sent(Call.RESET) == 1


@pytest.mark.parametrize("body", [change, leave])
def test_an_attempt_after_a_lost_reset_ends_as_if_nothing_had_happened(lab: Lab, body: Body) -> None:
    lab.abandoned()
    lab.proxy.drop_request(Call.RESET)
    assert isinstance(lab.attempt(body), Failed)

    outcome = lab.attempt(change)

    lab.assert_published(outcome)


def test_a_merge_that_outlasts_its_time_out_is_found_when_it_has_landed(lab: Lab) -> None:
    lab.proxy.delay_answer(Call.MERGE)

    outcome = lab.attempt(budget=BUDGET)

    lab.assert_published(outcome)
    assert lab.sent(Call.MERGE) == 1


def test_a_merge_that_lands_after_its_attempt_has_failed_is_replaced_by_the_next(lab: Lab) -> None:
    late = lab.proxy.delay_request(Call.MERGE)
    failed = lab.attempt(change_otherwise, BUDGET)
    lab.assert_refused(failed, "it may still land, and a retry then replaces it", lab.input_ref)

    late.release()
    assert late.finished.wait(10)
    assert lab.head() != lab.input_ref
    outcome = lab.attempt(change)

    lab.assert_published(outcome)
    assert (lab.sent(Call.MERGE), lab.sent(Call.RESET)) == (1, 1)


def test_a_reset_that_lands_after_its_attempt_has_failed_is_replaced_by_the_next(lab: Lab) -> None:
    abandoned = lab.abandoned()
    late = lab.proxy.delay_request(Call.RESET)
    failed = lab.attempt(lambda workspace: (workspace / "text").unlink(), BUDGET)
    lab.assert_refused(failed, "it may still land", abandoned)

    late.release()
    assert late.finished.wait(10)
    assert lab.head() not in (abandoned, lab.input_ref)
    outcome = lab.attempt(change)

    lab.assert_published(outcome)


@pytest.mark.parametrize("status", [423, 429, 500, 503])
def test_a_busy_server_is_asked_again_by_calls_that_may_be_repeated(lab: Lab, status: int) -> None:
    for call in IDEMPOTENT:
        lab.proxy.answer(status, call, count=2)

    outcome = lab.attempt()

    lab.assert_published(outcome)
    assert all(lab.sent(call) > 2 for call in IDEMPOTENT)
    assert [lab.sent(call) for call in SENT_ONCE] == [1, 1, 1, 0]


@pytest.mark.parametrize(
    ("refused", "status"),
    [*((call, status) for call in SENT_ONCE for status in (423, 503)), (Call.MERGE, 429), (Call.MERGE, 500)],
    ids=str,
)
def test_a_busy_server_is_not_asked_again_by_calls_that_may_not(lab: Lab, refused: Call, status: int) -> None:
    head = lab.abandoned() if refused is Call.RESET else lab.input_ref
    before = lab.sent(refused)
    lab.proxy.answer(status, refused)

    outcome = lab.attempt()

    lab.assert_refused(outcome, f"lakeFS answered {status}", head)
    assert lab.sent(refused) == before + 1


@pytest.mark.parametrize(
    ("refused", "status"),
    [
        *((call, 409) for call in (*MERGING, *READS, Call.UPLOAD, Call.BULK_DELETE)),
        *((call, status) for call in (Call.GET_BRANCH, Call.LIST, Call.MERGE) for status in (400, 412)),
    ],
    ids=str,
)
def test_a_refusal_is_an_answer_and_never_asked_for_again(lab: Lab, refused: Call, status: int) -> None:
    lab.proxy.answer(status, refused)

    outcome = lab.attempt()

    lab.assert_refused(outcome, f"lakeFS answered {status}", lab.input_ref)
    assert set(Counter(lab.proxy.seen(refused)).values()) == {1}


@pytest.mark.parametrize("cut", [*READS, Call.UPLOAD, Call.BULK_DELETE, *MERGING], ids=str)
def test_an_answer_cut_in_half_is_never_taken_for_a_whole_one(lab: Lab, cut: Call) -> None:
    arrived: dict[str, bytes] = {}

    def look_and_change(workspace: Path) -> None:
        arrived.update({f"data/{path.name}": path.read_bytes() for path in workspace.iterdir()})
        change(workspace)

    lab.proxy.cut_body(cut, count=2 if cut in IDEMPOTENT else 1)

    outcome = lab.attempt(look_and_change)

    assert arrived == {path: content for path, content in INPUT.items() if path.startswith("data/")}
    lab.assert_published(outcome)
    assert [lab.sent(call) for call in SENT_ONCE] == [1, 1, 1, 0]


def test_an_upload_interrupted_midway_is_sent_again_from_its_beginning(lab: Lab) -> None:
    cut = lab.proxy.cut_request(lambda seen: Call.UPLOAD(seen) and seen.path.endswith("new"), count=2)

    outcome = lab.attempt()

    lab.assert_published(outcome)
    assert lab.sent(cut.matches) == 3


def test_connections_that_died_while_the_body_ran_are_opened_anew(lab: Lab) -> None:
    closed: list[int] = []

    def work_long(workspace: Path) -> None:
        closed.append(lab.proxy.close_idle())
        change(workspace)

    outcome = lab.attempt(work_long)

    assert closed[0] >= 2  # at least one of control calls and one of data calls
    lab.assert_published(outcome)


def test_a_server_that_closes_after_every_answer_is_survived(lab: Lab) -> None:
    lab.proxy.close_after(lambda seen: "/objects" in seen.path, count=1000)

    outcome = lab.attempt()

    lab.assert_published(outcome)


@pytest.mark.parametrize("body", [change, leave])
def test_an_unreachable_server_fails_the_attempt_before_anything_is_published(lab: Lab, body: Body) -> None:
    lab.proxy.drop_request(lambda seen: Call.GET_BRANCH(seen) and seen.path.endswith("/main"), count=1000)

    outcome = lab.attempt(body)

    lab.assert_refused(outcome, "LakeUnreachable: lakeFS gave no answer while reading branch main", lab.input_ref)


def test_a_result_is_kept_when_lakefs_cannot_be_reached_for_the_cleanup(lab: Lab) -> None:
    lab.proxy.drop_request(Call.DELETE_BRANCH, count=1000)

    with capture_logs() as logs:
        outcome = lab.attempt()

    assert isinstance(outcome, Completed)
    assert outcome.output["workspace"]["ref"] == lab.head() != lab.input_ref
    warned = [log for log in logs if log["event"] == "failed to clean staging workspace"]
    assert [log["log_level"] for log in warned] == ["warning"]
    assert [log["branch"] for log in warned] == list(lab.direct.branches(lab.repository, STAGING_PREFIX))
    assert "lakeFS gave no answer" in warned[0]["error"]
    assert list(lab.root.iterdir()) == []
