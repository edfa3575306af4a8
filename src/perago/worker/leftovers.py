"""Directories that attempts left behind, removed; those at work are never touched."""

import time
from collections.abc import Collection
from pathlib import Path

import structlog

from perago.attempt.directory import AttemptDirectory, collect, directory_name
from perago.config import RuntimeConfig
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
