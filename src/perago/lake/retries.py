"""Calls that may be sent again, are: a few times, further and further apart."""

import random
import time
from collections.abc import Callable
from typing import TypeVar

import stamina

from perago.lake.errors import LakeError

Answer = TypeVar("Answer")

_AGAIN = stamina.RetryingCaller(attempts=5, timeout=45.0, wait_initial=0.1, wait_max=8.0, wait_jitter=0.5)


def repeated(call: Callable[[], Answer]) -> Answer:
    """Run an idempotent call, again with jittered backoff while its error is transient."""
    try:
        return call()  # the usual case bears no cost
    except LakeError as error:
        if not error.retryable:
            raise
    time.sleep(random.uniform(0.05, 0.2))  # noqa: S311 - apart from others who were turned away at the same moment
    return _AGAIN(_is_transient, call)


def _is_transient(error: Exception) -> bool:
    return isinstance(error, LakeError) and error.retryable
