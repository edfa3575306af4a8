"""Calls that may be sent again, are: a few times, further and further apart."""

from collections.abc import Callable
from typing import TypeVar

import stamina

from perago.lake.errors import LakeError

Answer = TypeVar("Answer")

_AGAIN = stamina.RetryingCaller(attempts=6, timeout=45.0, wait_initial=0.1, wait_max=8.0, wait_jitter=0.5)


def repeated(call: Callable[[], Answer]) -> Answer:
    """Run an idempotent call, again with jittered backoff while its error is transient."""
    try:
        return call()  # the usual case bears no cost
    except LakeError as error:
        if not error.retryable:
            raise
    return _AGAIN(_is_transient, call)


def _is_transient(error: Exception) -> bool:
    return isinstance(error, LakeError) and error.retryable
