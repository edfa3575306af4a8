from pathlib import Path
from typing import Annotated

import typer

from perago.authoring.errors import PeragoError
from perago.authoring.module import load_module_task
from perago.authoring.taskdef import render_taskdef
from perago.cli.printing import author_warnings

Module = Annotated[str, typer.Argument(metavar="MODULE", help="A module, as `tasks.build` or `tasks/build.py`.")]
Output = Annotated[Path | None, typer.Option("--output", "-o", help="File to write; standard output unless given.")]


def extract(module: Module, output: Output = None) -> None:
    """Write a task's Conductor TaskDef, schemas included, as JSON.

    Example: `perago extract tasks.build -o taskdef.json`
    """
    with author_warnings():
        definition = load_module_task(module)
        text = render_taskdef(definition)
    if output is None:
        typer.echo(text, nl=False)
        return
    try:
        output.parent.mkdir(parents=True, exist_ok=True)
        output.write_text(text, encoding="utf-8")
    except OSError as error:
        raise PeragoError(f"{output} cannot be written: {error.strerror}") from error
    typer.echo(f"{output}: TaskDef of {definition.name}", err=True)
