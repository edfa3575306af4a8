"""What Conductor's answers mean: which are worth another try, and which are final."""

from typing import Any, cast

import httpx

from perago.authoring.errors import PeragoError

_GATEWAY_TROUBLE = frozenset({502, 503, 504})


class ConductorError(PeragoError):
    """Conductor could not be asked, or said no; `retryable` tells whether asking again can help."""

    def __init__(self, message: str, *, status: int | None = None, retryable: bool = False) -> None:
        super().__init__(message)
        self.status = status
        self.retryable = retryable


def error_of(response: httpx.Response) -> ConductorError:
    """The error a response stands for."""
    told = told_in(response)
    refused = cast("list[dict[str, Any]]", told.get("validationErrors") or [])
    details = [str(entry.get("message")) for entry in refused]
    message = "; ".join(details) or str(told.get("message") or response.reason_phrase)
    request = response.request
    return ConductorError(
        f"Conductor answered {response.status_code} to {request.method} {request.url.path}: {message}",
        status=response.status_code,
        retryable=is_retryable(response),
    )


def is_retryable(response: httpx.Response) -> bool:
    """Conductor marks its own errors: what is not `retryable: true` is final, even with a 500."""
    return response.status_code in _GATEWAY_TROUBLE or told_in(response).get("retryable") is True


def told_in(response: httpx.Response) -> dict[str, Any]:
    """The object in a response's body, empty when it is something else."""
    try:
        body = response.json()
    except ValueError:
        return {}
    return cast("dict[str, Any]", body) if isinstance(body, dict) else {}
