"""`perago dev`: real lakeFS, Conductor and Spark on this machine."""

import json
import shlex
import time
from collections import deque
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table

from perago.addresses import masked
from perago.authoring.errors import PeragoError
from perago.cli.printing import out
from perago.extras import extra

if TYPE_CHECKING:
    from perago.devstack.stack import DevStack, ServiceReport

app = typer.Typer(
    name="dev",
    help="Real lakeFS, Conductor and Spark servers on this machine, as plain processes on loopback.",
    no_args_is_help=True,
    rich_markup_mode="markdown",
)

DataDir = Annotated[
    Path, typer.Option("--data-dir", envvar="PERAGO_DEV_DATA_DIR", help="The folder that holds the stack's data.")
]
Port = Annotated[int | None, typer.Option(min=1, max=65535, help="A free one unless given.")]
_HERE = Path(".perago/dev")


@app.command()
def up(
    data_dir: DataDir = _HERE,
    lakefs_port: Port = None,
    conductor_port: Port = None,
    spark_port: Port = None,
    spark: Annotated[bool, typer.Option("--spark", help="Start a Spark Connect server too.")] = False,
    lakefs_binary: Annotated[
        Path | None,
        typer.Option(envvar="PERAGO_LAKEFS_BINARY", help="Use this lakeFS binary instead of building one."),
    ] = None,
    conductor_url: Annotated[str | None, typer.Option(help="Use a Conductor that runs already.")] = None,
    spark_remote: Annotated[str | None, typer.Option(help="Use a Spark Connect server that runs already.")] = None,
) -> None:
    """Provision and start the servers, wait until they are healthy, and print where they are.

    The first time downloads Conductor and builds lakeFS (minutes); both are kept in the user's cache folder
    (PERAGO_CACHE_DIR moves it). Running it again finds the same stack; its data survives `perago dev down`.
    """
    stack = open_stack(data_dir)
    from perago.devstack.stack import StackOptions

    ports = {"lakefs": lakefs_port, "conductor": conductor_port, "spark": spark_port}
    reports = stack.up(
        StackOptions(
            ports={name: port for name, port in ports.items() if port is not None},  # pyright: ignore[reportArgumentType]
            lakefs_binary=lakefs_binary,
            conductor_url=conductor_url,
            spark_remote=spark_remote,
            spark=spark or spark_port is not None,
        )
    )
    print_status(reports)
    credentials = stack.folder.credentials()
    typer.echo(f"\nlakeFS login: {credentials.lakefs_access_key_id}")
    typer.echo(f"its secret:   {credentials.lakefs_secret_access_key.get_secret_value()}")
    where = "" if data_dir == _HERE else f" --data-dir {shlex.quote(str(data_dir))}"
    typer.echo(f'\nfor a worker: eval "$(perago dev env{where})"\nto stop:      perago dev down{where}')


@app.command()
def provision() -> None:
    """Download, build and prepare what `up` needs: for images, caches, and machines about to go offline.

    Conductor and Spark are started once and ended again, to keep what their next starts would load.
    """
    with extra("dev", "`perago dev`"):
        from perago.devstack.archives import make_archives
        from perago.devstack.cache import Cache
        from perago.devstack.progress import Reporter
        from perago.devstack.provision import conductor_home, lakefs_binary, s3a_jars
    cache = Cache.of_user(Reporter())
    lakefs, conductor, jars = lakefs_binary(cache), conductor_home(cache), s3a_jars(cache)
    make_archives(cache, conductor, jars)
    typer.echo(f"lakeFS: {lakefs}\nConductor: {conductor}\nS3A jars: {jars}")


@app.command()
def down(data_dir: DataDir = _HERE) -> None:
    """Stop this stack's servers and no others; their data stays."""
    stopped = open_stack(data_dir).down()
    typer.echo(f"stopped {', '.join(stopped)}" if stopped else "nothing was running")


@app.command()
def status(
    data_dir: DataDir = _HERE,
    as_json: Annotated[bool, typer.Option("--json", help="For programs.")] = False,
) -> None:
    """Show each server's address and health; exit 0 when all are healthy, 1 otherwise."""
    reports = open_stack(data_dir).status()
    if as_json:
        shown = [{**vars(report), "url": masked(report.url), "log": str(report.log)} for report in reports]
        typer.echo(json.dumps(shown, indent=2))
    elif reports:
        print_status(reports)
    else:
        typer.echo(f"no stack in {data_dir}: `perago dev up` makes one")
    unwell = [report for report in reports if report.health != "healthy"]
    if any(report.health == "crashed" for report in unwell) and not as_json:
        typer.echo("`perago dev logs` shows why a server crashed, `perago dev up` starts it again", err=True)
    if unwell or not reports:
        raise typer.Exit(1)


@app.command()
def env(data_dir: DataDir = _HERE) -> None:
    """Print the exports a worker needs: `eval "$(perago dev env)"`, or `perago dev env > .env`."""
    for name, value in open_stack(data_dir).environment().items():
        typer.echo(f"export {name}={shlex.quote(value)}")


@app.command()
def logs(
    service: Annotated[str | None, typer.Argument(help="lakefs, conductor or spark; all of them unless given.")] = None,
    lines: Annotated[int, typer.Option("--lines", "-n", min=0, help="How many of the last lines.")] = 50,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on as lines are written.")] = False,
    data_dir: DataDir = _HERE,
) -> None:
    """Show the servers' own logs."""
    folder = open_stack(data_dir).folder
    files = [folder.log_of(service)] if service else sorted((folder.path / "logs").glob("*.log"))
    missing = [file.stem for file in files if not file.exists()]
    if missing or not files:
        raise PeragoError(f"there is no log of {service or 'any server'} in {folder.path}: `perago dev up` starts them")
    ends: dict[Path, int] = {}
    for file in files:
        with file.open(errors="replace") as log:
            for line in deque(log, maxlen=lines):
                typer.echo(f"{file.stem}: {line}", nl=False)
            ends[file] = log.tell()
    while follow:
        for file in files:
            with file.open(errors="replace") as log:
                log.seek(ends[file])
                for line in log:
                    typer.echo(f"{file.stem}: {line}", nl=False)
                ends[file] = log.tell()
        time.sleep(0.3)


def print_status(reports: "list[ServiceReport]") -> None:
    table = Table(box=None, pad_edge=False)
    for column in ("server", "state", "address", "pid"):
        table.add_column(column, no_wrap=True)
    for report in reports:
        table.add_row(report.title, report.health, masked(report.url), str(report.pid or ""))
    out().print(table)


def open_stack(data_dir: Path) -> "DevStack":
    with extra("dev", "`perago dev`"):
        from perago.devstack.progress import Reporter
        from perago.devstack.stack import DevStack
        from perago.devstack.state import DataFolder
    return DevStack(DataFolder(data_dir), Reporter())
