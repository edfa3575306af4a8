"""What happened when in a workflow, from its workers' logs."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.table import Table

from perago.worker import reading

if TYPE_CHECKING:
    from perago.conductor.workflows import WorkflowRun

_BAR = 32
# Phases that took no time a person could see are left out.
_SHORTEST = 0.01


@dataclass(frozen=True)
class PhaseSpan:
    """One phase of one attempt; times are seconds since the epoch."""

    task: str
    attempt: int
    phase: str
    began: float
    seconds: float


def phase_spans(logs: Path, workflow_id: str) -> list[PhaseSpan]:
    """Every phase of a workflow's attempts in the order of time."""
    lines = reading.read(logs, workflow=workflow_id, event="phase ended")
    return sorted((_span(line) for line in lines), key=lambda span: span.began)


def _span(line: dict[str, Any]) -> PhaseSpan:
    ended = datetime.fromisoformat(line["timestamp"]).timestamp()
    seconds = float(line["seconds"])
    return PhaseSpan(line["task"], int(line["retry_count"]) + 1, line["phase"], ended - seconds, seconds)


def timeline(spans: Sequence[PhaseSpan]) -> Table:
    """A row for each phase: when it began, how long it took, and both as a bar."""
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for column in ("task", "phase"):
        table.add_column(column, no_wrap=True)
    for column in ("begins", "takes"):
        table.add_column(column, no_wrap=True, justify="right")
    table.add_column("", no_wrap=True)
    if not spans:
        return table
    first = spans[0].began
    whole = max(span.began + span.seconds for span in spans) - first
    before = ""
    for span in spans:
        if span.seconds < _SHORTEST:
            continue
        task = span.task if span.attempt == 1 else f"{span.task} (attempt {span.attempt})"
        begins, takes = f"{span.began - first:.2f} s", f"{span.seconds:.2f} s"
        table.add_row(task if task != before else "", span.phase, begins, takes, _bar(span, first, whole))
        before = task
    return table


def _bar(span: PhaseSpan, first: float, whole: float) -> str:
    start = round((span.began - first) / whole * _BAR)
    end = round((span.began + span.seconds - first) / whole * _BAR)
    return f"{' ' * start}{'█' * (end - start) or '▏'}"


def attempt_lines(run: "WorkflowRun") -> Iterable[str]:
    """What became of each attempt, in the order Conductor gave them out."""
    first = min((task.started for task in run.tasks), default=0.0)
    told = ("", "")
    for task in run.tasks:
        ended = f"{task.ended - first:6.2f} s"
        yield f"  {ended}  {task.reference:7} attempt {task.retry_count + 1}  {task.status}"
        if task.reason and task.status != "COMPLETED":
            reason = (task.reference, task.reason)
            yield f"            {task.reason if reason != told else 'for the same reason'}"
            told = reason
