"""Results on their way to Conductor: sent for as long as allowed, and read back."""

import asyncio
import time
from dataclasses import replace

import structlog

from perago.authoring.errors import StaleAttemptError
from perago.conductor.client import ConductorClient
from perago.conductor.errors import ConductorError
from perago.conductor.tasks import PolledTask, TaskResult
from perago.protocol.attempt import Attempt, assert_current_attempt_snapshot
from perago.worker.metrics import Metrics

_log = structlog.get_logger("perago.supervisor")

_LONGEST_PAUSE = 3.0
_CALM_SECONDS = 0.1
_READ_BACK_WITHIN_SECONDS = 3.0


class Results:
    """Tells Conductor how attempts ended."""

    def __init__(
        self, conductor: ConductorClient, worker_id: str, metrics: Metrics, limit_seconds: float, at_once: int
    ) -> None:
        self._conductor = conductor
        self._worker_id = worker_id
        self._metrics = metrics
        self._limit_seconds = limit_seconds
        self._calm_from = 0.0
        self._reading_back = asyncio.Semaphore(at_once)

    async def tell(self, task: PolledTask, result: TaskResult, writing: asyncio.Lock, *, look_first: bool) -> bool:
        """Send a result, again while that can help and time is left; False when it was lost or is not wanted.

        A workflow's rerun reuses the task id, so a result of the old attempt would end the new one: unless it is
        known to be current, look first.
        """
        deadline = time.monotonic() + self._limit_seconds
        pause = 0.1
        while True:
            try:
                if look_first and not await self._is_wanted(task, result):
                    return False
                self._calm_from = time.monotonic() + _CALM_SECONDS
                async with writing:
                    await self._conductor.report(task.attempt, self._worker_id, result)
                return True
            except ConductorError as error:
                if not error.retryable or time.monotonic() + pause > deadline:
                    _log.error("result lost: Conductor could not be told", error=str(error), **ids_of(task))
                    self._metrics.attempt_ended("LOST")
                    return False
            look_first = True  # it may have been carried out, and the task handed out anew since
            await asyncio.sleep(pause)
            pause = min(pause * 2, _LONGEST_PAUSE)

    async def _is_wanted(self, task: PolledTask, result: TaskResult) -> bool:
        """Whether to send it: Conductor waits for this attempt, or has just this result of it already."""
        fresh = await self._conductor.current(task.attempt.task_id)
        had = replace(fresh, status="IN_PROGRESS") if fresh.status == result.status else fresh
        try:
            assert_current_attempt_snapshot(task.attempt, had)
        except StaleAttemptError as error:
            self._not_accepted(task, result, fresh, why=str(error))
            return False
        return True

    async def read_back(self, task: PolledTask, result: TaskResult) -> None:
        """Conductor answers 200 to a result it drops, so look: soon, but after what others wait for."""
        told_at = time.monotonic()
        async with self._reading_back:
            await self._calm(told_at + _READ_BACK_WITHIN_SECONDS)
            await self._look(task, result)

    async def _calm(self, deadline: float) -> None:
        """Wait until no result was told for a moment, and not beyond the deadline."""
        while True:
            pause = min(self._calm_from, deadline) - time.monotonic()
            if pause <= 0:
                return
            await asyncio.sleep(pause)

    async def _look(self, task: PolledTask, result: TaskResult) -> None:
        try:
            fresh = await self._conductor.current(task.attempt.task_id)
        except ConductorError as error:
            _log.warning("completion not confirmed", told=result.status, error=str(error), **ids_of(task))
            return
        if fresh.status != result.status:
            self._not_accepted(task, result, fresh)
            return
        _log.info("attempt ended", status=result.status, reason=result.reason, **ids_of(task))
        self._metrics.attempt_ended(result.status)

    def _not_accepted(self, task: PolledTask, result: TaskResult, fresh: Attempt, why: str | None = None) -> None:
        self._metrics.attempt_ended("NOT_ACCEPTED")
        has = fresh.status
        _log.error("completion not accepted", told=result.status, conductor_has=has, why=why, **ids_of(task))


def ids_of(task: PolledTask) -> dict[str, object]:
    """What every log line of an attempt carries."""
    attempt = task.attempt
    return {
        "workflow": attempt.workflow_instance_id,
        "task_id": attempt.task_id,
        "retry_count": attempt.retry_count,
        "reference": attempt.reference_task_name,
    }
