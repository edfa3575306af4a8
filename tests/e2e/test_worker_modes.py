"""A worker's ways to run and to be seen: threads, no workspace, the status page, traces. None tells a secret."""

import gzip
import json
import threading
from collections.abc import Generator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.conftest import Servers
from tests.e2e.fleet import Fleet, Worker, tasks_of
from tests.e2e.worker import eventually
from tests.integration.proxy import Proxy
from tests.integration.support import Site

COUNT = """
import os
import threading
from pathlib import Path
from pydantic import BaseModel
from perago import RetryPolicy, TaskControls, TaskFailed, task

class Params(BaseModel):
    number: int

class Result(BaseModel):
    doubled: int
    pid: int
    main_thread: bool

@task(name="NAME", owner_email="data@example.com",
      controls=TaskControls(retry=RetryPolicy(count=0)))
def double(params: Params) -> Result:
    if params.number == 13:
        raise TaskFailed("an unlucky number")
    is_main = threading.current_thread() is threading.main_thread()
    return Result(doubled=2 * params.number, pid=os.getpid(), main_thread=is_main)
"""
BUILD = """
from pathlib import Path
from pydantic import BaseModel
from perago import WorkspaceSpec, task

class Params(BaseModel):
    text: str = "made"

class Result(BaseModel):
    size: int

@task(name="NAME", owner_email="data@example.com", workspace=WorkspaceSpec(prefix="/data"))
def build(workspace: Path, params: Params) -> Result:
    (workspace / "made.txt").write_text(params.text)
    return Result(size=len(params.text))
"""
IMPORTED_TWICE_AT_MOST = """
from pathlib import Path

with Path(__file__).with_name("imports").open("a") as imports:
    imports.write("once\\n")
if len(Path(__file__).with_name("imports").read_text().splitlines()) > 2:
    raise RuntimeError("imported once too often")
"""


@pytest.fixture
def fleet(servers: Servers, tmp_path: Path) -> Generator[Fleet]:
    made = Fleet.at(servers, tmp_path)
    with made.conductor:
        yield made


@pytest.fixture
def site(fleet: Fleet, repository: str) -> Generator[Site]:
    made = fleet.site(repository)
    with made.http:
        made.commit({"data/given.txt": b"given"})
        yield made


def doubled(fleet: Fleet, *numbers: int) -> list[dict[str, Any]]:
    """The workflows that double these numbers, once they have ended."""
    return fleet.ended([fleet.started("count", {"params": {"number": number}}) for number in numbers])


def result_of(run: dict[str, Any]) -> dict[str, Any]:
    assert run["status"] == "COMPLETED", run["reasonForIncompletion"]
    return tasks_of(run)[-1]["outputData"]["result"]


def assert_secret_is_nowhere(fleet: Fleet, *told: str) -> None:
    assert_is_nowhere(fleet, fleet.environment["LAKECTL_CREDENTIALS_SECRET_ACCESS_KEY"], *told)


def assert_is_nowhere(fleet: Fleet, secret: str, *told: str) -> None:
    """Neither in what was told nor in any file a worker wrote."""
    files = [file for file in fleet.folder.rglob("*") if file.is_file()]
    assert any(file.suffix == ".jsonl" for file in files)
    assert [file for file in files if secret.encode() in file.read_bytes()] == []
    assert not any(secret in text for text in told)


def test_a_worker_with_credentials_for_conductor_logs_none_of_them_whatever_goes_wrong(fleet: Fleet) -> None:
    credentials = {"CONDUCTOR_AUTH_KEY": "the-worker", "CONDUCTOR_AUTH_SECRET": "hush-hush"}
    fleet.task("count", COUNT)
    with Proxy(fleet.environment["CONDUCTOR_SERVER_URL"]) as proxy:
        proxy.answer(200, lambda seen: seen.path == "/api/token", count=10, body=b'{"token": "of-an-hour"}')
        proxy.answer(401, lambda seen: "/tasks/poll/" in seen.path)
        proxy.answer(500, lambda seen: "/tasks/poll/" in seen.path, count=2)
        with fleet.worker("count", CONDUCTOR_SERVER_URL=proxy.url, **credentials) as worker:
            worker.said(2, event="poll failed")
            (run,) = doubled(fleet, 7)
            assert worker.drained() == 0
        exchanges = proxy.seen(lambda seen: seen.path == "/api/token")

    assert result_of(run)["doubled"] == 14
    assert len(exchanges) == 2, "the first token was refused once"
    for secret in ("hush-hush", "of-an-hour"):
        assert_is_nowhere(fleet, secret, worker.stderr)


def test_a_task_without_a_workspace_runs_in_an_executor_without_lakefs_settings(fleet: Fleet) -> None:
    fleet.task("count", COUNT)
    no_lake = {name: "" for name in fleet.environment if name.startswith("LAKECTL_")}
    with fleet.worker("count", "-j", "2", **no_lake) as worker:
        results = [result_of(run) for run in doubled(fleet, *range(6))]
        (failed,) = doubled(fleet, 13)
        executors = set(worker.executors())
        assert len(worker.lines(event="phase ended", phase="body")) == 7

    assert [result["doubled"] for result in results] == [0, 2, 4, 6, 8, 10]
    assert {result["pid"] for result in results} <= executors
    assert (failed["status"], tasks_of(failed)[0]["reasonForIncompletion"]) == ("FAILED", "an unlucky number")


def test_in_thread_mode_bodies_run_in_threads_of_the_worker_itself(fleet: Fleet) -> None:
    fleet.task("count", COUNT)
    with fleet.worker("count", "-j", "2", "--execution-mode", "thread") as worker:
        results = [result_of(run) for run in doubled(fleet, *range(6))]
        (failed,) = doubled(fleet, 13)
        assert worker.executors() == []
        assert worker.drained() == 0

    assert [(result["doubled"], result["pid"], result["main_thread"]) for result in results] == [
        (2 * number, worker.process.pid, False) for number in range(6)
    ]
    assert tasks_of(failed)[0]["reasonForIncompletion"] == "an unlucky number"


def test_in_thread_mode_a_workspace_is_published_and_logged_the_same_way(fleet: Fleet, site: Site) -> None:
    fleet.task("build", BUILD)
    before = site.head()
    with fleet.worker("build", PERAGO_EXECUTION_MODE="thread") as worker:
        (run,) = fleet.ended([fleet.started("build", site.payload())])
        assert result_of(run) == {"size": 4}
        worker.said(event="attempt ended", status="COMPLETED")
        (published,) = worker.lines(event="published")

    assert site.history()[:2] == [tasks_of(run)[0]["outputData"]["workspace"]["ref"], before]
    assert (published["task_id"], published["phase"]) == (tasks_of(run)[0]["taskId"], "published")
    assert site.leftovers() == [".supervisor.lock"]


def test_the_page_of_a_worker_counts_what_it_does(fleet: Fleet, site: Site) -> None:
    fleet.task("build", BUILD)
    with (
        fleet.worker("build", "-j", "2", "--http", "127.0.0.1:0") as worker,
        httpx.Client(base_url=worker.page(), timeout=30) as page,
    ):
        eventually(lambda: page.get("/readyz").status_code == 200, "a worker that is ready")
        assert page.get("/healthz").json()["healthy"] is True
        ready = page.get("/readyz").json()
        assert (ready["draining"], ready["busy"]) == (False, 0)
        assert "outcome=" not in page.get("/metrics").text

        fleet.ended([fleet.started("build", site.payload())])

        completed = f'perago_attempts_total{{outcome="COMPLETED",task="{fleet.names["build"]}"}} 1.0'
        eventually(lambda: completed in page.get("/metrics").text, "the attempt among the metrics")
        told = page.get("/metrics").text
        sampled = {line.split()[0]: float(line.split()[1]) for line in told.splitlines() if not line.startswith("#")}
        labels = f'task="{fleet.names["build"]}"'
        assert sampled[f'perago_phase_seconds_count{{phase="body",{labels}}}'] == 1
        assert sampled[f'perago_phase_seconds_count{{phase="completion",{labels}}}'] == 1
        assert sampled[f'perago_transferred_bytes_total{{direction="download",{labels}}}'] == len(b"given")
        assert sampled[f'perago_transferred_bytes_total{{direction="upload",{labels}}}'] == len(b"made")
        assert sampled["perago_poll_seconds_count"] > 0
        assert sampled["perago_busy_slots"] == 0
        pages = [page.get(path).text for path in ("/healthz", "/readyz", "/metrics")]

    assert_secret_is_nowhere(fleet, worker.stderr, *pages)


def test_a_module_that_cannot_be_imported_is_one_sentence(fleet: Fleet) -> None:
    (fleet.folder / "broken.py").write_text("import no_such_library\n")
    with fleet.worker("broken") as worker:
        assert worker.process.wait(60) == 1

    assert "error: " in worker.stderr
    assert "no_such_library" in worker.stderr
    assert "Traceback" not in worker.stderr


def test_a_module_that_only_executors_cannot_import_ends_the_worker_with_the_reason(fleet: Fleet) -> None:
    fleet.task("count", f"{IMPORTED_TWICE_AT_MOST}\n{COUNT}")
    with fleet.worker("count") as worker:
        assert worker.process.wait(60) == 1

    assert "imported once too often" in worker.stderr
    assert "Traceback" not in worker.stderr


class Collector:
    """Takes traces as an OpenTelemetry collector does."""

    def __init__(self) -> None:
        self.requests: list[tuple[str, bytes]] = []

    @contextmanager
    def serving(self) -> Generator[str]:
        taken = self.requests

        class Page(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                unpacked = gzip.decompress(body) if self.headers.get("Content-Encoding") == "gzip" else body
                taken.append((self.path, unpacked))
                self.send_response(200)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the base class names it
                pass

        server = ThreadingHTTPServer(("127.0.0.1", 0), Page)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            server.server_close()

    def spans(self) -> list[Any]:
        from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

        exported = [ExportTraceServiceRequest.FromString(body) for path, body in self.requests if path == "/v1/traces"]
        groups = [
            scope for request in exported for resource in request.resource_spans for scope in resource.scope_spans
        ]
        return [span for scope in groups for span in scope.spans]


def published(fleet: Fleet, site: Site, worker: Worker) -> list[dict[str, Any]]:
    """Run one attempt to its end; gives the lines of its log."""
    (run,) = fleet.ended([fleet.started("build", site.payload())])
    assert run["status"] == "COMPLETED"
    worker.said(event="attempt ended")
    return worker.lines(task_id=tasks_of(run)[0]["taskId"])


def test_every_line_of_an_attempt_carries_its_ids_and_phase(fleet: Fleet, site: Site) -> None:
    fleet.task("build", BUILD)
    with fleet.worker("build") as worker:
        lines = published(fleet, site, worker)

    assert {"assigned", "attempt started", "published", "result", "attempt ended"} <= {line["event"] for line in lines}
    assert len({(line["workflow"], line["retry_count"], line["execution_id"]) for line in lines}) == 1
    assert all(line["phase"] for line in lines)


def test_attempts_are_traced_where_a_collector_is_named(fleet: Fleet, site: Site) -> None:
    pytest.importorskip("opentelemetry.exporter.otlp.proto.http", reason="perago[otel] is not installed")
    fleet.task("build", BUILD)
    collector = Collector()
    with (
        collector.serving() as address,
        fleet.worker("build", OTEL_EXPORTER_OTLP_ENDPOINT=address, OTEL_SERVICE_NAME="a-worker") as worker,
    ):
        lines = published(fleet, site, worker)
        assert worker.drained() == 0
        spans = eventually(collector.spans, "spans")

    (attempt,) = [span for span in spans if span.name.startswith("attempt ")]
    phases = {span.name: span for span in spans if span is not attempt}
    assert {"download", "body", "try", "confirm", "completion"} <= set(phases)
    assert {span.trace_id for span in spans} == {attempt.trace_id}
    assert {span.parent_span_id for span in phases.values()} == {attempt.span_id}
    told = {pair.key: pair.value.string_value or pair.value.int_value for pair in attempt.attributes}
    assert (told["perago.task"], told["perago.status"]) == (fleet.names["build"], "COMPLETED")
    of_executor = [line for line in lines if "task" in line]
    assert of_executor
    assert {line["trace_id"] for line in of_executor} == {attempt.trace_id.hex()}
    assert any(b"a-worker" in body for _, body in collector.requests)
    assert_secret_is_nowhere(fleet, *(body.decode(errors="replace") for _, body in collector.requests))


def test_nothing_is_sent_where_no_collector_is_named(fleet: Fleet, site: Site) -> None:
    fleet.task("build", BUILD)
    collector = Collector()
    with collector.serving(), fleet.worker("build") as worker:
        lines = published(fleet, site, worker)
        assert worker.drained() == 0

    assert collector.requests == []
    assert not any("trace_id" in json.dumps(line) for line in lines)
    assert_secret_is_nowhere(fleet)
