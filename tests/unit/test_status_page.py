"""The worker's page, asked over HTTP, and its watchdog."""

import socket
import threading
import time
from collections.abc import Callable, Generator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, cast

import httpx
import pytest
from prometheus_client import CollectorRegistry
from structlog.testing import capture_logs

from perago.authoring.controls import TaskControls
from perago.authoring.errors import RuntimeConfigError
from perago.conductor.client import ConductorClient
from perago.config import load_runtime_config
from perago.worker import vitals
from perago.worker.facts import TaskFacts
from perago.worker.metrics import Metrics
from perago.worker.spark import SparkSource
from perago.worker.status import serve_status
from perago.worker.supervisor import Supervisor
from perago.worker.vitals import POLL_STUCK_SECONDS, STALLED_SECONDS, Vitals
from tests.e2e.worker import eventually

Answer = tuple[bool, dict[str, Any]]


def well() -> Answer:
    return True, {"fine": True}


@pytest.fixture
def supervisor(tmp_path: Path) -> Supervisor:
    """One that was never started."""
    task = TaskFacts("features.build", TaskControls(), None, False, {})
    nobody = cast("ConductorClient", None)
    return Supervisor("tasks.build", task, load_runtime_config(), nobody, "w-1", tmp_path, 2, cast("SparkSource", None))


@contextmanager
def page(
    healthy: Callable[[], Answer] = well,
    ready: Callable[[], Answer] = well,
    registry: CollectorRegistry | None = None,
    address: str = "127.0.0.1:0",
) -> Generator[httpx.Client]:
    with (
        serve_status(address, healthy, ready, registry or CollectorRegistry()) as url,
        httpx.Client(base_url=url) as client,
    ):
        yield client


def page_of(supervisor: Supervisor) -> Any:
    return page(supervisor.vitals.is_healthy, supervisor.is_ready, supervisor.metrics.registry)


def test_a_worker_whose_loop_turns_is_healthy(supervisor: Supervisor) -> None:
    with page_of(supervisor) as client:
        answer = client.get("/healthz")

    assert answer.status_code == 200
    assert answer.json()["healthy"] is True
    assert answer.json()["last_poll_age"] is None


def test_a_stalled_event_loop_is_unhealthy_with_its_age(supervisor: Supervisor) -> None:
    supervisor.vitals.last_beat = time.monotonic() - STALLED_SECONDS - 1

    with page_of(supervisor) as client:
        answer = client.get("/healthz")

    assert answer.status_code == 503
    assert answer.json()["healthy"] is False
    assert answer.json()["event_loop_age"] > STALLED_SECONDS


def test_a_poll_that_never_returns_is_unhealthy(supervisor: Supervisor) -> None:
    supervisor.vitals.last_poll = supervisor.vitals.waiting_to_poll_since = time.monotonic() - POLL_STUCK_SECONDS - 1

    with page_of(supervisor) as client:
        answer = client.get("/healthz")

    assert answer.status_code == 503
    assert answer.json()["waiting_for_poll"] > POLL_STUCK_SECONDS


def test_a_worker_with_all_slots_busy_for_hours_polls_nothing_and_is_healthy(supervisor: Supervisor) -> None:
    supervisor.vitals.last_poll = time.monotonic() - 7200
    supervisor.vitals.waiting_to_poll_since = None

    with page_of(supervisor) as client:
        assert client.get("/healthz").status_code == 200


def test_a_worker_recovers_on_its_page_as_it_does(supervisor: Supervisor) -> None:
    with page_of(supervisor) as client:
        supervisor.vitals.waiting_to_poll_since = time.monotonic() - POLL_STUCK_SECONDS - 1
        assert client.get("/healthz").status_code == 503
        supervisor.vitals.waiting_to_poll_since = None
        assert client.get("/healthz").status_code == 200


@pytest.mark.parametrize(
    ("trouble", "told"), [("last_beat", "event_loop_age"), ("waiting_to_poll_since", "waiting_for_poll")]
)
def test_a_worker_that_stalls_is_said_to_in_its_log(monkeypatch: pytest.MonkeyPatch, trouble: str, told: str) -> None:
    monkeypatch.setattr(vitals, "STALLED_SECONDS", 0.1)
    in_order = {"last_beat": time.monotonic() + 3600}
    watched = Vitals(**{**in_order, trouble: time.monotonic() - 1000})
    over = threading.Event()

    with capture_logs() as logged:
        watched.watch(over)
        line = eventually(lambda: logged[:1], "a line of the watchdog", seconds=30)[0]
        over.set()

    assert (line["event"], line["log_level"], line["healthy"]) == ("worker is stalled", "error", False)
    assert line[told] >= 1000


def test_a_worker_is_ready_once_an_executor_is_up_and_conductor_answered(supervisor: Supervisor) -> None:
    with page_of(supervisor) as client:
        assert client.get("/readyz").status_code == 503
        supervisor._slots[0].is_ready = True
        assert client.get("/readyz").json() == {"ready": False, "executors": 1, "busy": 0, "draining": False}
        supervisor.vitals.last_poll = time.monotonic()
        assert client.get("/readyz").status_code == 200
        supervisor._draining.set()
        assert client.get("/readyz").status_code == 503


def test_what_was_counted_is_told_to_prometheus() -> None:
    metrics = Metrics("features.build")
    metrics.attempt_ended("COMPLETED")
    metrics.attempt_ended("COMPLETED")
    metrics.attempt_ended("FAILED")
    metrics.attempt_took({"download": 0.2, "body": 3.0}, {"download": 2048})
    metrics.busy_slots.inc()
    metrics.restarts.inc()

    with page(registry=metrics.registry) as client:
        answer = client.get("/metrics")

    assert answer.headers["content-type"].startswith("text/plain")
    for line in (
        'perago_attempts_total{outcome="COMPLETED",task="features.build"} 2.0',
        'perago_attempts_total{outcome="FAILED",task="features.build"} 1.0',
        'perago_phase_seconds_sum{phase="body",task="features.build"} 3.0',
        'perago_phase_seconds_count{phase="download",task="features.build"} 1.0',
        'perago_transferred_bytes_total{direction="download",task="features.build"} 2048.0',
        "perago_busy_slots 1.0",
        "perago_executor_restarts_total 1.0",
        "perago_poll_seconds_count 0.0",
        "perago_heartbeat_seconds_count 0.0",
    ):
        assert line in answer.text.splitlines()


def test_two_workers_in_one_process_count_apart() -> None:
    one, other = Metrics("a.b"), Metrics("a.b")
    one.restarts.inc()

    with page(registry=other.registry) as client:
        assert "perago_executor_restarts_total 0.0" in client.get("/metrics").text


def test_another_address_is_told_the_three_there_are() -> None:
    with page() as client:
        answer = client.get("/config")

    assert answer.status_code == 404
    assert answer.text == "/healthz, /readyz or /metrics\n"


def test_without_a_host_the_page_is_for_this_machine_alone() -> None:
    with page(address=":0") as client:
        assert client.base_url.host == "127.0.0.1"
        assert client.get("/healthz").json() == {"fine": True}


def test_a_taken_port_is_told_in_one_sentence() -> None:
    with closing(socket.create_server(("127.0.0.1", 0))) as other:
        address = f"127.0.0.1:{other.getsockname()[1]}"
        with (
            pytest.raises(RuntimeConfigError, match=f"--http {address} cannot be served:.*in use; name .* a free port"),
            page(address=address),
        ):
            pytest.fail("served on a taken port")


@pytest.mark.parametrize(
    ("address", "fix"),
    [
        *((wrong, "write HOST:PORT") for wrong in ("here", "127.0.0.1:", "127.0.0.1:http", "127.0.0.1:70000")),
        ("no.such.host.test:0", "name an address"),
    ],
)
def test_an_address_that_cannot_be_is_told_with_the_fix(address: str, fix: str) -> None:
    with pytest.raises(RuntimeConfigError, match=f"--http {address} cannot be served:.*{fix}"), page(address=address):
        pytest.fail("served nowhere")


def test_the_port_is_free_again_after_the_block() -> None:
    with page() as client:
        address = f"{client.base_url.host}:{client.base_url.port}"

    with page(address=address) as client:
        assert client.get("/readyz").status_code == 200
