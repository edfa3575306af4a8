"""Conductor in memory: one task of one workflow, delivered attempt by attempt.

`tests/contract` runs one suite on this and on the real server; what differs is a mistake here. Time is left out: a
time-out comes when the test says so. So are scheduled times and workers' ids, which the attempt fence compares only
where Conductor gives them. Polls are counted.
"""

from dataclasses import dataclass, replace
from typing import Literal

from perago.conductor.errors import ConductorError
from perago.conductor.tasks import ResultStatus
from perago.protocol.attempt import Attempt

Ending = ResultStatus | Literal["TIMED_OUT"]


def first_attempt(task_name: str = "explored") -> Attempt:
    return Attempt(
        workflow_instance_id="workflow",
        task_id="task-0",
        retry_count=0,
        reference_task_name=task_name,
        seq=1,
        iteration=0,
        status="SCHEDULED",
        poll_count=0,
    )


@dataclass(frozen=True)
class InMemoryConductor:
    """Frozen, so that a test can keep any moment; each event gives the Conductor after it."""

    attempts: tuple[Attempt, ...]
    retries: int
    #: The ref of the completion that was taken; later ones are dropped.
    completed_with: str | None = None

    @classmethod
    def scheduling(cls, retries: int) -> "InMemoryConductor":
        return cls((first_attempt(),), retries)

    @property
    def newest(self) -> Attempt:
        return self.attempts[-1]

    @property
    def waits(self) -> bool:
        """Whether an attempt is out and its end is awaited."""
        return self.newest.status == "IN_PROGRESS"

    def current(self, attempt: Attempt) -> Attempt:
        """The task as it is now: one that timed out keeps its id and its end, the next has an id of its own."""
        for known in self.attempts:
            if known.task_id == attempt.task_id:
                return known
        raise ConductorError(f"Conductor answered 404: no such task {attempt.task_id}", status=404)

    def polled(self) -> "InMemoryConductor":
        """A worker took the scheduled attempt."""
        if self.newest.status != "SCHEDULED":
            return self
        taken = self._with_newest("IN_PROGRESS")
        again = replace(taken.newest, poll_count=(taken.newest.poll_count or 0) + 1)
        return replace(taken, attempts=(*taken.attempts[:-1], again))

    def timed_out(self) -> "InMemoryConductor":
        return self._ended("TIMED_OUT", None) if self.waits else self

    def cancelled(self) -> "InMemoryConductor":
        """The workflow was terminated: its attempt ends, whether a worker has it or not, and none follows."""
        return self._with_newest("CANCELED") if self.newest.status in ("SCHEDULED", "IN_PROGRESS") else self

    def reported(self, attempt: Attempt, status: ResultStatus, ref: str | None = None) -> "InMemoryConductor":
        """A worker's result: taken from the attempt that is awaited, dropped without a word from any other."""
        return self._ended(status, ref) if self._awaits(attempt) else self

    def given_back(self, attempt: Attempt) -> "InMemoryConductor":
        """A worker has not begun what it took: the same attempt is handed out again."""
        return self._with_newest("SCHEDULED") if self._awaits(attempt) else self

    def _awaits(self, attempt: Attempt) -> bool:
        return self.waits and self.newest.task_id == attempt.task_id

    def _ended(self, status: Ending, ref: str | None) -> "InMemoryConductor":
        ended = self._with_newest(status)
        if status == "COMPLETED":
            return replace(ended, completed_with=ref)
        count = self.newest.retry_count
        if status not in ("FAILED", "TIMED_OUT") or count >= self.retries:
            return ended
        following = replace(
            self.newest,
            task_id=f"task-{count + 1}",
            retry_count=count + 1,
            seq=self.newest.seq + 1,
            status="SCHEDULED",
            poll_count=0,
        )
        return replace(ended, attempts=(*ended.attempts, following))

    def _with_newest(self, status: str) -> "InMemoryConductor":
        return replace(self, attempts=(*self.attempts[:-1], replace(self.newest, status=status)))
