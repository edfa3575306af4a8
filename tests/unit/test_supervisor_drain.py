"""Attempts that nobody here will run, or end, are given back or reported: Conductor hears of each."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import cast

import pytest
from structlog.testing import capture_logs

from perago.authoring.controls import TaskControls
from perago.conductor.client import ConductorClient
from perago.conductor.errors import ConductorError
from perago.config import load_runtime_config
from perago.worker.facts import TaskFacts
from perago.worker.messages import Finished, SparkQuestion
from perago.worker.slot import Executor, Running
from perago.worker.spark import SparkSource
from perago.worker.supervisor import Supervisor
from tests.unit.test_results import DONE, PlayedConductor, polled
from tests.unit.test_supervisor_times import STARTED_AFTER, Stage, now, quickly


def came_after_the_time_was_up(supervisor: Supervisor) -> None:
    supervisor._no_more = True
    supervisor._slots[0].executor = cast("Executor", Thread())
    supervisor._assign(supervisor._slots[0], polled("t-1"))


def came_when_no_slot_was_free(supervisor: Supervisor) -> None:
    supervisor._give_back(polled("t-1"))


def runs_in_a_thread_when_time_is_up(supervisor: Supervisor) -> None:
    supervisor._slots[0].executor = cast("Executor", Thread())
    supervisor._assign(supervisor._slots[0], polled("t-1"))
    assert supervisor._kill(lambda _: True) == 1


class Thread:
    """An executor that cannot be killed."""

    can_be_killed = False

    def send(self, message: object) -> None:
        """It is at work."""


@pytest.mark.parametrize(
    ("happened", "told"),
    [
        (came_after_the_time_was_up, "given back"),
        (came_when_no_slot_was_free, "given back"),
        (runs_in_a_thread_when_time_is_up, "FAILED"),
    ],
)
def test_what_nobody_will_run_is_given_back_and_what_nobody_will_end_has_failed(
    happened: Callable[[Supervisor], None], told: str, tmp_path: Path
) -> None:
    conductor = PlayedConductor(has="IN_PROGRESS")

    async def drain() -> None:
        task = TaskFacts("features.build", TaskControls(), None, False, {})
        played, no_spark = cast("ConductorClient", conductor), cast("SparkSource", None)
        supervisor = Supervisor("tasks.build", task, load_runtime_config(), played, "w-1", tmp_path, 1, no_spark)
        happened(supervisor)
        last_poll = asyncio.create_task(asyncio.sleep(0))
        await asyncio.wait_for(supervisor._all_finished(last_poll), 10)

    asyncio.run(drain())

    assert (conductor.statuses or ["given back"])[0] == told
    assert conductor.given_back == ["t-1"] * (told == "given back")


@pytest.mark.parametrize("output_bytes", [100, 10**6])
def test_a_drain_does_not_wait_long_for_looks_at_results(output_bytes: int, tmp_path: Path) -> None:
    conductor = PlayedConductor()
    conductor.answers_after = 3600

    async def drain() -> None:
        stage = Stage.set_up(tmp_path, conductor=conductor)
        stage.works(0)
        stage.supervisor._heard(stage.executor(0), Finished("e-0", DONE, {}, {}, output_bytes))
        stage.supervisor._draining.set()
        assert await stage.supervisor._drained(asyncio.create_task(asyncio.sleep(0)))
        assert now() <= 10.2

    with capture_logs() as logged:
        quickly(drain())

    assert conductor.told == ["t-0"]
    assert any("not confirmed" in line["event"] for line in logged)


def test_a_drain_that_runs_out_of_time_says_what_it_could_not_tell(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PERAGO_SHUTDOWN_FORCE_KILL_AFTER", "10s")
    conductor = PlayedConductor(has="IN_PROGRESS")
    conductor.answers_after = 3600

    async def drain() -> None:
        stage = Stage.set_up(tmp_path, conductor=conductor)
        supervisor = stage.supervisor
        stage.works(0).since -= 60
        supervisor._heard(stage.executor(0), Finished("e-0", DONE, {}, {}))
        supervisor._give_back(polled("t-1"))
        supervisor._draining.set()
        last_poll = asyncio.create_task(asyncio.sleep(0))
        assert not await supervisor._drained(last_poll)

    with capture_logs() as logged:
        quickly(drain())

    assert conductor.told == conductor.given_back == []
    said = {line["task_id"]: line["event"] for line in logged if "task_id" in line}
    assert said == {"t-0": "result lost", "t-1": "not given back: another worker has it when its lease has run out"}


def test_a_drain_in_which_a_result_was_lost_is_none(tmp_path: Path) -> None:
    conductor = PlayedConductor()
    conductor.refusal = ConductorError("not today", retryable=False)

    async def drain() -> None:
        stage = Stage.set_up(tmp_path, conductor=conductor)
        stage.works(0)
        asyncio.get_running_loop().call_later(
            5, stage.supervisor._heard, stage.executor(0), Finished("e-0", DONE, {}, {})
        )
        stage.supervisor._draining.set()
        assert not await stage.supervisor._drained(asyncio.create_task(asyncio.sleep(0)))

    quickly(drain())


def test_a_result_lost_before_a_drain_is_none_of_its_matter(tmp_path: Path) -> None:
    async def drain() -> None:
        stage = Stage.set_up(tmp_path)
        stage.supervisor._results.lost(Running(polled("t-1"), "e-1"), "long ago")
        stage.supervisor._draining.set()
        assert await stage.supervisor._drained(asyncio.create_task(asyncio.sleep(0)))

    quickly(drain())


def test_a_drain_that_runs_out_of_time_while_a_poll_is_under_way_is_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PERAGO_SHUTDOWN_FORCE_KILL_AFTER", "10s")

    async def drain() -> None:
        supervisor = Stage.set_up(tmp_path).supervisor
        supervisor._draining.set()
        assert not await supervisor._drained(asyncio.create_task(asyncio.sleep(3600)))

    quickly(drain())


def test_a_drain_does_not_wait_for_a_spark_server_that_nobody_waits_for_any_more(tmp_path: Path) -> None:
    async def drain() -> None:
        stage = Stage.set_up(tmp_path)
        stage.works(0)
        stage.supervisor._heard(stage.executor(0), SparkQuestion("q-1", "e-0"))
        stage.supervisor._heard(stage.executor(0), Finished("e-0", DONE, {}, {}))
        await stage.supervisor._all_finished(asyncio.create_task(asyncio.sleep(0)))
        assert stage.executor(0).heard == []
        assert now() < STARTED_AFTER

    quickly(drain())
