"""A supervisor with real executor processes, and a Conductor played by the test."""

import asyncio
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest
from structlog.testing import capture_logs

from perago.authoring.controls import TaskControls
from perago.conductor.client import ConductorClient
from perago.conductor.tasks import PolledTask, TaskResult
from perago.config import load_runtime_config
from perago.protocol.attempt import Attempt
from perago.worker import supervisor as supervision
from perago.worker.facts import TaskFacts
from perago.worker.polling import Polling
from perago.worker.spark import SparkSource
from perago.worker.supervisor import Supervisor
from tests.unit.test_results import polled

HEAD = """
import os
from typing import Any
from pydantic import BaseModel
from perago import TaskTerminalError, task

class Params(BaseModel):
    dies: bool = False
    nested: Any = None

class Result(BaseModel):
    pass

"""
BODY = (
    HEAD
    + """
@task(name="work", owner_email="data@example.com")
def work(params: Params) -> Result:
    if params.dies:
        os._exit(1)
    return Result()
"""
)
# What a library may do while it is imported: only the second executor's import goes wrong.
SECOND_IMPORT = """
import pathlib
count = pathlib.Path(__file__).with_name("imports")
with count.open("a") as opened:
    opened.write("x")
if count.stat().st_size == 2:
    import threading
    forever = threading.Event()
"""
HANGS = "    forever.wait()\n"
FAILS_AND_LEAVES_A_THREAD = "    threading.Thread(target=forever.wait).start()\n    raise OSError('no database')\n"


class Batches:
    """A Conductor whose polls bring the given batches, one each, and nothing after them."""

    def __init__(self, *batches: list[PolledTask]) -> None:
        self._batches = list(batches)
        self._tasks = {task.attempt.task_id: task.attempt for batch in batches for task in batch}
        self.told: dict[str, TaskResult] = {}

    async def poll(self, task_name: str, worker_id: str, count: int, wait_seconds: float = 0) -> list[PolledTask]:
        await asyncio.sleep(0.05)
        return self._batches.pop(0) if self._batches else []

    async def current(self, task_id: str) -> Attempt:
        return self._tasks[task_id]

    async def extend_lease(self, attempt: Attempt, worker_id: str) -> None:
        """Nothing here runs out."""

    async def give_back(self, attempt: Attempt, worker_id: str) -> None:
        """Nobody asks for it again."""

    async def report(self, attempt: Attempt, worker_id: str, result: TaskResult) -> None:
        self.told[attempt.task_id] = result
        self._tasks[attempt.task_id] = replace(attempt, status=result.status)


class NoSpark:
    async def stop(self) -> None:
        """There is none."""


def asked(task_id: str, **params: Any) -> PolledTask:
    return replace(polled(task_id), payload={"params": params})


def nested(levels: int) -> Any:
    value: Any = 1
    for _ in range(levels):
        value = [value]
    return value


@pytest.fixture
def work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Let a worker of `jobs` executors work for a Conductor until it has been told of `count` tasks, and then drain."""
    monkeypatch.chdir(tmp_path)

    def run(conductor: Batches, count: int, *, module: str = BODY, jobs: int = 1, ends: int = 0) -> None:
        (tmp_path / "work.py").write_text(module)
        config = load_runtime_config()
        facts = TaskFacts("work", TaskControls(), None, False, {})
        played, no_spark = cast("ConductorClient", conductor), cast("SparkSource", NoSpark())

        async def until_told() -> int:
            (tmp_path / "logs").mkdir()
            worker = Supervisor("work", facts, config, played, "w-1", tmp_path / "logs", jobs, no_spark)
            async with asyncio.timeout(60):
                running = asyncio.create_task(worker.run())
                while len(conductor.told) < count:  # noqa: ASYNC110 - nothing tells the test
                    await asyncio.sleep(0.01)
                worker._draining.set()
                worker._changed.set()
                return await running

        assert asyncio.run(until_told()) == ends

    return run


def test_an_input_that_cannot_be_handed_over_fails_its_own_attempt_and_no_other(work: Callable[..., None]) -> None:
    conductor = Batches([asked("deep", nested=nested(600)), asked("plain")], [asked("next")])

    work(conductor, 3, jobs=2)

    assert {task: result.status for task, result in conductor.told.items()} == {
        "deep": "FAILED",
        "plain": "COMPLETED",
        "next": "COMPLETED",
    }
    assert "the input cannot be handed to an executor: RecursionError" in str(conductor.told["deep"].reason)


@pytest.mark.parametrize("trouble", [HANGS, FAILS_AND_LEAVES_A_THREAD], ids=["hangs", "fails and leaves a thread"])
def test_an_executor_that_never_becomes_ready_is_replaced(
    trouble: str, work: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(supervision, "IMPORT_SECONDS", 3)  # an import that works and takes longer is tried again
    conductor = Batches([asked("dies", dies=True)], [asked("after")])

    with capture_logs() as logged:
        work(conductor, 2, module=BODY + SECOND_IMPORT + trouble)

    assert (conductor.told["dies"].status, conductor.told["after"].status) == ("FAILED", "COMPLETED")
    said = [line["event"] for line in logged]
    assert said.count("executor ended") >= 2
    assert ("executor not ready in time" in said) is (trouble is HANGS)


def test_a_worker_whose_polling_ends_by_a_mistake_does_not_go_on_without(
    work: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def mistaken(polling: Polling, over: asyncio.Event) -> None:
        raise OverflowError("int too large to convert to float")

    monkeypatch.setattr(Polling, "until", mistaken)

    with capture_logs() as logged:
        work(Batches(), 0, ends=1)

    assert {"polling ended: OverflowError('int too large to convert to float')"} == {
        line["why"] for line in logged if line["event"] == "worker cannot go on"
    }


CLEARS_THE_CONTEXT = """
import structlog

class NoRows(Exception):
    def __bool__(self):
        raise RuntimeError("ask the database")

@task(name="work", owner_email="data@example.com")
def work(params: Params) -> Result:
    structlog.contextvars.clear_contextvars()
    raise TaskTerminalError("no rows") from NoRows()
"""


def test_whatever_a_body_does_to_its_log_and_raises_its_failure_is_told_and_logged_as_its_own(
    work: Callable[..., None], tmp_path: Path
) -> None:
    conductor = Batches([asked("t-1")])

    work(conductor, 1, module=HEAD + CLEARS_THE_CONTEXT)

    told = conductor.told["t-1"]
    assert (told.status, told.reason) == ("FAILED_WITH_TERMINAL_ERROR", "no rows")
    logged = [json.loads(line) for line in (tmp_path / "logs" / "executor-0.jsonl").read_text().splitlines()]
    said = [(line["event"], line["phase"]) for line in logged if line.get("task_id") == "t-1"]
    assert said == [
        ("attempt started", "start"),
        ("attempt failed", "body"),
        ("phase ended", "body"),
        ("result", "completion"),
    ]


COUNTS_ITS_IMPORTS = """
import pathlib
with pathlib.Path(__file__).with_name("imports").open("a") as opened:
    opened.write("x")
"""


def test_a_module_is_imported_once_in_an_executor_and_before_its_first_attempt(
    work: Callable[..., None], tmp_path: Path
) -> None:
    imports = tmp_path / "imports"
    counted: list[int] = []

    class Counting(Batches):
        async def poll(self, task_name: str, worker_id: str, count: int, wait_seconds: float = 0) -> list[PolledTask]:
            counted.append(imports.stat().st_size)
            return await super().poll(task_name, worker_id, count, wait_seconds)

    work(Counting([asked("t-1")], [asked("t-2")], [asked("t-3")]), 3, module=BODY + COUNTS_ITS_IMPORTS)

    assert set(counted) == {1}
    assert imports.read_text() == "x"
