from dataclasses import replace
from typing import Any

import pytest

from perago import StaleAttemptError, assert_current_attempt_snapshot
from perago.protocol.attempt import Attempt

POLLED = Attempt(
    workflow_instance_id="wf-1",
    task_id="t-1",
    retry_count=0,
    reference_task_name="build_ref",
    seq=1,
    iteration=0,
    status="IN_PROGRESS",
    scheduled_time=1000,
    worker_id="worker-a",
    poll_count=1,
)
OPENING = "task t-1 of workflow wf-1 is no longer this attempt's: "


def fresh(**changes: Any) -> Attempt:
    return replace(POLLED, **changes)


def test_the_same_running_attempt_passes() -> None:
    assert_current_attempt_snapshot(POLLED, fresh())


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        pytest.param({"workflow_instance_id": "wf-2"}, "workflow_instance_id is wf-2, polled wf-1", id="workflow"),
        pytest.param({"task_id": "t-2"}, "task_id is t-2, polled t-1", id="task"),
        pytest.param({"retry_count": 1}, "retry_count is 1, polled 0", id="retry"),
        pytest.param({"scheduled_time": 2000}, "scheduled_time is 2000, polled 1000", id="rerun"),
        pytest.param({"worker_id": "worker-b"}, "worker_id is worker-b, polled worker-a", id="redelivery"),
        pytest.param({"poll_count": 2}, "poll_count is 2, polled 1", id="redelivery to the same worker"),
    ],
)
def test_each_differing_field_is_named_with_both_values(changes: dict[str, Any], named: str) -> None:
    with pytest.raises(StaleAttemptError) as stale:
        assert_current_attempt_snapshot(POLLED, fresh(**changes))

    assert str(stale.value) == OPENING + named


@pytest.mark.parametrize(
    "status",
    [
        "SCHEDULED",
        "CANCELED",
        "FAILED",
        "FAILED_WITH_TERMINAL_ERROR",
        "COMPLETED",
        "COMPLETED_WITH_ERRORS",
        "TIMED_OUT",
        "SKIPPED",
        "in_progress",
        "",
    ],
)
def test_only_a_task_in_progress_is_current(status: str) -> None:
    with pytest.raises(StaleAttemptError) as stale:
        assert_current_attempt_snapshot(POLLED, fresh(status=status))

    assert str(stale.value) == f"{OPENING}status is {status}, expected IN_PROGRESS"


def test_the_polled_status_does_not_matter() -> None:
    assert_current_attempt_snapshot(replace(POLLED, status="SCHEDULED"), fresh())


def test_all_differing_fields_are_named_at_once() -> None:
    with pytest.raises(StaleAttemptError) as stale:
        assert_current_attempt_snapshot(POLLED, fresh(status="TIMED_OUT", retry_count=2, worker_id="worker-b"))

    assert str(stale.value) == (
        f"{OPENING}status is TIMED_OUT, expected IN_PROGRESS; retry_count is 2, polled 0;"
        " worker_id is worker-b, polled worker-a"
    )


@pytest.mark.parametrize("field", ["scheduled_time", "worker_id", "poll_count"])
@pytest.mark.parametrize("unknown", ["polled", "fresh", "both"])
def test_what_conductor_does_not_give_is_not_compared(field: str, unknown: str) -> None:
    lacking = replace(POLLED, **{field: None})
    polled = lacking if unknown in ("polled", "both") else POLLED
    now = lacking if unknown in ("fresh", "both") else POLLED

    assert_current_attempt_snapshot(polled, now)


@pytest.mark.parametrize("field", ["scheduled_time", "worker_id", "poll_count"])
def test_an_unknown_field_hides_no_other_difference(field: str) -> None:
    with pytest.raises(StaleAttemptError, match="retry_count is 1, polled 0"):
        assert_current_attempt_snapshot(POLLED, fresh(retry_count=1, **{field: None}))


@pytest.mark.parametrize(
    ("polled", "now"),
    [
        pytest.param({"scheduled_time": 0}, {"scheduled_time": 5}, id="time zero"),
        pytest.param({"worker_id": ""}, {"worker_id": "worker-b"}, id="empty worker"),
    ],
)
def test_an_empty_value_is_a_known_one(polled: dict[str, Any], now: dict[str, Any]) -> None:
    with pytest.raises(StaleAttemptError):
        assert_current_attempt_snapshot(fresh(**polled), fresh(**now))
