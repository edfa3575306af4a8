"""Workflows, as far as a demo and its reader need them: register, start, look."""

from dataclasses import dataclass
from typing import Any

TERMINAL = frozenset({"COMPLETED", "FAILED", "TERMINATED", "TIMED_OUT"})


@dataclass(frozen=True)
class TaskRun:
    reference: str
    status: str
    started: float
    ended: float
    retry_count: int
    reason: str | None


@dataclass(frozen=True)
class WorkflowRun:
    workflow_id: str
    status: str
    output: dict[str, Any]
    reason: str | None
    tasks: tuple[TaskRun, ...]

    @property
    def is_over(self) -> bool:
        return self.status in TERMINAL


def workflow_run(told: dict[str, Any]) -> WorkflowRun:
    tasks = tuple(
        TaskRun(
            task["referenceTaskName"],
            task["status"],
            task.get("startTime", 0) / 1000,
            task.get("endTime", 0) / 1000,
            task.get("retryCount", 0),
            task.get("reasonForIncompletion"),
        )
        for task in told.get("tasks", [])
    )
    return WorkflowRun(
        told["workflowId"], told["status"], told.get("output") or {}, told.get("reasonForIncompletion"), tasks
    )
