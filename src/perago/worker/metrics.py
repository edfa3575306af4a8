"""What a worker counts, for Prometheus."""

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram


class Metrics:
    """A registry of its own, so that two workers in one process never share a count."""

    def __init__(self, task: str) -> None:
        self.registry = CollectorRegistry()
        self._task = task
        self._attempts = Counter("perago_attempts", "Attempts by outcome.", ["task", "outcome"], registry=self.registry)
        self._phases = Histogram("perago_phase_seconds", "Phase durations.", ["task", "phase"], registry=self.registry)
        self._bytes = Counter(
            "perago_transferred_bytes", "Bytes by direction.", ["task", "direction"], registry=self.registry
        )
        self.busy_slots = Gauge("perago_busy_slots", "Slots at work.", registry=self.registry)
        self.restarts = Counter("perago_executor_restarts", "Executors started anew.", registry=self.registry)
        self.poll_seconds = Histogram("perago_poll_seconds", "Poll latency.", registry=self.registry)
        self.heartbeat_seconds = Histogram("perago_heartbeat_seconds", "Heartbeat latency.", registry=self.registry)

    def attempt_ended(self, outcome: str) -> None:
        self._attempts.labels(self._task, outcome).inc()

    def attempt_took(self, phases: dict[str, float], transferred: dict[str, int]) -> None:
        for phase, seconds in phases.items():
            self._phases.labels(self._task, phase).observe(seconds)
        for direction, count in transferred.items():
            self._bytes.labels(self._task, direction).inc(count)
