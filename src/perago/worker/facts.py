"""What a supervisor knows of its task; the module is imported in a process of its own, since it is user code."""

import multiprocessing
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any

from perago.authoring.controls import TaskControls
from perago.authoring.errors import PeragoError, TaskDefinitionError
from perago.authoring.task import WorkspaceKind
from perago.worker.spawning import spawned

IMPORT_SECONDS = 120.0


@dataclass(frozen=True)
class TaskFacts:
    """A task without its code."""

    name: str
    controls: TaskControls
    workspace_kind: WorkspaceKind | None
    needs_spark: bool
    taskdef: dict[str, Any]


def read_facts(module: str) -> TaskFacts:
    """Import the module in a fresh process and bring back what it declares."""
    ours, theirs = multiprocessing.Pipe(duplex=False)
    process = spawned(_tell, module, theirs, daemon=True)
    theirs.close()
    try:
        if not ours.poll(IMPORT_SECONDS):
            raise TaskDefinitionError(f"module '{module}' was not imported in {IMPORT_SECONDS:.0f} s")
        told = ours.recv()
    except EOFError:
        raise TaskDefinitionError(f"module '{module}' ended the process that imported it") from None
    finally:
        ours.close()
        process.kill()  # what it declares is known; a thread it started on import would keep it
        process.join()
    if isinstance(told, TaskFacts):
        return told
    raise TaskDefinitionError(str(told))


def _tell(module: str, pipe: Connection) -> None:
    from perago.authoring.module import load_module_task
    from perago.authoring.taskdef import build_taskdef

    try:
        definition = load_module_task(module)
        taskdef = build_taskdef(definition)
        kind, needs_spark = definition.workspace_kind, definition.needs_spark
        pipe.send(TaskFacts(definition.name, definition.controls, kind, needs_spark, taskdef))
    except PeragoError as error:
        pipe.send(str(error))
