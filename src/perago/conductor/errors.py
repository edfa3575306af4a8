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
    """The error a response stands for. Conductor marks its own: `retryable: false` is final even with a 500."""
    try:
        body = response.json()
    except ValueError:
        body = {}
    told: dict[str, Any] = cast("dict[str, Any]", body) if isinstance(body, dict) else {}
    refused = cast("list[dict[str, Any]]", told.get("validationErrors") or [])
    details = [str(entry.get("message")) for entry in refused]
    message = "; ".join(details) or str(told.get("message") or response.reason_phrase)
    retryable = response.status_code in _GATEWAY_TROUBLE or told.get("retryable") is True
    request = response.request
    return ConductorError(
        f"Conductor answered {response.status_code} to {request.method} {request.url.path}: {message}",
        status=response.status_code,
        retryable=retryable,
    )
