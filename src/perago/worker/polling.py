"""Attempts are taken from Conductor for the slots that are free, or will be before the poll is answered."""

import asyncio
import contextlib
import math
import time
from collections import deque
from collections.abc import Callable, Sequence
from statistics import fmean

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
_MOST_ROUNDS = 2  # of tasks polled ahead: a worker that is killed leaves them to their leases
_LONGEST_WAIT = 0.5  # of a task for a slot: another worker may have one


class Polling:
    """Polls while slots are free. `changed` is set whenever one may have become so, or polling is to end.

    While the queue is full and attempts last less than a poll, the next poll is sent as soon as the last one is
    answered, for as many tasks as the slots will have done meanwhile. A task for which there is no slot after all is
    given back to Conductor.
    """

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
        give_back: Callable[[PolledTask], None],
    ) -> None:
        self._conductor = conductor
        self._task_name = task_name
        self._worker_id = worker_id
        self._slots = slots
        self._changed = changed
        self._vitals = vitals
        self._metrics = metrics
        self._assign = assign
        self._give_back = give_back
        self._attempts_lasted = deque([math.inf], maxlen=len(slots))
        self._assigned_at: dict[int, float] = {}
        self._full_poll_lasted = 0.0

    def attempt_lasted(self, seconds: float) -> None:
        """What decides whether to poll ahead; infinity for an attempt whose end was none."""
        self._attempts_lasted.append(seconds)

    async def until(self, over: asyncio.Event) -> None:
        """Poll until told to stop; a poll under way is waited for, since what it brings was handed to us."""
        coming: asyncio.Task[list[PolledTask]] | None = None
        trouble = 0
        try:
            while coming or not over.is_set():
                try:
                    answered, coming = coming, None
                    tasks = await (answered or self._for_free_slots(over))
                    trouble = 0
                    if not over.is_set() and (ahead := self._ahead(tasks)):
                        coming = asyncio.create_task(self._poll(ahead))
                        await asyncio.sleep(0)  # it is sent before the executors want the processor
                    await self._place(tasks, over)
                except Exception as error:  # whatever it is, a worker that no longer polls helps nobody
                    trouble += 1
                    _log.warning("poll failed", error=f"{type(error).__name__}: {error}", times=trouble)
                    await asyncio.sleep(min(0.2 * 2 ** min(trouble, 9), _LONGEST_PAUSE))
        finally:
            self._vitals.waiting_to_poll_since = None
            if coming:
                coming.cancel()

    def _ahead(self, brought: Sequence[PolledTask]) -> int:
        """How many tasks to poll for beside those just brought: none unless there is more, and the slots keep up."""
        if not all(task.may_wait for task in brought):
            return 0
        now = asyncio.get_running_loop().time()
        ages = [now - self._assigned_at[slot.number] for slot in self._slots if slot.running is not None]
        longest = max(fmean(self._attempts_lasted), 2 * max(ages, default=0))  # one at work is taken to be half done
        return int(min(_MOST_ROUNDS, self._full_poll_lasted // longest)) * len(self._slots)

    async def _place(self, tasks: list[PolledTask], over: asyncio.Event) -> None:
        """Give each task to a slot as one becomes free, or back when none does."""
        waiting = deque(tasks)
        try:
            async with asyncio.timeout(_LONGEST_WAIT):
                while True:
                    for slot in self._free()[: len(waiting)]:
                        self._assigned_at[slot.number] = asyncio.get_running_loop().time()
                        self._assign(slot, waiting.popleft())
                    if not waiting or over.is_set():
                        break
                    await self._change()
        except TimeoutError:
            pass
        finally:
            for task in waiting:
                self._give_back(task)

    async def _for_free_slots(self, over: asyncio.Event) -> list[PolledTask]:
        """Take what is there, else wait for one; what came with it is taken next time, so that no error loses it."""
        free = await self._freed(over)
        if not free:  # told to stop, or their executors died: a task polled for nobody would wait
            return []
        found = await self._poll(len(free))
        return found if found or over.is_set() else await self._poll(1, LONG_POLL_SECONDS)

    async def _freed(self, over: asyncio.Event) -> list[Slot]:
        """Wait for a free slot, and a moment for the others."""
        while not self._free() and not over.is_set():
            self._vitals.waiting_to_poll_since = None
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

    async def _poll(self, count: int, wait_seconds: float = 0) -> list[PolledTask]:
        self._vitals.waiting_to_poll_since = self._vitals.waiting_to_poll_since or time.monotonic()
        clock = asyncio.get_running_loop().time
        started = clock()
        with self._metrics.poll_seconds.time():
            async with asyncio.timeout(wait_seconds + _ANSWER_SECONDS):
                tasks = await self._conductor.poll(self._task_name, self._worker_id, count, wait_seconds)
        self._vitals.last_poll, self._vitals.waiting_to_poll_since = time.monotonic(), None
        is_full = len(tasks) == count >= len(self._slots) and not wait_seconds
        self._full_poll_lasted = clock() - started if is_full else 0.0
        return tasks
