"""`perago demo`: the real servers and a task of the examples, step by step."""

import asyncio
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from perago.authoring.module import load_module_task
from perago.authoring.taskdef import build_taskdef, write_taskdef
from perago.authoring.wiring import wiring_problems
from perago.cli.check import read_workflow
from perago.cli.dev import DataDir, open_stack, print_status
from perago.cli.printing import author_warnings
from perago.cli.register import register_taskdef
from perago.conductor.client import ConductorClient
from perago.config import RuntimeConfig, load_runtime_config
from perago.extras import extra

if TYPE_CHECKING:
    from perago.authoring.task import TaskDefinition
    from perago.devstack.stack import DevStack

REPOSITORY = "perago-demo"
BRANCH = "main"
Keep = Annotated[bool, typer.Option("--keep", help="Leave the servers running at the end.")]


def demo(data_dir: DataDir = Path(".perago/dev"), keep: Keep = False) -> None:
    """Start real lakeFS and Conductor, register a task of the examples, and show the state.

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
    again = "perago dev status, perago dev logs, perago dev down" if keep or ran_before else "perago demo --keep"
    typer.echo(f"\nDone. To look further: {again}")


def _tour(stack: "DevStack") -> None:
    config = load_runtime_config(**_settings(stack.environment()))
    _step(f"A lakeFS repository: {REPOSITORY}")
    head = _ensure_repository(config)
    typer.echo(f"branch {BRANCH} is at commit {head[:12]}")

    examples = _examples()
    _step("A task of the examples: orders.ingest")
    definition = _load(examples)
    problems = wiring_problems(read_workflow(examples / "orders" / "workflow.json"), [definition])
    typer.echo(f"checked: {definition.description or definition.name}")
    typer.echo(f"its workflow's wiring: {'; '.join(problems) or 'right'}")
    extracted = stack.folder.path / f"{definition.name}.taskdef.json"
    with author_warnings():
        write_taskdef(definition, extracted)
        taskdef = build_taskdef(definition)
    typer.echo(f"extracted: {extracted}")

    _step("Registered on Conductor")
    for line in asyncio.run(register_taskdef(config, taskdef)):
        typer.echo(line)
    typer.echo(asyncio.run(_as_conductor_has_it(config, definition)))


def _ensure_repository(config: RuntimeConfig) -> str:
    from perago.lake.control import LakeControl

    lake = LakeControl(*config.require_lakefs())
    made = lake.ensure_repository(REPOSITORY, f"local://{REPOSITORY}", BRANCH)
    typer.echo("made" if made else "found from an earlier run")
    return lake.head(REPOSITORY, BRANCH).id


async def _as_conductor_has_it(config: RuntimeConfig, definition: "TaskDefinition") -> str:
    async with ConductorClient(config.require_conductor()) as conductor:
        registered = await conductor.get_taskdef(definition.name) or {}
    fields = ("name", "ownerEmail", "retryCount", "retryLogic", "responseTimeoutSeconds", "inputKeys", "outputKeys")
    return "\n".join(f"  {name}: {registered.get(name)}" for name in fields)


def _load(examples: Path) -> "TaskDefinition":
    if str(examples) not in sys.path:
        sys.path.insert(0, str(examples))
    return load_module_task("orders.ingest")


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
