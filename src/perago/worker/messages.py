"""What supervisor and executors say to each other over their pipe."""

from dataclasses import dataclass
from typing import Any

from perago.conductor.tasks import TaskResult
from perago.protocol.attempt import Attempt


@dataclass(frozen=True)
class Assignment:
    """Run this attempt under this execution id."""

    execution_id: str
    attempt: Attempt
    payload: dict[str, Any]


@dataclass(frozen=True)
class FenceAnswer:
    """The task as Conductor has it now, or why it could not be asked."""

    question: str
    fresh: Attempt | None
    trouble: str | None = None


@dataclass(frozen=True)
class SparkAnswer:
    """The address of a Spark server that answers, or why there is none."""

    question: str
    url: str | None
    trouble: str | None = None


@dataclass(frozen=True)
class Farewell:
    """Nothing more comes: end, and first send what is still to be sent."""


@dataclass(frozen=True)
class Ready:
    """The task's module is imported; attempts may come."""


@dataclass(frozen=True)
class NotReady:
    """The executor cannot work, and why."""

    reason: str


@dataclass(frozen=True)
class FenceQuestion:
    """Is this still the running attempt? `question` is unique, so a late answer is never taken for another's.

    After a `last` one the executor publishes, and must not be stopped any more.
    """

    question: str
    execution_id: str
    last: bool


@dataclass(frozen=True)
class SparkQuestion:
    """Where is Spark? The supervisor may have to start it."""

    question: str
    execution_id: str


@dataclass(frozen=True)
class Finished:
    """The attempt's result, with what it took: seconds by phase, bytes by direction, and of output."""

    execution_id: str
    result: TaskResult
    phases: dict[str, float]
    transferred: dict[str, int]
    output_bytes: int = 0


FromExecutor = Ready | NotReady | FenceQuestion | SparkQuestion | Finished
ToExecutor = Assignment | FenceAnswer | SparkAnswer | Farewell
