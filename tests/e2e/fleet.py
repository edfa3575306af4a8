"""Workers of the installed command, and Conductor and their logs as an operator sees them."""

import contextlib
import json
import re
import signal
import subprocess
import sys
import uuid
from collections.abc import Generator, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import httpx

from tests.conftest import Servers, bare_environment
from tests.e2e.worker import eventually, executors_of, taskdef_of
from tests.integration.support import Site

Found = TypeVar("Found")
PATIENCE = 120.0
OVER = {"COMPLETED", "FAILED", "TERMINATED", "TIMED_OUT"}


@dataclass
class Worker:
    """One `perago start`."""

    process: subprocess.Popen[str]
    logs: Path
    output: Path

    def lines(self, **wanted: object) -> list[dict[str, Any]]:
        """The log lines whose fields are as wanted."""
        read = (text for file in sorted(self.logs.rglob("*.jsonl*")) for text in file.read_text().splitlines())
        parsed = (json.loads(text) for text in read if text.endswith("}"))
        return [line for line in parsed if all(line.get(name) == value for name, value in wanted.items())]

    def said(self, count: int = 1, **wanted: object) -> list[dict[str, Any]]:
        """Wait until the log has that many such lines."""

        def enough() -> list[dict[str, Any]] | None:
            found = self.lines(**wanted)
            assert len(found) >= count or self.process.poll() is None, self.stderr
            return found if len(found) >= count else None

        return eventually(enough, f"{count} log lines with {wanted}")

    @property
    def stderr(self) -> str:
        return self.output.read_text()

    def executors(self) -> list[int]:
        """The process ids of executors that live now."""
        return [executor.pid for executor in executors_of(self.process.pid)]

    def page(self) -> str:
        """Wait for the address of its status page, which `--http` asked for."""

        def told() -> str | None:
            found = re.search(r"^status: (http://\S+)/healthz", self.stderr, re.MULTILINE)
            assert found or self.process.poll() is None, self.stderr
            return found[1] if found else None

        return eventually(told, "the address of the status page")

    def drained(self, seconds: float = PATIENCE) -> int:
        """Ask it to stop; gives the exit code."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        return self.process.wait(seconds)


@dataclass
class Fleet:
    """A folder of task modules, and workers for them on one stack."""

    servers: Servers
    folder: Path
    conductor: httpx.Client = field(repr=False)
    names: dict[str, str] = field(default_factory=dict[str, str])

    @classmethod
    def at(cls, servers: Servers, folder: Path) -> "Fleet":
        folder.mkdir(parents=True, exist_ok=True)
        url = servers.environment["CONDUCTOR_SERVER_URL"]
        return cls(servers, folder, httpx.Client(base_url=url, timeout=30, verify=False))

    @property
    def environment(self) -> dict[str, str]:
        own = {"PERAGO_LOG_ROOT": str(self.folder / "logs"), "PERAGO_WORKSPACE_ROOT": str(self.folder / "root")}
        return bare_environment(**{**self.servers.environment, **own})

    def run(self, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [_command(), *arguments],
            cwd=self.folder,
            env={**self.environment, **environment},
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )

    def task(self, module: str, source: str) -> str:
        """Write a module whose source says NAME for its task, register it, and wire a workflow of that one task."""
        name = f"{module}.{uuid.uuid4().hex[:10]}"
        self.names[module] = name
        file = self.folder / f"{module}.py"
        file.write_text(source.replace("NAME", name))
        self.asked("POST", "/metadata/taskdefs", json=[taskdef_of(file)])
        workspace = {"workspace": "${workflow.input.workspace}"} if "workspace: Path" in source else {}
        given = {"inputParameters": {**workspace, "params": "${workflow.input.params}"}}
        work = {"name": name, "taskReferenceName": "work", "type": "SIMPLE", **given}
        limits = {"timeoutSeconds": 0, "timeoutPolicy": "ALERT_ONLY", "ownerEmail": "data@example.com"}
        definition = {"name": name, "version": 1, "schemaVersion": 2, "tasks": [work], **limits}
        self.asked("PUT", "/metadata/workflow", json=[definition])
        return name

    def started(self, module: str, given: Mapping[str, Any] | None = None) -> str:
        """Start the module's workflow; gives its id."""
        return self.asked("POST", f"/workflow/{self.names[module]}", json=given or {"params": {}}).text

    def site(self, repository: str) -> Site:
        return Site.at(self.servers, repository, self.folder / "root")

    @contextlib.contextmanager
    def worker(self, module: str, *options: str, **environment: str) -> Generator[Worker]:
        """Run a worker while the block runs; what is left of it then is killed."""
        own = self.folder / f"worker-{uuid.uuid4().hex[:8]}"
        logs = own / "logs"
        logs.mkdir(parents=True)
        output = own / "stderr"
        with output.open("w") as file:
            process = subprocess.Popen(
                [_command(), "start", module, *options],
                cwd=self.folder,
                env={**self.environment, "PERAGO_LOG_ROOT": str(logs), **environment},
                stdout=file,
                stderr=file,
                text=True,
            )
        try:
            yield Worker(process, logs, output)
        finally:
            process.kill()
            process.wait()

    def workflow(self, workflow_id: str) -> dict[str, Any]:
        return self.asked("GET", f"/workflow/{workflow_id}").json()

    def decide(self, workflow_id: str) -> None:
        """Make Conductor look at time-outs and retries now."""
        self.asked("PUT", f"/workflow/decide/{workflow_id}")

    def ended(self, workflow_ids: Iterable[str], seconds: float = PATIENCE) -> list[dict[str, Any]]:
        """Wait until all have ended; gives them."""
        left, over = list(workflow_ids), list[dict[str, Any]]()

        def all_over() -> bool:
            while left:
                run = self.workflow(left[0])
                if run["status"] not in OVER:
                    return False
                over.append(run)
                left.pop(0)
            return True

        eventually(all_over, f"the end of {len(left)} workflows", seconds)
        return over

    def asked(self, method: str, path: str, **options: Any) -> httpx.Response:
        answer = self.conductor.request(method, path, **options)
        assert answer.is_success, f"{method} {path}: {answer.status_code} {answer.text}"
        return answer


def tasks_of(run: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The attempts of a workflow, oldest first."""
    return sorted(run["tasks"], key=lambda task: task["seq"])


def _command() -> Path:
    return Path(sys.executable).with_name("perago")
