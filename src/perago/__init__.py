"""A typed Python worker runtime for Conductor on versioned lakeFS workspaces.

Public names load on first use, so importing `perago` costs next to nothing and never pulls in a
server's client or Spark.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from perago.authoring.controls import (
        ExecutionLimits,
        PublishBudget,
        RetryPolicy,
        TaskControls,
        TimeoutPolicy,
    )
    from perago.authoring.errors import (
        GuardrailViolation,
        PeragoError,
        PostGuardrailViolation,
        PreGuardrailViolation,
        PublishFenceError,
        RuntimeConfigError,
        StaleAttemptError,
        TaskDefinitionError,
        TaskExecutionError,
        TaskFailed,
        TaskInputError,
        TaskTerminalError,
    )
    from perago.authoring.guardrails import (
        check_guardrails,
        forbid_glob,
        require_dir,
        require_file,
        require_glob,
    )
    from perago.authoring.module import load_module_task
    from perago.authoring.spark import SparkWorkspace
    from perago.authoring.tables import change_budget, require_table
    from perago.authoring.task import TaskDefinition, task
    from perago.authoring.taskdef import build_taskdef, write_taskdef
    from perago.authoring.workspace import StagedWorkspace, WorkspaceInput, WorkspaceOutput, WorkspaceSpec
    from perago.config import RuntimeConfig, load_runtime_config
    from perago.protocol.attempt import assert_current_attempt_snapshot
    from perago.protocol.names import staging_branch_name

_HOME = {
    "perago.authoring.task": ("TaskDefinition", "task"),
    "perago.authoring.controls": (
        "ExecutionLimits",
        "PublishBudget",
        "RetryPolicy",
        "TaskControls",
        "TimeoutPolicy",
    ),
    "perago.authoring.workspace": ("StagedWorkspace", "WorkspaceInput", "WorkspaceOutput", "WorkspaceSpec"),
    "perago.authoring.spark": ("SparkWorkspace",),
    "perago.authoring.guardrails": (
        "check_guardrails",
        "forbid_glob",
        "require_dir",
        "require_file",
        "require_glob",
    ),
    "perago.authoring.tables": ("change_budget", "require_table"),
    "perago.authoring.module": ("load_module_task",),
    "perago.authoring.taskdef": ("build_taskdef", "write_taskdef"),
    "perago.authoring.errors": (
        "GuardrailViolation",
        "PeragoError",
        "PostGuardrailViolation",
        "PreGuardrailViolation",
        "PublishFenceError",
        "RuntimeConfigError",
        "StaleAttemptError",
        "TaskDefinitionError",
        "TaskExecutionError",
        "TaskFailed",
        "TaskInputError",
        "TaskTerminalError",
    ),
    "perago.config": ("RuntimeConfig", "load_runtime_config"),
    "perago.protocol.attempt": ("assert_current_attempt_snapshot",),
    "perago.protocol.names": ("staging_branch_name",),
}
_MODULE_OF = {name: module for module, names in _HOME.items() for name in names}

__all__ = [
    "ExecutionLimits",
    "GuardrailViolation",
    "PeragoError",
    "PostGuardrailViolation",
    "PreGuardrailViolation",
    "PublishBudget",
    "PublishFenceError",
    "RetryPolicy",
    "RuntimeConfig",
    "RuntimeConfigError",
    "SparkWorkspace",
    "StagedWorkspace",
    "StaleAttemptError",
    "TaskControls",
    "TaskDefinition",
    "TaskDefinitionError",
    "TaskExecutionError",
    "TaskFailed",
    "TaskInputError",
    "TaskTerminalError",
    "TimeoutPolicy",
    "WorkspaceInput",
    "WorkspaceOutput",
    "WorkspaceSpec",
    "__version__",
    "assert_current_attempt_snapshot",
    "build_taskdef",
    "change_budget",
    "check_guardrails",
    "forbid_glob",
    "load_module_task",
    "load_runtime_config",
    "require_dir",
    "require_file",
    "require_glob",
    "require_table",
    "staging_branch_name",
    "task",
    "write_taskdef",
]


def __getattr__(name: str) -> Any:
    module = _MODULE_OF.get(name)
    if module is None:
        raise AttributeError(f"module 'perago' has no attribute {name!r}")
    value = getattr(import_module(module), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
