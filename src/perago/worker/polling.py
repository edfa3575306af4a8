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
_GATHER_SECONDS = 0.004
# Conductor works off a poll in one thread, task by task: while it does, another poll keeps the rest of it busy.
_POLLS_AT_ONCE = 2


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
        #: Slots that a poll under way is for.
        self._claimed: set[int] = set()
        self._share = -(-len(slots) // _POLLS_AT_ONCE)
        self._waiting = asyncio.Lock()

    async def until(self, over: asyncio.Event) -> None:
        """Poll until told to stop; a poll under way is waited for, since what it brings was handed to us."""
        async with asyncio.TaskGroup() as polls:
            for _ in range(min(_POLLS_AT_ONCE, len(self._slots))):
                polls.create_task(self._until(over))

    async def _until(self, over: asyncio.Event) -> None:
        trouble = 0
        while not over.is_set():
            claimed = await self._claim(over)
            if not claimed:  # told to stop, or their executors died: a task polled for nobody would be lost
                continue
            try:
                self._vitals.waiting_to_poll_since = self._vitals.waiting_to_poll_since or time.monotonic()
                with self._metrics.poll_seconds.time():
                    tasks = await asyncio.wait_for(self._take(len(claimed), over), LONG_POLL_SECONDS + _ANSWER_SECONDS)
                trouble = 0
                self._vitals.last_poll, self._vitals.waiting_to_poll_since = time.monotonic(), None
                # A slot's executor may have died while the poll waited: the task then waits for the next one.
                for slot, task in zip(sorted(claimed, key=lambda slot: not slot.is_ready), tasks, strict=False):
                    self._assign(slot, task)
            except Exception as error:  # whatever it is, a worker that no longer polls helps nobody
                trouble += 1
                _log.warning("poll failed", error=f"{type(error).__name__}: {error}", times=trouble)
                await asyncio.sleep(min(0.2 * 2**trouble, _LONGEST_PAUSE))
            finally:
                self._claimed -= {slot.number for slot in claimed}

    async def _claim(self, over: asyncio.Event) -> list[Slot]:
        """Wait for a free slot, and a moment for more: short attempts end together, and one poll is for them all."""
        while not self._free() and not over.is_set():
            await self._change()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_GATHER_SECONDS):
                while len(self._free()) < self._share and not over.is_set():
                    await self._change()
        claimed = [] if over.is_set() else self._free()[: self._share]
        self._claimed |= {slot.number for slot in claimed}
        return claimed

    def _free(self) -> list[Slot]:
        return [s for s in self._slots if s.is_ready and s.running is None and s.number not in self._claimed]

    async def _change(self) -> None:
        self._changed.clear()
        await self._changed.wait()

    async def _take(self, count: int, over: asyncio.Event) -> list[PolledTask]:
        """Take what is there, else wait for one; what came with it is taken next time, so that no error loses it."""
        name, worker = self._task_name, self._worker_id
        found = await self._conductor.poll(name, worker, count)
        if found:
            return found
        async with self._waiting:  # an idle worker asks with one poll, not with all of them
            return [] if over.is_set() else await self._conductor.poll(name, worker, 1, LONG_POLL_SECONDS)
