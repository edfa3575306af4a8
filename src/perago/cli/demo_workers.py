"""The demo's workers, started as an operator starts them, and a workflow run by them."""

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from perago.authoring.errors import PeragoError
from perago.config import RuntimeConfig

if TYPE_CHECKING:
    from perago.conductor.workflows import WorkflowRun

_WORKFLOW_SECONDS = 300
_DRAIN_SECONDS = 30
_KILLED_SECONDS = 10
_LOOK_SECONDS = 0.2


@dataclass(frozen=True)
class Worker:
    """A `perago start` that runs, and where it says how it is."""

    module: str
    process: "subprocess.Popen[bytes]"
    output: Path

    def require_life(self) -> None:
        code = self.process.poll()
        if code is None:
            return
        said = self.output.read_text(errors="replace").strip().splitlines()[-1:] or ["it said nothing"]
        raise PeragoError(f"the worker of {self.module} ended with exit code {code}: {said[0]} (all: {self.output})")


@dataclass(frozen=True)
class Site:
    """What workers need: where the examples are, the servers' addresses, and a folder for their files."""

    examples: Path
    environment: Mapping[str, str]
    folder: Path

    @property
    def logs(self) -> Path:
        return self.folder / "worker-logs"

    @contextmanager
    def workers(
        self, modules: Sequence[str], set_for: Mapping[str, Mapping[str, str]] | None = None
    ) -> Generator[list[Worker]]:
        """A worker for each module, with what is set for it in its environment; they end with the block."""
        started: list[Worker] = []
        try:
            for module in modules:
                variables = (set_for or {}).get(module, {})
                started.append(self._start(module, variables))
                shown = "".join(f"{name}={value} " for name, value in variables.items())
                typer.echo(f"{shown}perago start {module}   (process {started[-1].process.pid})")
            yield started
        except BaseException:
            _stop(started, now=True)
            raise
        _stop(started, now=False)

    def _start(self, module: str, variables: Mapping[str, str]) -> Worker:
        own = {
            **os.environ,
            **self.environment,
            **variables,
            "PERAGO_WORKSPACE_ROOT": str(self.folder / "workspaces" / module),
            "PERAGO_LOG_ROOT": str(self.logs),
        }
        output = self.folder / "logs" / f"worker-{module}.log"
        with output.open("wb") as log:
            process = subprocess.Popen(
                [Path(sys.executable).with_name("perago"), "start", module],
                cwd=self.examples,  # where the examples can be imported
                env=own,
                stdout=log,
                stderr=log,
                process_group=0,  # Ctrl-C is the demo's to hand on
            )
        return Worker(module, process, output)


def _stop(workers: list[Worker], *, now: bool) -> None:
    """End the workers after what they run; `now` gives that up, as a second signal does."""
    for worker in workers:
        worker.process.send_signal(signal.SIGTERM)
    for worker in workers:
        try:
            worker.process.wait(1 if now else _DRAIN_SECONDS)
        except subprocess.TimeoutExpired:
            worker.process.send_signal(signal.SIGTERM)
    for worker in workers:
        try:
            worker.process.wait(_KILLED_SECONDS)
        except subprocess.TimeoutExpired:
            worker.process.kill()
            worker.process.wait()


def run_workflow(
    config: RuntimeConfig, workflow: dict[str, Any], given: dict[str, Any], workers: list[Worker]
) -> "WorkflowRun":
    """Start the workflow and wait for its end; one that is given up is terminated."""
    return asyncio.run(_run_workflow(config, workflow, given, workers))


async def _run_workflow(
    config: RuntimeConfig, workflow: dict[str, Any], given: dict[str, Any], workers: list[Worker]
) -> "WorkflowRun":
    from perago.conductor.client import ConductorClient

    deadline = time.monotonic() + _WORKFLOW_SECONDS
    async with ConductorClient(config.require_conductor()) as conductor:
        await conductor.put_workflow(workflow)
        workflow_id = await conductor.start_workflow(workflow["name"], given)
        typer.echo(f"workflow {workflow_id} started")
        try:
            while not (run := await conductor.workflow(workflow_id)).is_over:
                for worker in workers:
                    worker.require_life()
                if time.monotonic() > deadline:
                    raise PeragoError(
                        f"workflow {workflow_id} did not end in {_WORKFLOW_SECONDS} s: see the workers' output in"
                        f" {workers[0].output.parent}, or try fewer --rows"
                    )
                await asyncio.sleep(_LOOK_SECONDS)
        except BaseException:
            _terminate(conductor.server_url, workflow_id)
            raise
    return run


def _terminate(server_url: str, workflow_id: str) -> None:
    """Or the next demo's workers would take its tasks."""
    import httpx

    with suppress(httpx.HTTPError):
        httpx.delete(f"{server_url}/workflow/{workflow_id}", params={"reason": "the demo was given up"}, timeout=5)
