import subprocess
import sys

import pytest

import perago

CONTRACT = [
    "task",
    "TaskControls",
    "RetryPolicy",
    "TimeoutPolicy",
    "ExecutionLimits",
    "PublishBudget",
    "WorkspaceSpec",
    "WorkspaceInput",
    "WorkspaceOutput",
    "SparkWorkspace",
    "StagedWorkspace",
    "require_file",
    "require_dir",
    "require_glob",
    "forbid_glob",
    "check_guardrails",
    "require_table",
    "change_budget",
    "load_module_task",
    "TaskDefinition",
    "build_taskdef",
    "write_taskdef",
    "assert_current_attempt_snapshot",
    "staging_branch_name",
    "RuntimeConfig",
    "load_runtime_config",
    "PeragoError",
    "TaskDefinitionError",
    "RuntimeConfigError",
    "TaskInputError",
    "TaskExecutionError",
    "TaskFailed",
    "TaskTerminalError",
    "GuardrailViolation",
    "PreGuardrailViolation",
    "PostGuardrailViolation",
    "PublishFenceError",
    "StaleAttemptError",
    "__version__",
]


def test_the_public_names_are_exactly_those_of_the_contract() -> None:
    assert sorted(perago.__all__) == sorted(CONTRACT)
    assert dir(perago) == sorted(CONTRACT)


@pytest.mark.parametrize("name", CONTRACT)
def test_every_public_name_resolves(name: str) -> None:
    assert getattr(perago, name) is not None


@pytest.mark.parametrize("name", [name for name in CONTRACT if name.endswith(("Error", "Failed", "Violation"))])
def test_every_public_error_has_the_one_root(name: str) -> None:
    assert issubclass(getattr(perago, name), perago.PeragoError)


def test_an_unknown_name_is_an_ordinary_attribute_error() -> None:
    with pytest.raises(AttributeError, match="module 'perago' has no attribute 'taks'"):
        _ = getattr(perago, "taks")  # noqa: B009 - the type checker knows it is not there


@pytest.mark.parametrize(
    ("statement", "kept_out"),
    [
        pytest.param(
            "import perago",
            {"pyspark", "lakefs_sdk", "httpx", "pydantic_settings", "typer", "rich", "pydantic"},
            id="the package",
        ),
        pytest.param("from perago import task", {"pyspark", "lakefs_sdk", "httpx"}, id="task"),
        pytest.param(
            "from perago import task, WorkspaceSpec, SparkWorkspace, TaskControls, require_file, require_table",
            {"pyspark", "lakefs_sdk", "httpx"},
            id="all that a task module takes",
        ),
    ],
)
def test_importing_the_authoring_names_loads_no_heavy_library(statement: str, kept_out: set[str]) -> None:
    fresh = subprocess.run(
        [sys.executable, "-c", f"{statement}\nimport sys\nprint(*sys.modules)"],
        capture_output=True,
        text=True,
        check=True,
    )

    loaded = {name.partition(".")[0] for name in fresh.stdout.split()}

    assert "perago" in loaded
    assert loaded & kept_out == set()
