"""Before the first poll: everything that would fail later fails now, in one sentence."""

import importlib.util
import os
import socket
import uuid
from typing import Any

from perago.attempt.work import no_session
from perago.authoring.errors import PeragoError
from perago.conductor.client import ConductorClient
from perago.conductor.taskdefs import taskdef_differences
from perago.config import RuntimeConfig
from perago.extras import extra
from perago.worker.facts import TaskFacts


class TaskDefDriftError(PeragoError):
    """The registered TaskDef is not the one the code declares."""


def new_worker_id(config: RuntimeConfig) -> str:
    """Unlike any other worker's, also after a restart on the same host: Conductor tells polls apart by it."""
    return f"{config.worker_id_prefix}-{socket.gethostname()}-{os.getpid()}-{uuid.uuid4().hex[:6]}"


async def check_taskdef(conductor: ConductorClient, taskdef: dict[str, Any], module: str, *, allow: bool) -> str | None:
    """The TaskDef must be registered and equal to the code's; with `allow` a drift is only told."""
    name = taskdef["name"]
    registered = await conductor.get_taskdef(name)
    if registered is None:
        raise TaskDefDriftError(f"{name} is not registered on Conductor: run `perago register {module}`")
    differences = taskdef_differences(registered, taskdef)
    if not differences:
        return None
    named = "; ".join(f"{entry.path} is {entry.registered!r}, declared {entry.wanted!r}" for entry in differences[:5])
    more = f"; and {len(differences) - 5} more" if len(differences) > 5 else ""
    told = f"{name} is registered otherwise than it is declared ({named}{more})"
    if allow:
        return told
    raise TaskDefDriftError(f"{told}: run `perago register {module}`, or go on with --allow-drift")


def check_lakefs(config: RuntimeConfig, task: TaskFacts) -> None:
    """LakeFS must be configured, reachable and know the credentials."""
    if task.workspace_kind is None:
        return
    from perago.lake.objects import LakeObjects

    _ = LakeObjects(*config.require_lakefs()).presigned


def check_engine(config: RuntimeConfig, task: TaskFacts) -> None:
    """A directory workspace's files must be where the Spark workers that are to use them see them."""
    if task.workspace_kind == "path":
        from perago.data.spark_engine import engine_for, require_shared_disk

        engine_for(config.data_engine, config.spark_remote, no_session)
        if task.needs_spark:
            require_shared_disk(config.spark_remote, f"{task.name} has rules on tables", "unset SPARK_REMOTE")


def check_spark(task: TaskFacts) -> None:
    """Pyspark must be installed where a task needs it; whether a server answers is seen by the attempts."""
    if task.needs_spark:
        with extra("spark", f"{task.name}"):
            if importlib.util.find_spec("pyspark") is None:
                raise ModuleNotFoundError(name="pyspark")
