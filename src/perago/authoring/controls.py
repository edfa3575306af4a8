"""How Conductor treats a task: retries, time-outs, limits, and the time a publication may take."""

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from perago.authoring.validation import ClosedModel

Seconds = Annotated[int, Field(ge=0)]
Duration = Annotated[float, Field(gt=0, allow_inf_nan=False)]


def _sum(*seconds: float) -> float:
    """To the microsecond: for floats, 0.1 + 0.2 is more than 0.3."""
    return round(sum(seconds), 6)


class RetryPolicy(ClosedModel):
    """When and how often Conductor delivers a failed task again."""

    count: int = Field(default=3, ge=0, le=10)
    logic: Literal["FIXED", "EXPONENTIAL_BACKOFF", "LINEAR_BACKOFF"] = "FIXED"
    delay_seconds: Seconds = 60
    max_delay_seconds: Seconds = 0
    jitter_ms: int = Field(default=0, ge=0)


class TimeoutPolicy(ClosedModel):
    """How long Conductor waits for a task; 0 means without limit."""

    policy: Literal["TIME_OUT_WF", "RETRY", "ALERT_ONLY"] = "TIME_OUT_WF"
    seconds: Seconds = 0
    response_seconds: int = Field(default=600, ge=1)
    poll_seconds: Seconds = 0
    total_seconds: Seconds = 0

    @model_validator(mode="after")
    def _accepted_by_conductor(self) -> Self:
        # Conductor answers 400 to both; better told to the author than to the operator.
        if self.seconds and self.response_seconds > self.seconds:
            raise ValueError(
                f"response_seconds ({self.response_seconds}) must not exceed seconds ({self.seconds}):"
                " shorten it, or set seconds=0 for no limit"
            )
        if self.total_seconds and self.seconds > self.total_seconds:
            raise ValueError(f"seconds ({self.seconds}) must not exceed total_seconds ({self.total_seconds})")
        return self


class ExecutionLimits(ClosedModel):
    """How many of the task's attempts may run at once, and how many may start in a period."""

    concurrent_exec_limit: int | None = Field(default=None, ge=1)
    rate_limit_frequency_in_seconds: int | None = Field(default=None, ge=1)
    rate_limit_per_frequency: int | None = Field(default=None, ge=1)

    @model_validator(mode="after")
    def _rate_fields_together(self) -> Self:
        if (self.rate_limit_frequency_in_seconds is None) != (self.rate_limit_per_frequency is None):
            raise ValueError(
                "rate_limit_frequency_in_seconds and rate_limit_per_frequency go together: set both or neither"
            )
        return self


class PublishBudget(ClosedModel):
    """The time a publication may take, from observed lakeFS figures; it bounds time, never objects or bytes."""

    observed_merge_p99_seconds: Duration
    safety_margin_seconds: Annotated[float, Field(ge=0, allow_inf_nan=False)]
    lakefs_merge_timeout_seconds: Duration
    conductor_completion_timeout_seconds: Duration
    worker_shutdown_grace_seconds: Duration
    heartbeat_interval_seconds: Duration

    @model_validator(mode="after")
    def _merge_has_time(self) -> Self:
        needed = _sum(self.observed_merge_p99_seconds, self.safety_margin_seconds)
        if self.lakefs_merge_timeout_seconds < needed:
            raise ValueError(
                f"lakefs_merge_timeout_seconds ({self.lakefs_merge_timeout_seconds:g}) must be at least"
                f" observed_merge_p99_seconds + safety_margin_seconds ({needed:g})"
            )
        return self

    @property
    def response_timeout_seconds(self) -> float:
        """The shortest `TimeoutPolicy.response_seconds` under which a publication can still be reported."""
        return _sum(
            self.lakefs_merge_timeout_seconds,
            self.conductor_completion_timeout_seconds,
            self.worker_shutdown_grace_seconds,
            self.heartbeat_interval_seconds,
        )


class TaskControls(ClosedModel):
    """All that Conductor and the worker are told about running a task."""

    retry: RetryPolicy = RetryPolicy()
    timeout: TimeoutPolicy = TimeoutPolicy()
    limits: ExecutionLimits = ExecutionLimits()
    publish_budget: PublishBudget | None = None
