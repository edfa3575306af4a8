"""The TaskDef: what Conductor is told of a task."""

import json
from pathlib import Path
from typing import Any

from perago.authoring.payload import input_keys, input_schema, output_keys, output_schema
from perago.authoring.task import TaskDefinition
from perago.authoring.validation import warn_author


class PublishBudgetWarning(UserWarning):
    """A task's lease is shorter than its publish budget may need."""


def build_taskdef(definition: TaskDefinition) -> dict[str, Any]:
    """The TaskDef of a task as Conductor's JSON; warns when the lease is shorter than the publish budget."""
    controls = definition.controls
    budget = controls.publish_budget
    if budget is not None and controls.timeout.response_seconds < budget.response_timeout_seconds:
        warn_author(
            f"task {definition.name}: response_seconds ({controls.timeout.response_seconds}) is shorter than its"
            f" publish budget needs ({budget.response_timeout_seconds:g}); Conductor may give the task to"
            " another worker while it publishes",
            PublishBudgetWarning,
        )
    limits = {
        "concurrentExecLimit": controls.limits.concurrent_exec_limit,
        "rateLimitFrequencyInSeconds": controls.limits.rate_limit_frequency_in_seconds,
        "rateLimitPerFrequency": controls.limits.rate_limit_per_frequency,
    }
    return {
        "name": definition.name,
        "ownerEmail": definition.owner_email,
        "description": definition.description,
        "retryCount": controls.retry.count,
        "retryLogic": controls.retry.logic,
        "retryDelaySeconds": controls.retry.delay_seconds,
        "maxRetryDelaySeconds": controls.retry.max_delay_seconds,
        "backoffJitterMs": controls.retry.jitter_ms,
        "totalTimeoutSeconds": controls.timeout.total_seconds,
        "timeoutPolicy": controls.timeout.policy,
        "timeoutSeconds": controls.timeout.seconds,
        "responseTimeoutSeconds": controls.timeout.response_seconds,
        "pollTimeoutSeconds": controls.timeout.poll_seconds,
        **{name: value for name, value in limits.items() if value is not None},
        "inputKeys": input_keys(definition),
        "outputKeys": output_keys(definition),
        "inputSchema": _named(f"{definition.name}.input", input_schema(definition)),
        "outputSchema": _named(f"{definition.name}.output", output_schema(definition)),
    }


def write_taskdef(definition: TaskDefinition, path: Path) -> None:
    """Write the TaskDef as JSON, ready for review or for Conductor's own tools."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(render_taskdef(definition), encoding="utf-8")


def render_taskdef(definition: TaskDefinition) -> str:
    return json.dumps(build_taskdef(definition), indent=2, ensure_ascii=False) + "\n"


def _named(name: str, schema: dict[str, Any]) -> dict[str, Any]:
    return {"name": name, "version": 1, "type": "JSON", "data": schema}
