"""Attempts without an executor: nobody will run them, and Conductor hears of it."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import cast

import pytest

from perago.authoring.controls import TaskControls
from perago.conductor.client import ConductorClient
from perago.config import load_runtime_config
from perago.worker.facts import TaskFacts
from perago.worker.slot import Executor
from perago.worker.spark import SparkSource
from perago.worker.supervisor import Supervisor
from tests.unit.test_results import PlayedConductor, polled


class Unused:
    """An executor that must not be given anything."""


def came_with_the_last_poll(supervisor: Supervisor) -> None:
    supervisor._draining.set()
    supervisor._assign(supervisor._slots[0], polled("t-1"))


def waits_when_time_is_up(supervisor: Supervisor) -> None:
    supervisor._assign(supervisor._slots[0], polled("t-1"))
    assert supervisor._kill(lambda _: True) == 1


def was_ended_by_conductor_while_it_waited(supervisor: Supervisor) -> None:
    [slot] = supervisor._slots
    supervisor._assign(slot, polled("t-1"))
    assert slot.running is not None
    slot.running.stopped_because = "the workflow was terminated"
    slot.executor, slot.is_ready = cast("Executor", Unused()), True
    supervisor._hand_over(slot)


@pytest.mark.parametrize(
    "happened", [came_with_the_last_poll, waits_when_time_is_up, was_ended_by_conductor_while_it_waited]
)
def test_an_attempt_that_nobody_will_run_is_handed_back_at_once(
    happened: Callable[[Supervisor], None], tmp_path: Path
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

    assert conductor.told == ["t-1"]
