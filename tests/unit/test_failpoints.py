import signal
import subprocess
import sys
from typing import get_args

import psutil
import pytest

from perago.attempt.failpoints import Failpoint
from perago.attempt.phases import Phase
from perago.authoring.errors import RuntimeConfigError, TaskExecutionError

REACH = """
import os
from perago.attempt.failpoints import Failpoint
Failpoint.from_environment(os.environ).reached("body", {retry_count})
print("went on")
"""


def armed(asked: str) -> Failpoint:
    return Failpoint.from_environment({"PERAGO_FAILPOINT": asked, "PERAGO_TEST_MODE": "1"})


def reaching(action: str, retry_count: int = 0) -> "subprocess.Popen[str]":
    """A process that reaches its armed body."""
    return subprocess.Popen(
        [sys.executable, "-c", REACH.format(retry_count=retry_count)],
        env={"PERAGO_FAILPOINT": f"body:{action}", "PERAGO_TEST_MODE": "1"},
        stdout=subprocess.PIPE,
        text=True,
    )


@pytest.mark.parametrize("environment", [{}, {"PERAGO_FAILPOINT": ""}, {"PERAGO_TEST_MODE": "1"}])
def test_nothing_is_armed_unless_asked(environment: dict[str, str]) -> None:
    failpoint = Failpoint.from_environment(environment)

    for phase in get_args(Phase):
        failpoint.reached(phase)


@pytest.mark.parametrize("mode", [None, "", "0", "true"])
def test_outside_test_mode_a_failpoint_is_refused(mode: str | None) -> None:
    environment = {"PERAGO_FAILPOINT": "body:kill", **({} if mode is None else {"PERAGO_TEST_MODE": mode})}

    with pytest.raises(RuntimeConfigError, match=r"PERAGO_FAILPOINT is for tests only.*PERAGO_TEST_MODE=1"):
        Failpoint.from_environment(environment)


@pytest.mark.parametrize("asked", ["body", "body:", ":kill", "lunch:kill", "body:stop", "body:kill:now", "kill:body"])
def test_a_failpoint_that_cannot_be_is_refused_with_all_that_can(asked: str) -> None:
    with pytest.raises(RuntimeConfigError) as refused:
        armed(asked)

    assert all(phase in str(refused.value) for phase in (*get_args(Phase), "kill", "hang", "raise"))


@pytest.mark.parametrize("phase", get_args(Phase))
def test_every_phase_can_be_broken_and_only_that_one(phase: Phase) -> None:
    failpoint = armed(f"{phase}:raise")

    for other in get_args(Phase):
        if other != phase:
            failpoint.reached(other)
    with pytest.raises(TaskExecutionError, match=f"failpoint {phase}"):
        failpoint.reached(phase)


def test_a_retry_is_spared_so_that_it_can_show_the_recovery() -> None:
    armed("body:raise").reached("body", retry_count=1)
    with reaching("kill", retry_count=1) as process:
        assert process.communicate(timeout=60)[0] == "went on\n"


def test_kill_ends_the_process_where_it_stands() -> None:
    with reaching("kill") as process:
        assert process.communicate(timeout=60)[0] == ""

    assert process.returncode == -signal.SIGKILL


def test_hang_stops_the_process_until_it_is_continued() -> None:
    with reaching("hang") as process:
        watched = psutil.Process(process.pid)
        while watched.status() != psutil.STATUS_STOPPED:
            assert process.poll() is None
        watched.resume()
        assert process.communicate(timeout=60)[0] == "went on\n"

    assert process.returncode == 0
