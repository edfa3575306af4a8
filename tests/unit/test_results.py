"""Results told to a Conductor played by the test, or to a server that says nothing."""

import asyncio
import time
from collections.abc import Generator
from dataclasses import replace
from typing import Any, cast

import pytest
from structlog.testing import capture_logs

from perago.conductor.client import ConductorClient
from perago.conductor.errors import ConductorError
from perago.conductor.tasks import PolledTask, TaskResult
from perago.protocol.attempt import Attempt
from perago.worker import results
from perago.worker.metrics import Metrics
from perago.worker.results import Results
from perago.worker.slot import Running
from tests.unit.half_deaf import HalfDeaf

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


def ended(task_id: str, lease_seconds: float = 60) -> Running:
    """An attempt whose result is there."""
    task = replace(polled(task_id), lease_seconds=lease_seconds)
    return Running(task, f"execution-of-{task_id}", is_finished=True)


def ids_in(line: dict[str, Any]) -> dict[str, Any]:
    names = ("workflow", "task_id", "retry_count", "reference", "execution_id", "phase")
    return {name: line[name] for name in names}


class PlayedConductor:
    """Takes every result, has each task `has` it, and notes what it was asked and when."""

    def __init__(self, has: str | list[str] = "COMPLETED") -> None:
        self.has = has
        self.refusal: ConductorError | None = None
        self.told: list[str] = []
        self.statuses: list[str] = []
        self.given_back: list[str] = []
        self.extended: list[str] = []
        self.answers_after = 0.01
        self.looks: list[tuple[str, float]] = []
        self.most_looks_at_once = self._looking = 0

    async def report(self, attempt: Attempt, worker_id: str, result: TaskResult) -> None:
        self.told.append(attempt.task_id)
        self.statuses.append(result.status)
        if self.refusal:
            raise self.refusal

    async def extend_lease(self, attempt: Attempt, worker_id: str) -> None:
        self.extended.append(attempt.task_id)

    async def give_back(self, attempt: Attempt, worker_id: str) -> None:
        self.given_back.append(attempt.task_id)
        if self.refusal:
            raise self.refusal

    async def current(self, task_id: str) -> Attempt:
        self.looks.append((task_id, time.monotonic()))
        self._looking += 1
        self.most_looks_at_once = max(self.most_looks_at_once, self._looking)
        await asyncio.sleep(self.answers_after)
        self._looking -= 1
        return replace(polled(task_id).attempt, status=self.has.pop(0) if isinstance(self.has, list) else self.has)


def results_of(conductor: PlayedConductor | ConductorClient, seconds: float = 60) -> Results:
    return Results(cast("ConductorClient", conductor), "me", Metrics("work"), seconds, jobs=4)


def outcomes(telling: Results) -> list[str]:
    """What the worker has counted of attempts."""
    counted = [sample for metric in telling._metrics.registry.collect() for sample in metric.samples]
    return [sample.labels["outcome"] for sample in counted if sample.name == "perago_attempts_total"]


async def told(telling: Results, running: Running) -> None:
    assert await telling.tell(running, DONE, look_first=False)
    await telling.read_back(running, DONE, asyncio.Lock())


@pytest.fixture
def logged() -> Generator[list[Any]]:
    with capture_logs() as lines:
        yield lines


def test_a_result_that_conductor_dropped_is_said_with_both_states(logged: list[Any]) -> None:
    async def tell() -> None:
        await told(results_of(PlayedConductor(has="TIMED_OUT")), ended("t-1"))

    asyncio.run(tell())

    (line,) = logged
    assert (line["event"], line["told"], line["conductor_has"]) == ("completion not accepted", "COMPLETED", "TIMED_OUT")


def test_a_result_that_a_late_lease_extension_undid_is_told_again(logged: list[Any]) -> None:
    conductor = PlayedConductor(has=["IN_PROGRESS", "IN_PROGRESS", "COMPLETED"])

    asyncio.run(told(results_of(conductor), ended("t-1")))

    assert conductor.statuses == ["COMPLETED", "COMPLETED"]
    assert [line["event"] for line in logged] == ["result undone, and told again", "attempt ended"]


def test_a_result_that_is_undone_each_time_is_told_a_few_times_and_is_then_said_to_be_unconfirmed(
    logged: list[Any],
) -> None:
    conductor = PlayedConductor(has="IN_PROGRESS")
    telling = results_of(conductor)

    asyncio.run(told(telling, ended("t-1")))

    assert conductor.statuses == ["COMPLETED"] * 3
    *_, last = logged
    assert (last["event"], last["why"]) == ("completion not confirmed", "undone whenever it was told")
    assert outcomes(telling) == ["UNCONFIRMED"]


def test_the_same_end_of_another_delivery_is_not_taken_for_this_ones(logged: list[Any]) -> None:
    conductor = PlayedConductor(has="COMPLETED")
    task = ended("t-1").task
    first = replace(ended("t-1"), task=replace(task, attempt=replace(task.attempt, retry_count=1)))
    telling = results_of(conductor)

    asyncio.run(told(telling, first))

    (line,) = logged
    assert (line["event"], line["conductor_has"]) == ("completion not accepted", "COMPLETED")
    assert "retry_count is 0, polled 1" in line["why"]
    assert outcomes(telling) == ["NOT_ACCEPTED"]


@pytest.mark.parametrize(
    ("has", "times", "event"),
    [
        ("IN_PROGRESS", 1, "given back"),
        ("SCHEDULED", 0, "no longer ours to give back"),
        ("TIMED_OUT", 0, "no longer ours to give back"),
    ],
)
def test_a_task_is_given_back_only_while_it_is_ours(has: str, times: int, event: str, logged: list[Any]) -> None:
    conductor = PlayedConductor(has)
    telling = results_of(conductor)

    asyncio.run(telling.give_back(polled("t-1")))

    assert conductor.given_back == ["t-1"] * times
    assert [(line["event"], line["task_id"]) for line in logged] == [(event, "t-1")]
    assert not outcomes(telling)


@pytest.mark.parametrize("can_help", [True, False])
def test_a_task_whose_return_may_not_have_been_carried_out_is_left_to_its_lease_and_counts_as_no_lost_result(
    can_help: bool, logged: list[Any]
) -> None:
    conductor = PlayedConductor(has="IN_PROGRESS")
    conductor.refusal = ConductorError("not today", retryable=can_help)
    telling = results_of(conductor)

    asyncio.run(telling.give_back(polled("t-1")))

    assert conductor.given_back == ["t-1"]
    (line,) = logged
    assert line["event"].startswith("not given back")
    assert (line["why"], line["phase"]) == ("not today", "polled")
    assert not outcomes(telling)


@pytest.mark.parametrize(("has", "event"), [("COMPLETED", "attempt ended"), ("TIMED_OUT", "completion not accepted")])
def test_a_line_about_a_result_carries_the_ids_of_its_attempt_and_the_phase(
    has: str, event: str, logged: list[Any]
) -> None:
    asyncio.run(told(results_of(PlayedConductor(has)), ended("t-1")))

    (line,) = logged
    assert line["event"] == event
    assert ids_in(line) == {
        "workflow": "w-1",
        "task_id": "t-1",
        "retry_count": 0,
        "reference": "work",
        "execution_id": "execution-of-t-1",
        "phase": "completion",
    }


@pytest.mark.parametrize("can_help", [True, False])
def test_a_result_is_sent_again_while_that_can_help_and_time_is_left_and_is_then_said_to_be_lost(
    can_help: bool, logged: list[Any]
) -> None:
    conductor = PlayedConductor(has="IN_PROGRESS")
    conductor.refusal = ConductorError("not today", retryable=can_help)

    async def tell() -> bool:
        async with asyncio.timeout(15):
            return await results_of(conductor, seconds=0.5).tell(ended("t-1"), DONE, look_first=False)

    assert not asyncio.run(tell())

    assert (len(conductor.told) > 1) is can_help
    (line,) = logged
    assert (line["event"], line["why"]) == ("result lost", "Conductor could not be told: not today")
    assert ids_in(line)["execution_id"] == "execution-of-t-1"


def test_a_result_that_was_carried_out_without_an_answer_is_not_sent_again_nor_said_to_be_lost(
    logged: list[Any],
) -> None:
    conductor = PlayedConductor(has="COMPLETED")
    conductor.refusal = ConductorError("no answer", retryable=True)
    telling = results_of(conductor)

    asyncio.run(told(telling, ended("t-1")))

    assert conductor.statuses == ["COMPLETED"]
    assert [line["event"] for line in logged] == ["attempt ended"]
    assert outcomes(telling) == ["COMPLETED"]


@pytest.mark.parametrize(
    ("result", "outcome"),
    [(TaskResult("FAILED", {}, "no rows"), "FAILED"), (DONE, "NOT_ACCEPTED")],
)
def test_a_failure_that_its_workflow_allows_for_was_accepted(result: TaskResult, outcome: str) -> None:
    telling = results_of(PlayedConductor(has="COMPLETED_WITH_ERRORS"))

    asyncio.run(telling.read_back(ended("t-1"), result, asyncio.Lock()))

    assert outcomes(telling) == [outcome]


def test_a_result_is_lost_when_its_time_is_over_although_conductor_never_answers(
    monkeypatch: pytest.MonkeyPatch, logged: list[Any]
) -> None:
    monkeypatch.setattr(results, "_SHORTEST_TRY", 0.1)
    server = HalfDeaf()

    async def tell() -> bool:
        async with asyncio.timeout(15), server.asked() as client:  # less than a call waits that nobody limits
            return await results_of(client, seconds=0.5).tell(ended("t-1"), DONE, look_first=False)

    assert not asyncio.run(tell())

    assert server.unanswered >= 1
    (line,) = logged
    assert line["event"] == "result lost"
    assert "gave no answer" in line["why"]


def test_a_result_that_nobody_answers_is_sent_again_before_the_lease_runs_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(results, "_SHORTEST_TRY", 0.1)
    server = HalfDeaf(deaf_to=1)

    async def tell() -> bool:
        async with asyncio.timeout(15), server.asked() as client:
            return await results_of(client).tell(ended("t-1", lease_seconds=2), DONE, look_first=False)

    assert asyncio.run(tell())

    assert (server.unanswered, server.updates) == (1, ["COMPLETED"])


def test_a_burst_is_told_first_and_then_read_back_a_few_at_a_time(logged: list[Any]) -> None:
    conductor = PlayedConductor()

    async def tell() -> None:
        telling = results_of(conductor)
        await asyncio.gather(*(told(telling, ended(f"t-{number}")) for number in range(20)))

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
        reading_back = asyncio.create_task(told(telling, ended("t-first")))
        started = time.monotonic()
        while not reading_back.done() and time.monotonic() < started + 30:
            assert await telling.tell(ended("t-other"), DONE, look_first=False)
            await asyncio.sleep(0.01)
        return started

    started = asyncio.run(tell())

    ((task_id, at),) = conductor.looks
    assert task_id == "t-first"
    assert 0.4 < at - started < 5
