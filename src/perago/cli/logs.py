from typing import Annotated

import typer

from perago.authoring.errors import PeragoError
from perago.config import load_runtime_config

TaskId = Annotated[str | None, typer.Option("--task-id", help="Only this Conductor task.")]
Workflow = Annotated[str | None, typer.Option("--workflow", help="Only this workflow instance.")]
Follow = Annotated[bool, typer.Option("--follow", "-f", help="Go on as lines are written.")]


def logs(task_id: TaskId = None, workflow: Workflow = None, follow: Follow = False) -> None:
    """Show the workers' logs below PERAGO_LOG_ROOT in the order of time, for people.

    Example: `perago logs --task-id 04fa75af-c778-44bb-8335-8c142340a828`
    """
    from perago.worker import reading

    root = load_runtime_config().log_root
    if not root.is_dir():
        raise PeragoError(f"there are no logs in {root}: set PERAGO_LOG_ROOT to where the worker writes them")
    lines = reading.follow if follow else reading.read
    for line in lines(root, task_id=task_id, workflow=workflow):
        typer.echo(reading.shown(line))
