import asyncio
import json
from typing import Annotated, Any

import typer

from perago.authoring.module import load_module_task
from perago.authoring.taskdef import build_taskdef
from perago.cli.extract import Module
from perago.cli.printing import author_warnings
from perago.conductor.taskdefs import ABSENT, Difference, taskdef_differences
from perago.config import RuntimeConfig, load_runtime_config

_SHOWN = 160
ServerUrl = Annotated[
    str | None, typer.Option("--conductor-url", help="Conductor's address; CONDUCTOR_SERVER_URL unless given.")
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Show the difference and change nothing.")]


def register(module: Module, conductor_url: ServerUrl = None, dry_run: DryRun = False) -> None:
    """Create or update a task's TaskDef on Conductor, and show what changed.

    Registering what is registered already changes nothing. Example: `perago register tasks.build`
    """
    with author_warnings():
        taskdef = build_taskdef(load_module_task(module))
    config = load_runtime_config(conductor_server_url=conductor_url)
    config.require_conductor()
    for line in asyncio.run(register_taskdef(config, taskdef, dry_run)):
        typer.echo(line)


async def register_taskdef(config: RuntimeConfig, taskdef: dict[str, Any], dry_run: bool = False) -> list[str]:
    """Register where needed and tell what was, or would be, done."""
    from perago.conductor.client import ConductorClient

    name = taskdef["name"]
    async with ConductorClient(
        config.require_conductor(), config.conductor_auth_key, config.conductor_auth_secret
    ) as conductor:
        registered = await conductor.get_taskdef(name)
        differences = taskdef_differences(registered, taskdef) if registered else []
        if registered and not differences:
            return [f"{name} is registered as it is declared: nothing to do"]
        if not dry_run:
            await conductor.put_taskdef(taskdef)
    would = "would be " if dry_run else ""
    if not registered:
        return [f"{name}: {would}created"]
    return [f"{name}: {would}updated", *(f"  {_line(difference)}" for difference in differences)]


def _line(difference: Difference) -> str:
    return f"{difference.path}: {_shown(difference.registered)} → {_shown(difference.wanted)}"


def _shown(value: Any) -> str:
    text = ABSENT if value is ABSENT else json.dumps(value, ensure_ascii=False)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"
