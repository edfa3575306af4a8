"""A worker told to stop: it finishes what runs with the lease alive, unless it is told twice or time runs out."""

import signal
import time
from collections.abc import Generator
from pathlib import Path

import psutil
import pytest

from perago.lake.control import LakeControl
from tests.conftest import Servers
from tests.e2e.worker import TASK, Workplace, eventually, is_running, is_stopped

LEASE = 3
WITH_GRACE = TASK.replace(
    "    controls=TaskControls(\n",
    """    controls=TaskControls(
        publish_budget=PublishBudget(
            observed_merge_p99_seconds=1, safety_margin_seconds=1, lakefs_merge_timeout_seconds=5,
            conductor_completion_timeout_seconds=5, worker_shutdown_grace_seconds=30, heartbeat_interval_seconds=5,
        ),
""",
).replace("import RetryPolicy", "import PublishBudget, RetryPolicy")


@pytest.fixture
def place(servers: Servers, lake: LakeControl, tmp_path: Path) -> Generator[Workplace]:
    with Workplace.opened(servers, lake, tmp_path, lease=LEASE) as opened:
        yield opened


def test_a_running_attempt_is_finished_with_its_lease_alive_and_nothing_new_is_taken(place: Workplace) -> None:
    worker = place.worker(jobs=2)
    worker.ready(2)
    run = place.run("gated")
    run.begun_times(1)

    for below in psutil.Process(worker.process.pid).children(recursive=True):
        below.terminate()  # as init systems do, who send it to every process of a service
    worker.signal(signal.SIGTERM)
    worker.said("draining", running=1)
    end = time.monotonic() + 2 * LEASE

    def is_past_its_lease() -> bool:
        run.decide()
        assert run.statuses() == ["IN_PROGRESS"]
        return time.monotonic() > end

    eventually(is_past_its_lease, "twice the lease goes by")
    late = place.run(branch="late")
    run.open(1)

    assert worker.exit_code() == 0
    place.assert_published_once(run)
    assert run.statuses() == ["COMPLETED"]
    assert late.statuses() == ["SCHEDULED"]
    assert worker.directories() == []


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_idle_worker_stops_with_exit_0(place: Workplace, number: signal.Signals) -> None:
    worker = place.worker()
    worker.ready()

    worker.signal(number)

    assert worker.exit_code() == 0
    assert worker.executors() == []


def test_a_second_signal_ends_the_attempt_now_and_reports_it_failed(place: Workplace) -> None:
    worker = place.worker()
    run = place.run("gated")
    executor = run.begun_times(1)

    worker.signal(signal.SIGINT)
    worker.said("draining")
    worker.signal(signal.SIGINT)

    assert worker.exit_code() == 130
    assert run.statuses()[0] == "FAILED"
    assert run.reasons()[0] == "executor crash: killed by SIGKILL (slot 0)"
    assert not is_running(executor)
    assert worker.directories() == []
    assert place.site.history()[0] == run.state()["input"]["workspace"]["ref"]


def test_in_thread_mode_a_second_signal_reports_what_it_cannot_kill(place: Workplace) -> None:
    worker = place.worker("--execution-mode", "thread")
    run = place.run("gated")
    run.begun_times(1)

    worker.signal(signal.SIGINT)
    worker.said("draining")
    worker.signal(signal.SIGINT)

    assert worker.exit_code() == 130
    assert run.statuses()[0] == "FAILED"
    assert run.reasons()[0] == "the worker is stopping"
    assert place.site.history()[0] == run.state()["input"]["workspace"]["ref"]


def test_an_attempt_that_publishes_when_the_time_to_drain_runs_out_is_let_finish(
    servers: Servers, lake: LakeControl, tmp_path: Path
) -> None:
    with Workplace.opened(servers, lake, tmp_path, template=WITH_GRACE) as place:
        settings = {"PERAGO_SHUTDOWN_FORCE_KILL_AFTER": "500ms"}
        worker = place.worker(jobs=2, failpoint="confirm:hang", settings=settings)
        publishing = place.run()
        [executor] = eventually(lambda: [one for one in worker.executors() if is_stopped(one.pid)], "it publishes")
        other = place.run("gated", branch="other")
        other.begun_times(1)

        worker.signal(signal.SIGTERM)
        killed = worker.said("attempt killed at shutdown")
        executor.send_signal(signal.SIGCONT)

        assert worker.exit_code() == 3
        assert (killed["workflow"], killed["phase"]) == (other.workflow_id, "running")
        assert other.statuses()[0] == "FAILED"
        place.assert_published_once(publishing)
        assert publishing.statuses() == ["COMPLETED"]


def test_an_attempt_that_outlasts_the_time_to_drain_is_killed_and_reported_failed(place: Workplace) -> None:
    worker = place.worker(settings={"PERAGO_SHUTDOWN_FORCE_KILL_AFTER": "1s"})
    run = place.run("gated")
    executor = run.begun_times(1)

    worker.signal(signal.SIGTERM)

    assert worker.exit_code() == 3
    assert run.statuses()[0] == "FAILED"
    assert not is_running(executor)
    assert worker.directories() == []
    after = place.worker()
    run.open(2)
    place.assert_published_once(run)
    assert after.directories() == []
