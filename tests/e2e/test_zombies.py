"""Processes that were stopped past their lease and come back: they publish nothing, and their log says why."""

import os
import signal
from collections.abc import Generator
from pathlib import Path

import pytest

from perago.lake.control import LakeControl
from tests.conftest import Servers
from tests.e2e.worker import Run, Worker, Workplace, eventually, is_running, is_stopped


@pytest.fixture
def place(servers: Servers, lake: LakeControl, tmp_path: Path) -> Generator[Workplace]:
    with Workplace.opened(servers, lake, tmp_path, lease=3) as opened:
        yield opened


def overtaken(place: Workplace, run: Run) -> list[str]:
    """Let the lease run out and another worker publish; gives the target's history."""
    run.open(2)
    run.timed_out()
    other = place.worker(root="other")
    place.assert_published_once(run)
    assert run.statuses() == ["TIMED_OUT", "COMPLETED"]
    other.kill()
    return place.site.history()


def assert_gave_up(place: Workplace, zombie: Worker, run: Run, history: list[str]) -> None:
    """The stopped worker says why it gives up, and cleans up."""
    why = "is no longer this attempt's: status is TIMED_OUT, expected IN_PROGRESS"
    eventually(lambda: [line for line in zombie.lines() if why in str(line)], f"{why}: {zombie.stderr.read_text()}")
    zombie.said("completion not accepted", told="FAILED", conductor_has="TIMED_OUT")
    eventually(lambda: not zombie.directories(), "its directory is removed")
    assert run.statuses() == ["TIMED_OUT", "COMPLETED"]
    assert place.site.history() == history
    assert place.site.staging_branches() == []


@pytest.mark.parametrize("phase", ["download", "body", "compare", "staged"])
def test_an_executor_stopped_past_its_lease_is_ended_and_its_slot_works_on(place: Workplace, phase: str) -> None:
    zombie = place.worker(root="zombie", failpoint=f"{phase}:hang")
    run = place.run()
    [stopped] = eventually(lambda: [one for one in zombie.executors() if is_stopped(one.pid)], "it stops")
    history = overtaken(place, run)

    eventually(lambda: not is_running(stopped.pid), "the stopped executor is ended")

    place.perago("gc", place.site.repository)  # what it had staged
    assert_gave_up(place, zombie, run, history)
    zombie.ready(2)
    zombie.signal(signal.SIGTERM)
    assert zombie.exit_code() == 0


def test_an_executor_stopped_past_its_lease_while_it_publishes_publishes_nothing_when_it_goes_on(
    place: Workplace,
) -> None:
    zombie = place.worker(root="zombie", failpoint="confirm:hang")
    run = place.run()
    [stopped] = eventually(lambda: [one for one in zombie.executors() if is_stopped(one.pid)], "it stops")
    history = overtaken(place, run)

    stopped.send_signal(signal.SIGCONT)

    assert_gave_up(place, zombie, run, history)


def test_an_executor_that_publishes_is_not_ended_although_conductor_has_ended_its_attempt(place: Workplace) -> None:
    worker = place.worker(failpoint="confirm:hang")
    run = place.run()
    [executor] = eventually(lambda: [one for one in worker.executors() if is_stopped(one.pid)], "it stops")
    before = place.site.history()

    run.command("DELETE", "")
    worker.said("attempt not stopped, for it publishes: Conductor has ended it")
    assert is_stopped(executor.pid)
    executor.send_signal(signal.SIGCONT)

    worker.said("completion not accepted", told="COMPLETED", conductor_has="CANCELED")
    assert place.site.history()[1:] == before
    assert place.site.staging_branches() == []
    assert [one.pid for one in worker.executors()] == [executor.pid]


@pytest.mark.parametrize("executor_too", [False, True], ids=["alone", "with its executor"])
def test_a_supervisor_stopped_past_its_lease_publishes_nothing_when_it_goes_on(
    place: Workplace, executor_too: bool
) -> None:
    zombie = place.worker(root="zombie")
    run = place.run("gated")
    executor = run.begun_times(1)
    zombie.signal(signal.SIGSTOP)
    if executor_too:
        os.kill(executor, signal.SIGSTOP)
    run.open(1)
    history = overtaken(place, run)

    zombie.signal(signal.SIGCONT)
    if executor_too:
        os.kill(executor, signal.SIGCONT)

    assert_gave_up(place, zombie, run, history)
    place.assert_published_once(place.run(branch="next"), "next")


def test_an_executor_ends_with_its_supervisor_while_the_body_runs(place: Workplace) -> None:
    worker = place.worker()
    run = place.run("gated")
    executor = run.begun_times(1)
    head = place.site.head()

    worker.signal(signal.SIGKILL)
    run.open(1)

    eventually(lambda: not is_running(executor), "the executor ends")
    assert worker.exit_code() == -signal.SIGKILL
    assert place.site.head() == head
    assert place.site.staging_branches() == []
    assert "published" not in [line["event"] for line in worker.lines()]


def test_an_executor_ends_with_its_supervisor_just_before_it_would_publish(place: Workplace) -> None:
    worker = place.worker(failpoint="confirm:hang")
    run = place.run()
    [executor] = eventually(lambda: [one for one in worker.executors() if is_stopped(one.pid)], "it stops")
    head = place.site.head()

    worker.signal(signal.SIGKILL)

    eventually(lambda: not is_running(executor.pid), "the executor ends")
    assert place.site.head() == head
    after = place.worker()
    run.timed_out()
    place.assert_published_once(run)
    assert after.directories() == []
