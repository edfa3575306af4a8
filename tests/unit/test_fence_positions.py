"""Where the two attempt fences stand, and what a stale attempt leaves alone: whole attempts on servers in memory."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest
from pydantic import BaseModel
from structlog.testing import capture_logs

from perago import PublishFenceError, StaleAttemptError, TaskInputError, WorkspaceSpec, task
from perago.attempt.lifecycle import Completed, Execution, Failed, Servers, run_attempt
from perago.authoring.task import definition_of
from perago.authoring.workspace import WorkspaceInput
from perago.data.manifest import Manifest, ManifestWriter
from perago.data.plan import Plan, plan_changes
from perago.lake.errors import LakeBusy, LakeConflict, LakeError, LakeForbidden, LakeNotFound, LakeOutcomeUnknown
from perago.protocol.attempt import Attempt
from perago.protocol.publication import Commit

POLLED = Attempt("wf", "task", 0, "ref", 1, 0, "IN_PROGRESS")
STALE = replace(POLLED, status="TIMED_OUT")
INPUT = Commit("input", ("older",), "tree-input")
ABANDONED = Commit("abandoned", ("input",), "tree-abandoned")
ELSEWHERE = Commit("elsewhere", ("moved",), "tree-elsewhere")

Fault = LakeError | Callable[[], None]


@dataclass
class World:
    """Conductor, lakeFS and files as one, so that the order of all calls is known."""

    head_id: str = "input"
    answers: Sequence[Attempt | Exception] = (POLLED, POLLED, POLLED)
    #: By call: an error it ends in, or what happens just before it is carried out.
    faults: Mapping[str, Fault] = field(default_factory=dict[str, Fault])
    #: Calls that are carried out before their fault shows.
    lost: frozenset[str] = frozenset()
    calls: list[str] = field(default_factory=list[str])
    branches: dict[str, str] = field(default_factory=dict[str, str])
    commits: dict[str, Commit] = field(
        default_factory=lambda: {known.id: known for known in (INPUT, ABANDONED, ELSEWHERE)}
    )

    def current(self, attempt: Attempt) -> Attempt:
        answer = self.answers[self.calls.count("fence")]
        self.calls.append("fence")
        if isinstance(answer, Exception):
            raise answer
        return answer

    def head(self, repository: str, branch: str) -> Commit:
        self.calls.append("head")
        return self.commits[self.head_id if branch == "main" else self.branches[branch]]

    def commit_of(self, repository: str, ref: str) -> Commit:
        return self.commits[{"main": self.head_id}.get(ref, ref)]

    def branch_exists(self, repository: str, branch: str) -> bool:
        return branch in self.branches

    def create_branch(self, repository: str, name: str, source: str) -> None:
        self._change("create", lambda: self.branches.update({name: source}))

    def delete_branch(self, repository: str, name: str) -> None:
        self._change("delete", lambda: self.branches.pop(name, None))

    def commit(self, repository: str, branch: str, message: str, metadata: Mapping[str, str]) -> str:
        made = Commit("staged", (self.branches[branch],), "tree-staged")
        self._change("commit", lambda: (self.commits.update(staged=made), self.branches.update({branch: made.id})))
        return made.id

    def merge(
        self,
        repository: str,
        source: str,
        branch: str,
        message: str,
        metadata: Mapping[str, str],
        timeout: float | None = None,
    ) -> str:
        self._change("merge", lambda: self._move("merged", self.commits[source].tree))
        return "merged"

    def reset(self, repository: str, branch: str, ref: str, timeout: float | None = None) -> None:
        self._change("reset", lambda: setattr(self, "head_id", ref))

    def download(self, source: WorkspaceInput, prefix: str, into: Path, scratch: Path) -> Manifest:
        with ManifestWriter(scratch / "manifest.jsonl") as writer:
            return writer.seal()

    def plan(self, manifest: Manifest, workspace: Path) -> Plan:
        self.calls.append("plan")
        return plan_changes(manifest, workspace)

    def apply(self, plan: Plan, repository: str, branch: str, prefix: str, workspace: Path) -> None:
        self._change("apply", lambda: None)

    def _move(self, made: str, tree: str) -> None:
        self.commits[made] = Commit(made, (self.head_id,), tree)
        self.head_id = made

    def _change(self, call: str, carry_out: Callable[[], object]) -> None:
        self.calls.append(call)
        fault = self.faults.get(call)
        if fault is not None and not isinstance(fault, LakeError):
            fault()
        if fault is None or not isinstance(fault, LakeError) or call in self.lost:
            carry_out()
        if isinstance(fault, LakeError):
            raise fault


class Nothing(BaseModel):
    pass


def run(
    world: World,
    root: Path,
    *,
    changes: bool = True,
    read_only: bool = False,
    ref: str = "input",
    by_hand: bool = False,
) -> Completed | Failed:
    @task(name="build", owner_email="team@example.com", workspace=WorkspaceSpec(read_only=read_only))
    def build(workspace: Path, params: Nothing) -> Nothing:
        world.calls.append("body")
        if changes:
            (workspace / "made").write_bytes(b"made")
        return params

    definition = definition_of(build)
    assert definition is not None
    workspace = {"repository": "repo", "branch": "main", "ref_type": "commit", "ref": ref}
    execution = Execution(definition, POLLED, "0" * 32, {"workspace": workspace, "params": {}})
    with capture_logs():
        conductor = None if by_hand else world
        outcome = run_attempt(execution, Servers(conductor, world, world, patience=(0,)), root)
    assert list(root.iterdir()) == []
    return outcome


def ref_of(outcome: Completed | Failed) -> str:
    assert isinstance(outcome, Completed), outcome
    return outcome.output["workspace"]["ref"]


def error_of(outcome: Completed | Failed) -> BaseException:
    assert isinstance(outcome, Failed), outcome
    assert outcome.failure.status == "FAILED"
    return outcome.error


def test_a_change_is_fenced_before_it_is_staged_and_again_before_it_is_merged(tmp_path: Path) -> None:
    world = World()

    assert ref_of(run(world, tmp_path)) == world.head_id == "merged"
    assert world.calls == ["body", "plan", "fence", "create", "apply", "commit", "fence", "head", "merge", "delete"]
    assert world.branches == {}


def test_a_replacement_is_fenced_once_more_after_the_target_was_looked_at(tmp_path: Path) -> None:
    world = World(head_id="abandoned")

    assert ref_of(run(world, tmp_path)) == world.head_id == "staged"
    assert world.calls == [
        "body",
        "plan",
        "fence",
        "create",
        "apply",
        "commit",
        "fence",
        "head",
        "fence",
        "reset",
        "delete",
    ]


@pytest.mark.parametrize(
    ("head", "ends_with"), [("input", ["fence", "head"]), ("abandoned", ["fence", "head", "fence", "reset"])]
)
def test_an_unchanged_workspace_is_fenced_before_the_target_is_looked_at(
    tmp_path: Path, head: str, ends_with: list[str]
) -> None:
    world = World(head)

    assert ref_of(run(world, tmp_path, changes=False)) == world.head_id == "input"
    assert world.calls == ["body", "plan", *ends_with]


def test_a_read_only_attempt_asks_nobody_and_plans_nothing(tmp_path: Path) -> None:
    world = World("elsewhere", answers=[])

    assert ref_of(run(world, tmp_path, read_only=True)) == "input"
    assert world.calls == ["body"]


in_vain = pytest.mark.parametrize(
    "answer",
    [STALE, replace(POLLED, retry_count=1), TimeoutError("no answer"), ValueError("not JSON")],
    ids=["timed out", "retried", "no answer", "no JSON"],
)


@in_vain
@pytest.mark.parametrize("changes", [True, False])
@pytest.mark.parametrize("head", ["input", "abandoned"])
def test_an_attempt_stale_after_its_body_touches_nothing(
    tmp_path: Path, answer: Attempt | Exception, changes: bool, head: str
) -> None:
    world = World(head, answers=[answer])

    error = error_of(run(world, tmp_path, changes=changes))

    assert isinstance(error, StaleAttemptError)
    assert world.calls == ["body", "plan", "fence"]


@in_vain
@pytest.mark.parametrize("head", ["input", "abandoned"])
def test_an_attempt_stale_after_staging_publishes_nothing_and_cleans_up(
    tmp_path: Path, answer: Attempt | Exception, head: str
) -> None:
    world = World(head, answers=[POLLED, answer])

    error = error_of(run(world, tmp_path))

    assert isinstance(error, StaleAttemptError)
    assert world.calls == ["body", "plan", "fence", "create", "apply", "commit", "fence", "delete"]
    assert (world.head_id, world.branches) == (head, {})


@in_vain
@pytest.mark.parametrize("changes", [True, False])
def test_an_attempt_stale_before_a_reset_leaves_the_target_where_it_is(
    tmp_path: Path, answer: Attempt | Exception, changes: bool
) -> None:
    before_the_last = [POLLED, POLLED] if changes else [POLLED]
    world = World("abandoned", answers=[*before_the_last, answer])

    assert isinstance(error_of(run(world, tmp_path, changes=changes)), StaleAttemptError)

    assert (world.head_id, world.branches) == ("abandoned", {})


def test_a_conductor_that_cannot_be_asked_is_named_as_the_reason(tmp_path: Path) -> None:
    error = error_of(run(World(answers=[TimeoutError("no answer")]), tmp_path))

    assert str(error) == (
        "Conductor could not be asked whether task task is still this attempt's (TimeoutError: no answer):"
        " nothing was published"
    )


@pytest.mark.parametrize("changes", [True, False])
def test_a_target_somewhere_else_is_left_untouched(tmp_path: Path, changes: bool) -> None:
    world = World("elsewhere")

    error = error_of(run(world, tmp_path, changes=changes))

    assert isinstance(error, PublishFenceError)
    assert "the target's head is elsewhere (parent moved)" in str(error)
    assert not {"merge", "reset"} & {*world.calls}
    assert (world.head_id, world.branches) == ("elsewhere", {})


def test_a_run_by_hand_looks_at_its_target_before_anything_is_staged(tmp_path: Path) -> None:
    world = World()

    assert ref_of(run(world, tmp_path, by_hand=True)) == world.head_id == "merged"
    assert world.calls == ["body", "plan", "head", "create", "apply", "commit", "head", "head", "merge", "delete"]


@pytest.mark.parametrize("changes", [True, False])
@pytest.mark.parametrize("head", ["abandoned", "elsewhere"])
def test_a_run_by_hand_leaves_any_commit_beyond_its_input_and_writes_nothing(
    tmp_path: Path, head: str, changes: bool
) -> None:
    world = World(head)

    error = error_of(run(world, tmp_path, changes=changes, by_hand=True))

    assert isinstance(error, PublishFenceError)
    assert f"the target's head is {head}, not the input input" in str(error)
    assert world.calls == ["body", "plan", "head"]
    assert world.head_id == head


def test_a_commit_made_while_a_run_by_hand_stages_is_left_on_the_target(tmp_path: Path) -> None:
    world = World()
    world.faults = {"commit": lambda: setattr(world, "head_id", "abandoned")}

    error = error_of(run(world, tmp_path, by_hand=True))

    assert isinstance(error, PublishFenceError)
    assert not {"merge", "reset"} & {*world.calls}
    assert (world.head_id, world.branches) == ("abandoned", {})


def test_a_target_that_moves_under_the_merge_fails_with_all_ids(tmp_path: Path) -> None:
    world = World()
    world.faults = {"merge": lambda: setattr(world, "head_id", "elsewhere")}

    error = error_of(run(world, tmp_path))

    assert isinstance(error, PublishFenceError)
    assert "the merge became merged on elsewhere, but this attempt began at input" in str(error)


@pytest.mark.parametrize("call", ["merge", "create", "commit"])
def test_a_change_carried_out_without_an_answer_is_found_and_not_repeated(tmp_path: Path, call: str) -> None:
    world = World(faults={call: LakeOutcomeUnknown("no answer")}, lost=frozenset([call]))

    assert ref_of(run(world, tmp_path)) == world.head_id == "merged"
    assert world.calls.count(call) == 1
    assert world.branches == {}


@pytest.mark.parametrize("changes", [True, False])
def test_a_reset_carried_out_without_an_answer_is_found_and_not_repeated(tmp_path: Path, changes: bool) -> None:
    world = World("abandoned", faults={"reset": LakeOutcomeUnknown("no answer")}, lost=frozenset(["reset"]))

    assert ref_of(run(world, tmp_path, changes=changes)) == world.head_id == ("staged" if changes else "input")
    assert world.calls.count("reset") == 1


@pytest.mark.parametrize(
    ("call", "head"), [("merge", "input"), ("create", "input"), ("commit", "input"), ("reset", "abandoned")]
)
@pytest.mark.parametrize("fault", [LakeOutcomeUnknown("no answer"), LakeBusy("later"), LakeForbidden("no")], ids=repr)
def test_a_change_not_carried_out_fails_and_is_not_repeated(
    tmp_path: Path, call: str, head: str, fault: LakeError
) -> None:
    world = World(head, faults={call: fault})

    assert isinstance(error_of(run(world, tmp_path)), LakeError | PublishFenceError)
    assert world.calls.count(call) == 1
    assert (world.head_id, world.branches) == (head, {})


def test_another_publication_found_after_an_unanswered_merge_is_not_taken_for_ours(tmp_path: Path) -> None:
    world = World()

    def someone_else_was_first() -> None:
        world.head_id = "abandoned"
        raise LakeOutcomeUnknown("no answer")

    world.faults = {"merge": someone_else_was_first}

    assert isinstance(error_of(run(world, tmp_path)), PublishFenceError)
    assert world.head_id == "abandoned"


def test_a_staging_branch_that_was_there_before_is_not_ours_to_delete(tmp_path: Path) -> None:
    world = World(faults={"create": LakeConflict("it exists")})

    assert isinstance(error_of(run(world, tmp_path)), LakeConflict)
    assert world.calls == ["body", "plan", "fence", "create"]


def test_a_failed_upload_cleans_its_staging_branch(tmp_path: Path) -> None:
    world = World(faults={"apply": LakeBusy("later")})

    assert isinstance(error_of(run(world, tmp_path)), LakeBusy)
    assert world.calls[-2:] == ["apply", "delete"]
    assert world.branches == {}


@pytest.mark.parametrize("fault", [LakeBusy("later"), LakeNotFound("gone")], ids=repr)
def test_a_failed_cleanup_keeps_the_result(tmp_path: Path, fault: LakeError) -> None:
    world = World(faults={"delete": fault})

    assert ref_of(run(world, tmp_path)) == world.head_id == "merged"


def test_a_name_that_moves_is_no_input_ref(tmp_path: Path) -> None:
    world = World()

    error = error_of(run(world, tmp_path, ref="main"))

    assert isinstance(error, TaskInputError)
    assert "'main' is not a whole commit id; it names input just now" in str(error)
    assert world.calls == []
