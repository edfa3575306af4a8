"""`perago start`: a worker for one task."""

import asyncio
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from perago.cli.extract import Module
from perago.cli.register import ServerUrl
from perago.config import RuntimeConfig, load_runtime_config
from perago.extras import extra

if TYPE_CHECKING:
    from perago.devstack.embedded import EmbeddedSpark
    from perago.worker.supervisor import Supervisor

Jobs = Annotated[int, typer.Option("--jobs", "-j", min=1, max=256, help="How many attempts may run at once.")]
Mode = Annotated[
    str | None, typer.Option("--execution-mode", help="`process`, or `thread` for light bodies; PERAGO_EXECUTION_MODE.")
]
AllowDrift = Annotated[bool, typer.Option("--allow-drift", help="Work although the registered TaskDef differs.")]

Http = Annotated[
    str | None,
    typer.Option("--http", metavar="HOST:PORT", help="Serve /healthz, /readyz and /metrics; `:8090` is loopback."),
]


def start(
    module: Module,
    jobs: Jobs = 1,
    execution_mode: Mode = None,
    conductor_url: ServerUrl = None,
    allow_drift: AllowDrift = False,
    http: Http = None,
) -> None:
    """Run a worker: take the task's attempts from Conductor and publish what they change.

    Ctrl-C or SIGTERM finishes what runs and exits 0; a second one stops now (130). Exit 1: the worker cannot work.
    Exit 3: attempts were killed because PERAGO_SHUTDOWN_FORCE_KILL_AFTER ran out.

    Example: `perago start tasks.build -j 4`
    """
    given = load_runtime_config(conductor_server_url=conductor_url, execution_mode=execution_mode)
    # A body may change its working directory; the worker's folders stay where they are.
    roots = {"workspace_root": given.workspace_root.absolute(), "log_root": given.log_root.absolute()}
    config = given.model_copy(update=roots)
    sys.exit(asyncio.run(_work(module, config, jobs, allow_drift, http)))


async def _work(module: str, config: RuntimeConfig, jobs: int, allow_drift: bool, http: str | None) -> int:
    from perago.conductor.client import ConductorClient
    from perago.worker.facts import read_facts
    from perago.worker.leftovers import collect_leftovers
    from perago.worker.lock import only_supervisor
    from perago.worker.logs import configure_logs, hold_loggers, log_folder
    from perago.worker.spark import SparkSource
    from perago.worker.start import check_engine, check_lakefs, check_spark, check_taskdef, new_worker_id
    from perago.worker.supervisor import Supervisor
    from perago.worker.tracing import check_tracing

    task = read_facts(module)
    worker_id = new_worker_id(config)
    url, key, secret = config.require_conductor(), config.conductor_auth_key, config.conductor_auth_secret
    async with ConductorClient(url, key, secret) as conductor:
        check_tracing()
        check_spark(task)
        check_engine(config, task)
        check_lakefs(config, task)
        drift = await check_taskdef(conductor, task.taskdef, module, allow=allow_drift)
        if drift:
            typer.echo(f"warning: {drift}", err=True)
        with only_supervisor(config.workspace_root):
            logs = log_folder(config.log_root, module, worker_id)
            configure_logs(logs, "supervisor", config.log_file_max_size, config.log_retention, echo=True)
            hold_loggers()
            collect_leftovers(config)
            typer.echo(f"{task.name}: worker {worker_id}, {jobs} at once; logs in {logs}", err=True)
            spark = SparkSource(config.spark_remote, lambda: _embedded_spark(logs, config))
            supervisor = Supervisor(module, task, config, conductor, worker_id, logs, jobs, spark)
            with _status(http, supervisor):
                return await supervisor.run()


def _embedded_spark(logs: Path, config: RuntimeConfig) -> "EmbeddedSpark":
    """Imported when a task asks for it: a worker without Spark needs none of this."""
    with extra("spark", "an embedded Spark server"):
        from perago.devstack.embedded import EmbeddedSpark
        from perago.devstack.progress import Reporter
    return EmbeddedSpark(
        logs / "spark.log", config.workspace_root.resolve() / ".spark", config.spark_memory, Reporter()
    )


@contextmanager
def _status(http: str | None, supervisor: "Supervisor") -> Generator[None]:
    if http is None:
        yield
        return
    from perago.worker.status import serve_status

    with serve_status(http, supervisor.vitals.is_healthy, supervisor.is_ready, supervisor.metrics.registry) as address:
        typer.echo(f"status: {address}/healthz, /readyz, /metrics", err=True)
        yield
