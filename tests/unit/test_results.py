"""Results told to a Conductor played by the test."""

import asyncio
import time
from collections.abc import Generator
from dataclasses import replace
from typing import Any, cast

import pytest
from structlog.testing import capture_logs

from perago.conductor.client import ConductorClient
from perago.conductor.tasks import PolledTask, TaskResult
from perago.protocol.attempt import Attempt
from perago.worker import results
from perago.worker.metrics import Metrics
from perago.worker.results import Results

DONE = TaskResult("COMPLETED", {"result": {}})


def polled(task_id: str) -> PolledTask:
    attempt = Attempt(
        workflow_instance_id="w-1",
        task_id=task_id,
        retry_count=0,
        reference_task_name="work",
        seq=1,
        iteration=0,
        status="IN_PROGRESS",
    )
    return PolledTask(attempt, {}, 60)


class PlayedConductor:
    """Takes every result, has each task `has` it, and notes what it was asked and when."""

    def __init__(self, has: str = "COMPLETED") -> None:
        self.has = has
        self.told: list[str] = []
        self.looks: list[tuple[str, float]] = []
        self.most_looks_at_once = self._looking = 0

    async def report(self, attempt: Attempt, worker_id: str, result: TaskResult) -> None:
        self.told.append(attempt.task_id)

    async def current(self, task_id: str) -> Attempt:
        self.looks.append((task_id, time.monotonic()))
        self._looking += 1
        self.most_looks_at_once = max(self.most_looks_at_once, self._looking)
        await asyncio.sleep(0.01)
        self._looking -= 1
        return replace(polled(task_id).attempt, status=self.has)


def results_of(conductor: PlayedConductor, at_once: int = 2) -> Results:
    return Results(cast("ConductorClient", conductor), "me", Metrics("work"), 60, at_once)


async def told(telling: Results, task: PolledTask) -> None:
    assert await telling.tell(task, DONE, asyncio.Lock(), look_first=False)
    await telling.read_back(task, DONE)


@pytest.fixture
def logged() -> Generator[list[Any]]:
    with capture_logs() as lines:
        yield lines


def test_a_result_that_conductor_dropped_is_said_with_both_states(logged: list[Any]) -> None:
    async def tell() -> None:
        await told(results_of(PlayedConductor(has="TIMED_OUT")), polled("t-1"))

    asyncio.run(tell())

    (line,) = logged
    assert (line["event"], line["told"], line["conductor_has"]) == ("completion not accepted", "COMPLETED", "TIMED_OUT")


def test_a_burst_is_told_first_and_then_read_back_a_few_at_a_time(logged: list[Any]) -> None:
    conductor = PlayedConductor()

    async def tell() -> None:
        telling = results_of(conductor)
        await asyncio.gather(*(told(telling, polled(f"t-{number}")) for number in range(20)))

    asyncio.run(tell())

    assert sorted(task_id for task_id, _ in conductor.looks) == sorted(conductor.told)
    assert conductor.most_looks_at_once == 2
    assert [line["event"] for line in logged] == ["attempt ended"] * 20


def test_under_a_load_without_end_a_result_is_read_back_in_time(
    monkeypatch: pytest.MonkeyPatch, logged: list[Any]
) -> None:
    monkeypatch.setattr(results, "_READ_BACK_WITHIN_SECONDS", 0.5)
    conductor = PlayedConductor()

    async def tell() -> float:
        telling = results_of(conductor)
        reading_back = asyncio.create_task(told(telling, polled("t-first")))
        started = time.monotonic()
        while not reading_back.done() and time.monotonic() < started + 30:
            assert await telling.tell(polled("t-other"), DONE, asyncio.Lock(), look_first=False)
            await asyncio.sleep(0.01)
        return started

    started = asyncio.run(tell())

    ((task_id, at),) = conductor.looks
    assert task_id == "t-first"
    assert 0.4 < at - started < 5
