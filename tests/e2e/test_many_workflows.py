"""Many short workflows while executors are killed at random: nothing is lost, doubled or left behind.

`PERAGO_STRESS=500` runs as many; `-s` shows the figures.
"""

import os
import random
import re
import signal
import time
from collections.abc import Generator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest

from tests.conftest import Servers
from tests.e2e.fleet import Fleet, Worker, tasks_of
from tests.e2e.worker import eventually
from tests.integration.support import Site

COUNT = int(os.environ.get("PERAGO_STRESS") or 60)
SEED = 20261116
JOBS = 4
WORKFLOWS_A_KILL = 4
FLAT_BYTES = 24 * 2**20
COMPLETED = re.compile(r'^perago_attempts_total{outcome="COMPLETED",.*} (\S+)$', re.MULTILINE)
PUBLISHED = re.compile(r'^perago_phase_seconds_count{phase="published",.*} (\S+)$', re.MULTILINE)
TASK = """
from pathlib import Path
from pydantic import BaseModel
from perago import PublishBudget, RetryPolicy, TaskControls, TimeoutPolicy, WorkspaceSpec, task

class Params(BaseModel):
    number: int

class Result(BaseModel):
    total: int

# Heartbeats so close that some meet a result: Conductor must not take the one for the other.
BUDGET = PublishBudget(
    observed_merge_p99_seconds=1, safety_margin_seconds=1, lakefs_merge_timeout_seconds=20,
    conductor_completion_timeout_seconds=60, worker_shutdown_grace_seconds=5, heartbeat_interval_seconds=0.2,
)
CONTROLS = TaskControls(
    retry=RetryPolicy(count=10, delay_seconds=0), timeout=TimeoutPolicy(response_seconds=90), publish_budget=BUDGET
)

@task(name="NAME", owner_email="data@example.com", workspace=WorkspaceSpec(prefix="/numbers"), controls=CONTROLS)
def add(workspace: Path, params: Params) -> Result:
    total = params.number + sum(int(file.read_text()) for file in workspace.glob("in/*.txt"))
    (workspace / "out").mkdir()
    (workspace / "out" / "total.txt").write_text(str(total))
    (workspace / "in" / "1.txt").unlink()
    return Result(total=total)
"""
GIVEN = {f"numbers/in/{number}.txt": str(number).encode() for number in range(1, 6)}


@dataclass
class Chaos:
    """Kills a random executor whenever some more attempts have published, and watches the supervisor's memory."""

    worker: Worker
    page: httpx.Client
    chance: random.Random = field(default_factory=lambda: random.Random(SEED))
    killed: int = 0
    memory: list[int] = field(default_factory=list[int])
    _next: int = 1

    def look(self) -> int:
        """How many attempts have completed, as Conductor said when their results were read back a moment later."""
        assert self.worker.process.poll() is None, self.worker.stderr
        metrics = self.page.get("/metrics").text
        self.memory.append(psutil.Process(self.worker.process.pid).memory_info().rss)
        published = counted(PUBLISHED, metrics)
        if published >= self._next:
            self._kill_one()
            self._next = published + self.chance.randint(1, 2 * WORKFLOWS_A_KILL - 1)
        return counted(COMPLETED, metrics)

    def _kill_one(self) -> None:
        living = self.worker.executors()
        if living:
            os.kill(self.chance.choice(living), signal.SIGKILL)
            self.killed += 1

    @property
    def early(self) -> int:
        """The most it had in the first fifth of the run, when everything has been used once."""
        return max(self.memory[: max(1, len(self.memory) // 5)])


def counted(what: re.Pattern[str], metrics: str) -> int:
    found = what.search(metrics)
    return int(float(found[1])) if found else 0


@pytest.fixture
def fleet(servers: Servers, tmp_path: Path) -> Generator[Fleet]:
    made = Fleet.at(servers, tmp_path)
    with made.conductor:
        yield made


@pytest.fixture
def site(fleet: Fleet, repository: str) -> Generator[Site]:
    made = fleet.site(repository)
    with made.http:
        yield made


def test_every_workflow_publishes_once_although_executors_are_killed_at_random(fleet: Fleet, site: Site) -> None:
    input_ref = site.commit(GIVEN)
    fleet.task("add", TASK)
    began = time.monotonic()
    started = start_all(fleet, site, input_ref)

    with (
        fleet.worker("add", "-j", str(JOBS), "--http", ":0") as worker,
        httpx.Client(base_url=worker.page(), timeout=30) as page,
    ):
        chaos = Chaos(worker, page)
        eventually(lambda: chaos.look() >= COUNT, f"{COUNT} completed attempts", seconds=60 + 3 * COUNT)
        runs = fleet.ended(started.values())
        took = time.monotonic() - began
        left = site.directories()
        assert worker.drained() == 0
    collected = fleet.run("gc", site.repository)

    report(chaos, runs, took, collected.stdout)
    assert {run["status"] for run in runs} == {"COMPLETED"}
    for branch, run in zip(started, runs, strict=True):
        assert_published_once(site, branch, input_ref, run)
    assert chaos.killed >= COUNT // 20  # it looks now and then, and a fast machine publishes meanwhile
    assert {task["status"] for run in runs for task in run["tasks"]} == {"COMPLETED", "FAILED"}, "a lease ran out"
    assert chaos.memory[-1] - chaos.early < FLAT_BYTES
    assert left == [".supervisor.lock"]
    assert collected.returncode == 0, collected.stderr
    assert site.staging_branches() == []


def start_all(fleet: Fleet, site: Site, input_ref: str) -> dict[str, str]:
    """A branch and a workflow for each number; gives the workflow of each branch."""

    def start(number: int) -> tuple[str, str]:
        branch = f"target-{number}"
        site.branch(branch, input_ref)
        return branch, fleet.started("add", {**site.payload(input_ref, branch), "params": {"number": number}})

    with ThreadPoolExecutor(4) as pool:
        return dict(pool.map(start, range(COUNT)))


def assert_published_once(site: Site, branch: str, input_ref: str, run: dict[str, Any]) -> None:
    """The branch is the input and one commit, which is the workflow's output."""
    output = tasks_of(run)[-1]["outputData"]
    published, before, *_ = site.history(branch)
    assert (published, before) == (output["workspace"]["ref"], input_ref), run["workflowId"]
    total = run["input"]["params"]["number"] + 15
    assert output["result"] == {"total": total}
    assert site.tree(branch) == {
        **{path: content for path, content in GIVEN.items() if not path.endswith("/1.txt")},
        "numbers/out/total.txt": str(total).encode(),
    }


def report(chaos: Chaos, runs: list[dict[str, Any]], took: float, collected: str) -> None:
    attempts = [task for run in runs for task in run["tasks"]]
    early, high, last = (f"{value / 2**20:.1f}" for value in (chaos.early, max(chaos.memory), chaos.memory[-1]))
    print(  # noqa: T201 - the figures of the run, shown by `-s` or with a failure
        f"\n{COUNT} workflows in {took:.1f} s with -j {JOBS}: {len(attempts)} attempts, {chaos.killed} executors"
        f" killed, {sum(task['status'] == 'FAILED' for task in attempts)} attempts failed, at most"
        f" {max(len(run['tasks']) for run in runs)} a workflow, {collected.count(': removed ')} staging branches"
        f" collected; supervisor RSS {early} MiB early, {high} at most, {last} at the end"
    )
