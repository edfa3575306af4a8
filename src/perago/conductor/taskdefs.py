"""Registered TaskDefs against the code's: the difference, by path."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, cast

ABSENT = "(unset)"

# Conductor's own fill-ins for limits that were never set.
_UNSET = {"concurrentExecLimit": (0,), "rateLimitFrequencyInSeconds": (0, 1), "rateLimitPerFrequency": (0,)}


@dataclass(frozen=True)
class Difference:
    path: str
    registered: Any
    wanted: Any


def taskdef_differences(registered: dict[str, Any], wanted: dict[str, Any]) -> list[Difference]:
    """Every value that `wanted` states otherwise than `registered`, or leaves out and it has."""
    names = [*wanted, *(name for name in _UNSET if name not in wanted)]
    return [
        difference
        for name in names
        for difference in _compare(
            name, _told(name, registered.get(name, ABSENT)), _told(name, wanted.get(name, ABSENT))
        )
    ]


def _told(name: str, value: Any) -> Any:
    if value is None or value in _UNSET.get(name, ()):
        return ABSENT
    if name in ("inputSchema", "outputSchema") and isinstance(value, dict):
        # Conductor adds times and owners of its own to a schema.
        schema = cast("dict[str, Any]", value)
        return {key: schema[key] for key in ("name", "version", "type", "data") if key in schema}
    return value


def _compare(path: str, registered: Any, wanted: Any) -> Iterator[Difference]:
    if isinstance(registered, dict) and isinstance(wanted, dict):
        before, after = cast("dict[str, Any]", registered), cast("dict[str, Any]", wanted)
        for key in dict.fromkeys([*after, *before]):
            yield from _compare(f"{path}.{key}", before.get(key, ABSENT), after.get(key, ABSENT))
    elif registered != wanted or isinstance(registered, bool) != isinstance(wanted, bool):
        yield Difference(path, registered, wanted)
