"""What every log line of an attempt carries, whatever its body does to structlog's own context."""

from collections.abc import Generator, Mapping, MutableMapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

Fields = dict[str, object]

_NONE: Mapping[str, object] = {}
_mine: ContextVar[Fields | None] = ContextVar("perago_log_fields", default=None)
#: Of the one attempt at a time that an executor process has: threads that its body starts have no context of it.
_of_the_process: list[Fields | None] = []


def share_log_fields() -> None:
    """From now on one attempt at a time runs in this process, and all of its threads are the attempt's."""
    _of_the_process[:] = [None]


@contextmanager
def log_fields(**fields: object) -> Generator[None]:
    """Add these to every line that is logged in the block, and to those of a block around it until that ends."""
    around = _mine.get()
    if around is not None:
        around |= fields
        yield
        return
    before = _mine.set(fields)
    if _of_the_process:
        _of_the_process[0] = fields
    try:
        yield
    finally:
        _mine.reset(before)
        if _of_the_process:
            _of_the_process[0] = None


def set_log_field(name: str, value: object) -> None:
    """Change one of the attempt's."""
    mine = _mine.get()
    if mine is not None:
        mine[name] = value


def with_log_fields(_logger: Any, _name: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """A structlog processor. A body's own field of the same name is kept under another."""
    carried = _mine.get() or next(iter(_of_the_process), None) or _NONE
    for name, value in list(carried.items()):  # another thread may set one
        said = event.setdefault(name, value)
        if said is not value and not (isinstance(said, str | int) and said == value):
            event[name], event[f"body_{name}"] = value, said
    return event
