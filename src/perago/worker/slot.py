"""A slot: the place of one executor, which may die and be replaced; a dead one's words are ignored."""

import asyncio
import contextlib
import multiprocessing
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from typing import Any, cast

import psutil

from perago.conductor.tasks import PolledTask
from perago.worker.executor import ExecutorSettings, run_executor, serve
from perago.worker.messages import Assignment, Farewell, FenceAnswer, FromExecutor

Heard = Callable[["Executor", FromExecutor], None]
Gone = Callable[["Executor"], None]


class Executor:
    """One generation of a slot: a process (or, in thread mode, a thread) and its pipe."""

    def __init__(self, settings: ExecutorSettings, generation: int, heard: Heard, gone: Gone) -> None:
        self.slot = settings.slot
        self.generation = generation
        self._settings = settings
        self._heard = heard
        self._gone = gone
        self._loop = asyncio.get_running_loop()
        self._over = asyncio.Event()
        # One of its own: an executor that does not read holds up nobody else.
        self._sender = ThreadPoolExecutor(1, thread_name_prefix="perago-send")

    def start(self) -> None:
        self._pipe, theirs = multiprocessing.Pipe()
        self._launch(theirs)
        threading.Thread(target=self._listen, name=f"perago-slot-{self.slot}", daemon=True).start()

    async def leave(self, patience: float) -> None:
        """Let an idle executor end by itself, with its traces sent; one that takes too long is killed."""
        farewell = asyncio.create_task(self.send(Farewell()))
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._over.wait(), patience)
        self.kill()
        await farewell

    async def send(self, message: Assignment | FenceAnswer | Farewell) -> None:
        """In a thread: an executor that does not read must not hold up the event loop."""
        with contextlib.suppress(OSError):
            await self._loop.run_in_executor(self._sender, self._pipe.send, message)

    def _launch(self, theirs: Connection) -> None:
        spawn = multiprocessing.get_context("spawn")
        # Nothing is ever sent over it: it closes when the supervisor is gone, however that happened.
        lifeline, self._lifeline = spawn.Pipe(duplex=False)
        process = spawn.Process(target=run_executor, args=(self._settings, theirs, lifeline))
        process.start()
        theirs.close()
        lifeline.close()
        self._process = process
        pid = cast("int", process.pid)
        self._end = os.pidfd_open(pid) if sys.platform == "linux" else process.sentinel

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
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(cast("int", self._process.pid), signal.SIGKILL)
        self._process.kill()

    def how_it_ended(self) -> str:
        self._process.join(5)
        code = self._process.exitcode
        if code is None or code >= 0:
            return f"exit code {code}"
        names = {number.value: number.name for number in signal.Signals}
        return f"killed by {names.get(-code, f'signal {-code}')}"

    def _listen(self) -> None:
        """Read what the executor says; the end of the pipe and of the process is the end of the generation."""
        with contextlib.suppress(EOFError, OSError):
            while self._has_something():
                said = cast("FromExecutor", self._pipe.recv())
                self._loop.call_soon_threadsafe(self._heard, self, said)
        self._ended()
        self._sender.shutdown(wait=False)
        with contextlib.suppress(RuntimeError):  # the loop may be closed already
            self._loop.call_soon_threadsafe(self._over.set)
            self._loop.call_soon_threadsafe(self._gone, self)

    def _has_something(self) -> bool:
        """Wait for a message or the end. What a body forked holds the pipe open, so the process itself is watched."""
        return self._pipe in wait([self._pipe, self._end])

    def _ended(self) -> None:
        self._process.join(1)  # its own way of ending tells more than ours
        self.kill()
        self._process.join()
        self._pipe.close()
        self._lifeline.close()
        if self._end is not self._process.sentinel:
            os.close(self._end)


class ThreadExecutor(Executor):
    """For light bodies: the same loop in a thread of the supervisor. It cannot be killed, only ignored."""

    def _launch(self, theirs: Connection) -> None:
        self._thread: Any = threading.Thread(target=serve, args=(self._settings, theirs), daemon=True)
        self._thread.start()

    @property
    def pid(self) -> int | None:
        return None

    def is_stopped(self) -> bool:
        return False

    def kill(self) -> None:
        """A thread ends when its body returns; what it says then is no longer asked for."""

    def how_it_ended(self) -> str:
        return "its thread ended"

    def _has_something(self) -> bool:
        return self._pipe.poll(None)

    def _ended(self) -> None:
        self._pipe.close()


@dataclass
class Running:
    """An attempt an executor works on."""

    task: PolledTask
    execution_id: str
    since: float = field(default_factory=time.monotonic)
    is_sent: bool = False
    publishes: bool = False
    is_finished: bool = False
    heartbeat: "asyncio.Task[None] | None" = None
    stopped_because: str | None = None
    # Held by whatever is written to the task: of two writes at once Conductor may keep the lease extension, and a
    # completed task is in progress again.
    writing: asyncio.Lock = field(default_factory=asyncio.Lock)


@dataclass
class Slot:
    number: int
    generation: int = 0
    executor: Executor | None = None
    is_ready: bool = False
    running: Running | None = None
    telling: asyncio.Lock = field(default_factory=asyncio.Lock)
    backoff: float = 1.0
