"""A worker's rate, overhead and idle cost, beside a bare poll-and-update loop and the official SDK's worker."""

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Any

import httpx
import psutil

from bench.table import Row, alternating
from bench.transfers import Bench, bench

JOBS = 4
TASKS = 800
ROUNDS = 9
ATTEMPTS = 40

TRIVIAL = """
from pydantic import BaseModel
from perago import task

class Params(BaseModel):
    number: int

class Result(BaseModel):
    number: int

@task(name={name!r}, owner_email="bench@example.com")
def body(params: Params) -> Result:
    return Result(number=params.number)
"""

TEN_FILES = """
from pathlib import Path
from pydantic import BaseModel
from perago import WorkspaceSpec, task

class Params(BaseModel):
    number: int

class Result(BaseModel):
    number: int

@task(name={name!r}, owner_email="bench@example.com", workspace=WorkspaceSpec(prefix="/data"))
def body(workspace: Path, params: Params) -> Result:
    for number in range(10):
        (workspace / f"{{number}}.txt").write_text(f"{{params.number}} {{number}}")
    return Result(number=params.number)
"""

SDK_WORKER = """
import sys
from conductor.client.automator.task_handler import TaskHandler
from conductor.client.configuration.configuration import Configuration
from conductor.client.worker.worker_task import worker_task

@worker_task(task_definition_name={name!r}, thread_count={jobs}, poll_interval_millis=10)
def body(params: dict) -> dict:
    return {{"result": {{"number": params["number"]}}}}

if __name__ == "__main__":
    with TaskHandler(workers=[], configuration=Configuration(server_api_url=sys.argv[1]),
                     scan_for_annotated_workers=True) as handler:
        handler.start_processes()
        handler.join_processes()
"""


class Fleet:
    """Tasks of one kind on Conductor, queued before a worker starts."""

    def __init__(self, on: Bench) -> None:
        self._on = on
        self._url = on.environment["CONDUCTOR_SERVER_URL"]
        self._http = httpx.Client(base_url=self._url, timeout=60)

    def declare(self, source: str) -> tuple[str, Path]:
        """A fresh task name with its module, registered, and a workflow of the same name."""
        name = f"bench_{uuid.uuid4().hex[:10]}"
        folder = self._on.folder / name
        folder.mkdir()
        (folder / f"{name}.py").write_text(source.format(name=name, jobs=JOBS))
        subprocess.run([_perago(), "register", name], cwd=folder, check=True, stdout=subprocess.DEVNULL)
        inputs = {"params": "${workflow.input.params}", "workspace": "${workflow.input.workspace}"}
        if "workspace" not in source:
            del inputs["workspace"]
        step = {"name": name, "taskReferenceName": "t", "type": "SIMPLE", "inputParameters": inputs}
        workflow = {"name": name, "version": 1, "schemaVersion": 2, "ownerEmail": "b@example.com", "tasks": [step]}
        self._http.put("/metadata/workflow", json=[workflow]).raise_for_status()
        return name, folder

    def queue(self, name: str, inputs: list[dict[str, Any]]) -> list[str]:
        return [self._http.post(f"/workflow/{name}", json=given).raise_for_status().text for given in inputs]

    def finished(self, workflows: list[str]) -> list[dict[str, Any]]:
        """Wait for all of them, and give their tasks. Looks at the last one first: Conductor has enough to do."""
        tasks: list[dict[str, Any]] = []
        for workflow in reversed(workflows):
            while (told := self._http.get(f"/workflow/{workflow}").json())["status"] == "RUNNING":
                time.sleep(0.05)
            assert told["status"] == "COMPLETED", told.get("reasonForIncompletion")
            tasks.append(told["tasks"][-1])
        return tasks

    @contextmanager
    def worker(self, name: str, folder: Path, jobs: int) -> Generator[subprocess.Popen[bytes]]:
        own = {**os.environ, "PERAGO_WORKSPACE_ROOT": str(folder / "ws"), "PERAGO_LOG_ROOT": str(folder / "logs")}
        with (folder / "worker.log").open("wb") as log:
            worker = subprocess.Popen(
                [_perago(), "start", name, "-j", str(jobs)], cwd=folder, env=own, stdout=log, stderr=log
            )
        try:
            yield worker
        finally:
            worker.send_signal(signal.SIGTERM)
            worker.wait(60)

    def rate_of_perago(self) -> float:
        name, folder = self.declare(TRIVIAL)
        workflows = self.queue(name, [{"params": {"number": number}} for number in range(TASKS)])
        with self.worker(name, folder, JOBS):
            return _milliseconds_a_task(self.finished(workflows))

    def rate_of_a_bare_loop(self) -> float:
        name, _ = self.declare(TRIVIAL)
        workflows = self.queue(name, [{"params": {"number": number}} for number in range(TASKS)])
        asyncio.run(_bare_loop(self._url, name, TASKS))
        return _milliseconds_a_task(self.finished(workflows))

    def rate_of_the_sdk(self) -> float:
        name, folder = self.declare(TRIVIAL)
        workflows = self.queue(name, [{"params": {"number": number}} for number in range(TASKS)])
        script = folder / "sdk_worker.py"
        script.write_text(SDK_WORKER.format(name=name, jobs=JOBS))
        quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        worker = subprocess.Popen([sys.executable, script, self._url], start_new_session=True, **quiet)  # pyright: ignore[reportCallIssue, reportArgumentType]
        try:
            return _milliseconds_a_task(self.finished(workflows))
        finally:
            os.killpg(worker.pid, signal.SIGKILL)
            worker.wait()

    def overhead(self) -> list[Row]:
        """Ten-file attempts one after the other: what is not the body, in all and by phase."""
        name, folder = self.declare(TEN_FILES)
        place = self._on.place()
        took: list[float] = []
        with self.worker(name, folder, 1):
            for number in range(ATTEMPTS):
                head = self._on.lake.head(place.repository, "main").id
                workspace = {"repository": place.repository, "branch": "main", "ref_type": "commit", "ref": head}
                (task,) = self.finished(self.queue(name, [{"params": {"number": number}, "workspace": workspace}]))
                took.append((task["endTime"] - task["startTime"]) / 1000)
        phases = _phases(folder)
        bodies = phases.pop("body")
        overhead = [seconds - body for seconds, body in zip(took[1:], bodies[1:], strict=False)]
        rows = [Row("ten-file attempt: poll to COMPLETED less the body", overhead)]
        return rows + [Row(f"  of it {phase}", seconds[1:]) for phase, seconds in phases.items()]

    def idle(self) -> list[Row]:
        name, folder = self.declare(TRIVIAL)
        with self.worker(name, folder, 1) as worker:
            process = psutil.Process(worker.pid)
            while not any("executor ready" in line for line in _log_lines(folder)):
                time.sleep(0.1)
            time.sleep(2)
            before, started = process.cpu_times(), time.monotonic()
            time.sleep(20)
            after = process.cpu_times()
            spent = after.user + after.system - before.user - before.system
            executor = max(process.children(recursive=True), key=lambda child: child.memory_info().rss)
            return [
                Row(f"idle worker: {100 * spent / (time.monotonic() - started):.2f} % CPU", []),
                Row(f"supervisor RSS: {process.memory_info().rss / 2**20:.0f} MiB", []),
                Row(f"executor RSS: {executor.memory_info().rss / 2**20:.0f} MiB", []),
            ]


def rows() -> list[Row]:
    with bench() as on:
        fleet = Fleet(on)
        subjects: dict[str, Callable[[], float]] = {
            "bare poll+update loop": fleet.rate_of_a_bare_loop,
            f"perago -j {JOBS}": fleet.rate_of_perago,
        }
        if _has_sdk():
            subjects["official SDK's worker"] = fleet.rate_of_the_sdk
        taken = alternating(subjects, ROUNDS)
        bare = median(taken["bare poll+update loop"])
        found = [
            Row(f"trivial tasks, ms a task: {name}", milliseconds, "the bare loop", median(milliseconds) / bare)
            for name, milliseconds in taken.items()
        ]
        return [*found, *fleet.overhead(), *fleet.idle()]


async def _bare_loop(url: str, name: str, count: int) -> None:
    """As many at once as the worker has slots: poll what is free, do nothing, update."""
    async with httpx.AsyncClient(base_url=url, timeout=60) as http:
        done = 0
        while done < count:
            polled = await http.get(f"/tasks/poll/batch/{name}?workerid=bare&count={JOBS}&timeout=100")
            updates = [
                http.post(
                    "/tasks",
                    json={
                        "workflowInstanceId": task["workflowInstanceId"],
                        "taskId": task["taskId"],
                        "workerId": "bare",
                        "status": "COMPLETED",
                        "outputData": {"result": task["inputData"]["params"]},
                    },
                )
                for task in polled.json()
            ]
            await asyncio.gather(*updates)
            done += len(updates)


def _milliseconds_a_task(tasks: list[dict[str, Any]]) -> float:
    """By Conductor's own clock; the first quarter, in which processes start, is left out for all alike."""
    ends = sorted(task["endTime"] for task in tasks)[len(tasks) // 4 :]
    return (ends[-1] - ends[0]) / (len(ends) - 1)


def _phases(folder: Path) -> dict[str, list[float]]:
    found: dict[str, list[float]] = {}
    for line in map(json.loads, _log_lines(folder)):
        if line.get("event") == "phase ended":
            found.setdefault(line["phase"], []).append(line["seconds"])
    return found


def _log_lines(folder: Path) -> list[str]:
    return [line for file in (folder / "logs").rglob("*.jsonl") for line in file.read_text().splitlines()]


def _has_sdk() -> bool:
    return subprocess.run([sys.executable, "-c", "import conductor.client"], check=False).returncode == 0


def _perago() -> Path:
    return Path(sys.executable).with_name("perago")
