"""Leases kept alive on a connection that somebody dropped without a word."""

import asyncio
from dataclasses import replace
from typing import Any

import pytest
from structlog.testing import capture_logs

from perago.worker import leases
from perago.worker.leases import Leases
from perago.worker.metrics import Metrics
from perago.worker.slot import Running, Slot
from tests.unit.half_deaf import HalfDeaf
from tests.unit.test_results import ids_in, polled


def extended_on(server: HalfDeaf) -> list[Any]:
    """Keep a lease until the server has taken an extension; gives what was logged."""

    async def keep() -> None:
        running = Running(replace(polled("t-1"), lease_seconds=2), "e-1", is_sent=True)
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
