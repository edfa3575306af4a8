"""OpenTelemetry spans of attempts, where `perago[otel]` is installed and an exporter is named; nothing otherwise.

The SDK is set up by its usual variables (`OTEL_EXPORTER_OTLP_ENDPOINT`, `OTEL_SERVICE_NAME`, …).
"""

import os
from importlib import import_module
from typing import Any, Self

from perago.attempt.phases import Phase
from perago.extras import extra
from perago.worker.messages import Assignment

_ENDPOINT = "OTEL_EXPORTER_OTLP_ENDPOINT"


class AttemptSpan:
    """The span of an attempt, with one below it for each phase; this one records nothing."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: Any) -> None:
        """End the span."""

    def log_ids(self) -> dict[str, str]:
        """What the attempt's log lines bear, so that a trace is found from a line."""
        return {}

    def entered(self, phase: Phase) -> None:
        """Begin a phase, and end the one before it."""

    def ended(self, status: str, reason: str | None) -> None:
        """Note how the attempt ended."""


def check_tracing() -> None:
    """Before the first poll: an exporter that is asked for must be installed."""
    if os.environ.get(_ENDPOINT):
        with extra("otel", f"tracing to {_ENDPOINT}"):
            import_module("perago.worker.otel")


def attempt_span(task_name: str, assignment: Assignment) -> AttemptSpan:
    if not os.environ.get(_ENDPOINT):
        return AttemptSpan()
    from perago.worker.otel import OtelSpan

    return OtelSpan(task_name, assignment)
