"""Attempts are taken from Conductor for the slots that are free."""

import asyncio
import contextlib
import time
from collections.abc import Callable, Sequence

import structlog

from perago.conductor.client import ConductorClient
from perago.conductor.tasks import PolledTask
from perago.worker.metrics import Metrics
from perago.worker.slot import Slot
from perago.worker.vitals import Vitals

_log = structlog.get_logger("perago.supervisor")

LONG_POLL_SECONDS = 2.0  # a worker that drains waits for it
_ANSWER_SECONDS = 20.0
_LONGEST_PAUSE = 5.0
# A poll costs Conductor as much as three tasks it brings, so short attempts that end together are polled for together.
_GATHER_SECONDS = 0.004


class Polling:
    """Polls while slots are free. `changed` is set whenever one may have become so, or polling is to end."""

    def __init__(
        self,
        conductor: ConductorClient,
        task_name: str,
        worker_id: str,
        slots: Sequence[Slot],
        changed: asyncio.Event,
        vitals: Vitals,
        metrics: Metrics,
        assign: Callable[[Slot, PolledTask], None],
    ) -> None:
        self._conductor = conductor
        self._task_name = task_name
        self._worker_id = worker_id
        self._slots = slots
        self._changed = changed
        self._vitals = vitals
        self._metrics = metrics
        self._assign = assign

    async def until(self, over: asyncio.Event) -> None:
        """Poll until told to stop; a poll under way is waited for, since what it brings was handed to us."""
        trouble = 0
        while not over.is_set():
            free = await self._freed(over)
            if not free:  # told to stop, or their executors died: a task polled for nobody would be lost
                continue
            try:
                self._vitals.waiting_to_poll_since = self._vitals.waiting_to_poll_since or time.monotonic()
                with self._metrics.poll_seconds.time():
                    tasks = await asyncio.wait_for(self._take(len(free), over), LONG_POLL_SECONDS + _ANSWER_SECONDS)
                trouble = 0
                self._vitals.last_poll, self._vitals.waiting_to_poll_since = time.monotonic(), None
                # A slot's executor may have died while the poll waited: the task then waits for the next one.
                for slot, task in zip(sorted(free, key=lambda slot: not slot.is_ready), tasks, strict=False):
                    self._assign(slot, task)
            except Exception as error:  # whatever it is, a worker that no longer polls helps nobody
                trouble += 1
                _log.warning("poll failed", error=f"{type(error).__name__}: {error}", times=trouble)
                await asyncio.sleep(min(0.2 * 2**trouble, _LONGEST_PAUSE))

    async def _freed(self, over: asyncio.Event) -> list[Slot]:
        """Wait for a free slot, and a moment for the others."""
        while not self._free() and not over.is_set():
            await self._change()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_GATHER_SECONDS):
                while len(self._free()) < len(self._slots) and not over.is_set():
                    await self._change()
        return [] if over.is_set() else self._free()

    def _free(self) -> list[Slot]:
        return [slot for slot in self._slots if slot.is_ready and slot.running is None]

    async def _change(self) -> None:
        self._changed.clear()
        await self._changed.wait()

    async def _take(self, count: int, over: asyncio.Event) -> list[PolledTask]:
        """Take what is there, else wait for one; what came with it is taken next time, so that no error loses it."""
        name, worker = self._task_name, self._worker_id
        found = await self._conductor.poll(name, worker, count)
        if found:
            return found
        return [] if over.is_set() else await self._conductor.poll(name, worker, 1, LONG_POLL_SECONDS)
