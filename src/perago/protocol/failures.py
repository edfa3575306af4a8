"""From an error to what Conductor is told."""

from dataclasses import dataclass
from typing import Literal

from perago.authoring.errors import PreGuardrailViolation, TaskFailed, TaskTerminalError

FailureStatus = Literal["FAILED", "FAILED_WITH_TERMINAL_ERROR"]


@dataclass(frozen=True)
class Failure:
    status: FailureStatus
    reason: str


def classify(error: BaseException, max_length: int) -> Failure:
    """Terminal only where no retry can help; the reason is an author's own words, or an error's type and message."""
    terminal = isinstance(error, PreGuardrailViolation | TaskTerminalError)
    own_words = isinstance(error, TaskFailed | TaskTerminalError)
    reason = _message(error) if own_words else f"{type(error).__name__}: {_message(error)}"
    return Failure("FAILED_WITH_TERMINAL_ERROR" if terminal else "FAILED", _cut(reason, max_length))


def _message(error: BaseException) -> str:
    try:
        return str(error)
    except Exception:  # an author's exception may be unable to say what it is
        return "(its message cannot be shown)"


def _cut(reason: str, max_length: int) -> str:
    return reason if len(reason) <= max_length else f"{reason[: max_length - 1]}…"
