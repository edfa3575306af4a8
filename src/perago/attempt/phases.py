"""The phases of an attempt, told to whoever watches it as they are entered."""

from collections.abc import Callable
from typing import Literal

Phase = Literal[
    "download",
    "pre",
    "body",
    "post",
    "compare",  # find out what changed
    "unchanged",  # nothing did: before the only fence
    "try",  # before the staging branch is made
    "uploaded",  # before the staging commit
    "staged",  # before the second fence
    "confirm",  # before the publish call
    "published",
    "cleanup",
    "completion",  # before the result is handed on
]

Watch = Callable[[Phase], None]
