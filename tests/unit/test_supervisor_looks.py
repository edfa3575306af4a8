"""Results that were told and not yet looked at are in memory: they are few."""

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from perago.worker import results
from perago.worker.messages import Finished
from tests.unit.test_results import DONE, PlayedConductor, polled
from tests.unit.test_supervisor_times import Stage, quickly

LOOK_SECONDS = 5


@pytest.mark.parametrize(
    ("output_bytes", "told_at_once"), [(100, 3), (10**6, 1)], ids=["beyond a number", "of a large output"]
)
def test_a_result_is_told_once_the_one_before_was_looked_at(
    output_bytes: int, told_at_once: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(results, "_MOST_WAITING", 2)
    conductor = PlayedConductor()
    conductor.answers_after = LOOK_SECONDS

    async def finish_one_after_the_other() -> None:
        stage = Stage.set_up(tmp_path, conductor=conductor)
        for _ in range(told_at_once + 1):
            stage.works(0)
            stage.supervisor._heard(stage.executor(0), Finished("e-0", DONE, {}, {}, output_bytes))
            await asyncio.sleep(0.01)
        assert len(conductor.told) == told_at_once
        await asyncio.sleep(LOOK_SECONDS)
        assert len(conductor.told) == told_at_once + 1

    quickly(finish_one_after_the_other())


def test_an_input_is_kept_no_longer_than_until_an_executor_has_it(tmp_path: Path) -> None:
    async def assign() -> None:
        stage = Stage.set_up(tmp_path)
        task = replace(polled("t-0"), payload={"params": {"limit": 3}})
        stage.supervisor._assign(stage.slot(0), task)
        (given,) = stage.executor(0).heard
        running = stage.slot(0).running
        assert running is not None
        assert (given.payload, running.task.payload) == (task.payload, {})

    quickly(assign())
