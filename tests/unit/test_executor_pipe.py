"""What an executor says and hears over its pipe; the supervisor is played by the test."""

import sys
import threading
import uuid
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import pytest

from perago.config import load_runtime_config
from perago.protocol.attempt import Attempt
from perago.worker import executor
from perago.worker.executor import ExecutorSettings, OverPipe, serve
from perago.worker.messages import Assignment, Farewell, FenceAnswer, FenceQuestion, Finished, NotReady, Ready

ATTEMPT = Attempt(
    workflow_instance_id="w-1",
    task_id="t-1",
    retry_count=0,
    reference_task_name="work",
    seq=1,
    iteration=0,
    status="IN_PROGRESS",
)
OTHER = replace(ATTEMPT, status="TIMED_OUT")
DOUBLE = """
from pydantic import BaseModel
from perago import TaskFailed, TaskTerminalError, task

class Params(BaseModel):
    number: int

class Result(BaseModel):
    doubled: int

@task(name="numbers.double", owner_email="data@example.com")
def double(params: Params) -> Result:
    if params.number == 13:
        raise TaskFailed("an unlucky number")
    if params.number == 0:
        raise TaskTerminalError("nothing to double")
    if params.number < 0:
        raise SystemExit("cannot count below zero")
    return Result(doubled=2 * params.number)
"""


@pytest.fixture
def pipe() -> Generator[tuple[Connection, Connection]]:
    """The supervisor's end, and the executor's."""
    ours, theirs = Pipe()
    with ours, theirs:
        yield ours, theirs
        for thread in threading.enumerate():
            if isinstance(thread, Answering):
                thread.join()  # what it still sends or closes must not meet our closing


def asking(theirs: Connection, *, last: bool = False) -> OverPipe:
    return OverPipe(theirs, "e-1", lambda: last)


class Answering(threading.Thread):
    """A supervisor that answers one question as told."""

    def __init__(self, ours: Connection, answers: Callable[[str], Sequence[FenceAnswer]]) -> None:
        super().__init__(daemon=True)
        self._ours, self._answers = ours, answers
        self.asked: list[FenceQuestion] = []
        self.start()

    def run(self) -> None:
        question = self._ours.recv()
        self.asked.append(question)
        for answer in self._answers(question.question):
            self._ours.send(answer)


def test_a_fence_asks_for_its_own_execution_and_takes_the_answer(pipe: tuple[Connection, Connection]) -> None:
    ours, theirs = pipe
    supervisor = Answering(ours, lambda question: [FenceAnswer(question, ATTEMPT)])

    assert asking(theirs, last=True).current(ATTEMPT) == ATTEMPT

    (asked,) = supervisor.asked
    assert (asked.execution_id, asked.last) == ("e-1", True)


def test_a_late_answer_to_another_question_is_not_taken_for_this_one(pipe: tuple[Connection, Connection]) -> None:
    ours, theirs = pipe
    strays = [FenceAnswer("earlier", OTHER), FenceAnswer("earlier still", None, "trouble of the past")]
    Answering(ours, lambda question: [*strays, FenceAnswer(question, ATTEMPT)])

    assert asking(theirs).current(ATTEMPT) == ATTEMPT


def test_two_questions_are_never_the_same(pipe: tuple[Connection, Connection]) -> None:
    ours, theirs = pipe
    asked: list[str] = []
    for _ in range(2):
        supervisor = Answering(ours, lambda question: [FenceAnswer(question, ATTEMPT)])
        asking(theirs).current(ATTEMPT)
        asked += [question.question for question in supervisor.asked]

    assert len(set(asked)) == 2


def test_without_an_answer_the_fence_fails(
    pipe: tuple[Connection, Connection], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(executor, "FENCE_SECONDS", 0.2)

    with pytest.raises(TimeoutError, match="no answer"):
        asking(pipe[1]).current(ATTEMPT)


def test_answers_to_other_questions_do_not_lengthen_the_wait(
    pipe: tuple[Connection, Connection], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(executor, "FENCE_SECONDS", 0.2)
    Answering(pipe[0], lambda _: [FenceAnswer(uuid.uuid4().hex, ATTEMPT) for _ in range(100)])

    with pytest.raises(TimeoutError, match="no answer"):
        asking(pipe[1]).current(ATTEMPT)


@pytest.mark.parametrize(("trouble", "told"), [("refused", "refused"), (None, "could not be asked")])
def test_the_supervisors_trouble_with_conductor_fails_the_fence(
    pipe: tuple[Connection, Connection], trouble: str | None, told: str
) -> None:
    Answering(pipe[0], lambda question: [FenceAnswer(question, None, trouble)])

    with pytest.raises(ConnectionError, match=told):
        asking(pipe[1]).current(ATTEMPT)


def test_a_supervisor_that_is_gone_before_the_question_fails_the_fence(pipe: tuple[Connection, Connection]) -> None:
    pipe[0].close()

    with pytest.raises(OSError, match="Broken pipe"):
        asking(pipe[1]).current(ATTEMPT)


def test_a_supervisor_that_ends_before_its_answer_fails_the_fence(pipe: tuple[Connection, Connection]) -> None:
    def ends(_: str) -> list[FenceAnswer]:
        pipe[0].close()
        return []

    Answering(pipe[0], ends)

    with pytest.raises((EOFError, OSError)):
        asking(pipe[1]).current(ATTEMPT)


# The executor's loop


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Generator[str]:
    """The name of a module that can be imported from the current directory."""
    name = f"numbers_{uuid.uuid4().hex[:8]}"
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / f"{name}.py").write_text(DOUBLE)
    yield name
    sys.modules.pop(name, None)


@contextmanager
def executing(module: str, logs: Path, **settings: str) -> Generator[Connection]:
    """An executor's loop in a thread; gives the supervisor's end of its pipe."""
    ours, theirs = Pipe()
    given = ExecutorSettings(module, load_runtime_config(**settings), 0, logs)
    thread = threading.Thread(target=serve, args=(given, theirs), daemon=True)
    with theirs:
        with ours:
            thread.start()
            yield ours
        thread.join(30)
        assert not thread.is_alive()


def heard(ours: Connection) -> Any:
    assert ours.poll(30), "the executor says nothing"
    return ours.recv()


def given(number: object, execution_id: str = "e-1") -> Assignment:
    return Assignment(execution_id, ATTEMPT, {"params": {"number": number}})


def test_an_executor_is_ready_then_gives_one_result_for_each_assignment(module: str, tmp_path: Path) -> None:
    with executing(module, tmp_path) as ours:
        assert heard(ours) == Ready()
        ours.send(given(4))
        ours.send(given(5, "e-2"))
        first, second = heard(ours), heard(ours)

    assert isinstance(first, Finished)
    assert (first.execution_id, first.result.status, first.result.output) == (
        "e-1",
        "COMPLETED",
        {"result": {"doubled": 8}},
    )
    assert (second.execution_id, second.result.output) == ("e-2", {"result": {"doubled": 10}})


@pytest.mark.parametrize(
    ("number", "status", "reason"),
    [
        (13, "FAILED", "an unlucky number"),
        (0, "FAILED_WITH_TERMINAL_ERROR", "nothing to double"),
        (-1, "FAILED", "SystemExit: cannot count below zero"),
        ("four", "FAILED", "TaskInputError: input of numbers.double is refused"),
    ],
)
def test_a_failure_is_a_result_and_the_executor_goes_on(
    module: str, tmp_path: Path, number: object, status: str, reason: str
) -> None:
    with executing(module, tmp_path) as ours:
        heard(ours)
        ours.send(given(number))
        failed = heard(ours)
        ours.send(given(1))
        after = heard(ours)

    assert failed.result.status == status
    assert failed.result.reason.startswith(reason)
    assert after.result.status == "COMPLETED"


def test_what_bodies_printed_is_begun_anew_before_an_attempt_once_it_is_too_long(module: str, tmp_path: Path) -> None:
    output = tmp_path / "executor-0.out"
    with output.open("ab") as printing, executing(module, tmp_path, log_file_max_size="1000B") as ours:
        heard(ours)
        kept: list[bytes] = []
        for printed in (b"x" * 1000, b"y", b"z"):
            printing.write(printed)
            printing.flush()
            ours.send(given(1))
            heard(ours)
            kept.append(output.read_bytes())

    assert kept == [b"x" * 1000, b"", b"z"]


def test_an_answer_nobody_waits_for_any_more_is_passed_over(module: str, tmp_path: Path) -> None:
    with executing(module, tmp_path) as ours:
        heard(ours)
        ours.send(FenceAnswer("long ago", ATTEMPT))
        ours.send(FenceAnswer("long ago too", None, "trouble"))
        ours.send(given(4))

        assert heard(ours).result.status == "COMPLETED"


def test_an_executor_told_farewell_ends_after_what_it_was_given_before(module: str, tmp_path: Path) -> None:
    ours, theirs = Pipe()
    thread = threading.Thread(target=serve, args=(ExecutorSettings(module, load_runtime_config(), 0, tmp_path), theirs))
    with ours, theirs:
        ours.send(given(4))
        ours.send(Farewell())
        thread.start()
        thread.join(30)

        assert not thread.is_alive()
        assert heard(ours) == Ready()
        assert heard(ours).result.status == "COMPLETED"


def test_a_module_that_cannot_be_imported_is_told_and_ends_the_executor(module: str, tmp_path: Path) -> None:
    (tmp_path / f"{module}.py").write_text("import no_such_library\n")

    with executing(module, tmp_path) as ours:
        said = heard(ours)

    assert isinstance(said, NotReady)
    assert "no_such_library" in said.reason


def test_a_workspace_task_without_lakefs_settings_is_told_which(
    module: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("SERVER_ENDPOINT_URL", "CREDENTIALS_ACCESS_KEY_ID", "CREDENTIALS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(f"LAKECTL_{name}", raising=False)
    source = DOUBLE.replace("(params: Params)", "(workspace: Path, params: Params)")
    source = source.replace('com")', 'com", workspace=WorkspaceSpec(prefix="/a"))')
    (tmp_path / f"{module}.py").write_text(f"from pathlib import Path\nfrom perago import WorkspaceSpec\n{source}")

    with executing(module, tmp_path) as ours:
        said = heard(ours)

    assert isinstance(said, NotReady)
    assert "LAKECTL_SERVER_ENDPOINT_URL" in said.reason


def test_a_failpoint_outside_test_mode_is_refused(module: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PERAGO_FAILPOINT", "body:kill")
    monkeypatch.delenv("PERAGO_TEST_MODE", raising=False)

    with executing(module, tmp_path) as ours:
        said = heard(ours)

    assert isinstance(said, NotReady)
    assert "for tests only" in said.reason
