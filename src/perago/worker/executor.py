"""An executor: one process that imports the task's module once and runs one attempt at a time."""

import contextlib
import ctypes
import os
import signal
import sys
import threading
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, cast

import structlog

from perago.attempt.failpoints import Failpoint
from perago.attempt.lifecycle import Completed, Execution, Servers, run_attempt
from perago.attempt.phases import Phase
from perago.authoring.module import load_module_task
from perago.authoring.task import TaskDefinition
from perago.conductor.tasks import TaskResult
from perago.config import RuntimeConfig
from perago.data.workspace import DirectoryFiles
from perago.lake.control import LakeControl
from perago.lake.objects import LakeObjects
from perago.protocol.attempt import Attempt
from perago.worker.logs import configure_logs
from perago.worker.messages import Assignment, FenceAnswer, FenceQuestion, Finished, NotReady, Ready

_log = structlog.get_logger("perago.executor")

FENCE_SECONDS = 30.0
_PR_SET_PDEATHSIG = 1


@dataclass(frozen=True)
class ExecutorSettings:
    """What a new executor is started with."""

    module: str
    config: RuntimeConfig
    slot: int
    logs: Path


def run_executor(settings: ExecutorSettings, pipe: Connection, lifeline: Connection) -> None:
    """The main function of an executor process."""
    _live_and_die_with_the_supervisor(lifeline)
    name, config = f"executor-{settings.slot}", settings.config
    configure_logs(settings.logs, name, config.log_file_max_size, config.log_retention, echo=False)
    _keep_output_apart(settings.logs / f"{name}.out", config.log_file_max_size)
    serve(settings, pipe)


def serve(settings: ExecutorSettings, pipe: Connection) -> None:
    """Take assignments until the pipe closes."""
    try:
        definition = load_module_task(settings.module)
        failpoint = Failpoint.from_environment(os.environ)
        lake = _lake_of(settings.config) if definition.workspace is not None else None
    except Exception as error:
        pipe.send(NotReady(f"{type(error).__name__}: {error}"))
        return
    pipe.send(Ready())
    with contextlib.suppress(EOFError, OSError):
        while True:
            assignment = pipe.recv()
            if isinstance(assignment, Assignment):  # else an answer to a question nobody waits for any more
                run = _Run(assignment, definition, failpoint)
                pipe.send(Finished(assignment.execution_id, run.result(pipe, lake, settings.config)))


class _Run:
    """One assignment: its phases are timed, logged, and where a test's failpoint may strike."""

    def __init__(self, assignment: Assignment, definition: TaskDefinition, failpoint: Failpoint) -> None:
        self._assignment = assignment
        self._definition = definition
        self._failpoint = failpoint
        self._phase: Phase | None = None
        self._since = time.monotonic()

    def result(
        self, pipe: Connection, lake: tuple[LakeControl, DirectoryFiles] | None, config: RuntimeConfig
    ) -> TaskResult:
        given = self._assignment
        execution = Execution(self._definition, given.attempt, given.execution_id, given.payload)
        # A task without a workspace never asks a lake.
        control, files = lake or cast("Any", (None, None))
        conductor = OverPipe(pipe, given.execution_id, lambda: self._phase in ("staged", "unchanged"))
        servers = Servers(conductor, control, files, watch=self._entered)
        ids = {"task_id": given.attempt.task_id, "execution_id": given.execution_id}
        with structlog.contextvars.bound_contextvars(**ids):
            _log.info("attempt started", retry_count=given.attempt.retry_count)
            outcome = run_attempt(execution, servers, config.workspace_root, config.failure_reason_max_length)
            self._entered("completion")
        if isinstance(outcome, Completed):
            return TaskResult("COMPLETED", outcome.output)
        return TaskResult(outcome.failure.status, {}, outcome.failure.reason)

    def _entered(self, phase: Phase) -> None:
        now = time.monotonic()
        if self._phase is not None:
            _log.info("phase ended", phase=self._phase, seconds=round(now - self._since, 4))
        self._phase, self._since = phase, now
        self._failpoint.reached(phase, self._assignment.attempt.retry_count)


class OverPipe:
    """Conductor as an executor sees it: through its supervisor, who alone speaks to it."""

    def __init__(self, pipe: Connection, execution_id: str, publishes_next: Callable[[], bool]) -> None:
        self._pipe = pipe
        self._execution_id = execution_id
        self._publishes_next = publishes_next

    def current(self, attempt: Attempt) -> Attempt:
        question = uuid.uuid4().hex
        self._pipe.send(FenceQuestion(question, self._execution_id, self._publishes_next()))
        deadline = time.monotonic() + FENCE_SECONDS
        while self._pipe.poll(max(0.0, deadline - time.monotonic())):
            answer = self._pipe.recv()
            if isinstance(answer, FenceAnswer) and answer.question == question:
                if answer.fresh is None:
                    raise ConnectionError(answer.trouble or "Conductor could not be asked")
                return answer.fresh
        raise TimeoutError(f"the supervisor gave no answer in {FENCE_SECONDS:.0f} s")


def _lake_of(config: RuntimeConfig) -> tuple[LakeControl, DirectoryFiles]:
    address = config.require_lakefs()
    return LakeControl(*address), DirectoryFiles(LakeObjects(*address))


def _live_and_die_with_the_supervisor(lifeline: Connection) -> None:
    """No signal meant for the supervisor reaches a body, and no body outlives the supervisor."""
    os.setpgid(0, 0)
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)

    def watch() -> None:
        with contextlib.suppress(EOFError, OSError):
            lifeline.recv()
        os.killpg(0, signal.SIGKILL)

    threading.Thread(target=watch, name="perago-lifeline", daemon=True).start()


def _keep_output_apart(file: Path, max_bytes: int) -> None:
    """A body's prints go to a file: a flood fills neither the supervisor's terminal nor, begun anew, the disk."""
    full = file.exists() and file.stat().st_size > max_bytes
    descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_APPEND | (os.O_TRUNC if full else 0), 0o644)
    for standard in (1, 2):
        os.dup2(descriptor, standard)
    os.close(descriptor)
