"""The demo and the examples it runs, as a user has them."""

import importlib
import os
import re
import signal
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import psutil
import pytest

from perago import PreGuardrailViolation
from perago.testing import run_task
from tests.conftest import Perago, Servers
from tests.e2e.demo import COMMAND, check_whole, demo
from tests.e2e.worker import eventually

EXAMPLES = Path(__file__).parents[2] / "examples"
DAY = "2026-11-16"


def processes_of(folder: Path) -> list[list[str]]:
    """What still runs with files in a folder."""
    found: list[list[str]] = []
    for process in psutil.process_iter():
        try:
            told = [process.cwd(), *process.cmdline(), *process.environ().values()]
            if process.pid != os.getpid() and any(str(folder) in text for text in told):
                found.append(process.cmdline())
        except psutil.Error:
            continue
    return found


def test_the_demo_publishes_is_stopped_by_a_guardrail_and_recovers_from_kills(tmp_path: Path) -> None:
    folder = tmp_path / "demo"
    folder.mkdir()
    output = tmp_path / "output"

    process = demo(folder, output)
    process.wait(300)

    assert process.returncode == 0, output.read_text()
    check_whole(output.read_text())
    assert processes_of(folder) == []


def test_an_interrupted_demo_stops_what_it_started_and_nothing_else(servers: Servers, tmp_path: Path) -> None:
    output = tmp_path / "output"
    before = {report.name for report in servers.stack.status()}

    process = demo(tmp_path, output, "--data-dir", str(servers.stack.folder.path))
    eventually(lambda: "started" in output.read_text(), "a workflow", 120)
    workflow = re.findall(r"workflow (\S+) started", output.read_text())[0]
    process.send_signal(signal.SIGINT)
    process.wait(60)

    assert process.returncode == 130, output.read_text()
    assert {report.name for report in servers.stack.status() if report.health == "healthy"} == before
    assert [command for command in processes_of(servers.stack.folder.path) if "start" in command] == []
    assert workflow_status(servers, workflow) == "TERMINATED"


def workflow_status(servers: Servers, workflow_id: str) -> str:
    import httpx

    answer = httpx.get(f"{servers.environment['CONDUCTOR_SERVER_URL']}/workflow/{workflow_id}")
    return str(answer.json()["status"])


def test_too_few_rows_are_refused(perago: Perago) -> None:
    refused = perago("demo", "--rows", "10")

    assert refused.returncode == 2
    assert "1000" in refused.stderr


def test_the_examples_are_well_declared_and_wired() -> None:
    modules = ["orders.ingest", "orders.clean", "orders.report"]
    checked = subprocess.run(
        [COMMAND, "check", *modules, "--workflow", "orders/workflow.json"],
        cwd=EXAMPLES,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )

    assert checked.returncode == 0, checked.stderr
    assert [f"{module}: task {module} is well declared" for module in modules] == checked.stdout.splitlines()[:3]
    assert checked.stdout.splitlines()[3:] == ["orders/workflow.json: the wiring is right"]


@pytest.fixture
def ingest(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(EXAMPLES))
    return importlib.import_module("orders.ingest").ingest


def rows_of(workspace: Path) -> list[Sequence[str]]:
    files = sorted((workspace / "raw").iterdir())
    return [line.split(",") for file in files for line in file.read_text().splitlines()[1:]]


def test_ingest_replaces_the_raw_files_by_the_orders_of_its_seed(ingest: Any, tmp_path: Path) -> None:
    (tmp_path / "raw").mkdir()
    (tmp_path / "raw" / "2020-01-01.csv").write_text("of an earlier run\n")

    result = run_task(ingest, {"first_day": DAY, "days": 3, "rows": 5000}, workspace=tmp_path)
    first = rows_of(tmp_path)
    run_task(ingest, {"first_day": DAY, "days": 3, "rows": 5000}, workspace=tmp_path)

    assert sorted(file.name for file in (tmp_path / "raw").iterdir()) == [f"2026-11-{day}.csv" for day in (16, 17, 18)]
    assert rows_of(tmp_path) == first
    assert (result.files, result.orders, result.lines) == (3, 5000, len(first))
    # The dirt that `clean` is for: lines twice, amounts with a currency, orders of nobody.
    assert len({row[0] for row in first}) == 5000 < len(first)
    assert any(row[5].startswith("EUR ") for row in first)
    assert any(row[1] == "" for row in first)
    assert not any("-" in row[5] for row in first)


def test_a_broken_delivery_has_negative_amounts_on_its_last_day(ingest: Any, tmp_path: Path) -> None:
    run_task(ingest, {"first_day": DAY, "days": 2, "rows": 1000, "broken": True}, workspace=tmp_path)

    assert {row[0][:10] for row in rows_of(tmp_path) if "-" in row[5]} == {"2026-11-17"}


def test_clean_refuses_a_workspace_without_raw_files(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.syspath_prepend(str(EXAMPLES))
    clean = importlib.import_module("orders.clean").clean

    with pytest.raises(PreGuardrailViolation, match="found 0 files"):
        run_task(clean, {"expected_orders": 1}, workspace=tmp_path)
