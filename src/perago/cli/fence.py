from typing import Annotated

import typer

from perago.config import load_runtime_config

Repository = Annotated[str, typer.Argument(metavar="REPOSITORY", help="The lakeFS repository.")]
Branch = Annotated[str, typer.Option("--branch", help="The target branch to commit it to.")]
Show = Annotated[bool, typer.Option("--show", help="Print the action file and change nothing.")]


def fence(repository: Repository, branch: Branch = "main", show: Show = False) -> None:
    """Install the hard fence: lakeFS itself then refuses a publication whose target branch moved.

    Commits an action file to the branch, which must have no uncommitted changes; tasks that start from that commit or
    a later one are covered, on this branch and on those made from it. Merges by people pass. A replacement after a
    crash is a hard reset, which no action sees: there the fence stays soft.
    """
    from perago.lake.control import LakeControl
    from perago.lake.hard_fence import ACTION, ACTION_PATH, install
    from perago.lake.objects import LakeObjects

    if show:
        typer.echo(ACTION, nl=False)
        return
    address = load_runtime_config().require_lakefs()
    commit = install(LakeControl(*address), LakeObjects(*address), repository, branch)
    typer.echo(f"{repository}/{branch}: {ACTION_PATH} committed as {commit}")
