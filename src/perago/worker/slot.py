"""A slot: the place of one executor, which may die and be replaced; a dead one's words are ignored."""

import asyncio
import contextlib
import multiprocessing
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from typing import cast

import psutil

from perago.conductor.tasks import PolledTask
from perago.protocol.attempt import Attempt
from perago.worker.executor import ExecutorSettings, run_executor, serve
from perago.worker.messages import Farewell, FromExecutor, ToExecutor
from perago.worker.pipe import Pipe
from perago.worker.spawning import spawned

Heard = Callable[["Executor", FromExecutor], None]
Gone = Callable[["Executor"], None]

_ITS_OWN_END_SECONDS = 1.0


class Executor:
    """One generation of a slot: a process (or, in thread mode, a thread) and its pipe."""

    can_be_killed = True

    def __init__(self, settings: ExecutorSettings, generation: int, heard: Heard, gone: Gone) -> None:
        self.slot = settings.slot
        self.generation = generation
        self._settings = settings
        self._heard = heard
        self._gone = gone
        self._loop = asyncio.get_running_loop()
        self._over = asyncio.Event()
        self._leaves = False

    def start(self) -> None:
        ours, theirs = socket.socketpair()
        self._launch(Connection(theirs.detach()))
        self._pipe = Pipe(ours, lambda said: self._heard(self, said), self._fell_silent)

    async def leave(self, patience: float) -> None:
        """Let an idle executor end by itself, with its traces sent; one that takes too long is killed."""
        self._leaves = True
        self.send(Farewell())
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._over.wait(), patience)
        self.kill()

    def send(self, message: ToExecutor) -> None:
        if not self._over.is_set():
            self._pipe.send(message)

    def _launch(self, theirs: Connection) -> None:
        # Nothing is ever sent over it: it closes when the supervisor is gone, however that happened.
        lifeline, self._lifeline = multiprocessing.Pipe(duplex=False)
        process = spawned(run_executor, self._settings, theirs, lifeline)
        theirs.close()
        lifeline.close()
        self._process = process
        # What a body forked may hold the pipe open, so the process itself is watched.
        pid = cast("int", process.pid)
        self._end = os.pidfd_open(pid) if sys.platform == "linux" else os.dup(process.sentinel)
        self._loop.add_reader(self._end, self._died)

    @property
    def pid(self) -> int | None:
        return self._process.pid

    def is_stopped(self) -> bool:
        """Whether somebody has stopped the process: it does not work, so its lease must not be extended."""
        try:
            return psutil.Process(self._process.pid).status() == psutil.STATUS_STOPPED
        except psutil.NoSuchProcess:
            return False

    def kill(self) -> None:
        """End the executor and everything its body started."""
        if self._over.is_set():
            return
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(cast("int", self._process.pid), signal.SIGKILL)
        self._process.kill()

    def how_it_ended(self) -> str:
        code = self._process.exitcode
        if code is None or code >= 0:
            return f"exit code {code}"
        names = {number.value: number.name for number in signal.Signals}
        return f"killed by {names.get(-code, f'signal {-code}')}"

    def _fell_silent(self) -> None:
        """It is about to end, or no longer of use. Its own way of ending tells more than ours."""
        if not self._leaves:  # else it may take as long as `leave` lets it
            self._loop.call_later(_ITS_OWN_END_SECONDS, self.kill)

    def _died(self) -> None:
        self._loop.remove_reader(self._end)
        os.close(self._end)
        self.kill()  # what its body started
        self._process.join()
        self._lifeline.close()
        self._pipe.hear_the_rest()
        self._is_over()

    def _is_over(self) -> None:
        self._pipe.close()
        self._over.set()
        self._gone(self)


class ThreadExecutor(Executor):
    """For light bodies: the same loop in a thread of the supervisor. It cannot be killed, only ignored."""

    can_be_killed = False

    def _launch(self, theirs: Connection) -> None:
        def work() -> None:
            with theirs:
                serve(self._settings, theirs)

        threading.Thread(target=work, daemon=True).start()

    @property
    def pid(self) -> int | None:
        return None

    def is_stopped(self) -> bool:
        return False

    def kill(self) -> None:
        """A thread ends when its body returns; what it says then is no longer asked for."""

    def how_it_ended(self) -> str:
        return "its thread ended"

    def _fell_silent(self) -> None:
        self._is_over()


def ids_of(attempt: Attempt) -> dict[str, object]:
    return {
        "workflow": attempt.workflow_instance_id,
        "task_id": attempt.task_id,
        "retry_count": attempt.retry_count,
        "reference": attempt.reference_task_name,
    }


@dataclass
class Running:
    """An attempt an executor works on."""

    task: PolledTask
    execution_id: str
    since: float = field(default_factory=time.monotonic)
    publishes: bool = False
    is_finished: bool = False
    heartbeat: "asyncio.Task[None] | None" = None
    stopped_because: str | None = None
    #: How long it took to tell its result.
    told_in: float | None = None
    #: The Spark server it asked for; a session of its own may be open there.
    spark: str | None = None
    # Held by whatever is written to the task: of two writes at once Conductor may keep the lease extension, and a
    # completed task is in progress again.
    writing: asyncio.Lock = field(default_factory=asyncio.Lock)

    def ids(self) -> dict[str, object]:
        """What every log line of an attempt carries."""
        # As far as the supervisor can tell: what goes on while it is running, its executor's lines say.
        phase = "completion" if self.is_finished else "running"
        return {**ids_of(self.task.attempt), "execution_id": self.execution_id, "phase": phase}


@dataclass
class Slot:
    number: int
    generation: int = 0
    executor: Executor | None = None
    is_ready: bool = False
    running: Running | None = None
    telling: asyncio.Lock = field(default_factory=asyncio.Lock)
    backoff: float = 1.0
