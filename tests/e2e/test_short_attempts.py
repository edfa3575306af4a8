"""Attempts shorter than a poll, whose tasks a worker takes before it has slots for them."""

import os
import signal
from collections.abc import Generator, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import Servers
from tests.e2e.fleet import Fleet, Worker, tasks_of
from tests.integration.proxy import Proxy

MANY = 150
TASK = """
import time
from pathlib import Path
from pydantic import BaseModel
from perago import RetryPolicy, TaskControls, task

class Params(BaseModel):
    waits_for: Path | None = None

class Result(BaseModel):
    pass

@task(name="NAME", owner_email="data@example.com", controls=TaskControls(retry=RetryPolicy(count=1, delay_seconds=0)))
def work(params: Params) -> Result:
    while params.waits_for is not None and not params.waits_for.exists():
        time.sleep(0.02)
    return Result()
"""


@pytest.fixture
def slow_polls(servers: Servers) -> Generator[dict[str, str]]:
    """The environment of a worker whose polls take longer than its attempts."""
    with Proxy(servers.environment["CONDUCTOR_SERVER_URL"]) as proxy:
        proxy.slow_answer(lambda seen: "/tasks/poll/" in seen.path, 0.1)
        yield {"CONDUCTOR_SERVER_URL": proxy.url}


@pytest.fixture
def fleet(servers: Servers, tmp_path: Path) -> Generator[Fleet]:
    made = Fleet.at(servers, tmp_path)
    with made.conductor:
        made.task("work", TASK)
        yield made


def queued(fleet: Fleet, count: int, **params: Any) -> list[str]:
    return [fleet.started("work", {"params": params}) for _ in range(count)]


def statuses(fleet: Fleet, workflows: Sequence[str]) -> list[str]:
    return [tasks_of(fleet.workflow(workflow))[-1]["status"] for workflow in workflows]


def retries(runs: Sequence[dict[str, Any]]) -> int:
    assert {run["status"] for run in runs} == {"COMPLETED"}
    return sum(len(run["tasks"]) - 1 for run in runs)


def goes_well(worker: Worker, count: int) -> None:
    worker.said(count, event="attempt started")


def test_a_long_attempt_holds_up_none_of_the_tasks_that_came_for_its_slot(
    fleet: Fleet, slow_polls: dict[str, str], tmp_path: Path
) -> None:
    released = tmp_path / "released"
    short = queued(fleet, 10)
    (long,) = queued(fleet, 1, waits_for=str(released))
    short += queued(fleet, 10)

    with fleet.worker("work", "-j", "1", **slow_polls) as held_up:
        held_up.said(event="attempt started", workflow=long)
        held_up.said(event="given back")
        with fleet.worker("work", "-j", "1", PERAGO_WORKSPACE_ROOT=str(tmp_path / "another")) as free:
            assert retries(fleet.ended(short)) == 0
            assert statuses(fleet, [long]) == ["IN_PROGRESS"]
            assert free.drained() == 0
        released.touch()
        assert retries(fleet.ended([long])) == 0
        assert held_up.drained() == 0


def test_a_worker_that_drains_leaves_to_others_what_it_has_not_begun(fleet: Fleet, slow_polls: dict[str, str]) -> None:
    workflows = queued(fleet, MANY)

    with fleet.worker("work", "-j", "2", **slow_polls) as worker:
        goes_well(worker, MANY // 3)
        assert worker.drained() == 0
        assert worker.lines(event="given back")

    left = set(statuses(fleet, workflows))
    assert "SCHEDULED" in left, "the worker was done before it was stopped"
    assert left <= {"COMPLETED", "SCHEDULED"}
    with fleet.worker("work", "-j", "2"):
        assert retries(fleet.ended(workflows)) == 0


def test_an_executor_that_dies_costs_its_own_attempt_a_retry_and_no_other(fleet: Fleet) -> None:
    workflows = queued(fleet, MANY)

    with fleet.worker("work", "-j", "2") as worker:
        goes_well(worker, MANY // 3)
        os.kill(worker.executors()[0], signal.SIGKILL)
        assert retries(fleet.ended(workflows)) <= 1
        assert worker.drained() == 0
