"""Leases of running attempts, extended until their results are told."""

import asyncio

import structlog

from perago.authoring.controls import PublishBudget
from perago.authoring.errors import StaleAttemptError
from perago.conductor.client import ConductorClient
from perago.protocol.attempt import assert_current_attempt_snapshot
from perago.worker.metrics import Metrics
from perago.worker.results import ids_of
from perago.worker.slot import Running, Slot

_log = structlog.get_logger("perago.supervisor")

_LONGEST_PERIOD = 30.0
_SHORTEST_PERIOD = 0.5


class Leases:
    """Extends leases, and stops the attempts that Conductor has ended."""

    def __init__(
        self, conductor: ConductorClient, worker_id: str, metrics: Metrics, budget: PublishBudget | None
    ) -> None:
        self._conductor = conductor
        self._worker_id = worker_id
        self._metrics = metrics
        self._longest_period = budget.heartbeat_interval_seconds if budget else _LONGEST_PERIOD

    async def keep(self, slot: Slot, running: Running) -> None:
        """Extend a lease until cancelled, and look whether Conductor still wants the attempt."""
        period = min(self._longest_period, max(_SHORTEST_PERIOD, running.task.lease_seconds / 4))
        while True:
            await asyncio.sleep(period)
            try:
                await self._extend(slot, running)
            except StaleAttemptError as error:
                _stop_stale(slot, running, str(error))
            except Exception as error:  # a lease is tried for as long as the attempt lives
                _log.warning("lease not extended", error=f"{type(error).__name__}: {error}", **ids_of(running.task))

    async def _extend(self, slot: Slot, running: Running) -> None:
        attempt = running.task.attempt
        if not running.is_finished and slot.executor is not None and slot.executor.is_stopped():
            _log.warning("lease not extended: the executor is stopped", **ids_of(running.task))
            return
        async with running.writing:
            with self._metrics.heartbeat_seconds.time():
                await self._conductor.extend_lease(attempt, self._worker_id)
        assert_current_attempt_snapshot(attempt, await self._conductor.current(attempt.task_id))


def _stop_stale(slot: Slot, running: Running, why: str) -> None:
    """Conductor has ended the attempt. Past its last fence it is publishing, and is left to end by itself."""
    if running.stopped_because or running.publishes or running.is_finished or slot.running is not running:
        return
    running.stopped_because = why
    _log.warning("attempt stopped: Conductor has ended it", why=why, **ids_of(running.task))
    if slot.executor is not None:
        slot.executor.kill()
