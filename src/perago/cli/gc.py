import asyncio
from typing import Annotated

import typer

from perago.cli.register import ServerUrl
from perago.config import RuntimeConfig, load_runtime_config

Repositories = Annotated[list[str], typer.Argument(metavar="REPOSITORY…", help="The lakeFS repositories to look at.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Show what would be removed and remove nothing.")]


def gc(repositories: Repositories, conductor_url: ServerUrl = None, dry_run: DryRun = False) -> None:
    """Remove staging branches that crashed attempts left behind.

    A branch is removed only when Conductor says that its attempt has ended; all others are kept, with the reason.
    """
    config = load_runtime_config(conductor_server_url=conductor_url)
    config.require_conductor()
    asyncio.run(_collect(config, repositories, dry_run))


async def _collect(config: RuntimeConfig, repositories: list[str], dry_run: bool) -> None:
    from perago.conductor.client import ConductorClient
    from perago.lake.control import LakeControl
    from perago.worker.gc import staging_branches

    lake = LakeControl(*config.require_lakefs())
    key, secret = config.conductor_auth_key, config.conductor_auth_secret
    async with ConductorClient(config.require_conductor(), key, secret) as conductor:
        for repository in repositories:
            for found in await staging_branches(lake, conductor, repository):
                removed = found.verdict == "ended" and not dry_run
                if removed:
                    lake.delete_branch(repository, found.branch)
                done = "removed" if removed else "would remove" if found.verdict == "ended" else "kept"
                typer.echo(f"{repository}: {done} {found.branch} ({found.why})")
