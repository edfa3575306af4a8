"""The supervisor: one asyncio process that owns Conductor, the leases and the executors. No user code runs in it."""

import asyncio
import gc
import math
import os
import signal
import threading
import time
import uuid
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol

import structlog

from perago.attempt.failpoints import Failpoint
from perago.authoring.controls import TaskControls
from perago.conductor.client import ConductorClient
from perago.conductor.tasks import PolledTask, TaskResult
from perago.config import RuntimeConfig
from perago.worker.answers import Answers
from perago.worker.executor import ExecutorSettings
from perago.worker.facts import IMPORT_SECONDS
from perago.worker.leases import Leases
from perago.worker.leftovers import bury, collect_forever, directory_of
from perago.worker.messages import (
    Assignment,
    FenceQuestion,
    Finished,
    FromExecutor,
    NotReady,
    Ready,
    SparkQuestion,
)
from perago.worker.metrics import Metrics
from perago.worker.polling import Polling
from perago.worker.results import Results
from perago.worker.slot import Executor, Running, Slot, ThreadExecutor
from perago.worker.spark import SparkSource
from perago.worker.vitals import Vitals

_log = structlog.get_logger("perago.supervisor")

_REPORT_SECONDS = 60.0
_LONGEST_BACKOFF = 30.0
_LAST_WORDS_SECONDS = 5.0
_LAST_LOOKS_SECONDS = 10.0
_GOODBYE_SECONDS = 3.0
_NOW_SECONDS = 0.2
_SURELY_CURRENT_SECONDS = 1.0


class DeclaredTask(Protocol):
    """What the supervisor needs to know of its task."""

    @property
    def name(self) -> str: ...
    @property
    def controls(self) -> TaskControls: ...
    @property
    def needs_spark(self) -> bool: ...


class Supervisor:
    """Polls, assigns, keeps leases alive, answers fences, reports results, replaces dead executors, drains."""

    def __init__(
        self,
        module: str,
        definition: DeclaredTask,
        config: RuntimeConfig,
        conductor: ConductorClient,
        worker_id: str,
        logs: Path,
        jobs: int,
        spark: SparkSource,
    ) -> None:
        self._module = module
        self._definition = definition
        self._config = config
        self._worker_id = worker_id
        self._logs = logs
        self._slots = [Slot(number) for number in range(jobs)]
        self._changed = asyncio.Event()
        self._draining = asyncio.Event()
        self._abandon = asyncio.Event()
        self._background: set[asyncio.Task[object]] = set()
        self._looks: set[asyncio.Task[object]] = set()
        self._answering: set[asyncio.Task[object]] = set()
        self.vitals = Vitals()
        self.metrics = Metrics(definition.name)
        budget = definition.controls.publish_budget
        limit = budget.conductor_completion_timeout_seconds if budget else _REPORT_SECONDS
        self._results = Results(conductor, worker_id, self.metrics, limit, jobs)
        self._answers = Answers(conductor, spark)
        self._leases = Leases(conductor, worker_id, self.metrics, budget)
        self._polling = Polling(
            *(conductor, definition.name, worker_id, self._slots, self._changed, self.vitals, self.metrics),
            assign=self._assign,
            give_back=self._give_back,
        )
        self._no_more = False
        self._ever_ready = False
        self._spark = spark
        self._undertaker = ThreadPoolExecutor(1, thread_name_prefix="perago-collect")
        self.broken: str | None = None
        self._over = threading.Event()

    async def run(self) -> int:
        """Work until told to stop.

        0: drained. 1: cannot work. 3: the time to drain ran out, or results could not be told. 130: a second signal.
        """
        Failpoint.from_environment(os.environ)  # a wrong one is refused here, and not by every executor
        gc.freeze()  # what was imported stays: no collection need look through it again
        self._listen_for_signals()
        self.vitals.watch(self._over)
        for slot in self._slots:
            self._start(slot)
        polling = asyncio.create_task(self._polling.until(self._draining))
        polling.add_done_callback(self._polling_ended)
        others = [collect_forever(self._config, self._logs, self._at_work, self._undertaker), self.vitals.beat()]
        if self._definition.needs_spark:
            others.append(self._spark.warm_up())
        beside = [asyncio.create_task(work) for work in others]
        try:
            is_drained = await self._drained(polling)
        finally:
            self._over.set()
            for task in (polling, *beside):
                task.cancel()
            patience = 0.0 if self._abandon.is_set() else _GOODBYE_SECONDS
            await asyncio.gather(*(slot.executor.leave(patience) for slot in self._slots if slot.executor is not None))
            await self._spark.stop()
        if self.broken:
            return 1
        if self._abandon.is_set():
            return 130
        return 0 if is_drained else 3

    def _polling_ended(self, polling: "asyncio.Task[None]") -> None:
        if not polling.cancelled() and polling.exception() is not None:
            self._give_up(f"polling ended: {polling.exception()!r}")

    async def _drained(self, polling: "asyncio.Task[None]") -> bool:
        """Wait until everything is finished, or kill what is not; tells whether nothing was killed or left untold."""
        await self._draining.wait()
        not_told_before = self._results.not_told
        _log.info("draining", running=sum(slot.running is not None for slot in self._slots))
        abandon = asyncio.create_task(self._abandon.wait())
        finished = asyncio.create_task(self._all_finished(polling))
        limit = self._config.shutdown_force_kill_after
        await asyncio.wait(
            {abandon, finished},
            timeout=limit.total_seconds() if limit else None,
            return_when=asyncio.FIRST_COMPLETED,
        )
        is_whole = finished.done() or await self._cut_short(finished)
        abandon.cancel()
        finished.cancel()
        if self._looks:
            _log.warning("completions not confirmed before the end", count=len(self._looks))
        return is_whole and self._results.not_told == not_told_before and polling.done()

    async def _cut_short(self, finished: "asyncio.Task[None]") -> bool:
        """Kill what still runs. Out of time, one that publishes first gets its grace; a second signal gives none.

        Deaths are still told to Conductor, so that it need not wait for the leases to run out. Tells whether nothing
        had to be killed.
        """
        self._no_more = True
        killed = self._kill(lambda running: not running.publishes)
        budget = self._definition.controls.publish_budget
        grace = budget.worker_shutdown_grace_seconds if budget else _LAST_WORDS_SECONDS
        await asyncio.wait({finished}, timeout=_NOW_SECONDS if self._abandon.is_set() else grace)
        killed += self._kill(lambda _: True)
        await asyncio.wait({finished}, timeout=_LAST_WORDS_SECONDS)
        if self._background:
            for task in self._background:
                task.cancel()  # each says what it had not done
            await asyncio.wait(self._background, timeout=_NOW_SECONDS)
        return killed == 0

    def _kill(self, chosen: Callable[[Running], bool]) -> int:
        killed = 0
        for slot in self._slots:
            if slot.running is not None and not slot.running.is_finished and chosen(slot.running):
                _log.warning("attempt killed at shutdown", slot=slot.number, **slot.running.ids())
                killed += 1
                if slot.executor is not None and slot.executor.can_be_killed:
                    slot.executor.kill()  # and its death is told
                else:
                    self._end(slot, slot.running, "the worker is stopping")
        return killed

    async def _all_finished(self, polling: "asyncio.Task[None]") -> None:
        """A long poll under way is waited for: what it brings was handed to us and nobody else would run it.

        So are looks at results told, but not for long: nobody's work depends on them.
        """
        await asyncio.wait({polling})
        while any(slot.running is not None for slot in self._slots) or self._background:
            self._changed.clear()
            await self._changed.wait()
        if self._looks:
            await asyncio.wait(self._looks, timeout=_LAST_LOOKS_SECONDS)

    def _listen_for_signals(self) -> None:
        loop = asyncio.get_running_loop()

        def asked() -> None:
            if self._draining.is_set():
                self._abandon.set()
            self._draining.set()
            self._changed.set()

        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, asked)

    # Attempts

    def _assign(self, slot: Slot, task: PolledTask) -> None:
        """Hand a task to a slot whose executor is ready for it."""
        if self._no_more or slot.executor is None:
            self._give_back(task)
            return
        running = Running(replace(task, payload={}), uuid.uuid4().hex)  # which is the executor's, and may be large
        slot.running = running
        self.metrics.busy_slots.inc()
        running.heartbeat = asyncio.create_task(self._leases.keep(slot, running))
        try:
            slot.executor.send(Assignment(running.execution_id, task.attempt, task.payload))
        except Exception as error:  # nested too deeply to be pickled, say
            self._end(slot, running, f"the input cannot be handed to an executor: {type(error).__name__}: {error}")
        _log.info("assigned", slot=slot.number, **running.ids())  # which the executor need not wait for

    def _give_back(self, task: PolledTask) -> None:
        """Nobody here will run it: Conductor hands the same attempt to another worker, or again to this one."""
        self._spawn(self._results.give_back(task))

    def _end(self, slot: Slot, running: Running, why: str) -> None:
        """Report an attempt that no executor will."""
        running.is_finished = True
        self._spawn(self._report_and_free(slot, running, TaskResult("FAILED", {}, why)))

    # Executors

    def _start(self, slot: Slot) -> None:
        slot.generation += 1
        settings = ExecutorSettings(self._module, self._config, slot.number, self._logs)
        kind = ThreadExecutor if self._config.execution_mode == "thread" else Executor
        executor = kind(settings, slot.generation, self._heard, self._gone)
        executor.start()
        slot.executor = executor
        at_once = max(1.0, len(self._slots) / (os.cpu_count() or 1))  # they import beside each other
        asyncio.get_running_loop().call_later(at_once * IMPORT_SECONDS, self._ready_by_now, slot, executor)

    def _ready_by_now(self, slot: Slot, executor: Executor) -> None:
        if slot.executor is executor and not slot.is_ready:
            _log.error("executor not ready in time", slot=slot.number, pid=executor.pid)
            executor.kill()

    def _heard(self, executor: Executor, said: FromExecutor) -> None:
        slot = self._slots[executor.slot]
        if executor.generation != slot.generation:
            return
        match said:
            case Ready():
                slot.is_ready = self._ever_ready = True
                _log.info("executor ready", slot=slot.number, pid=executor.pid)
            case NotReady(reason) if self._ever_ready:  # a hiccup, or a file half deployed: others go on
                _log.error("executor cannot work", slot=slot.number, reason=reason)
            case NotReady(reason):
                self._give_up(f"the task's module cannot be used: {reason}")
            case FenceQuestion():
                self._spawn(self._answers.fence(slot, executor, said), self._answering)
            case SparkQuestion():
                self._spawn(self._answers.spark(slot, executor, said), self._answering)
            case Finished():
                self._finished(slot, said)
        self._changed.set()

    def _finished(self, slot: Slot, said: Finished) -> None:
        running = slot.running
        if running is None or running.is_finished or running.execution_id != said.execution_id:
            return
        slot.backoff = 1.0
        running.is_finished = True
        self._polling.attempt_lasted(time.monotonic() - running.since)
        self.metrics.attempt_took(said.phases, said.transferred)
        self._spawn(self._report_and_free(slot, running, said.result, said.output_bytes))

    def _gone(self, executor: Executor) -> None:
        """An executor's death is told at once, its directory collected at once, and its slot filled again."""
        slot = self._slots[executor.slot]
        if executor.generation != slot.generation:
            return
        if self._over.is_set():
            return  # ended by ourselves, at the end
        how = executor.how_it_ended()
        running, slot.is_ready, slot.executor = slot.running, False, None
        slot.generation += 1
        ids = running.ids() if running is not None else {}
        _log.warning("executor ended", slot=slot.number, how=how, restart_in=slot.backoff, **ids)
        self._polling.attempt_lasted(math.inf)
        if running is not None and not running.is_finished:
            self._end(slot, running, running.stopped_because or f"executor crash: {how} (slot {slot.number})")
            self._spawn(self._clear_up(running))
        if not self._draining.is_set():
            self._spawn(self._restart(slot))
        self._changed.set()

    async def _clear_up(self, running: Running) -> None:
        """At once, however long Conductor takes: no Spark job goes on writing for a dead executor."""
        try:
            if running.spark is not None:
                code = await self._spark.end_session(running.spark, running.execution_id)
                _log.info("Spark session ended", code=code, **running.ids())
        finally:
            await asyncio.get_running_loop().run_in_executor(self._undertaker, bury, self._config, running)

    async def _restart(self, slot: Slot) -> None:
        """Fill a slot again, later and later; one that cannot be filled is tried for as long as the worker lives."""
        while not self._draining.is_set():
            pause, slot.backoff = slot.backoff, min(slot.backoff * 2, _LONGEST_BACKOFF)
            try:
                await asyncio.wait_for(self._draining.wait(), pause)
            except TimeoutError:
                try:
                    self._start(slot)
                except Exception as error:
                    _log.error("executor not started", slot=slot.number, error=f"{type(error).__name__}: {error}")
                    continue
                self.metrics.restarts.inc()
                return

    # Results

    async def _report_and_free(self, slot: Slot, running: Running, result: TaskResult, output_bytes: int = 0) -> None:
        """Tell Conductor beside the slot's next attempt; the lease is kept until it was told.

        A slot has one untold result at most: a second one waits for the first, and the slot with it.
        """
        try:
            async with slot.telling:
                if slot.running is running:
                    slot.running = None
                    self.metrics.busy_slots.dec()
                self._changed.set()
                look_first = result.status != "COMPLETED" or time.monotonic() - running.since > _SURELY_CURRENT_SECONDS
                told = await self._results.tell(running, result, look_first=look_first)
        except asyncio.CancelledError:
            self._results.lost(running, "the worker ended before Conductor had answered")
            raise
        finally:
            if running.heartbeat is not None:
                running.heartbeat.cancel()
        if told:
            self._spawn(self._results.read_back(running, result, slot.telling, output_bytes), self._looks)

    # Leftovers and life signs

    def _at_work(self) -> set[str]:
        return {directory_of(slot.running) for slot in self._slots if slot.running is not None}

    def is_ready(self) -> tuple[bool, dict[str, Any]]:
        """Whether the worker takes attempts: executors are up, Conductor answered, and it is not draining."""
        up = sum(slot.is_ready for slot in self._slots)
        good = bool(up) and self.vitals.last_poll is not None and not self._draining.is_set()
        busy = sum(slot.running is not None for slot in self._slots)
        return good, {"ready": good, "executors": up, "busy": busy, "draining": self._draining.is_set()}

    def _give_up(self, why: str) -> None:
        self.broken = why
        _log.error("worker cannot go on", why=why)
        self._draining.set()
        self._abandon.set()

    def _spawn(self, work: Coroutine[None, None, object], among: "set[asyncio.Task[object]] | None" = None) -> None:
        tasks = self._background if among is None else among
        task = asyncio.create_task(work)
        tasks.add(task)

        def done(ended: "asyncio.Task[object]") -> None:
            tasks.discard(ended)
            self._changed.set()
            if not ended.cancelled() and ended.exception() is not None:
                _log.error("supervisor trouble", exc_info=ended.exception())

        task.add_done_callback(done)
