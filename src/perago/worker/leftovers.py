"""Directories that attempts left behind, removed; those at work are never touched."""

import asyncio
import time
from collections.abc import Callable, Collection
from concurrent.futures import Executor
from pathlib import Path

import structlog

from perago.attempt.directory import AttemptDirectory, collect, directory_name
from perago.config import RuntimeConfig
from perago.worker.logs import drop_old
from perago.worker.slot import Running

_log = structlog.get_logger("perago.supervisor")


def directory_of(running: Running) -> str:
    return directory_name(running.task.attempt, running.execution_id)


def bury(config: RuntimeConfig, running: Running) -> None:
    """Remove the directory of an attempt whose executor has died."""
    directory = AttemptDirectory(config.workspace_root.resolve() / directory_of(running))
    if directory.path.is_dir():
        try:
            directory.remove()
        except Exception as error:
            path = str(directory.path)
            _log.warning("failed to clean attempt workspace", directory=path, error=str(error), **running.ids())


def collect_leftovers(config: RuntimeConfig, at_work: Collection[str] = ()) -> None:
    """Remove the directories of attempts whose owner is gone; those `at_work` are known not to be."""

    def failed(path: Path, error: OSError) -> None:
        _log.warning("failed to collect a leftover", directory=str(path), error=str(error))

    ttl = config.workspace_gc_ttl.total_seconds()
    for leftover in collect(config.workspace_root, ttl, time.time(), failed, at_work):
        _log.info("leftover collected", directory=str(leftover.path), why=leftover.why)


async def collect_forever(
    config: RuntimeConfig, logs: Path, at_work: Callable[[], Collection[str]], undertaker: Executor
) -> None:
    """Remove what is left behind, and logs kept long enough, at every interval; a failure is told and tried again."""
    loop = asyncio.get_running_loop()
    while True:
        await asyncio.sleep(config.workspace_gc_interval.total_seconds())
        try:
            await loop.run_in_executor(undertaker, collect_leftovers, config, at_work())
            await loop.run_in_executor(undertaker, drop_old, logs, config.log_retention)
        except Exception as error:
            _log.warning("leftovers not collected", error=f"{type(error).__name__}: {error}")
