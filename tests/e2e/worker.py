"""A worker as an operator has it: the installed command in a folder of its own, on real Conductor and lakeFS."""

import contextlib
import importlib.util
import os
import signal
import subprocess
import sys
import textwrap
import time
import uuid
from collections.abc import Callable, Generator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import httpx
import psutil

from perago.authoring.task import definition_of
from perago.authoring.taskdef import build_taskdef
from perago.lake.control import LakeControl
from perago.worker import reading
from tests.conftest import Servers, bare_environment
from tests.integration.support import Site

T = TypeVar("T")
PATIENCE = 120.0
ENDED = {"COMPLETED", "FAILED", "TERMINATED", "TIMED_OUT"}
COMMAND = Path(sys.executable).with_name("perago")

TASK = """
import contextlib
import ctypes
import logging
import os
import signal
import sys
import time
from pathlib import Path

from pydantic import BaseModel

from perago import RetryPolicy, TaskControls, TaskFailed, TimeoutPolicy, WorkspaceSpec, task


class Params(BaseModel):
    notes: str
    mood: str = "plain"


class Result(BaseModel):
    start: int


def wait_for(file: Path) -> None:
    while not file.exists():
        time.sleep(0.02)


def plain(notes: Path, workspace: Path, start: int) -> None:
    pass


def gated(notes: Path, workspace: Path, start: int) -> None:
    wait_for(notes / f"open-{{start}}")

{moods}

@task(
    name="{name}",
    owner_email="data@example.com",
    workspace=WorkspaceSpec(prefix="/data"),
    controls=TaskControls(
        retry=RetryPolicy(count=3, delay_seconds=0),
        timeout=TimeoutPolicy(policy="RETRY", response_seconds={response_seconds}, seconds={seconds}),
    ),
)
def work(workspace: Path, params: Params) -> Result:
    notes = Path(params.notes)
    with (notes / "begun").open("a") as begun:
        begun.write(f"{{os.getpid()}}\\n")
    start = len((notes / "begun").read_text().splitlines())
    globals()[params.mood](notes, workspace, start)
    (workspace / "made.txt").write_text(f"start {{start}}")
    return Result(start=start)
"""


def heed_interrupts() -> None:
    """As in a terminal; a run in the background hands down that Ctrl-C is ignored."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def eventually(look: Callable[[], T | None], what: str, seconds: float = PATIENCE) -> T:
    """Look until there is something to see, less and less often: what looks takes from what is looked at."""
    deadline = time.monotonic() + seconds
    pause = 0.02
    while True:
        seen = look()
        if seen:
            return seen
        assert time.monotonic() < deadline, f"waited {seconds:.0f} s in vain: {what}"
        time.sleep(pause)
        pause = min(pause * 1.3, 0.25)


@dataclass(frozen=True)
class Conductor:
    """Conductor, asked over plain HTTP."""

    http: httpx.Client

    def ask(self, method: str, path: str, **options: Any) -> Any:
        answer = self.http.request(method, path, **options)
        assert answer.is_success, f"{method} {path}: {answer.status_code} {answer.text}"
        return answer.json() if "json" in answer.headers.get("content-type", "") else answer.text


@dataclass(frozen=True)
class Run:
    """One workflow with one task, and the folder in which its body leaves notes."""

    conductor: Conductor
    workflow_id: str
    notes: Path

    def begun(self) -> list[int]:
        """The process of each start of the body."""
        file = self.notes / "begun"
        return [int(line) for line in file.read_text().splitlines()] if file.exists() else []

    def begun_times(self, times: int) -> int:
        """Wait for a start of the body; gives its process."""
        return eventually(lambda: self.begun()[times - 1 :], f"start {times} of {self.shown()}")[0]

    def open(self, start: int) -> None:
        """Let a gated body go on."""
        (self.notes / f"open-{start}").touch()

    def state(self) -> dict[str, Any]:
        return self.conductor.ask("GET", f"/workflow/{self.workflow_id}")

    def tasks(self) -> list[dict[str, Any]]:
        return self.state()["tasks"]

    def statuses(self) -> list[str]:
        return [task["status"] for task in self.tasks()]

    def reasons(self) -> list[str]:
        return [str(task.get("reasonForIncompletion")) for task in self.tasks()]

    def decide(self) -> None:
        """Let Conductor look at its time-outs now."""
        self.conductor.ask("PUT", f"/workflow/decide/{self.workflow_id}")

    def timed_out(self) -> None:
        """Wait until the lease of the last attempt has run out."""
        before = len(self.tasks())

        def is_out() -> bool:
            self.decide()
            return self.statuses()[before - 1] == "TIMED_OUT"

        eventually(is_out, f"the lease of attempt {before} ran out: {self.shown()}")

    def command(self, method: str, action: str, **options: Any) -> None:
        self.conductor.ask(method, f"/workflow/{self.workflow_id}{action}", **options)

    def ended(self, status: str = "COMPLETED") -> dict[str, Any]:
        """Wait for the end; gives the workflow's output."""
        eventually(lambda: self.state()["status"] in ENDED, f"the end of {self.shown()}")
        state = self.state()
        assert state["status"] == status, self.shown()
        return state.get("output") or {}

    def shown(self) -> str:
        state = self.state()
        tasks = [(task["status"], task.get("reasonForIncompletion")) for task in state["tasks"]]
        return f"workflow {self.workflow_id} is {state['status']}: {tasks}"


@dataclass(frozen=True)
class Worker:
    """A `perago start` that runs."""

    process: "subprocess.Popen[bytes]"
    root: Path
    logs: Path
    stderr: Path

    def executors(self) -> list[psutil.Process]:
        return executors_of(self.process.pid)

    def lines(self, event: str | None = None, **fields: Any) -> list[dict[str, Any]]:
        wanted = {**fields, "event": event} if event else fields
        return list(reading.read(self.logs, **wanted))

    def said(self, event: str, **fields: Any) -> dict[str, Any]:
        """Wait for a line of the log."""
        return eventually(lambda: self.lines(event, **fields), f"{event!r} in the log of {self.stderr.read_text()}")[0]

    def ready(self, executors: int = 1) -> None:
        eventually(lambda: len(self.lines("executor ready")) >= executors, f"executors: {self.stderr.read_text()}")

    def directories(self) -> list[str]:
        """What attempts left."""
        return sorted(entry.name for entry in self.root.iterdir() if entry.name != ".supervisor.lock")

    def signal(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def exit_code(self) -> int:
        return self.process.wait(PATIENCE)

    def kill(self) -> None:
        """SIGKILL the supervisor and its executors, with what their bodies started."""
        executors = self.executors()
        self.process.kill()
        self.process.wait()
        for executor in executors:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(executor.pid, signal.SIGKILL)
        eventually(lambda: not [one for one in executors if is_running(one.pid)], "the executors end")


@dataclass(frozen=True)
class Workplace:
    """One task and one repository, with the workers and workflows of a test."""

    servers: Servers
    conductor: Conductor
    site: Site
    folder: Path
    task_name: str
    closing: ExitStack = field(repr=False)

    @classmethod
    @contextmanager
    def opened(
        cls,
        servers: Servers,
        lake: LakeControl,
        folder: Path,
        *,
        moods: str = "",
        lease: int = 60,
        limit: int = 0,
        template: str = TASK,
    ) -> "Generator[Workplace]":
        """Register a task of its own in a folder of its own; `limit` is how long an attempt may take in all."""
        name = f"e2e{uuid.uuid4().hex[:12]}"
        repository = f"test-{uuid.uuid4().hex[:16]}"
        assert lake.ensure_repository(repository, f"local://{repository}")
        folder.mkdir(parents=True, exist_ok=True)
        source = template.format(name=name, moods=textwrap.dedent(moods), response_seconds=lease, seconds=limit)
        (folder / f"{name}.py").write_text(source)
        url = f"{str(servers.config.conductor_server_url).rstrip('/').removesuffix('/api')}/api"
        with ExitStack() as closing:
            conductor = Conductor(closing.enter_context(httpx.Client(base_url=url, timeout=30, verify=False)))
            site = Site.at(servers, repository, folder / "nowhere")
            closing.enter_context(site.http)
            site.commit({"data/given.txt": b"given"})
            place = cls(servers, conductor, site, folder, name, closing)
            place.register()
            yield place

    def register(self) -> None:
        self.conductor.ask("POST", "/metadata/taskdefs", json=[taskdef_of(self.folder / f"{self.task_name}.py")])
        given = {"workspace": "${workflow.input.workspace}", "params": "${workflow.input.params}"}
        task = {"name": self.task_name, "taskReferenceName": "work", "type": "SIMPLE", "inputParameters": given}
        workflow = {
            "name": self.task_name,
            "version": 1,
            "schemaVersion": 2,
            "ownerEmail": "data@example.com",
            "tasks": [task],
            "outputParameters": {"workspace": "${work.output.workspace}", "result": "${work.output.result}"},
        }
        self.conductor.ask("PUT", "/metadata/workflow", json=[workflow])

    def run(self, mood: str = "plain", branch: str = "main") -> Run:
        """Start a workflow from the head of a branch, which is made where there is none."""
        if branch != "main":
            self.site.branch(branch, self.site.head())
        notes = self.folder / f"notes-{uuid.uuid4().hex[:8]}"
        notes.mkdir()
        given = self.site.payload(self.site.head(branch), branch)
        given["params"] = {"notes": str(notes), "mood": mood}
        workflow_id = self.conductor.ask("POST", f"/workflow/{self.task_name}", json=given)
        return Run(self.conductor, workflow_id, notes)

    def worker(
        self,
        *options: str,
        jobs: int = 1,
        root: str = "root",
        failpoint: str | None = None,
        settings: Mapping[str, str] | None = None,
    ) -> Worker:
        """Start a worker; it is killed at the end of the test at the latest."""
        logs = self.folder / f"logs-{uuid.uuid4().hex[:8]}"
        logs.mkdir()
        own = {"PERAGO_WORKSPACE_ROOT": str(self.folder / root), "PERAGO_LOG_ROOT": str(logs), **(settings or {})}
        if failpoint:
            own |= {"PERAGO_TEST_MODE": "1", "PERAGO_FAILPOINT": failpoint}
        stderr = logs.with_suffix(".stderr")
        with stderr.open("wb") as told:
            process = subprocess.Popen(
                [COMMAND, "start", self.task_name, "-j", str(jobs), *options],
                cwd=self.folder,
                env=self.environment(own),
                stdout=told,
                stderr=told,
            )
        worker = Worker(process, self.folder / root, logs, stderr)
        self.closing.callback(worker.kill)
        return worker

    def perago(self, *arguments: str) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(
            [COMMAND, *arguments],
            cwd=self.folder,
            env=self.environment({}),
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )

    def environment(self, settings: Mapping[str, str]) -> dict[str, str]:
        return bare_environment(**{**self.servers.environment, **settings})

    def assert_published_once(self, run: Run, branch: str = "main") -> None:
        """The branch is its old history and one commit more, which is the workflow's output."""
        ref = run.ended()["workspace"]["ref"]
        head, *before = self.site.history(branch)
        start = run.state()["output"]["result"]["start"]
        assert ref == head, run.shown()
        assert before == self.site.history(run.state()["input"]["workspace"]["ref"])
        assert self.site.tree(branch) == {"data/given.txt": b"given", "data/made.txt": f"start {start}".encode()}


def is_running(pid: int) -> bool:
    """Whether a process is there and not merely waiting to be reaped."""
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def is_stopped(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() == psutil.STATUS_STOPPED
    except psutil.NoSuchProcess:
        return False


def executors_of(supervisor: int) -> list[psutil.Process]:
    """Executors that live now."""
    with contextlib.suppress(psutil.NoSuchProcess):
        return [child for child in psutil.Process(supervisor).children() if _is_spawned(child)]
    return []


def _is_spawned(process: psutil.Process) -> bool:
    try:
        return "--multiprocessing-fork" in process.cmdline()
    except (psutil.NoSuchProcess, psutil.ZombieProcess):
        return False


def taskdef_of(file: Path) -> dict[str, Any]:
    """The TaskDef of a module's task, as `perago register` would make it."""
    found = importlib.util.spec_from_file_location(file.stem, file)
    assert found and found.loader
    module = importlib.util.module_from_spec(found)
    found.loader.exec_module(module)
    (definition,) = filter(None, map(definition_of, vars(module).values()))
    return build_taskdef(definition)
