"""An executor killed, broken or, with its whole worker, gone in each phase: the retry publishes once."""

from collections.abc import Generator
from pathlib import Path
from typing import get_args

import pytest

from perago.attempt.phases import Phase
from perago.lake.control import LakeControl
from tests.conftest import Servers
from tests.e2e.worker import Run, Worker, Workplace, eventually, is_stopped

PHASES = tuple(phase for phase in get_args(Phase) if phase != "unchanged")
HOLD_STAGING = ("uploaded", "staged", "confirm", "published", "cleanup")


@pytest.fixture
def place(servers: Servers, lake: LakeControl, tmp_path: Path) -> Generator[Workplace]:
    with Workplace.opened(servers, lake, tmp_path) as opened:
        yield opened


@pytest.fixture
def short_lease(servers: Servers, lake: LakeControl, tmp_path: Path) -> Generator[Workplace]:
    with Workplace.opened(servers, lake, tmp_path, lease=3) as opened:
        yield opened


@pytest.mark.parametrize("phase", PHASES)
def test_an_executor_killed_in_a_phase_is_retried_and_published_once(place: Workplace, phase: str) -> None:
    worker = place.worker(failpoint=f"{phase}:kill")
    run = place.run()
    place.assert_published_once(run)
    assert run.statuses() == ["FAILED", "COMPLETED"]
    assert run.reasons()[0] == "executor crash: killed by SIGKILL (slot 0)"
    assert worker.directories() == []
    assert_staging_is_collected(place, left=phase in HOLD_STAGING)


@pytest.mark.parametrize("phase", ["download", "body", "uploaded", "confirm", "completion"])
def test_an_error_in_a_phase_is_retried_and_published_once(place: Workplace, phase: str) -> None:
    worker = place.worker(failpoint=f"{phase}:raise")
    run = place.run()
    place.assert_published_once(run)
    assert run.statuses() == ["FAILED", "COMPLETED"]
    assert worker.directories() == []
    assert place.site.staging_branches() == []
    if phase != "completion":
        assert run.reasons()[0] == f"TaskExecutionError: failpoint {phase}"
        assert worker.lines("attempt failed", retry_count=0)[0]["exception"]


@pytest.mark.parametrize("phase", PHASES)
def test_a_worker_killed_in_a_phase_is_replaced_and_published_once(short_lease: Workplace, phase: str) -> None:
    place = short_lease
    worker = place.worker(failpoint=f"{phase}:hang")
    run = place.run()
    eventually(lambda: [one for one in worker.executors() if is_stopped(one.pid)], f"{phase}: an executor stops")
    worker.kill()
    assert bool(place.site.staging_branches()) == (phase in HOLD_STAGING)

    after = place.worker()
    run.timed_out()

    place.assert_published_once(run)
    assert run.statuses() == ["TIMED_OUT", "COMPLETED"]
    assert after.directories() == []
    assert_staging_is_collected(place, left=phase in HOLD_STAGING)


def assert_staging_is_collected(place: Workplace, *, left: bool) -> None:
    assert bool(place.site.staging_branches()) == left
    if left:
        collected = place.perago("gc", place.site.repository)
        assert collected.returncode == 0, collected.stderr
        assert place.site.staging_branches() == []


def hanging(place: Workplace, phase: str) -> tuple[Worker, Run]:
    worker, run = place.worker(failpoint=f"{phase}:hang"), place.run()
    eventually(lambda: [one for one in worker.executors() if is_stopped(one.pid)], "the executor stops")
    return worker, run


def test_gc_keeps_the_staging_branch_of_a_running_attempt_and_removes_that_of_an_ended_one(place: Workplace) -> None:
    worker, run = hanging(place, "staged")
    place.site.branch("perago-staging-of-somebody", place.site.head())

    kept = place.perago("gc", place.site.repository)
    [theirs, ours] = sorted(place.site.staging_branches(), key=len)
    worker.kill()
    run.command("DELETE", "")
    dry = place.perago("gc", "--dry-run", place.site.repository)
    left_by_dry_run = place.site.staging_branches()
    collected = place.perago("gc", place.site.repository)

    assert f"kept {ours} (its attempt is IN_PROGRESS)" in kept.stdout
    assert f"kept {theirs} (its name tells no task)" in kept.stdout
    assert f"would remove {ours} (its attempt is CANCELED)" in dry.stdout
    assert sorted(left_by_dry_run) == sorted([theirs, ours])
    assert f"removed {ours} (its attempt is CANCELED)" in collected.stdout
    assert place.site.staging_branches() == [theirs]


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        pytest.param({"PERAGO_FAILPOINT": "body:kill"}, "PERAGO_FAILPOINT is for tests only", id="no test mode"),
        pytest.param({"PERAGO_FAILPOINT": "lunch:kill", "PERAGO_TEST_MODE": "1"}, "lunch:kill", id="unknown phase"),
        pytest.param({"PERAGO_FAILPOINT": "body:tickle", "PERAGO_TEST_MODE": "1"}, "body:tickle", id="unknown action"),
    ],
)
def test_a_failpoint_outside_test_mode_or_at_no_phase_is_refused(
    place: Workplace, settings: dict[str, str], told: str
) -> None:
    worker = place.worker(settings=settings)

    assert worker.exit_code() == 1
    [error] = [line for line in worker.stderr.read_text().splitlines() if line.startswith("error: ")]
    assert told in error
    assert "Traceback" not in worker.stderr.read_text()
