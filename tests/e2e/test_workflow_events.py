"""What operators do to workflows and workers while a body runs, and what a worker refuses to begin with."""

import json
import os
import signal
import uuid
from collections.abc import Callable, Generator
from contextlib import ExitStack
from pathlib import Path

import pytest

from perago.authoring.paths import MARKER_NAME
from perago.lake.control import LakeControl
from tests.conftest import Servers
from tests.e2e.worker import Run, Worker, Workplace, eventually, is_running, is_stopped

Open = Callable[..., Workplace]


@pytest.fixture
def open_place(servers: Servers, lake: LakeControl, tmp_path: Path) -> Generator[Open]:
    with ExitStack() as stack:

        def opened(lease: int = 60, limit: int = 0) -> Workplace:
            return stack.enter_context(Workplace.opened(servers, lake, tmp_path, lease=lease, limit=limit))

        yield opened


@pytest.fixture
def place(open_place: Open) -> Workplace:
    return open_place()


def assert_refused(worker: Worker, *told: str) -> None:
    assert worker.exit_code() == 1
    [error] = [line for line in worker.stderr.read_text().splitlines() if line.startswith("error: ")]
    for part in told:
        assert part in error
    assert "Traceback" not in worker.stderr.read_text()


def test_a_terminated_workflow_stops_its_body_and_frees_the_slot(open_place: Open) -> None:
    place = open_place(lease=4)
    worker = place.worker()
    run = place.run("gated")
    executor = run.begun_times(1)
    head = place.site.head()

    run.command("DELETE", "")

    stopped = worker.said("attempt stopped: Conductor has ended it")
    assert "status is CANCELED, expected IN_PROGRESS" in stopped["why"]
    eventually(lambda: not is_running(executor), "the executor ends")
    place.assert_published_once(place.run(branch="next"), "next")
    assert place.site.head() == head
    assert run.statuses() == ["CANCELED"]
    assert worker.directories() == []


def test_a_paused_workflow_takes_the_running_attempt_and_goes_on_when_resumed(place: Workplace) -> None:
    place.worker()
    run = place.run("gated")
    run.begun_times(1)

    run.command("PUT", "/pause")
    run.open(1)

    eventually(lambda: run.statuses() == ["COMPLETED"], "the attempt ends")
    assert run.state()["status"] == "PAUSED"
    run.command("PUT", "/resume")
    place.assert_published_once(run)
    assert run.statuses() == ["COMPLETED"]


def rerun(run: Run) -> None:
    """Run the task again, under the same task id."""
    [task] = run.tasks()
    run.command("POST", "/rerun", json={"reRunFromWorkflowId": run.workflow_id, "reRunFromTaskId": task["taskId"]})
    assert [again["taskId"] for again in run.tasks()] == [task["taskId"]]


def test_a_completed_task_run_again_replaces_its_publication(place: Workplace) -> None:
    place.worker()
    run = place.run()
    first = run.ended()["workspace"]["ref"]

    rerun(run)

    eventually(lambda: len(run.begun()) == 2, "it runs again")
    place.assert_published_once(run)
    assert run.ended()["result"] == {"start": 2}
    assert place.site.head() != first


@pytest.mark.parametrize("phase", ["compare", "staged"])
def test_a_stopped_attempt_neither_publishes_nor_ends_the_rerun_of_its_task(place: Workplace, phase: str) -> None:
    old = place.worker(root="old", failpoint=f"{phase}:hang")
    run = place.run("gated")
    run.open(1)
    [stopped] = eventually(lambda: [one for one in old.executors() if is_stopped(one.pid)], "it stops")
    run.command("DELETE", "")
    rerun(run)
    new = place.worker(root="new")
    run.begun_times(2)

    stopped.send_signal(signal.SIGCONT)

    assert "scheduled_time is" in old.said("completion not accepted", told="FAILED")["why"]
    assert old.directories() == []
    assert run.statuses() == ["IN_PROGRESS"]
    assert new.process.poll() is None
    run.open(2)
    place.assert_published_once(run)
    assert run.statuses() == ["COMPLETED"]


def test_a_body_whose_task_is_run_again_is_stopped_and_its_worker_runs_the_new_attempt(open_place: Open) -> None:
    place = open_place(lease=4)
    worker = place.worker()
    run = place.run("gated")
    executor = run.begun_times(1)
    run.open(2)

    run.command("DELETE", "")
    rerun(run)

    assert "is no longer this attempt's" in worker.said("attempt stopped: Conductor has ended it")["why"]
    eventually(lambda: not is_running(executor), "the executor ends")
    place.assert_published_once(run)
    assert run.statuses() == ["COMPLETED"]
    assert run.ended()["result"] == {"start": 2}


def test_a_task_that_times_out_while_its_body_runs_is_stopped_and_retried(open_place: Open) -> None:
    place = open_place(lease=4, limit=4)
    worker = place.worker()
    run = place.run("gated")
    executor = run.begun_times(1)
    run.open(2)

    run.timed_out()

    eventually(lambda: not is_running(executor), "the executor ends")
    place.assert_published_once(run)
    assert run.statuses() == ["TIMED_OUT", "COMPLETED"]
    assert run.ended()["result"] == {"start": 2}
    assert "status is TIMED_OUT" in worker.said("attempt stopped: Conductor has ended it")["why"]


NOWHERE = "http://127.0.0.1:9"


@pytest.mark.parametrize(
    ("setting", "value", "told"),
    [
        ("CONDUCTOR_SERVER_URL", NOWHERE, f"Conductor at {NOWHERE}/api cannot be reached"),
        ("CONDUCTOR_SERVER_URL", "", "CONDUCTOR_SERVER_URL"),
        ("LAKECTL_SERVER_ENDPOINT_URL", NOWHERE, "lakeFS"),
        ("LAKECTL_CREDENTIALS_SECRET_ACCESS_KEY", "", "LAKECTL_CREDENTIALS_SECRET_ACCESS_KEY"),
        ("LAKECTL_CREDENTIALS_SECRET_ACCESS_KEY", "another", "check LAKECTL_CREDENTIALS_ACCESS_KEY_ID"),
    ],
)
def test_a_worker_polls_nothing_before_its_servers_answer(
    place: Workplace, setting: str, value: str, told: str
) -> None:
    run = place.run()

    assert_refused(place.worker(settings={setting: value}), told)

    assert run.statuses() == ["SCHEDULED"]


def test_a_registered_taskdef_that_differs_is_refused_by_name_unless_allowed(place: Workplace) -> None:
    taskdef = place.conductor.ask("GET", f"/metadata/taskdefs/{place.task_name}")
    place.conductor.ask("PUT", "/metadata/taskdefs", json={**taskdef, "retryCount": 7})

    assert_refused(place.worker(), place.task_name, "retryCount is 7, declared 3", "--allow-drift")

    worker = place.worker("--allow-drift")
    place.assert_published_once(place.run())
    assert "warning: " in worker.stderr.read_text()
    assert "retryCount is 7, declared 3" in worker.stderr.read_text()


def test_a_task_that_is_not_registered_is_refused(place: Workplace) -> None:
    place.conductor.ask("DELETE", f"/metadata/taskdefs/{place.task_name}")

    assert_refused(place.worker(), f"{place.task_name} is not registered", f"perago register {place.task_name}")


def test_what_others_left_is_collected_while_the_worker_lives_and_what_is_at_work_is_not(place: Workplace) -> None:
    worker = place.worker(settings={"PERAGO_WORKSPACE_GC_INTERVAL": "200ms"})
    run = place.run("gated")
    run.begun_times(1)
    [at_work] = worker.directories()

    for number in range(2):
        left = worker.root / f"t-{number}-{uuid.uuid4().hex}"
        left.mkdir()
        (left / MARKER_NAME).write_text(json.dumps({"pid": os.getpid(), "process_started": 1.0}))
        worker.said("leftover collected", directory=str(left), why="its owner has ended")
        assert worker.directories() == [at_work]

    run.open(1)
    place.assert_published_once(run)


def test_a_second_supervisor_on_the_same_root_is_refused_until_the_first_is_dead(place: Workplace) -> None:
    first = place.worker()
    first.ready()

    assert_refused(place.worker(), f"process {first.process.pid}", "PERAGO_WORKSPACE_ROOT")
    assert first.process.poll() is None

    first.signal(signal.SIGKILL)
    first.exit_code()
    place.worker().ready()
