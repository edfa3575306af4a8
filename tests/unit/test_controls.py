import math
import warnings
from typing import Any

import pytest
from pydantic import BaseModel, ValidationError

from perago import (
    ExecutionLimits,
    PublishBudget,
    RetryPolicy,
    TaskControls,
    TaskDefinition,
    TimeoutPolicy,
    build_taskdef,
    task,
)
from perago.authoring.task import definition_of
from perago.authoring.taskdef import PublishBudgetWarning

BUDGET = {
    "observed_merge_p99_seconds": 20,
    "safety_margin_seconds": 10,
    "lakefs_merge_timeout_seconds": 30,
    "conductor_completion_timeout_seconds": 15,
    "worker_shutdown_grace_seconds": 10,
    "heartbeat_interval_seconds": 5.5,
}


class Params(BaseModel):
    limit: int


def controlled(controls: TaskControls) -> TaskDefinition:
    @task(name="features.build", owner_email="data@example.com", controls=controls)
    def build(params: Params) -> Params: ...

    definition = definition_of(build)
    assert definition is not None
    return definition


def test_the_defaults_are_those_of_the_contract() -> None:
    assert TaskControls().model_dump() == {
        "retry": {"count": 3, "logic": "FIXED", "delay_seconds": 60, "max_delay_seconds": 0, "jitter_ms": 0},
        "timeout": {
            "policy": "TIME_OUT_WF",
            "seconds": 0,
            "response_seconds": 600,
            "poll_seconds": 0,
            "total_seconds": 0,
        },
        "limits": {
            "concurrent_exec_limit": None,
            "rate_limit_frequency_in_seconds": None,
            "rate_limit_per_frequency": None,
        },
        "publish_budget": None,
    }


@pytest.mark.parametrize(
    ("model", "given"),
    [
        pytest.param(RetryPolicy, {"count": 0}, id="no retry"),
        pytest.param(RetryPolicy, {"count": 10}, id="ten retries"),
        pytest.param(RetryPolicy, {"logic": "EXPONENTIAL_BACKOFF"}, id="exponential"),
        pytest.param(RetryPolicy, {"logic": "LINEAR_BACKOFF"}, id="linear"),
        pytest.param(RetryPolicy, {"delay_seconds": 0}, id="at once"),
        pytest.param(TimeoutPolicy, {"policy": "RETRY"}, id="retry on time-out"),
        pytest.param(TimeoutPolicy, {"policy": "ALERT_ONLY"}, id="alert on time-out"),
        pytest.param(TimeoutPolicy, {"response_seconds": 1}, id="one second of lease"),
        pytest.param(TimeoutPolicy, {"seconds": 600, "response_seconds": 600}, id="lease as long as the limit"),
        pytest.param(TimeoutPolicy, {"seconds": 600, "total_seconds": 600}, id="limit as long as the total"),
        pytest.param(ExecutionLimits, {"concurrent_exec_limit": 1}, id="one at a time"),
        pytest.param(
            ExecutionLimits, {"rate_limit_frequency_in_seconds": 1, "rate_limit_per_frequency": 1}, id="one a second"
        ),
        pytest.param(PublishBudget, BUDGET, id="merge with just enough time"),
        pytest.param(PublishBudget, {**BUDGET, "safety_margin_seconds": 0}, id="no margin"),
        pytest.param(
            PublishBudget,
            {
                **BUDGET,
                "observed_merge_p99_seconds": 0.1,
                "safety_margin_seconds": 0.2,
                "lakefs_merge_timeout_seconds": 0.3,
            },
            id="merge with just enough time in fractions",
        ),
    ],
)
def test_values_on_the_bound_are_accepted(model: type[BaseModel], given: dict[str, Any]) -> None:
    assert model.model_validate(given).model_dump().items() >= given.items()


@pytest.mark.parametrize(
    ("model", "given", "field"),
    [
        pytest.param(RetryPolicy, {"count": -1}, "count", id="negative retries"),
        pytest.param(RetryPolicy, {"count": 11}, "count", id="eleven retries"),
        pytest.param(RetryPolicy, {"count": "3"}, "count", id="retries as text"),
        pytest.param(RetryPolicy, {"count": True}, "count", id="retries as truth"),
        pytest.param(RetryPolicy, {"count": 2.0}, "count", id="retries as fraction"),
        pytest.param(TaskControls, {"retry": TimeoutPolicy()}, "retry", id="another policy"),
        pytest.param(RetryPolicy, {"logic": "SOMETIMES"}, "logic", id="unknown logic"),
        pytest.param(RetryPolicy, {"logic": "fixed"}, "logic", id="logic in lower case"),
        pytest.param(RetryPolicy, {"delay_seconds": -1}, "delay_seconds", id="negative delay"),
        pytest.param(RetryPolicy, {"max_delay_seconds": -1}, "max_delay_seconds", id="negative longest delay"),
        pytest.param(RetryPolicy, {"jitter_ms": -1}, "jitter_ms", id="negative jitter"),
        pytest.param(TimeoutPolicy, {"policy": "IGNORE"}, "policy", id="unknown policy"),
        pytest.param(TimeoutPolicy, {"seconds": -1}, "seconds", id="negative limit"),
        pytest.param(TimeoutPolicy, {"response_seconds": 0}, "response_seconds", id="no lease"),
        pytest.param(TimeoutPolicy, {"poll_seconds": -1}, "poll_seconds", id="negative poll"),
        pytest.param(TimeoutPolicy, {"total_seconds": -1}, "total_seconds", id="negative total"),
        pytest.param(ExecutionLimits, {"concurrent_exec_limit": 0}, "concurrent_exec_limit", id="none at a time"),
        pytest.param(
            ExecutionLimits,
            {"rate_limit_frequency_in_seconds": 0, "rate_limit_per_frequency": 1},
            "rate_limit_frequency_in_seconds",
            id="period of nothing",
        ),
        pytest.param(
            ExecutionLimits,
            {"rate_limit_frequency_in_seconds": 1, "rate_limit_per_frequency": 0},
            "rate_limit_per_frequency",
            id="none in a period",
        ),
        *(
            pytest.param(PublishBudget, {**BUDGET, name: 0}, name, id=f"no {name}")
            for name in BUDGET
            if name != "safety_margin_seconds"
        ),
        *(pytest.param(PublishBudget, {**BUDGET, name: -1}, name, id=f"negative {name}") for name in BUDGET),
        *(pytest.param(PublishBudget, {**BUDGET, name: math.inf}, name, id=f"endless {name}") for name in BUDGET),
        *(pytest.param(PublishBudget, {**BUDGET, name: math.nan}, name, id=f"no number {name}") for name in BUDGET),
    ],
)
def test_values_out_of_bounds_are_refused_by_field(model: type[BaseModel], given: dict[str, Any], field: str) -> None:
    with pytest.raises(ValidationError) as refusal:
        model.model_validate(given)

    assert [entry["loc"] for entry in refusal.value.errors()] == [(field,)]


@pytest.mark.parametrize("left_out", BUDGET)
def test_a_publish_budget_states_all_six_times(left_out: str) -> None:
    with pytest.raises(ValidationError, match=f"{left_out}\n  Field required"):
        PublishBudget.model_validate({name: value for name, value in BUDGET.items() if name != left_out})


@pytest.mark.parametrize(
    ("model", "given"),
    [
        pytest.param(RetryPolicy, {}, id="retry"),
        pytest.param(TimeoutPolicy, {}, id="timeout"),
        pytest.param(ExecutionLimits, {}, id="limits"),
        pytest.param(PublishBudget, BUDGET, id="budget"),
        pytest.param(TaskControls, {}, id="controls"),
    ],
)
def test_unknown_fields_are_refused(model: type[BaseModel], given: dict[str, Any]) -> None:
    with pytest.raises(ValidationError, match="retires\n  Extra inputs are not permitted"):
        model.model_validate({**given, "retires": 1})


@pytest.mark.parametrize("given", [{"rate_limit_frequency_in_seconds": 60}, {"rate_limit_per_frequency": 5}])
def test_the_two_rate_fields_go_together(given: dict[str, int]) -> None:
    both = "rate_limit_frequency_in_seconds and rate_limit_per_frequency go together: set both or neither"
    with pytest.raises(ValidationError, match=both):
        ExecutionLimits.model_validate(given)


def test_a_lease_longer_than_the_limit_is_refused_with_the_fix() -> None:
    fix = r"response_seconds \(600\) must not exceed seconds \(300\): shorten it, or set seconds=0 for no limit"
    with pytest.raises(ValidationError, match=fix):
        TimeoutPolicy(seconds=300)


def test_a_limit_longer_than_the_total_is_refused() -> None:
    with pytest.raises(ValidationError, match=r"seconds \(900\) must not exceed total_seconds \(800\)"):
        TimeoutPolicy(seconds=900, total_seconds=800)


def test_a_merge_without_time_for_its_p99_and_margin_is_refused() -> None:
    needed = r"lakefs_merge_timeout_seconds \(29\.5\) must be at least .* \(30\)"
    with pytest.raises(ValidationError, match=needed):
        PublishBudget.model_validate({**BUDGET, "lakefs_merge_timeout_seconds": 29.5})


def test_a_budget_needs_the_sum_of_what_follows_the_body() -> None:
    assert PublishBudget.model_validate(BUDGET).response_timeout_seconds == 30 + 15 + 10 + 5.5


def test_a_budget_s_fractions_add_up_as_they_are_written() -> None:
    fractions = {
        "lakefs_merge_timeout_seconds": 20.1,
        "conductor_completion_timeout_seconds": 10.2,
        "worker_shutdown_grace_seconds": 19.6,
        "heartbeat_interval_seconds": 10.1,
    }

    budget = PublishBudget.model_validate({**BUDGET, "observed_merge_p99_seconds": 5, **fractions})

    assert sum(fractions.values()) > 60
    assert budget.response_timeout_seconds == 60


def test_controls_cannot_be_changed_after_the_declaration() -> None:
    with pytest.raises(ValidationError, match="frozen"):
        TaskControls().retry.count = 5  # pyright: ignore[reportAttributeAccessIssue]


@pytest.mark.parametrize("response_seconds", [1, 60])
def test_a_lease_shorter_than_the_budget_warns_and_stays_as_declared(response_seconds: int) -> None:
    definition = controlled(
        TaskControls(
            timeout=TimeoutPolicy(response_seconds=response_seconds),
            publish_budget=PublishBudget.model_validate(BUDGET),
        )
    )

    with pytest.warns(PublishBudgetWarning) as warned:
        taskdef = build_taskdef(definition)

    assert [str(warning.message) for warning in warned] == [
        f"task features.build: response_seconds ({response_seconds}) is shorter than its publish budget needs (60.5);"
        " Conductor may give the task to another worker while it publishes"
    ]
    assert taskdef["responseTimeoutSeconds"] == response_seconds


@pytest.mark.parametrize("response_seconds", [61, 600])
def test_a_lease_long_enough_for_the_budget_is_silent_and_stays_as_declared(response_seconds: int) -> None:
    definition = controlled(
        TaskControls(
            timeout=TimeoutPolicy(response_seconds=response_seconds),
            publish_budget=PublishBudget.model_validate(BUDGET),
        )
    )

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        taskdef = build_taskdef(definition)

    assert taskdef["responseTimeoutSeconds"] == response_seconds
