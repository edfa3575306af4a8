"""Polls for free slots, to a Conductor played by the test, on an event loop whose time passes at once."""

import asyncio
import math
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import cast

import pytest
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

    def __init__(self, tasks: int = 0, *, may_wait: bool = True) -> None:
        self.left = tasks
        self._may_wait = may_wait
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
        return [replace(polled(f"t-{self.left + number}"), may_wait=self._may_wait) for number in range(taken)]


class Place:
    """Slots that are all ready, and polls for them."""

    def __init__(self, queue: Queue, slots: int) -> None:
        self.slots = [Slot(number, is_ready=True) for number in range(slots)]
        self.changed, self.over, self.vitals = asyncio.Event(), asyncio.Event(), Vitals()
        self.assigned: list[tuple[int, str]] = []
        self.given_back: list[str] = []
        self._seconds: float | None = None
        self.polling = Polling(
            *(cast("ConductorClient", queue), "work", "me", self.slots, self.changed, self.vitals, Metrics("work")),
            assign=self._assign,
            give_back=lambda task: self.given_back.append(task.attempt.task_id),
        )

    def _assign(self, slot: Slot, task: PolledTask) -> None:
        assert slot.running is None
        slot.running = Running(task, "an execution")
        self.assigned.append((slot.number, task.attempt.task_id))
        if self._seconds is not None:
            asyncio.get_running_loop().call_later(self._seconds, self.free, slot.number)

    def lasts(self, seconds: float) -> None:
        """What every attempt took of late, and takes from now on."""
        for _ in self.slots:
            self.polling.attempt_lasted(seconds)
        self._seconds = seconds

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


def test_while_the_queue_is_full_and_attempts_are_short_the_next_tasks_are_there_before_slots_are_free() -> None:
    async def test() -> None:
        queue = Queue(tasks=100)
        place = Place(queue, 4)
        place.lasts(0.01)
        async with place.at_work():
            await asyncio.sleep(1.05)
            assert queue.asked == [(4, 0)] + [(8, 0)] * 10
            assert len(place.assigned) == 4 + 9 * 8
            assert not place.given_back

    quickly(test())


@pytest.mark.parametrize("last", [(0.12, 0.08, 0.15, 0.11), (0.01, 0.01, 0.01, math.inf), ()])
def test_nothing_is_polled_for_ahead_where_attempts_last_longer_than_a_poll_or_end_badly_or_none_has_ended(
    last: Sequence[float],
) -> None:
    async def test() -> None:
        queue = Queue(tasks=100)
        place = Place(queue, 4)
        for seconds in last:
            place.polling.attempt_lasted(seconds)
        async with place.at_work():
            await asyncio.sleep(2)
            assert queue.asked == [(4, 0)]
        assert len(place.assigned) == 4

    quickly(test())


def test_tasks_that_may_not_wait_are_polled_for_only_where_slots_are_free() -> None:
    async def test() -> None:
        queue = Queue(tasks=100, may_wait=False)
        place = Place(queue, 4)
        place.lasts(0.01)
        async with place.at_work():
            await asyncio.sleep(1)
            assert len(place.assigned) > 8
            assert queue.most_wanted == 4
        assert not place.given_back

    quickly(test())


def test_a_poll_that_brought_less_than_it_asked_for_is_followed_by_none_ahead() -> None:
    async def test() -> None:
        queue = Queue(tasks=7)
        place = Place(queue, 4)
        place.lasts(0.01)
        async with place.at_work():
            await asyncio.sleep(10)
            assert len(place.assigned) == 7
            assert queue.asked[:2] == [(4, 0), (8, 0)]
            assert max(count for count, _ in queue.asked[2:]) == 4

    quickly(test())


def test_a_task_for_which_no_slot_becomes_free_is_given_back_soon() -> None:
    async def test() -> None:
        queue = Queue(tasks=12)
        place = Place(queue, 4)
        place.lasts(0.01)
        place._seconds = None  # they were short until now
        async with place.at_work():
            await asyncio.sleep(1)
            assert len(place.assigned) == 4
            assert len(place.given_back) == 8
            place.free(1)
            await asyncio.sleep(1)
        assert queue.left == 0
        assert queue.asked[-1][0] == 1

    quickly(test())


def test_a_stop_gives_back_at_once_what_waits_for_a_slot() -> None:
    async def test() -> None:
        place = Place(Queue(tasks=12), 4)
        place.lasts(0.01)
        place._seconds = None
        async with place.at_work():
            await asyncio.sleep(0.25)
            assert not place.given_back
            stopped = now()
        assert now() == stopped
        assert len(place.given_back) == 8

    quickly(test())


def test_a_slot_whose_executor_dies_while_the_poll_waits_gets_nothing() -> None:
    async def test() -> None:
        queue = Queue()
        place = Place(queue, 1)
        async with place.at_work():
            await asyncio.sleep(0.5)
            place.slots[0].is_ready = False
            queue.left = 1
            await asyncio.sleep(1)
            assert place.given_back == ["t-0"]
        assert not place.assigned

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


def test_polls_go_on_after_an_outage_of_hours() -> None:
    async def test() -> None:
        queue = Queue(tasks=1)
        queue.trouble = 2000
        place = Place(queue, 1)
        with capture_logs():
            async with place.at_work():
                await asyncio.sleep(4 * 3600)
        assert len(place.assigned) == 1

    quickly(test())


def test_polls_that_fail_are_unhealthy_only_while_a_slot_is_free_and_the_worker_polls() -> None:
    async def test() -> None:
        queue = Queue(tasks=1)
        place = Place(queue, 2)
        async with place.at_work():
            await asyncio.sleep(0.15)
            assert len(place.assigned) == 1
            queue.trouble = 100
            await asyncio.sleep(10)
            assert place.vitals.waiting_to_poll_since is not None
            place.slots[1].is_ready = False  # the other is busy
            await asyncio.sleep(10)
            assert place.vitals.waiting_to_poll_since is None
            place.slots[1].is_ready = True
            place.free()
            await asyncio.sleep(10)
            assert place.vitals.waiting_to_poll_since is not None
        assert place.vitals.waiting_to_poll_since is None

    quickly(test())


def test_whatever_goes_wrong_polling_goes_on() -> None:
    async def test() -> None:
        place = Place(Queue(tasks=3), 1)
        place.lasts(0.01)
        assign, errors = place._assign, [RuntimeError("a mistake")]

        def mistaken(slot: Slot, task: PolledTask) -> None:
            if errors:
                raise errors.pop()
            assign(slot, task)

        place.polling._assign = mistaken
        async with place.at_work():
            await asyncio.sleep(30)
        assert len(place.assigned) == 2

    quickly(test())


def test_a_mistake_with_one_task_gives_back_those_that_came_with_it() -> None:
    async def test() -> None:
        place = Place(Queue(tasks=4), 4)

        def mistaken(slot: Slot, task: PolledTask) -> None:
            raise RuntimeError("a mistake")

        place.polling._assign = mistaken
        async with place.at_work():
            await asyncio.sleep(1)
        assert len(place.given_back) == 3

    quickly(test())
