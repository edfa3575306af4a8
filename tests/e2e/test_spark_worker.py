"""Spark tasks as an operator runs them: a worker with a Spark server of its own, and what happens when parts die."""

import contextlib
import os
import signal
import time
from collections.abc import Generator
from pathlib import Path

import psutil
import pytest

from perago.lake.control import LakeControl
from tests.conftest import Servers
from tests.e2e.worker import TASK, Run, Worker, Workplace, eventually, is_running

SPARK_TASK = (
    TASK.replace("workspace: Path", "workspace: SparkWorkspace")
    .replace("from perago import ", "from perago import SparkWorkspace, ")
    .replace(
        '    (workspace / "made.txt").write_text(f"start {{start}}")',
        '    with workspace.open("made.txt", "w") as made:\n        made.write(f"start {{start}}")',
    )
)
MOODS = """
def table(notes, workspace, start):
    workspace.write(workspace.spark.range(1000), "t", mode="overwrite")
    assert workspace.read.parquet("t").count() == 1000
    workspace.remove("t")


def endless_once(notes, workspace, start):
    if start == 1:
        slowly = "java_method('java.lang.Thread', 'sleep', 50L)"  # a hundred thousand tasks that take no processor
        workspace.write(workspace.spark.range(0, 100_000, 1, 100_000).selectExpr("id", slowly), "t")
"""
OWN_SPARK = {"SPARK_REMOTE": ""}


@pytest.fixture
def place(servers: Servers, lake: LakeControl, tmp_path: Path) -> Generator[Workplace]:
    with Workplace.opened(servers, lake, tmp_path, moods=MOODS, lease=20, template=SPARK_TASK) as opened:
        yield opened


def spark_of(worker: Worker) -> psutil.Process:
    """The Spark server that a worker started."""

    def found() -> psutil.Process | None:
        for child in psutil.Process(worker.process.pid).children():
            with contextlib.suppress(psutil.NoSuchProcess):
                if any("SparkConnectServer" in word for word in child.cmdline()):
                    return child
        return None

    return eventually(found, "the worker's Spark server")


def writing(place: Workplace, run: Run) -> str:
    """Wait until an endless body's job writes; gives the staging branch it writes to."""
    run.begun_times(1)
    [branch] = eventually(place.site.staging_branches, "a staging branch")
    eventually(lambda: written(place, branch), "files of the job")
    return branch


def written(place: Workplace, branch: str) -> list[str]:
    changes = place.site.ask("GET", f"/branches/{branch}/diff", params={"amount": 1000})["results"]
    return [change["path"] for change in changes]


def assert_nobody_writes(place: Workplace, branch: str) -> None:
    def is_quiet() -> bool:
        before = written(place, branch)
        time.sleep(1)
        return written(place, branch) == before

    eventually(is_quiet, f"an end of writing to {branch}")


def test_a_worker_starts_one_spark_server_replaces_it_when_it_dies_and_ends_it_when_it_drains(
    place: Workplace,
) -> None:
    left_by_a_killed_worker = place.folder / "root" / ".spark" / "local" / "blocks"
    left_by_a_killed_worker.mkdir(parents=True)
    worker = place.worker(settings=OWN_SPARK)
    place.assert_published_once(place.run("table", branch="first"), "first")
    assert not left_by_a_killed_worker.exists()
    first = spark_of(worker)

    run = place.run("endless_once", branch="second")
    writing(place, run)
    first.kill()

    place.assert_published_once(run, "second")
    assert run.statuses() == ["FAILED", "COMPLETED"]
    second = spark_of(worker)
    assert second.pid != first.pid
    assert place.site.staging_branches() == []

    worker.signal(signal.SIGTERM)
    assert worker.exit_code() == 0
    assert not is_running(second.pid)
    assert worker.directories() == []


def test_a_dead_executors_job_ends_on_the_server_and_so_does_a_cancelled_one(place: Workplace) -> None:
    worker = place.worker(settings=OWN_SPARK)
    killed = place.run("endless_once", branch="killed")
    branch = writing(place, killed)

    os.kill(killed.begun()[0], signal.SIGKILL)

    place.assert_published_once(killed, "killed")
    assert "executor crash: killed by SIGKILL" in killed.reasons()[0]
    assert_nobody_writes(place, branch)

    head = place.site.head()
    cancelled = place.run("endless_once")
    cancelled.begun_times(1)
    other = eventually(lambda: set(place.site.staging_branches()) - {branch}, "another staging branch").pop()
    eventually(lambda: written(place, other), "files of the job")
    cancelled.command("DELETE", "")

    worker.said("attempt stopped: Conductor has ended it")
    assert_nobody_writes(place, other)
    assert place.site.head() == head
    server = spark_of(worker)
    worker.kill()
    eventually(lambda: not is_running(server.pid), "the server ends with its worker")


def test_a_worker_without_a_need_for_spark_starts_none(servers: Servers, lake: LakeControl, tmp_path: Path) -> None:
    with Workplace.opened(servers, lake, tmp_path) as place:
        worker = place.worker(settings=OWN_SPARK)
        place.assert_published_once(place.run())

        children = psutil.Process(worker.process.pid).children(recursive=True)
        assert not [child for child in children if "java" in child.name()]
