"""What the attempt fence and the explorer rest on in Conductor, asked of the real server and of the one in memory."""

from dataclasses import replace
from typing import Literal, get_args

import pytest

from perago.authoring.errors import StaleAttemptError
from perago.conductor.errors import ConductorError
from perago.conductor.tasks import ResultStatus
from perago.protocol.attempt import Attempt, assert_current_attempt_snapshot
from tests.contract.conftest import Deliver
from tests.contract.delivery import Delivery

Retried = Literal["FAILED", "TIMED_OUT"]
Final = Literal["COMPLETED", "FAILED_WITH_TERMINAL_ERROR", "CANCELED"]
RESULTS: tuple[ResultStatus, ...] = get_args(ResultStatus)
RETRIED: tuple[Retried, ...] = get_args(Retried)
FINAL: tuple[Final, ...] = get_args(Final)


def taken(delivery: Delivery) -> Attempt:
    attempt = delivery.poll()
    assert attempt is not None
    return attempt


def ended(deliver: Deliver, end: Retried | Final, retries: int = 1) -> tuple[Delivery, Attempt]:
    """A workflow whose first attempt has come to an end."""
    delivery = deliver(retries, lease_seconds=1) if end == "TIMED_OUT" else deliver(retries)
    attempt = taken(delivery)
    match end:
        case "TIMED_OUT":
            delivery.time_out()
        case "CANCELED":
            delivery.cancel()
        case reported:
            delivery.report(attempt, reported, "first")
    return delivery, attempt


# -- delivery --------------------------------------------------------------------------------------------------------


def test_an_attempt_is_handed_out_once_and_is_in_progress(deliver: Deliver) -> None:
    delivery = deliver()
    assert delivery.statuses() == ["SCHEDULED"]

    attempt = taken(delivery)

    assert (attempt.status, attempt.retry_count, attempt.seq, attempt.iteration) == ("IN_PROGRESS", 0, 1, 0)
    assert delivery.statuses() == ["IN_PROGRESS"]
    assert delivery.poll(wait_seconds=0) is None


def test_a_fresh_read_of_a_running_attempt_is_the_attempt_handed_out(deliver: Deliver) -> None:
    delivery = deliver()
    attempt = taken(delivery)

    assert delivery.current(attempt) == delivery.current(attempt) == attempt


def test_a_task_that_is_not_there_is_not_found(deliver: Deliver) -> None:
    delivery = deliver()
    attempt = taken(delivery)

    with pytest.raises(ConductorError, match="no-such-task") as refused:
        delivery.current(replace(attempt, task_id="no-such-task"))

    assert refused.value.status == 404


def test_a_task_given_back_is_handed_out_again_as_the_same_attempt_told_apart_by_the_count_of_polls(
    deliver: Deliver,
) -> None:
    delivery = deliver()
    first = taken(delivery)

    delivery.give_back(first)
    assert delivery.current(first) == replace(first, status="SCHEDULED")
    again = taken(delivery)

    assert again == replace(first, poll_count=2)
    assert delivery.current(again) == again
    with pytest.raises(StaleAttemptError, match="poll_count is 2, polled 1"):
        assert_current_attempt_snapshot(first, delivery.current(first))


@pytest.mark.parametrize("end", [*RETRIED, *FINAL])
def test_an_ended_attempt_cannot_be_given_back(deliver: Deliver, end: Retried | Final) -> None:
    delivery, first = ended(deliver, end)
    before = delivery.statuses()

    delivery.give_back(first)

    assert delivery.statuses() == before


def test_a_lease_extension_leaves_the_attempt_as_it_was(deliver: Deliver) -> None:
    delivery = deliver()
    attempt = taken(delivery)

    delivery.extend(attempt)

    assert delivery.current(attempt) == attempt
    assert delivery.poll(wait_seconds=0) is None


# -- ends ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("end", [*RETRIED, *FINAL])
def test_an_ended_attempt_keeps_its_ids_and_tells_its_end(deliver: Deliver, end: Retried | Final) -> None:
    delivery, first = ended(deliver, end)

    assert delivery.current(first) == replace(first, status=end)


@pytest.mark.parametrize("end", RETRIED)
def test_a_failure_and_a_time_out_are_followed_by_a_task_of_its_own(deliver: Deliver, end: Retried) -> None:
    delivery, first = ended(deliver, end)
    assert delivery.statuses() == [end, "SCHEDULED"]

    second = taken(delivery)

    own = {"task_id": second.task_id, "scheduled_time": second.scheduled_time}
    assert second.task_id != first.task_id
    assert second == replace(first, retry_count=1, seq=2, **own)


@pytest.mark.parametrize("end", FINAL)
def test_nothing_follows_a_completion_a_terminal_failure_or_a_cancellation(deliver: Deliver, end: Final) -> None:
    delivery, _ = ended(deliver, end)

    assert delivery.statuses() == [end]
    assert delivery.poll(wait_seconds=0) is None


@pytest.mark.parametrize("end", RETRIED)
def test_nothing_follows_where_no_retry_is_left(deliver: Deliver, end: Retried) -> None:
    delivery, _ = ended(deliver, end, retries=0)

    assert delivery.statuses() == [end]
    assert delivery.poll(wait_seconds=0) is None


def test_as_many_attempts_follow_the_first_as_there_are_retries(deliver: Deliver) -> None:
    delivery = deliver(retries=2)

    for count in range(3):
        attempt = taken(delivery)
        assert attempt.retry_count == count
        delivery.report(attempt, "FAILED")

    assert delivery.statuses() == ["FAILED"] * 3
    assert delivery.poll(wait_seconds=0) is None


def test_an_attempt_that_nobody_has_yet_is_cancelled_with_its_workflow(deliver: Deliver) -> None:
    delivery, _ = ended(deliver, "FAILED")

    delivery.cancel()

    assert delivery.statuses() == ["FAILED", "CANCELED"]
    assert delivery.poll(wait_seconds=0) is None


# -- late results ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("end", [*RETRIED, *FINAL])
def test_a_late_result_of_an_ended_attempt_changes_nothing(deliver: Deliver, end: Retried | Final) -> None:
    delivery, first = ended(deliver, end)
    before = delivery.statuses()

    for late in RESULTS:
        delivery.report(first, late, "late")

    assert delivery.statuses() == before
    assert delivery.completed_with() == ("first" if end == "COMPLETED" else None)


@pytest.mark.parametrize("late", RESULTS)
def test_a_late_result_leaves_the_following_attempt_running(deliver: Deliver, late: ResultStatus) -> None:
    delivery, first = ended(deliver, "FAILED")
    second = taken(delivery)

    delivery.report(first, late, "late")

    assert delivery.current(second) == second
    delivery.report(second, "COMPLETED", "second")
    assert delivery.statuses() == ["FAILED", "COMPLETED"]
    assert delivery.completed_with() == "second"
