"""An executor: one process that imports the task's module once and runs one attempt at a time."""

import contextlib
import functools
import gc
import json
import os
import signal
import sys
import threading
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, TypeVar

import structlog
from pydantic import SecretStr

from perago.attempt.failpoints import Failpoint
from perago.attempt.lifecycle import Completed, Execution, Failed, Servers, run_attempt
from perago.attempt.log_fields import log_fields, set_log_field, share_log_fields
from perago.attempt.phases import Phase
from perago.authoring.errors import TaskExecutionError
from perago.authoring.module import load_module_task
from perago.authoring.task import TaskDefinition
from perago.conductor.tasks import TaskResult
from perago.config import RuntimeConfig
from perago.data.engine import Engine, local_engine
from perago.data.spark_engine import engine_for
from perago.data.spark_files import SparkFiles
from perago.data.spark_session import AttemptSession, import_client
from perago.data.workspace import DirectoryFiles, Transferred
from perago.identity import end_with_parent
from perago.protocol.attempt import Attempt
from perago.worker.logs import configure_logs, hold_loggers
from perago.worker.messages import (
    Assignment,
    Farewell,
    FenceAnswer,
    FenceQuestion,
    Finished,
    NotReady,
    Ready,
    SparkAnswer,
    SparkQuestion,
)
from perago.worker.tracing import attempt_span

_log = structlog.get_logger("perago.executor")

FENCE_SECONDS = 30.0
SPARK_SECONDS = 180.0  # it may be downloaded and started first
Answer = TypeVar("Answer", FenceAnswer, SparkAnswer)


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
    hold_loggers()
    share_log_fields()
    _keep_output_apart(_output_of(settings), config.log_file_max_size)
    with pipe:  # closed for the supervisor to see, although a thread that a library started may keep this process
        serve(settings, pipe)


def serve(settings: ExecutorSettings, pipe: Connection) -> None:
    """Take assignments until told to end, or the pipe closes."""
    try:
        loaded = load_module_task(settings.module)
        definition = replace(loaded, function=_ending_forks(loaded.function))
        failpoint = Failpoint.from_environment(os.environ)
        address = settings.config.require_lakefs() if definition.workspace is not None else None
        if definition.needs_spark:
            import_client()  # takes seconds, which no attempt should wait for
    except Exception as error:
        pipe.send(NotReady(f"{type(error).__name__}: {error}"))
        return
    lake, objects = _lake_at(address)

    def engine_of(session: AttemptSession) -> Engine:
        if definition.workspace_kind != "path":
            return local_engine  # which nobody asks
        return engine_for(settings.config.data_engine, settings.config.spark_remote, session)

    home = Path.cwd()
    gc.freeze()  # what was imported stays: no collection need look through it again
    pipe.send(Ready())
    with contextlib.suppress(EOFError, OSError):
        while not isinstance(assignment := pipe.recv(), Farewell):
            if isinstance(assignment, Assignment):  # else an answer to a question nobody waits for any more
                _begin_anew_when_full(_output_of(settings), settings.config.log_file_max_size)
                run = _Run(assignment, definition, failpoint)
                conductor = OverPipe(pipe, assignment.execution_id, run.publishes_next)
                session = AttemptSession(conductor.spark, assignment.execution_id, address)
                files = DirectoryFiles(objects, run.transferred, engine_of(session))
                spark = SparkFiles(session, objects) if address is not None else None
                servers = Servers(conductor, lake, files, watch=run.entered, spark=spark)
                pipe.send(run.finished(servers, settings.config))
                os.chdir(home)  # wherever the body went


def _ending_forks(body: Callable[..., Any]) -> Callable[..., Any]:
    """A child that a body forked ends with the body: it must not go on as a second executor on the same pipe."""
    executor = os.getpid()

    @functools.wraps(body)
    def run(*given: Any) -> Any:
        code = 1
        try:
            result = body(*given)
            code = 0
            return result
        except SystemExit as error:
            code = error.code if isinstance(error.code, int) else int(error.code is not None)
            raise
        finally:
            if os.getpid() != executor:
                with contextlib.suppress(Exception):
                    sys.stdout.flush()
                os._exit(code)

    return run


def _lake_at(address: tuple[str, str, SecretStr] | None) -> tuple[Any, Any]:
    """The gateways; a task without a workspace never asks them. Imported here: the supervisor needs no SDK."""
    if address is None:
        return None, None
    from perago.lake.control import LakeControl
    from perago.lake.objects import LakeObjects

    return LakeControl(*address), LakeObjects(*address)


class _Run:
    """One assignment: its phases are timed, logged, traced, and where a test's failpoint may strike."""

    def __init__(self, assignment: Assignment, definition: TaskDefinition, failpoint: Failpoint) -> None:
        self._assignment = assignment
        self._definition = definition
        self._failpoint = failpoint
        self._phase: Phase | None = None
        self._since = time.monotonic()
        self._phases: dict[str, float] = {}
        self._bytes: dict[str, int] = {}

    def finished(self, servers: Servers, config: RuntimeConfig) -> Finished:
        given = self._assignment
        execution = Execution(self._definition, given.attempt, given.execution_id, given.payload)
        ids = {
            "task": self._definition.name,
            "workflow": given.attempt.workflow_instance_id,
            "task_id": given.attempt.task_id,
            "retry_count": given.attempt.retry_count,
            "execution_id": given.execution_id,
        }
        self._span = attempt_span(self._definition.name, given)
        with self._span, log_fields(phase="start", **ids, **self._span.log_ids()):
            _log.info("attempt started")
            outcome = run_attempt(execution, servers, config.workspace_root, config.failure_reason_max_length)
            result = _result_of(outcome)
            self.entered("completion")
            _log.info("result", status=result.status, reason=result.reason, **self._bytes)
            self._span.ended(result.status, result.reason)
        return Finished(given.execution_id, result, self._phases, self._bytes, len(json.dumps(result.output)))

    def entered(self, phase: Phase) -> None:
        now = time.monotonic()
        if self._phase is not None:
            taken = self._phases[self._phase] = now - self._since
            _log.info("phase ended", seconds=round(taken, 4))
        self._phase, self._since = phase, now
        set_log_field("phase", phase)
        self._span.entered(phase)
        self._failpoint.reached(phase, self._assignment.attempt.retry_count)

    def transferred(self, done: Transferred) -> None:
        self._bytes[done.phase] = self._bytes.get(done.phase, 0) + done.bytes

    def publishes_next(self) -> bool:
        return self._phase in ("staged", "unchanged")


def _result_of(outcome: Completed | Failed) -> TaskResult:
    if isinstance(outcome, Completed):
        return TaskResult("COMPLETED", outcome.output)
    return TaskResult(outcome.failure.status, {}, outcome.failure.reason)


class OverPipe:
    """Conductor as an executor sees it: through its supervisor, who alone speaks to it."""

    def __init__(self, pipe: Connection, execution_id: str, publishes_next: Callable[[], bool]) -> None:
        self._pipe = pipe
        self._execution_id = execution_id
        self._publishes_next = publishes_next

    def current(self, attempt: Attempt) -> Attempt:
        asked = FenceQuestion(uuid.uuid4().hex, self._execution_id, self._publishes_next())
        answer = self._answered(asked, FenceAnswer, FENCE_SECONDS)
        if answer.fresh is None:
            raise ConnectionError(answer.trouble or "Conductor could not be asked")
        return answer.fresh

    def spark(self) -> str:
        """The address of a Spark server; the supervisor may have to start one first."""
        answer = self._answered(SparkQuestion(uuid.uuid4().hex, self._execution_id), SparkAnswer, SPARK_SECONDS)
        if answer.url is None:
            raise TaskExecutionError(f"there is no Spark server: {answer.trouble}")
        return answer.url

    def _answered(self, asked: FenceQuestion | SparkQuestion, kind: type[Answer], seconds: float) -> Answer:
        """Ask, and wait for the answer to this very question: a late one to another is passed over."""
        self._pipe.send(asked)
        deadline = time.monotonic() + seconds
        while self._pipe.poll(max(0.0, deadline - time.monotonic())):
            answer = self._pipe.recv()
            if isinstance(answer, kind) and answer.question == asked.question:
                return answer
        raise TimeoutError(f"the supervisor gave no answer in {seconds:.0f} s")


def _live_and_die_with_the_supervisor(lifeline: Connection) -> None:
    """No signal meant for the supervisor reaches a body, and no body outlives the supervisor."""
    os.setpgid(0, 0)
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    end_with_parent()

    def watch() -> None:
        with contextlib.suppress(EOFError, OSError):
            lifeline.recv()
        os.killpg(0, signal.SIGKILL)

    threading.Thread(target=watch, name="perago-lifeline", daemon=True).start()


def _output_of(settings: ExecutorSettings) -> Path:
    return settings.logs / f"executor-{settings.slot}.out"


def _keep_output_apart(file: Path, max_bytes: int) -> None:
    """A body's prints go to a file: a flood does not fill the supervisor's terminal."""
    _begin_anew_when_full(file, max_bytes)
    descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    for standard in (1, 2):
        os.dup2(descriptor, standard)
    os.close(descriptor)


def _begin_anew_when_full(file: Path, max_bytes: int) -> None:
    """Before an attempt, so that what the last one printed can be read until then; one alone may print more."""
    with contextlib.suppress(OSError):  # there is none yet, or none at all where executors are threads
        if file.stat().st_size > max_bytes:
            os.truncate(file, 0)  # whoever prints appends, so the file goes on from its new end
