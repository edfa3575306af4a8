"""Attempts as OpenTelemetry spans; imported only where the extra is installed and asked for."""

from functools import cache
from typing import Any

from opentelemetry import trace
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor

from perago.attempt.phases import Phase
from perago.worker.messages import Assignment
from perago.worker.tracing import AttemptSpan


@cache
def _tracer() -> trace.Tracer:
    provider = TracerProvider()
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    trace.set_tracer_provider(provider)
    return trace.get_tracer("perago")


class OtelSpan(AttemptSpan):
    """One span for the attempt, and one below it for each phase it enters."""

    def __init__(self, task_name: str, assignment: Assignment) -> None:
        attempt = assignment.attempt
        attributes: dict[str, Any] = {
            "perago.task": task_name,
            "perago.workflow_instance_id": attempt.workflow_instance_id,
            "perago.task_id": attempt.task_id,
            "perago.retry_count": attempt.retry_count,
            "perago.execution_id": assignment.execution_id,
        }
        self._span = _tracer().start_span(f"attempt {task_name}", attributes=attributes)
        self._phase: trace.Span | None = None

    def __exit__(self, *_: Any) -> None:
        self._end_phase()
        self._span.end()

    def log_ids(self) -> dict[str, str]:
        context = self._span.get_span_context()
        return {"trace_id": f"{context.trace_id:032x}", "span_id": f"{context.span_id:016x}"}

    def entered(self, phase: Phase) -> None:
        self._end_phase()
        self._phase = _tracer().start_span(phase, context=trace.set_span_in_context(self._span))

    def ended(self, status: str, reason: str | None) -> None:
        self._span.set_attribute("perago.status", status)
        if reason is not None:
            self._span.set_status(trace.StatusCode.ERROR, reason)

    def _end_phase(self) -> None:
        if self._phase is not None:
            self._phase.end()
            self._phase = None
