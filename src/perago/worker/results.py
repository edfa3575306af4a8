"""Results on their way to Conductor: sent for as long as allowed, and read back."""

import asyncio
import math
import time
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Literal, TypeVar

import structlog

from perago.conductor.client import ConductorClient, within
from perago.conductor.errors import ConductorError
from perago.conductor.tasks import PolledTask, TaskResult
from perago.protocol.attempt import Attempt, staleness
from perago.worker.metrics import Metrics
from perago.worker.slot import Running, ids_of

T = TypeVar("T")
#: Where an attempt stands at Conductor, whatever was answered to its result.
Standing = Literal["waited for", "told", "not accepted"]

_log = structlog.get_logger("perago.supervisor")

_LONGEST_PAUSE = 3.0
_CALM_SECONDS = 0.1
_READ_BACK_WITHIN_SECONDS = 10.0
_SHORTEST_TRY = 1.0
_TELLINGS = 3
# Results that wait for a look are kept in memory.
_MOST_WAITING = 1000
_LARGE_OUTPUT = 1 << 14
_LOOK_SECONDS = 10.0


class Results:
    """Tells Conductor how attempts ended."""

    def __init__(
        self, conductor: ConductorClient, worker_id: str, metrics: Metrics, limit_seconds: float, jobs: int
    ) -> None:
        self._conductor = conductor
        self._worker_id = worker_id
        self._metrics = metrics
        self._limit_seconds = limit_seconds
        self._calm_from = 0.0
        #: How many were not told, as far as is known.
        self.not_told = 0
        self._waiting = 0
        # As many as jobs would take a busy Conductor's connections from its polls and results.
        self._reading_back = asyncio.Semaphore((jobs + 1) // 2)

    async def tell(self, running: Running, result: TaskResult, *, look_first: bool) -> bool:
        """Send a result, again while that can help and time is left; False when it was lost or is not wanted.

        A workflow's rerun reuses the task id, so a result of the old attempt would end the new one: unless it is
        known to be current, look first. So does each further try: the one before may have been carried out, and the
        task handed out anew since.
        """

        async def told(is_first: bool) -> bool:
            standing = await self._standing(running, result) if look_first or not is_first else "waited for"
            if standing == "waited for":
                self._calm_from = time.monotonic() + _CALM_SECONDS
                async with running.writing:
                    await self._conductor.report(running.task.attempt, self._worker_id, result)
            return standing != "not accepted"

        began = time.monotonic()
        try:
            is_told = await self._trying(running.task, told)
        except ConductorError as error:
            self.lost(running, f"Conductor could not be told: {error}")
            return False
        running.told_in = round(time.monotonic() - began, 4)
        self._metrics.attempt_took({"completion": running.told_in}, {})
        return is_told

    def lost(self, running: Running, why: str) -> None:
        """Say that Conductor was not told, or may not have been."""
        self.not_told += 1
        _log.error("result lost", why=why, **running.ids())
        self._metrics.attempt_ended("LOST")

    async def give_back(self, task: PolledTask) -> None:
        """Hand a task that nobody here has begun back to Conductor's queue, if it is still ours.

        That is said once: without an answer it may be carried out, and said again it would take the task from whoever
        has it by then.
        """
        attempt, ids = task.attempt, {**ids_of(task.attempt), "phase": "polled"}

        async def looked(_: bool) -> str | None:
            return staleness(attempt, await self._conductor.current(attempt.task_id))

        try:
            why = await self._trying(task, looked)
            if why is not None:
                _log.warning("no longer ours to give back", why=why, **ids)
                return
            async with within(_try_seconds(task, math.inf)):
                await self._conductor.give_back(attempt, self._worker_id)
            _log.info("given back", **ids)
        except (ConductorError, asyncio.CancelledError) as error:
            why = str(error) or "the worker ended before Conductor had answered"
            _log.warning("not given back: another worker has it when its lease has run out", why=why, **ids)
            if isinstance(error, asyncio.CancelledError):
                raise

    async def _trying(self, task: PolledTask, once: Callable[[bool], Awaitable[T]]) -> T:
        """Do it once, which is told that it is the first time, and again while that can help and time is left."""
        deadline = time.monotonic() + self._limit_seconds
        is_first, pause = True, 0.1
        while True:
            try:
                async with within(_try_seconds(task, deadline)):
                    return await once(is_first)
            except ConductorError as error:
                if not error.retryable or time.monotonic() + pause > deadline:
                    raise
            await asyncio.sleep(pause)
            is_first, pause = False, min(pause * 2, _LONGEST_PAUSE)

    async def read_back(
        self, running: Running, result: TaskResult, telling: asyncio.Lock, output_bytes: int = 0
    ) -> None:
        """Conductor answers 200 to a result it drops, so look: soon, but after what others wait for.

        Where memory would fill with results that wait, it is at once, and before the slot's next result is told.
        """
        if output_bytes > _LARGE_OUTPUT or self._waiting >= _MOST_WAITING:
            async with telling:
                await self._settle(running, result)
            return
        told_at = time.monotonic()
        self._waiting += 1
        try:
            async with self._reading_back:
                await self._calm(told_at + _READ_BACK_WITHIN_SECONDS)
                await self._settle(running, result)
        finally:
            self._waiting -= 1

    async def _settle(self, running: Running, result: TaskResult) -> None:
        """Look whether a result was taken.

        A lease extension that was given up may be carried out after all, and on top of the result: then the attempt
        is in progress again, and is told again.
        """
        tellings = 1
        while not await self._is_settled(running, result):
            if tellings == _TELLINGS:  # perhaps its workflow has ended, with it: then it is never taken again
                self._not_confirmed(running, result, "undone whenever it was told")
                return
            _log.warning("result undone, and told again", told=result.status, **running.ids())
            if not await self.tell(running, result, look_first=True):
                return
            tellings += 1

    async def _calm(self, deadline: float) -> None:
        """Wait until no result was told for a moment, and not beyond the deadline."""
        while True:
            pause = min(self._calm_from, deadline) - time.monotonic()
            if pause <= 0:
                return
            await asyncio.sleep(pause)

    async def _is_settled(self, running: Running, result: TaskResult) -> bool:
        """Whether no more can be done for a result that was told."""
        try:
            async with within(_LOOK_SECONDS):
                standing = await self._standing(running, result)
        except ConductorError as error:
            self._not_confirmed(running, result, str(error))
            return True
        if standing == "told":
            how = {"status": result.status, "reason": result.reason, "told_in": running.told_in}
            _log.info("attempt ended", **how, **running.ids())
            self._metrics.attempt_ended(result.status)
        return standing != "waited for"

    async def _standing(self, running: Running, result: TaskResult) -> Standing:
        fresh = await self._conductor.current(running.task.attempt.task_id)
        is_told = _is_ended_as(result, fresh)
        why = staleness(running.task.attempt, replace(fresh, status="IN_PROGRESS") if is_told else fresh)
        if why is not None:
            self._not_accepted(running, result, fresh, why)
            return "not accepted"
        return "told" if is_told else "waited for"

    def _not_accepted(self, running: Running, result: TaskResult, fresh: Attempt, why: str) -> None:
        self._metrics.attempt_ended("NOT_ACCEPTED")
        has = fresh.status
        _log.error("completion not accepted", told=result.status, conductor_has=has, why=why, **running.ids())

    def _not_confirmed(self, running: Running, result: TaskResult, why: str) -> None:
        self._metrics.attempt_ended("UNCONFIRMED")
        _log.warning("completion not confirmed", told=result.status, why=why, **running.ids())


def _is_ended_as(result: TaskResult, fresh: Attempt) -> bool:
    """Conductor has a name of its own for a failure that its workflow allows for."""
    return fresh.status == result.status or (fresh.status == "COMPLETED_WITH_ERRORS" and result.status != "COMPLETED")


def _try_seconds(task: PolledTask, deadline: float) -> float:
    """How long to wait for Conductor once: no longer than is left, and not until the lease runs out meanwhile."""
    return max(_SHORTEST_TRY, min(deadline - time.monotonic(), task.lease_seconds / 2))
