"""What every log line of an attempt carries. Kept apart from structlog's own context, which a body may clear."""

from collections.abc import Generator, Mapping, MutableMapping
from contextlib import contextmanager
from contextvars import ContextVar
from types import MappingProxyType
from typing import Any

_NONE: Mapping[str, object] = MappingProxyType({})
_carried: ContextVar[Mapping[str, object]] = ContextVar("perago_log_fields", default=_NONE)


@contextmanager
def log_fields(**more: object) -> Generator[None]:
    """Add these to every line that is logged in the block."""
    before = _carried.set({**_carried.get(), **more})
    try:
        yield
    finally:
        _carried.reset(before)


def set_log_field(name: str, value: object) -> None:
    """Change one until the end of the block around it."""
    _carried.set({**_carried.get(), name: value})


def with_log_fields(_logger: Any, _name: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """A structlog processor. What a line says by itself stays, and comes first."""
    for name, value in _carried.get().items():
        event.setdefault(name, value)
    return event
