"""Every error Perago raises on purpose, under one root.

    PeragoError
    ├── TaskDefinitionError        a task is declared in a way Perago cannot run
    ├── RuntimeConfigError         a setting is missing or has a wrong value
    ├── TaskInputError             Conductor handed over an input the task does not accept
    └── TaskExecutionError         an attempt cannot go on
        ├── TaskFailed             raised by a body: ordinary failure, retried
        ├── TaskTerminalError      raised by a body: never retried
        ├── GuardrailViolation     the workspace is not as promised
        │   ├── PreGuardrailViolation
        │   └── PostGuardrailViolation
        ├── StaleAttemptError      Conductor has moved on from this attempt
        └── PublishFenceError      the target branch is not where this attempt left it

Gateways and the dev stack add their own under the same root (`ConductorError`, `LakeError`, `DevStackError`).
"""


class PeragoError(Exception):
    """The root of every error Perago raises on purpose."""


class TaskDefinitionError(PeragoError):
    """A task is declared in a way Perago cannot run; the message names the function and the fix."""


class RuntimeConfigError(PeragoError):
    """A setting is missing or has a wrong value; the message names its environment variable."""


class TaskInputError(PeragoError):
    """Conductor handed over an input the task does not accept; the message names the field."""


class TaskExecutionError(PeragoError):
    """An attempt cannot go on."""


class TaskFailed(TaskExecutionError):  # noqa: N818 - the contract's name
    """Raise in a body to fail the attempt; Conductor retries it as the TaskDef says."""


class TaskTerminalError(TaskExecutionError):
    """Raise in a body when no retry can help; Conductor fails the task for good."""


class GuardrailViolation(TaskExecutionError):  # noqa: N818 - the contract's name
    """A guardrail found the workspace not as promised."""


class PreGuardrailViolation(GuardrailViolation):
    """The input workspace is not what the task needs: terminal, since a retry reads the same commit."""


class PostGuardrailViolation(GuardrailViolation):
    """The body left the workspace other than the task promises: an ordinary failure."""


class StaleAttemptError(TaskExecutionError):
    """Conductor no longer regards this attempt as the running one, so it must not write."""


class PublishFenceError(TaskExecutionError):
    """The target branch is in a state this attempt cannot explain, so it was left untouched."""
