import json
from pathlib import Path
from typing import Annotated, Any

import typer

from perago.authoring.errors import PeragoError
from perago.authoring.module import load_module_task
from perago.authoring.task import TaskDefinition
from perago.authoring.taskdef import build_taskdef
from perago.authoring.wiring import wiring_problems
from perago.authoring.workflow import workflow_task_names
from perago.cli.printing import author_warnings, print_error

Modules = Annotated[list[str], typer.Argument(metavar="MODULE…", help="Modules, as `tasks.build` or `tasks/build.py`.")]
Workflow = Annotated[
    Path | None, typer.Option("--workflow", help="A Conductor workflow whose `${ref.output…}` wiring to verify.")
]


def check(modules: Modules, workflow: Workflow = None) -> None:
    """Check that tasks are declared right, and that a workflow wires them together right.

    Imports each MODULE and builds its TaskDef. With `--workflow`, every `${ref.output…}` path is followed
    through the tasks' models, and each that leads nowhere is named. No server is asked.

    Example: `perago check tasks.ingest tasks.clean --workflow orders.json`
    """
    tasks: list[TaskDefinition] = []
    for module in modules:
        with author_warnings():
            definition = load_module_task(module)
            build_taskdef(definition)
        tasks.append(definition)
        typer.echo(f"{module}: task {definition.name} is well declared")
    if workflow is not None:
        _check_workflow(workflow, tasks)


def _check_workflow(path: Path, tasks: list[TaskDefinition]) -> None:
    definition = read_workflow(path)
    problems = wiring_problems(definition, tasks)
    for problem in problems:
        print_error(f"{path}: {problem}")
    if problems:
        raise typer.Exit(1)
    unchecked = sorted(workflow_task_names(definition) - {task.name for task in tasks})
    typer.echo(f"{path}: the wiring is right")
    if unchecked:
        typer.echo(f"not checked, for want of their modules: {', '.join(unchecked)}")


def read_workflow(path: Path) -> Any:
    try:
        return json.loads(path.read_bytes())
    except FileNotFoundError:
        raise PeragoError(f"there is no file {path}") from None
    except OSError as error:
        raise PeragoError(f"{path} cannot be read: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        raise PeragoError(f"{path} is not JSON: {error}") from error
