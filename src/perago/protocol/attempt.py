"""The attempt fence: is this attempt still the one Conductor waits for?"""

from dataclasses import dataclass

from perago.authoring.errors import StaleAttemptError


@dataclass(frozen=True)
class Attempt:
    """One delivery of a Conductor task, as seen at one moment."""

    workflow_instance_id: str
    task_id: str
    retry_count: int
    reference_task_name: str
    seq: int
    iteration: int
    status: str
    # A rerun or a redelivery reuses the task id; these tell it apart where Conductor gives them.
    scheduled_time: int | None = None
    worker_id: str | None = None
    poll_count: int | None = None


_IDENTITY = ("workflow_instance_id", "task_id", "retry_count")
_WHERE_GIVEN = ("scheduled_time", "worker_id", "poll_count")


def assert_current_attempt_snapshot(polled: Attempt, fresh: Attempt) -> None:
    """Raise `StaleAttemptError` unless `fresh`, read from Conductor now, is the running attempt `polled` was."""
    why = staleness(polled, fresh)
    if why is not None:
        raise StaleAttemptError(why)


def staleness(polled: Attempt, fresh: Attempt) -> str | None:
    """How `fresh` differs from the running attempt `polled` was, or None when it is that attempt."""
    differing: list[str] = []
    if fresh.status != "IN_PROGRESS":
        differing.append(f"status is {fresh.status}, expected IN_PROGRESS")
    for name in (*_IDENTITY, *_WHERE_GIVEN):
        ours, now = getattr(polled, name), getattr(fresh, name)
        unknown = name in _WHERE_GIVEN and (ours is None or now is None)
        if not unknown and ours != now:
            differing.append(f"{name} is {now}, polled {ours}")
    if not differing:
        return None
    return (
        f"task {polled.task_id} of workflow {polled.workflow_instance_id} is no longer this attempt's:"
        f" {'; '.join(differing)}"
    )


#: Conductor's statuses from which a task never comes back by itself.
TERMINAL = frozenset(
    {"COMPLETED", "COMPLETED_WITH_ERRORS", "FAILED", "FAILED_WITH_TERMINAL_ERROR", "CANCELED", "TIMED_OUT", "SKIPPED"}
)
