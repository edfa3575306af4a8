"""`perago gc` and `perago logs`, after a worker that was killed and a body that failed."""

import os
import re
import signal
import subprocess
import sys
import uuid
from collections.abc import Generator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

import psutil
import pytest

from perago.attempt.phases import Phase
from perago.lake.control import LakeControl
from tests.conftest import Servers
from tests.e2e.fleet import Fleet, tasks_of
from tests.e2e.worker import eventually, heed_interrupts
from tests.integration.support import Site

BUILD = """
from pathlib import Path
from pydantic import BaseModel
from perago import RetryPolicy, TaskControls, WorkspaceSpec, task

class Params(BaseModel):
    mood: str = "good"

class Result(BaseModel):
    size: int

def explode(mood: str) -> None:
    raise ValueError(f"in a {mood} mood")

@task(name="NAME", owner_email="data@example.com", workspace=WorkspaceSpec(prefix="/data"),
      controls=TaskControls(retry=RetryPolicy(count=1, delay_seconds=0)))
def build(workspace: Path, params: Params) -> Result:
    if params.mood != "good":
        explode(params.mood)
    (workspace / "made.txt").write_text("made")
    return Result(size=4)
"""


@pytest.fixture
def fleet(servers: Servers, tmp_path: Path) -> Generator[Fleet]:
    made = Fleet.at(servers, tmp_path)
    with made.conductor:
        made.task("build", BUILD)
        yield made


@pytest.fixture
def site(fleet: Fleet, repository: str) -> Generator[Site]:
    made = fleet.site(repository)
    with made.http:
        made.commit({"data/given.txt": b"given"})
        yield made


def branch_of(task: dict[str, Any]) -> str:
    """The name of a staging branch that an execution of this attempt could have left."""
    attempt = f"seq-{task['seq']}-iteration-0-task-id-{task['taskId']}-retry-{task['retryCount']}"
    return f"perago-staging-{task['workflowInstanceId']}-work-{attempt}-exec-{uuid.uuid4().hex}"


def told(ran: "subprocess.CompletedProcess[str]", repository: str) -> dict[str, str]:
    """What was done with each branch."""
    assert ran.returncode == 0, ran.stderr
    lines = [line.removeprefix(f"{repository}: ") for line in ran.stdout.splitlines()]
    parts = [line.rsplit(" perago-staging-", 1) for line in lines]
    return {f"perago-staging-{rest.split(' (')[0]}": f"{done} ({rest.split(' (', 1)[1]}" for done, rest in parts}


def test_gc_keeps_the_branch_of_a_running_attempt_and_removes_it_once_conductor_says_it_ended(
    fleet: Fleet, site: Site
) -> None:
    stop = {"PERAGO_TEST_MODE": "1", "PERAGO_FAILPOINT": "uploaded:hang"}
    with fleet.worker("build", **stop) as worker:
        workflow_id = fleet.started("build", site.payload())
        (branch,) = eventually(site.staging_branches, "a staging branch")
        eventually(lambda: is_stopped(worker.executors()), "a stopped executor")

        assert told(fleet.run("gc", site.repository), site.repository) == {branch: "kept (its attempt is IN_PROGRESS)"}
        assert site.staging_branches() == [branch]

        os.kill(worker.executors()[0], signal.SIGKILL)
        (run,) = fleet.ended([workflow_id])

    assert [task["status"] for task in tasks_of(run)] == ["FAILED", "COMPLETED"]
    history = site.history()
    verdict = "(its attempt is FAILED)"
    dry = fleet.run("gc", site.repository, "--dry-run")
    assert told(dry, site.repository) == {branch: f"would remove {verdict}"}
    assert site.staging_branches() == [branch]
    assert told(fleet.run("gc", site.repository), site.repository) == {branch: f"removed {verdict}"}
    assert site.staging_branches() == []
    assert site.history() == history
    assert fleet.run("gc", site.repository).stdout == ""


def is_stopped(pids: list[int]) -> bool:
    return any(psutil.Process(pid).status() == psutil.STATUS_STOPPED for pid in pids)


def test_gc_removes_nothing_it_is_not_sure_of(fleet: Fleet, site: Site, lake: LakeControl) -> None:
    with fleet.worker("build"):
        (run,) = fleet.ended([fleet.started("build", site.payload())])
    (ended,) = tasks_of(run)
    fleet.task("nobodys", BUILD)
    (waiting,) = tasks_of(fleet.workflow(fleet.started("nobodys", site.payload())))
    unsure = {
        branch_of({**ended, "taskId": str(uuid.uuid4())}): "kept (Conductor does not tell",
        branch_of({**ended, "retryCount": 1}): "kept (its attempt is COMPLETED",
        branch_of(waiting): "kept (its attempt is SCHEDULED",
        "perago-staging-by-hand": "kept (its name tells no task",
    }
    sure = branch_of(ended)
    foreign = ["feature-1", f"my-{sure}"]
    for name in (*unsure, sure, *foreign):
        lake.create_branch(site.repository, name, "main")

    done = told(fleet.run("gc", site.repository), site.repository)

    assert done.pop(sure) == "removed (its attempt is COMPLETED)"
    assert set(done) == set(unsure)
    assert all(done[name].startswith(why) for name, why in unsure.items()), done
    assert set(lake.branches(site.repository, "")) == {"main", *unsure, *foreign}


def test_gc_without_conductor_removes_nothing(fleet: Fleet, site: Site, lake: LakeControl) -> None:
    attempt = f"seq-1-iteration-0-task-id-{uuid.uuid4()}-retry-0-exec-{uuid.uuid4().hex}"
    branch = f"perago-staging-w-1-work-{attempt}"
    lake.create_branch(site.repository, branch, "main")

    done = told(fleet.run("gc", site.repository, "--conductor-url", "http://127.0.0.1:9"), site.repository)

    assert "cannot be reached" in done[branch]
    assert site.staging_branches() == [branch]


def test_gc_of_a_repository_that_is_not_there_is_one_sentence(fleet: Fleet) -> None:
    refused = fleet.run("gc", "no-such-repository")

    assert refused.returncode == 1
    assert refused.stderr.startswith("error: ")
    assert "no-such-repository" in refused.stderr
    assert "Traceback" not in refused.stderr


@dataclass(frozen=True)
class Shown:
    """`perago logs` while it runs."""

    process: "subprocess.Popen[str]"
    output: Path

    def shows(self, text: str) -> None:
        eventually(lambda: text in self.output.read_text(), f"{text!r} among the lines shown")


@pytest.fixture
def following(fleet: Fleet) -> Generator[Shown]:
    logs = fleet.folder / "logs"
    logs.mkdir()
    output = fleet.folder / "followed"
    command = [Path(sys.executable).with_name("perago"), "logs", "--follow"]
    with output.open("w") as file:
        process = subprocess.Popen(
            command, env=fleet.environment, stdout=file, stderr=file, text=True, preexec_fn=heed_interrupts
        )
    try:
        yield Shown(process, output)
    finally:
        process.kill()
        process.wait()


def test_logs_show_a_failed_bodys_traceback_and_every_phase(fleet: Fleet, site: Site, following: Shown) -> None:
    logs = str(fleet.folder / "logs")
    given = site.payload()
    with fleet.worker("build", PERAGO_LOG_ROOT=logs):
        bad = fleet.started("build", {**given, "params": {"mood": "bad"}})
        (failed,) = fleet.ended([bad])
        following.shows("ValueError: in a bad mood")
        good = fleet.started("build", given)
        following.shows(f"{good[:8]} ")
        (completed,) = fleet.ended([good])
        following.shows("published ref=")
        following.shows("attempt ended status=COMPLETED")

    assert (failed["status"], completed["status"]) == ("FAILED", "COMPLETED")
    following.process.send_signal(signal.SIGINT)
    assert following.process.wait(30) == 130
    assert "Traceback" not in following.output.read_text()

    first, second = tasks_of(failed)
    one = shown(fleet, "--task-id", first["taskId"])
    assert "in explode\n    ValueError: in a bad mood" in one
    assert f"{fleet.folder / 'build.py'}:" in one
    assert second["taskId"][:8] not in one
    of_both = shown(fleet, "--workflow", bad)
    assert all(task["taskId"][:8] in of_both for task in (first, second))
    assert good[:8] not in of_both
    of_good = shown(fleet, "--workflow", good)
    for phase in set(get_args(Phase)) - {"unchanged", "completion"}:
        assert any(f" {phase} " in line and "phase ended" in line for line in of_good.splitlines()), phase
    for event in ("assigned", "attempt started", "downloaded", "attempt fence passed", "publish fence", "staged"):
        assert event in of_good
    assert re.search(r" completion +attempt ended status=COMPLETED told_in=\d", of_good)
    times = [line.split()[0] for line in shown(fleet).splitlines() if not line.startswith("    ")]
    assert times == sorted(times)


def shown(fleet: Fleet, *options: str) -> str:
    ran = fleet.run("logs", *options)
    assert ran.returncode == 0, ran.stderr
    return ran.stdout


def test_logs_of_nowhere_are_one_sentence_with_the_variable_to_set(fleet: Fleet) -> None:
    refused = fleet.run("logs", PERAGO_LOG_ROOT=str(fleet.folder / "nowhere"))

    assert refused.returncode == 1
    assert refused.stderr.startswith("error: there are no logs in")
    assert "PERAGO_LOG_ROOT" in refused.stderr
