"""Polls for free slots, to a Conductor played by the test, on an event loop whose time passes at once."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import cast

from structlog.testing import capture_logs

from perago.conductor.client import ConductorClient
from perago.conductor.errors import ConductorError
from perago.conductor.tasks import PolledTask
from perago.worker.metrics import Metrics
from perago.worker.polling import LONG_POLL_SECONDS, Polling
from perago.worker.slot import Running, Slot
from perago.worker.vitals import Vitals
from tests.unit.test_results import polled
from tests.unit.test_supervisor_times import now, quickly


class Queue:
    """Conductor's queue of a task: every poll takes a tenth of a second, and a long one ends with the first task."""

    def __init__(self, tasks: int = 0) -> None:
        self.left = tasks
        self.trouble = 0
        self.asked: list[tuple[int, float]] = []  # for how many, and how long to wait
        self.wanted_at_once = self.waiting_at_once = self.most_wanted = self.most_waiting = 0

    async def poll(self, task_name: str, worker_id: str, count: int, wait_seconds: float = 0) -> list[PolledTask]:
        self.asked.append((count, wait_seconds))
        self.wanted_at_once += count
        self.waiting_at_once += wait_seconds > 0
        self.most_wanted = max(self.most_wanted, self.wanted_at_once)
        self.most_waiting = max(self.most_waiting, self.waiting_at_once)
        try:
            return await self._answer(count, wait_seconds)
        finally:
            self.wanted_at_once -= count
            self.waiting_at_once -= wait_seconds > 0

    async def _answer(self, count: int, wait_seconds: float) -> list[PolledTask]:
        await asyncio.sleep(0.1)
        if self.trouble:
            self.trouble -= 1
            raise ConductorError("Conductor is away", retryable=True)
        for _ in range(round(wait_seconds * 10)):
            if self.left:
                break
            await asyncio.sleep(0.1)
        taken = min(count, self.left)
        self.left -= taken
        return [polled(f"t-{self.left + number}") for number in range(taken)]


class Place:
    """Slots that are all ready, and polls for them."""

    def __init__(self, queue: Queue, slots: int) -> None:
        self.slots = [Slot(number, is_ready=True) for number in range(slots)]
        self.changed, self.over = asyncio.Event(), asyncio.Event()
        self.assigned: list[tuple[int, str]] = []
        self.polling = Polling(
            *(cast("ConductorClient", queue), "work", "me", self.slots, self.changed, Vitals(), Metrics("work")),
            assign=self._assign,
        )

    def _assign(self, slot: Slot, task: PolledTask) -> None:
        assert slot.running is None
        slot.running = Running(task, "an execution")
        self.assigned.append((slot.number, task.attempt.task_id))

    def free(self, *numbers: int) -> None:
        for number in numbers:
            self.slots[number].running = None
        self.changed.set()

    @asynccontextmanager
    async def at_work(self) -> AsyncGenerator[None]:
        polling = asyncio.create_task(self.polling.until(self.over))
        try:
            yield
        finally:
            self.over.set()
            self.changed.set()
            await polling


def test_every_free_slot_gets_a_task_and_no_more_are_asked_for() -> None:
    async def test() -> None:
        queue = Queue(tasks=10)
        place = Place(queue, 5)
        async with place.at_work():
            await asyncio.sleep(1)
            assert sorted(slot for slot, _ in place.assigned) == [0, 1, 2, 3, 4]
            place.free(1, 3)
            await asyncio.sleep(1)
        assert sorted(slot for slot, _ in place.assigned) == [0, 1, 1, 2, 3, 3, 4]
        assert queue.most_wanted == 5
        assert queue.left == 3

    quickly(test())


def test_slots_that_become_free_together_are_polled_for_together() -> None:
    async def test() -> None:
        queue = Queue(tasks=8)
        place = Place(queue, 4)
        async with place.at_work():
            await asyncio.sleep(1)
            queue.asked.clear()
            place.free(0)
            await asyncio.sleep(0.001)
            place.free(1)
            await asyncio.sleep(0.05)
            assert queue.asked == [(2, 0)]

    quickly(test())


def test_an_idle_worker_waits_with_one_poll_at_a_time() -> None:
    async def test() -> None:
        queue = Queue()
        place = Place(queue, 4)
        async with place.at_work():
            await asyncio.sleep(60)
            assert queue.most_waiting == 1
            assert {wait for _, wait in queue.asked} == {0, LONG_POLL_SECONDS}
            queue.left = 4
            await asyncio.sleep(3 * LONG_POLL_SECONDS)
            assert sorted(slot for slot, _ in place.assigned) == [0, 1, 2, 3]

    quickly(test())


def test_what_a_poll_brings_after_the_stop_is_assigned_and_nothing_more_is_asked() -> None:
    async def test() -> None:
        queue = Queue(tasks=9)
        place = Place(queue, 2)
        async with place.at_work():
            await asyncio.sleep(0.05)
            asked = list(queue.asked)
        assert queue.asked == asked
        assert sorted(slot for slot, _ in place.assigned) == [0, 1]

    quickly(test())


def test_a_stop_waits_for_the_long_poll_under_way_and_for_no_other() -> None:
    async def test() -> None:
        place = Place(Queue(), 4)
        async with place.at_work():
            await asyncio.sleep(10)
            stopped = now()
        assert now() - stopped <= LONG_POLL_SECONDS + 0.1

    quickly(test())


def test_a_stop_ends_polling_while_every_slot_is_busy() -> None:
    async def test() -> None:
        place = Place(Queue(tasks=2), 2)
        async with place.at_work():
            await asyncio.sleep(1)
            assert len(place.assigned) == 2
        place.free(0, 1)
        assert len(place.assigned) == 2

    quickly(test())


def test_a_slot_whose_executor_died_is_not_polled_for() -> None:
    async def test() -> None:
        queue = Queue(tasks=9)
        place = Place(queue, 2)
        place.slots[0].is_ready = False
        async with place.at_work():
            await asyncio.sleep(1)
        assert [slot for slot, _ in place.assigned] == [1]
        assert queue.left == 8

    quickly(test())


def test_a_poll_that_fails_is_told_and_tried_again_later() -> None:
    async def test() -> None:
        queue = Queue(tasks=1)
        queue.trouble = 3
        place = Place(queue, 1)
        with capture_logs() as logs:
            async with place.at_work():
                await asyncio.sleep(10)
        assert [(line["event"], line["times"]) for line in logs] == [("poll failed", times) for times in (1, 2, 3)]
        assert "Conductor is away" in logs[0]["error"]
        assert [slot for slot, _ in place.assigned] == [0]

    quickly(test())
