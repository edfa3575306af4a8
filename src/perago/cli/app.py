"""`perago`: the commands, and how their errors look."""

import logging
import sys
from typing import Annotated

import structlog
import typer

from perago import __version__
from perago.authoring.errors import PeragoError
from perago.cli import check, demo, dev, extract, fence, gc, logs, new, register, run, start
from perago.cli.printing import print_error

app = typer.Typer(
    name="perago",
    help="Typed Python tasks for Conductor on versioned lakeFS workspaces.",
    epilog="Begin with `perago new my_task`, then `perago check my_task`. `perago dev up` starts real local servers.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
)
app.command("new")(new.new)
app.command("check")(check.check)
app.command("extract")(extract.extract)
app.command("run")(run.run)
app.command("register")(register.register)
app.command("start")(start.start)
app.command("logs")(logs.logs)
app.command("gc")(gc.gc)
app.command("fence")(fence.fence)
app.command("demo")(demo.demo)
app.add_typer(dev.app, name="dev")


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"perago {__version__}")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool, typer.Option("--version", help="Show the version and exit.", callback=_version, is_eager=True)
    ] = False,
) -> None:
    pass


def main() -> None:
    """Run a command; a mistake of the user's is one `error:` line and exit 1, never a traceback.

    Ctrl-C (exit 130) and a reader of ours that has gone, as with `| head`, are typer's to end.
    """
    # A log is for workers, which configure theirs; commands print what came of them.
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    try:
        app()
    except PeragoError as error:
        print_error(str(error))
        sys.exit(1)
    except OSError as error:
        if error.strerror is None:  # nothing of the system's: a mistake of ours
            raise
        # A file in the place of a folder, a folder that is not the user's, a full disk.
        print_error(f"{error.filename} cannot be used: {error.strerror}" if error.filename else error.strerror)
        sys.exit(1)
