"""Staging branches that a crash left behind: removed once Conductor says that their attempt has ended."""

from dataclasses import dataclass
from typing import Literal

from perago.conductor.client import ConductorClient
from perago.conductor.errors import ConductorError
from perago.lake.control import LakeControl
from perago.protocol.attempt import TERMINAL
from perago.protocol.names import STAGING_PREFIX, attempt_of_staging_branch


@dataclass(frozen=True)
class Found:
    """A staging branch, and what is to be done with it."""

    branch: str
    verdict: Literal["ended", "kept"]
    why: str


async def staging_branches(lake: LakeControl, conductor: ConductorClient, repository: str) -> list[Found]:
    """Every staging branch of a repository with Conductor's word on its attempt; without one it is kept."""
    return [await _judged(conductor, branch) for branch in lake.branches(repository, STAGING_PREFIX)]


async def _judged(conductor: ConductorClient, branch: str) -> Found:
    named = attempt_of_staging_branch(branch)
    if named is None:
        return Found(branch, "kept", "its name tells no task")
    task_id, retry_count = named
    try:
        fresh = await conductor.current(task_id)
    except ConductorError as error:
        return Found(branch, "kept", f"Conductor does not tell: {error}")
    if fresh.retry_count != retry_count or fresh.status not in TERMINAL:
        return Found(branch, "kept", f"its attempt is {fresh.status}")
    return Found(branch, "ended", f"its attempt is {fresh.status}")
