"""Conductor's tasks as values, and results as Conductor takes them."""

from dataclasses import dataclass
from typing import Any, Literal

from perago.protocol.attempt import Attempt

ResultStatus = Literal["COMPLETED", "FAILED", "FAILED_WITH_TERMINAL_ERROR"]


_LONG_LEASE_SECONDS = 10.0
# Of a task that was handed out, Conductor counts these whether anybody works on it or not, and goes on when it is given
# back: it may time out before it is begun.
_COUNTED = (
    "timeoutSeconds",
    "totalTimeoutSeconds",
    "pollTimeoutSeconds",
    "concurrentExecLimit",
    "rateLimitPerFrequency",
)


@dataclass(frozen=True)
class PolledTask:
    """A task as it was handed out: which attempt it is, its input, and how long its lease is.

    `may_wait` tells whether it may be held, or given back, without harm to it or to others.
    """

    attempt: Attempt
    payload: dict[str, Any]
    lease_seconds: float
    may_wait: bool = False


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
    lease_seconds = float(task.get("responseTimeoutSeconds") or 600)
    definition: dict[str, Any] = task.get("taskDefinition") or {}
    may_wait = (
        lease_seconds >= _LONG_LEASE_SECONDS
        and not any(definition.get(limit) for limit in _COUNTED)
        and _has_retries(task, definition)  # a worker that is killed may cost it one
    )
    return PolledTask(attempt_of(task), task.get("inputData") or {}, lease_seconds, may_wait)


def _has_retries(task: dict[str, Any], definition: dict[str, Any]) -> bool:
    step: dict[str, Any] = task.get("workflowTask") or {}
    own = step.get("retryCount")  # a workflow may have a number of its own
    return bool(definition.get("retryCount") if own is None else own)


def result_body(attempt: Attempt, worker_id: str, result: TaskResult) -> dict[str, Any]:
    body: dict[str, Any] = {
        "workflowInstanceId": attempt.workflow_instance_id,
        "taskId": attempt.task_id,
        "workerId": worker_id,
        "status": result.status,
        "outputData": result.output,
    }
    return {**body, "reasonForIncompletion": result.reason} if result.reason is not None else body


def lease_body(attempt: Attempt, worker_id: str) -> dict[str, Any]:
    return _in_progress(attempt, worker_id) | {"extendLease": True}


def return_body(attempt: Attempt, worker_id: str) -> dict[str, Any]:
    """Without `extendLease` the task goes back to its queue.

    Not at once: Conductor queues it first and then writes that down, over what a poll in between has written.
    """
    return _in_progress(attempt, worker_id) | {"callbackAfterSeconds": 1}


def _in_progress(attempt: Attempt, worker_id: str) -> dict[str, Any]:
    return {
        "workflowInstanceId": attempt.workflow_instance_id,
        "taskId": attempt.task_id,
        "workerId": worker_id,
        "status": "IN_PROGRESS",
    }
