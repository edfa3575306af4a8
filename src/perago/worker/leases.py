"""Leases of running attempts, extended until their results are told."""

import asyncio
from http import HTTPStatus

import structlog

from perago.authoring.controls import PublishBudget
from perago.authoring.errors import StaleAttemptError
from perago.conductor.client import ConductorClient, within
from perago.conductor.errors import ConductorError
from perago.protocol.attempt import assert_current_attempt_snapshot
from perago.worker.metrics import Metrics
from perago.worker.slot import Running, Slot

_log = structlog.get_logger("perago.supervisor")

_LONGEST_PERIOD = 30.0
_SHORTEST_PERIOD = 0.5
# A removed workflow's tasks are not found; a 404 may also come from a proxy that is being set up anew.
_SURELY_UNKNOWN = 2
_SHORTEST_TRY = 2.0  # a slow Conductor still carries out what was given up, perhaps beside a result


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
        unknown = 0
        while True:
            await asyncio.sleep(period)
            try:
                await self._extend(slot, running)
                unknown = 0
            except StaleAttemptError as error:
                _stop_stale(slot, running, str(error))
            except Exception as error:  # a lease is tried for as long as the attempt lives
                _log.warning("lease not extended", error=f"{type(error).__name__}: {error}", **running.ids())
                is_unknown = isinstance(error, ConductorError) and error.status == HTTPStatus.NOT_FOUND
                unknown = unknown + 1 if is_unknown else 0
                if unknown >= _SURELY_UNKNOWN:
                    _stop_stale(slot, running, f"Conductor no longer has this task: {error}")

    async def _extend(self, slot: Slot, running: Running) -> None:
        attempt = running.task.attempt
        limit = max(_SHORTEST_TRY, running.task.lease_seconds / 4)  # there is time for another try before it runs out
        if not running.is_finished and slot.executor is not None and slot.executor.is_stopped():
            _log.warning("lease not extended: the executor is stopped", **running.ids())
        else:
            async with running.writing, within(limit):
                with self._metrics.heartbeat_seconds.time():
                    await self._conductor.extend_lease(attempt, self._worker_id)
        async with within(limit):
            fresh = await self._conductor.current(attempt.task_id)
        assert_current_attempt_snapshot(attempt, fresh)


def _stop_stale(slot: Slot, running: Running, why: str) -> None:
    """Conductor has ended the attempt. Past its last fence it is publishing, and is left to end by itself."""
    if running.stopped_because or running.is_finished or slot.running is not running:
        return
    if running.publishes:
        _log.warning("attempt not stopped, for it publishes: Conductor has ended it", why=why, **running.ids())
        return
    running.stopped_because = why
    _log.warning("attempt stopped: Conductor has ended it", why=why, **running.ids())
    if slot.executor is not None:
        slot.executor.kill()
