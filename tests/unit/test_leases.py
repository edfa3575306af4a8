"""Leases kept alive on a connection that somebody dropped without a word."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest
from structlog.testing import capture_logs

from perago.conductor.client import ConductorClient
from perago.conductor.errors import ConductorError
from perago.protocol.attempt import Attempt
from perago.worker import leases
from perago.worker.leases import Leases
from perago.worker.metrics import Metrics
from perago.worker.slot import Running, Slot
from tests.unit.half_deaf import HalfDeaf
from tests.unit.test_results import ids_in, polled
from tests.unit.test_supervisor_times import Stage, now, quickly


def extended_on(server: HalfDeaf) -> list[Any]:
    """Keep a lease until the server has taken an extension; gives what was logged."""

    async def keep() -> None:
        running = Running(replace(polled("t-1"), lease_seconds=2), "e-1")
        async with asyncio.timeout(15), server.asked() as client:  # less than a call waits that nobody limits
            keeping = asyncio.create_task(Leases(client, "me", Metrics("work"), None).keep(Slot(0), running))
            while not server.updates:  # noqa: ASYNC110 - nothing tells the test
                await asyncio.sleep(0.01)
            keeping.cancel()

    with capture_logs() as logged:
        asyncio.run(keep())
    return logged


def test_a_heartbeat_that_nobody_answers_is_given_up_in_time_for_another(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leases, "_SHORTEST_TRY", 0.1)
    server = HalfDeaf(deaf_to=1)

    (line,) = extended_on(server)

    assert (server.unanswered, server.updates) == (1, ["IN_PROGRESS"])
    assert line["event"] == "lease not extended"
    assert "gave no answer" in line["error"]
    assert (ids_in(line)["execution_id"], ids_in(line)["phase"]) == ("e-1", "running")


class Answers:
    """A Conductor that answers lease extensions with these errors, one each, and then has the attempt as it was."""

    def __init__(self, *errors: ConductorError) -> None:
        self._errors = list(errors)

    async def extend_lease(self, attempt: Attempt, worker_id: str) -> None:
        if self._errors:
            raise self._errors.pop(0)

    async def current(self, task_id: str) -> Attempt:
        return polled(task_id).attempt


REMOVED = ConductorError("No such task found by id: t-0", status=404)
AWAY = ConductorError("Conductor is away", status=503, retryable=True)


@pytest.mark.parametrize(
    ("answers", "killed_at"),
    [([REMOVED, REMOVED], 30), ([REMOVED], None), ([REMOVED, AWAY, REMOVED], None), ([AWAY, AWAY, AWAY], None)],
)
def test_an_attempt_whose_workflow_was_removed_is_stopped_once_that_is_sure(
    answers: Sequence[ConductorError], killed_at: float | None, tmp_path: Path
) -> None:
    async def keep() -> None:
        stage = Stage.set_up(tmp_path)
        executor, running = stage.executor(0), stage.works(0)
        executor.is_stopped = lambda: False
        kept = Leases(cast("ConductorClient", Answers(*answers)), "me", Metrics("work"), None)
        keeping = asyncio.create_task(kept.keep(stage.slot(0), running))
        await asyncio.sleep(300)
        keeping.cancel()

        assert executor.killed_at == killed_at
        if killed_at is not None:
            assert "Conductor no longer has this task" in str(running.stopped_because)
        assert now() == 300

    quickly(keep())
