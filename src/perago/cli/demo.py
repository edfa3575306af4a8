"""`perago demo`: a workflow of the examples on real servers, step by step."""

import asyncio
import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from perago.authoring.errors import PeragoError
from perago.authoring.module import load_module_task
from perago.authoring.taskdef import build_taskdef
from perago.authoring.wiring import wiring_problems
from perago.cli.check import read_workflow
from perago.cli.dev import DataDir, open_stack, print_status
from perago.cli.printing import author_warnings
from perago.cli.register import register_taskdef
from perago.config import RuntimeConfig, load_runtime_config
from perago.extras import extra

if TYPE_CHECKING:
    from perago.conductor.workflows import WorkflowRun
    from perago.devstack.stack import DevStack
    from perago.lake.control import LakeControl

REPOSITORY = "perago-demo"
BRANCH = "main"
MODULES = ("orders.ingest", "orders.summarise")
_WORKFLOW_SECONDS = 120
Keep = Annotated[bool, typer.Option("--keep", help="Leave the servers running at the end.")]


def demo(data_dir: DataDir = Path(".perago/dev"), keep: Keep = False) -> None:
    """Run a workflow of two tasks on real lakeFS and Conductor, and show what was published.

    The servers are those of `perago dev up`: what runs already is used and left running, what the demo starts
    it stops at the end unless `--keep` is given. The data stays either way.
    """
    with extra("dev", "`perago demo`"):
        from perago.devstack.stack import StackOptions

    stack = open_stack(data_dir)
    ran_before = any(report.health == "healthy" for report in stack.status())
    _step("Real servers on this machine")
    try:
        print_status(stack.up(StackOptions()))
        _tour(stack)
    finally:
        if not keep and not ran_before:
            stack.down()
    where = "" if data_dir == Path(".perago/dev") else f" --data-dir {shlex.quote(str(data_dir))}"
    if keep or ran_before:
        typer.echo(f'\nDone. To look further: eval "$(perago dev env{where})", perago logs, perago dev status{where}')
    else:
        typer.echo("\nDone. To look further: perago demo --keep")


def _tour(stack: "DevStack") -> None:
    from perago.lake.control import LakeControl

    environment = stack.environment()
    config = load_runtime_config(**_settings(environment))
    lake = LakeControl(*config.require_lakefs())
    _step(f"A lakeFS repository: {REPOSITORY}")
    made = lake.ensure_repository(REPOSITORY, f"local://{REPOSITORY}", BRANCH)
    head = lake.head(REPOSITORY, BRANCH).id
    typer.echo(f"{'made' if made else 'found from an earlier run'}; branch {BRANCH} is at commit {head[:12]}")

    examples = _examples()
    workflow = read_workflow(examples / "orders" / "workflow.json")
    _step("Two tasks, checked and registered, and the workflow that wires them")
    _register(config, examples, workflow)

    _step("A worker for each, and the workflow run")
    with _workers(environment, examples, stack.folder.path):
        run = asyncio.run(_run_workflow(config, workflow, head))
    _show(run)
    _step(f"What lakeFS has now on {BRANCH}")
    _show_history(lake, head)


def _register(config: RuntimeConfig, examples: Path, workflow: Any) -> None:
    if str(examples) not in sys.path:
        sys.path.insert(0, str(examples))
    with author_warnings():
        tasks = [load_module_task(module) for module in MODULES]
        problems = wiring_problems(workflow, tasks)
        for definition in tasks:
            for line in asyncio.run(register_taskdef(config, build_taskdef(definition))):
                typer.echo(line)
    typer.echo(f"the workflow's wiring: {'; '.join(problems) or 'right'}")


@contextmanager
def _workers(environment: dict[str, str], examples: Path, folder: Path) -> Generator[None]:
    """The installed command, as an operator would start it, in a folder where the examples can be imported."""
    command = Path(sys.executable).with_name("perago")
    started: list[subprocess.Popen[bytes]] = []
    for module in MODULES:
        own = {
            **os.environ,
            **environment,
            "PERAGO_WORKSPACE_ROOT": str(folder / "workspaces" / module),
            "PERAGO_LOG_ROOT": str(folder / "worker-logs"),
        }
        output = (folder / "logs" / f"worker-{module}.log").open("wb")
        started.append(
            subprocess.Popen([command, "start", module], cwd=examples, env=own, stdout=output, stderr=output)
        )
        output.close()
        typer.echo(f"perago start {module}   (process {started[-1].pid})")
    try:
        yield
    finally:
        for worker in started:
            worker.send_signal(signal.SIGTERM)
        for worker in started:
            worker.wait(60)


async def _run_workflow(config: RuntimeConfig, workflow: Any, ref: str) -> "WorkflowRun":
    from perago.conductor.client import ConductorClient

    given = {"repository": REPOSITORY, "branch": BRANCH, "ref": ref, "first_day": time.strftime("%Y-%m-%d")}
    deadline = time.monotonic() + _WORKFLOW_SECONDS
    async with ConductorClient(config.require_conductor()) as conductor:
        await conductor.put_workflow(workflow)
        workflow_id = await conductor.start_workflow(workflow["name"], given)
        typer.echo(f"workflow {workflow_id} started")
        while not (run := await conductor.workflow(workflow_id)).is_over:
            if time.monotonic() > deadline:
                raise PeragoError(f"workflow {workflow_id} did not end in {_WORKFLOW_SECONDS} s; see `perago dev logs`")
            await asyncio.sleep(0.1)
    return run


def _show(run: "WorkflowRun") -> None:
    first = min((task.started for task in run.tasks), default=0.0)
    for task in run.tasks:
        took = f"{task.started - first:6.2f} s … {task.ended - first:6.2f} s"
        typer.echo(f"  {took}  {task.reference:10} {task.status}{f'  {task.reason}' if task.reason else ''}")
    typer.echo(f"workflow {run.status}: revenue {run.output.get('revenue')}")
    if run.status != "COMPLETED":
        raise PeragoError(f"the demo's workflow ended {run.status}: {run.reason}")


def _show_history(lake: "LakeControl", began_at: str) -> None:
    for commit_id, message in lake.history(REPOSITORY, BRANCH):
        typer.echo(f"  {commit_id[:12]}  {message}")
        if commit_id == began_at:
            return


def _examples() -> Path:
    """Beside the package in an installation, at the root of a checkout."""
    package = Path(__file__).parents[1]
    installed = package / "examples"
    return installed if installed.exists() else package.parents[1] / "examples"


def _settings(environment: dict[str, str]) -> dict[str, str]:
    """The stack's own addresses, as flags: they win over whatever is exported."""
    return {
        "conductor_server_url": environment["CONDUCTOR_SERVER_URL"],
        "lakefs_endpoint_url": environment["LAKECTL_SERVER_ENDPOINT_URL"],
        "lakefs_access_key_id": environment["LAKECTL_CREDENTIALS_ACCESS_KEY_ID"],
        "lakefs_secret_access_key": environment["LAKECTL_CREDENTIALS_SECRET_ACCESS_KEY"],
    }


def _step(title: str) -> None:
    typer.secho(f"\n{title}", bold=True)
