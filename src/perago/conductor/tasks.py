"""Conductor's tasks as values, and results as Conductor takes them."""

from dataclasses import dataclass
from typing import Any, Literal

from perago.protocol.attempt import Attempt

ResultStatus = Literal["COMPLETED", "FAILED", "FAILED_WITH_TERMINAL_ERROR"]


@dataclass(frozen=True)
class PolledTask:
    """A task as it was handed out: which attempt it is, its input, and how long its lease is."""

    attempt: Attempt
    payload: dict[str, Any]
    lease_seconds: float


@dataclass(frozen=True)
class TaskResult:
    """What is told to Conductor at the end of an attempt."""

    status: ResultStatus
    output: dict[str, Any]
    reason: str | None = None


def attempt_of(task: dict[str, Any]) -> Attempt:
    return Attempt(
        workflow_instance_id=task["workflowInstanceId"],
        task_id=task["taskId"],
        retry_count=task["retryCount"],
        reference_task_name=task["referenceTaskName"],
        seq=task["seq"],
        iteration=task["iteration"],
        status=task["status"],
        scheduled_time=task.get("scheduledTime"),
        worker_id=task.get("workerId"),
        poll_count=task.get("pollCount"),
    )


def polled_task(task: dict[str, Any]) -> PolledTask:
    return PolledTask(attempt_of(task), task.get("inputData") or {}, float(task.get("responseTimeoutSeconds") or 600))


def result_body(attempt: Attempt, worker_id: str, result: TaskResult) -> dict[str, Any]:
    body: dict[str, Any] = {
        "workflowInstanceId": attempt.workflow_instance_id,
        "taskId": attempt.task_id,
        "workerId": worker_id,
        "status": result.status,
        "outputData": result.output,
    }
    return {**body, "reasonForIncompletion": result.reason} if result.reason is not None else body


def lease_body(attempt: Attempt, worker_id: str, *, keep: bool = True) -> dict[str, Any]:
    """Without `extendLease` the same update hands the task back to the queue."""
    return {
        "workflowInstanceId": attempt.workflow_instance_id,
        "taskId": attempt.task_id,
        "workerId": worker_id,
        "status": "IN_PROGRESS",
        "extendLease": keep,
    }
