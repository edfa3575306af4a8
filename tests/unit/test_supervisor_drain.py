"""What came with the last poll, while the worker drains."""

import asyncio
from pathlib import Path
from typing import cast

from perago.authoring.controls import TaskControls
from perago.conductor.client import ConductorClient
from perago.config import load_runtime_config
from perago.worker.facts import TaskFacts
from perago.worker.spark import SparkSource
from perago.worker.supervisor import Supervisor
from tests.unit.test_results import PlayedConductor, polled


def test_a_task_for_an_executor_that_died_meanwhile_is_handed_back_at_once(tmp_path: Path) -> None:
    conductor = PlayedConductor(has="IN_PROGRESS")

    async def drain() -> None:
        task = TaskFacts("features.build", TaskControls(), None, False, {})
        played, no_spark = cast("ConductorClient", conductor), cast("SparkSource", None)
        supervisor = Supervisor("tasks.build", task, load_runtime_config(), played, "w-1", tmp_path, 1, no_spark)
        supervisor._draining.set()
        supervisor._assign(supervisor._slots[0], polled("t-1"))
        last_poll = asyncio.create_task(asyncio.sleep(0))
        await asyncio.wait_for(supervisor._all_finished(last_poll), 10)

    asyncio.run(drain())

    assert conductor.told == ["t-1"]
