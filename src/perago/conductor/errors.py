"""What Conductor's answers mean: which are worth another try, and which are final."""

import json
from dataclasses import dataclass
from typing import Any, cast

from perago.authoring.errors import PeragoError

_GATEWAY_TROUBLE = frozenset({502, 503, 504})


class ConductorError(PeragoError):
    """Conductor could not be asked, or said no; `retryable` tells whether asking again can help."""

    def __init__(self, message: str, *, status: int | None = None, retryable: bool = False) -> None:
        super().__init__(message)
        self.status = status
        self.retryable = retryable


@dataclass(frozen=True)
class Answer:
    """What Conductor answered to a call."""

    method: str
    path: str
    status: int
    reason: str
    body: bytes

    @property
    def text(self) -> str:
        return self.body.decode(errors="replace")


def error_of(answer: Answer) -> ConductorError:
    """The error an answer stands for."""
    told = told_in(answer)
    refused = cast("list[dict[str, Any]]", told.get("validationErrors") or [])
    details = [str(entry.get("message")) for entry in refused]
    message = "; ".join(details) or str(told.get("message") or answer.reason)
    return ConductorError(
        f"Conductor answered {answer.status} to {answer.method} {answer.path}: {message}",
        status=answer.status,
        retryable=is_retryable(answer),
    )


def is_retryable(answer: Answer) -> bool:
    """Conductor marks its own errors: what is not `retryable: true` is final, even with a 500."""
    return answer.status in _GATEWAY_TROUBLE or told_in(answer).get("retryable") is True


def told_in(answer: Answer) -> dict[str, Any]:
    """The object in an answer's body, empty when it is something else."""
    try:
        body = json.loads(answer.body)
    except ValueError:
        return {}
    return cast("dict[str, Any]", body) if isinstance(body, dict) else {}
