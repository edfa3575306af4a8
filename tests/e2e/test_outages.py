"""Servers that go away and come back: what runs goes on, and what cannot be finished is not published."""

import os
import signal
from collections.abc import Generator
from pathlib import Path
from typing import Any

import psutil
import pytest

from perago.devstack.progress import Reporter
from perago.devstack.stack import DevStack, StackOptions
from perago.devstack.state import DataFolder, ServiceName
from perago.lake.control import LakeControl
from tests.conftest import Servers
from tests.e2e.fleet import Fleet, Worker, tasks_of
from tests.e2e.worker import eventually
from tests.integration.support import Site

START_SECONDS = 120.0
# Half a minute and more of a body that beats fifty times a second.
OUTAGE_BEATS = 1500
CONTROLS = """
from perago import PublishBudget, RetryPolicy, TaskControls, TimeoutPolicy

CONTROLS = TaskControls(
    retry=RetryPolicy(count=10, delay_seconds=1),
    timeout=TimeoutPolicy(response_seconds=200),
    publish_budget=PublishBudget(
        observed_merge_p99_seconds=1, safety_margin_seconds=1, lakefs_merge_timeout_seconds=20,
        conductor_completion_timeout_seconds=150, worker_shutdown_grace_seconds=5, heartbeat_interval_seconds=0.5,
    ),
)
"""
BODY = f"""
import time
from pathlib import Path
from pydantic import BaseModel
from perago import WorkspaceSpec, task
{CONTROLS}
class Params(BaseModel):
    notes: str

class Result(BaseModel):
    beats: int

def waited(notes: Path) -> int:
    beats = 0
    while not (notes / "go").exists():
        beats += 1
        (notes / "beat.new").write_text(str(beats))
        (notes / "beat.new").rename(notes / "beat")
        time.sleep(0.02)
    return beats
"""
BUILD = f"""{BODY}
@task(name="NAME", owner_email="data@example.com", workspace=WorkspaceSpec(prefix="/data"), controls=CONTROLS)
def build(workspace: Path, params: Params) -> Result:
    beats = waited(Path(params.notes))
    (workspace / "made.txt").write_text("made of " + (workspace / "given.txt").read_text())
    return Result(beats=beats)
"""
COUNT = f"""{BODY}
@task(name="NAME", owner_email="data@example.com", controls=CONTROLS)
def count(params: Params) -> Result:
    return Result(beats=waited(Path(params.notes)))
"""


class Work:
    """One workflow and the folder over which the test and its body speak."""

    def __init__(self, fleet: Fleet, module: str, site: Site | None, branch: str) -> None:
        self.notes = fleet.folder / f"notes-{module}-{branch}"
        self.notes.mkdir()
        self.branch = branch
        self.input_ref = site.head() if site else ""
        given: dict[str, Any] = {"params": {"notes": str(self.notes)}}
        if site:
            site.branch(branch, self.input_ref)
            given = {**site.payload(self.input_ref, branch), **given}
        self.workflow_id = fleet.started(module, given)

    def goes_on(self, beats: int = 1) -> None:
        """Wait until the body has done so much more."""
        file = self.notes / "beat"
        eventually(file.exists, f"the body of {self.branch} begins")
        wanted = int(file.read_text()) + beats
        eventually(lambda: int(file.read_text()) >= wanted, f"the body of {self.branch} goes on", seconds=START_SECONDS)

    def may_end(self) -> None:
        (self.notes / "go").touch()


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Generator[DevStack]:
    """Servers of our own, since they are killed."""
    if os.environ.get("PERAGO_TEST_SERVERS") == "skip":
        pytest.skip("PERAGO_TEST_SERVERS=skip")
    made = DevStack(DataFolder(tmp_path_factory.mktemp("outages") / "dev"), Reporter())
    try:
        made.up(StackOptions())
        yield made
    finally:
        made.down()


@pytest.fixture
def fleet(stack: DevStack, tmp_path: Path) -> Generator[Fleet]:
    made = Fleet.at(Servers(stack, stack.environment()), tmp_path)
    with made.conductor:
        yield made


@pytest.fixture
def site(fleet: Fleet, request: pytest.FixtureRequest) -> Generator[Site]:
    name = f"outage-{abs(hash(request.node.name)) % 10**10}"
    assert LakeControl(*fleet.servers.config.require_lakefs()).ensure_repository(name, f"local://{name}")
    made = fleet.site(name)
    with made.http:
        made.commit({"data/given.txt": b"something"})
        yield made


def away(stack: DevStack, name: ServiceName) -> None:
    """Kill a server, and see it gone."""
    (pid,) = [report.pid for report in stack.status() if report.name == name]
    assert pid is not None
    process = psutil.Process(pid)
    process.kill()
    eventually(lambda: not process.is_running() or process.status() == psutil.STATUS_ZOMBIE, f"the end of {name}")


def back(stack: DevStack) -> None:
    before = {report.name: report.url for report in stack.status()}
    assert {report.name: report.url for report in stack.up(StackOptions())} == before


def attempts(fleet: Fleet, work: Work) -> list[str]:
    """How each attempt of the workflow ended, once the workflow has."""
    (run,) = fleet.ended([work.workflow_id], seconds=START_SECONDS)
    assert run["status"] == "COMPLETED", run["reasonForIncompletion"]
    return [task["status"] for task in tasks_of(run)]


def last_written(fleet: Fleet, work: Work) -> int:
    """When Conductor last took something for the workflow's attempt."""
    return tasks_of(fleet.workflow(work.workflow_id))[-1]["updateTime"]


def assert_published_once(fleet: Fleet, site: Site, work: Work) -> None:
    output = tasks_of(fleet.workflow(work.workflow_id))[-1]["outputData"]
    assert site.history(work.branch)[:2] == [output["workspace"]["ref"], work.input_ref]
    assert site.tree(work.branch)["data/made.txt"] == b"made of something"


def stopped_executor(worker: Worker) -> int:
    """Wait until a failpoint has stopped the executor; gives its process id."""

    def stopped() -> list[int]:
        return [pid for pid in worker.executors() if psutil.Process(pid).status() == psutil.STATUS_STOPPED]

    return eventually(stopped, f"a stopped executor: {worker.stderr}")[0]


def at_failpoint(phase: str) -> dict[str, str]:
    return {"PERAGO_TEST_MODE": "1", "PERAGO_FAILPOINT": f"{phase}:hang"}


def test_bodies_go_on_while_conductor_is_away_and_publish_once_when_it_is_back(
    stack: DevStack, fleet: Fleet, site: Site
) -> None:
    """One body ends after the outage; another ends within it, cannot be fenced, and so is not published."""
    fleet.task("build", BUILD)
    with fleet.worker("build", "-j", "2") as worker:
        through, within = (Work(fleet, "build", site, branch) for branch in ("through", "within"))
        for work in (through, within):
            work.goes_on()

        away(stack, "conductor")
        worker.said(event="lease not extended", workflow=through.workflow_id)
        worker.said(event="lease not extended", workflow=within.workflow_id)
        through.goes_on()
        within.may_end()
        worker.said(event="result", workflow=within.workflow_id, status="FAILED")
        assert site.head("within") == within.input_ref
        through.goes_on(OUTAGE_BEATS)
        back(stack)
        extended = last_written(fleet, through)
        eventually(lambda: last_written(fleet, through) > extended, "the lease is extended again")

        assert attempts(fleet, within) == ["FAILED", "COMPLETED"]
        (first, _) = tasks_of(fleet.workflow(within.workflow_id))
        assert "Conductor could not be asked" in first["reasonForIncompletion"]
        through.goes_on()
        through.may_end()
        assert attempts(fleet, through) == ["COMPLETED"]
        assert worker.drained() == 0

    for work in (through, within):
        assert_published_once(fleet, site, work)
    assert site.leftovers() == [".supervisor.lock"]


def test_results_wait_for_conductor_and_are_told_once_it_is_back(stack: DevStack, fleet: Fleet, site: Site) -> None:
    """One of a publication that is done already, and one of a task without a workspace whose worker drains."""
    fleet.task("build", BUILD)
    fleet.task("count", COUNT)
    with (
        fleet.worker("build", **at_failpoint("published"), PERAGO_WORKSPACE_ROOT=str(fleet.folder / "root")) as builder,
        fleet.worker("count", PERAGO_WORKSPACE_ROOT=str(fleet.folder / "other-root")) as counter,
    ):
        published, counted = Work(fleet, "build", site, "published"), Work(fleet, "count", None, "counted")
        published.may_end()
        counted.goes_on()
        executor = stopped_executor(builder)

        away(stack, "conductor")
        os.kill(executor, signal.SIGCONT)
        counter.process.send_signal(signal.SIGTERM)
        counter.said(event="draining")
        counted.may_end()
        builder.said(event="result", workflow=published.workflow_id, status="COMPLETED")
        counter.said(event="result", workflow=counted.workflow_id, status="COMPLETED")
        back(stack)

        assert attempts(fleet, published) == ["COMPLETED"]
        assert attempts(fleet, counted) == ["COMPLETED"]
        assert counter.process.wait(START_SECONDS) == 0

    assert_published_once(fleet, site, published)
    assert site.leftovers() == [".supervisor.lock"]


def test_lakefs_may_go_and_come_back_while_a_body_runs(stack: DevStack, fleet: Fleet, site: Site) -> None:
    fleet.task("build", BUILD)
    with fleet.worker("build"):
        work = Work(fleet, "build", site, "target")
        work.goes_on()

        away(stack, "lakefs")
        work.goes_on(OUTAGE_BEATS)
        back(stack)
        work.may_end()

        assert attempts(fleet, work) == ["COMPLETED"]
    assert_published_once(fleet, site, work)
    assert site.leftovers() == [".supervisor.lock"]


@pytest.mark.parametrize("phase", ["uploaded", "confirm"])
def test_an_attempt_that_loses_lakefs_in_its_publication_fails_and_the_retry_completes(
    stack: DevStack, fleet: Fleet, site: Site, phase: str
) -> None:
    fleet.task("build", BUILD)
    with fleet.worker("build", **at_failpoint(phase)) as worker:
        work = Work(fleet, "build", site, "target")
        work.may_end()
        executor = stopped_executor(worker)

        away(stack, "lakefs")
        os.kill(executor, signal.SIGCONT)
        worker.said(event="attempt ended", workflow=work.workflow_id, status="FAILED")
        back(stack)

        first, *_, last = attempts(fleet, work)
        assert (first, last) == ("FAILED", "COMPLETED")
    assert_published_once(fleet, site, work)
    assert site.directories() == [".supervisor.lock"]
    assert fleet.run("gc", site.repository).returncode == 0
    assert site.staging_branches() == []
