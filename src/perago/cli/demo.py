"""`perago demo`: the pipeline of the examples on real servers, when all goes well and when it does not."""

import asyncio
import shlex
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from perago.authoring.errors import PeragoError
from perago.authoring.module import load_module_task
from perago.authoring.taskdef import build_taskdef
from perago.authoring.wiring import wiring_problems
from perago.cli.check import read_workflow
from perago.cli.demo_servers import servers
from perago.cli.demo_timeline import attempt_lines, phase_spans, timeline
from perago.cli.demo_workers import Site, Worker, run_workflow
from perago.cli.dev import DataDir, open_stack
from perago.cli.printing import author_warnings, out
from perago.cli.register import register_taskdef
from perago.config import RuntimeConfig, load_runtime_config
from perago.extras import extra

if TYPE_CHECKING:
    from perago.conductor.workflows import WorkflowRun
    from perago.devstack.stack import DevStack

BRANCH = "main"
MODULES = ("orders.ingest", "orders.clean", "orders.report")
PREFIX = "orders"
CHART = "report/revenue.png"
# Where the first attempt of a task is killed: as it is about to merge, and as it has merged and told nobody.
KILLED = {
    "orders.ingest": {"PERAGO_TEST_MODE": "1", "PERAGO_FAILPOINT": "confirm:kill"},
    "orders.report": {"PERAGO_TEST_MODE": "1", "PERAGO_FAILPOINT": "published:kill"},
}

Keep = Annotated[bool, typer.Option("--keep", help="Leave the servers running at the end.")]
Rows = Annotated[int, typer.Option("--rows", min=1000, help="How many orders the pipeline works on.")]


def demo(data_dir: DataDir = Path(".perago/dev"), rows: Rows = 1_000_000, keep: Keep = False) -> None:
    """Run a pipeline of three tasks on real lakeFS, Conductor and Spark, and show what was published.

    It runs three times: as it should, with bad input that a guardrail stops, and with executors killed while they
    publish. The servers are those of `perago dev up`: what runs already is used and left running, what the demo
    starts it stops at the end unless `--keep` is given. The data stays either way. SPARK_REMOTE names another Spark.
    """
    _require_extras()
    began = time.monotonic()
    stack = open_stack(data_dir)
    _step("Real servers on this machine")
    with servers(stack, keep=keep):
        tour = Tour(stack, rows)
        tour.prepare()
        _step(f"1. A worker for each task, and the workflow run on {rows:,} orders")
        with tour.site.workers(MODULES) as workers:
            tour.run_well(workers)
            _step("2. The same with bad input: the last day's amounts are negative")
            tour.run_with_bad_input(workers)
        _step("3. Good input again, but the executors of two tasks are killed while they publish")
        with tour.site.workers(MODULES, KILLED) as workers:
            tour.run_with_killed_executors(workers)
        kept = _kept(stack) if keep else []
    typer.echo(f"\nDone in {time.monotonic() - began:.0f} s. To look further:")
    for line in [*tour.further(), *(kept or ["perago demo --keep            # leaves the servers running"])]:
        typer.echo(f"  {line}")


class Tour:
    """The demo's story, told as it happens; what is not as promised is an error."""

    def __init__(self, stack: "DevStack", rows: int) -> None:
        from perago.lake.control import LakeControl
        from perago.lake.objects import LakeObjects

        environment = stack.environment()
        self.site = Site(_examples(), environment, stack.folder.path)
        self._config = load_runtime_config(**_settings(environment))
        self._lake = LakeControl(*self._config.require_lakefs())
        self._objects = LakeObjects(*self._config.require_lakefs())
        self._workflow = read_workflow(self.site.examples / "orders" / "workflow.json")
        self._rows = rows
        # A repository of its own: the budget of `clean` compares with what is there, and that may be another size.
        self._repository = f"perago-demo-{time.strftime('%Y%m%d-%H%M%S')}"
        self._shown_workflow = ""

    def prepare(self) -> None:
        _step(f"A lakeFS repository: {self._repository}")
        self._lake.ensure_repository(self._repository, f"local://{self._repository}", BRANCH)
        typer.echo(f"made; branch {BRANCH} is at commit {_short(self._head())} and empty")
        _step("Three tasks, checked and registered, and the workflow that wires them")
        if str(self.site.examples) not in sys.path:
            sys.path.insert(0, str(self.site.examples))
        _register(self._config, self._workflow)

    def run_well(self, workers: list[Worker]) -> None:
        before = self._head()
        run = self._run(workers, "COMPLETED", seed=1)
        self._shown_workflow = run.workflow_id
        out().print(timeline(phase_spans(self.site.logs, run.workflow_id)))
        typer.echo(f"{run.output['orders']:,} orders, revenue {run.output['revenue']:,.2f} €")
        typer.echo(f"\nbranch {BRANCH} has a publication of each task now:")
        self._show_published(before, MODULES)
        saved = self.site.folder / "demo" / Path(CHART).name
        self._save(CHART, saved)
        typer.echo(f"\nthe chart: lakefs://{self._repository}/{BRANCH}/{PREFIX}/{CHART}\n  saved as {saved}")

    def run_with_bad_input(self, workers: list[Worker]) -> None:
        before = self._head()
        self._run(workers, "FAILED", seed=2, broken=True)
        typer.echo(f"\nnothing came after the delivery itself; branch {BRANCH} is where `ingest` left it:")
        self._show_published(before, MODULES[:1])
        for table in ("clean", "report"):
            changes = sum(1 for _ in self._objects.difference(self._repository, before, BRANCH, f"{PREFIX}/{table}/"))
            typer.echo(f"  {table}/: {changes} files differ from before")
            if changes:
                raise PeragoError(f"{table}/ changed although the guardrail failed: please report this")

    def run_with_killed_executors(self, workers: list[Worker]) -> None:
        before = self._head()
        run = self._run(workers, "COMPLETED", seed=3)
        typer.echo(f"{run.output['orders']:,} orders, revenue {run.output['revenue']:,.2f} €")
        typer.echo("\nrecovered; the branch has one publication of each task, whatever was killed:")
        self._show_published(before, MODULES)

    def further(self) -> list[str]:
        """What works without the servers."""
        logs = shlex.quote(str(self.site.logs))
        return [
            f"{self.site.examples / 'orders'}   # the tasks: copy them to begin",
            f"PERAGO_LOG_ROOT={logs} perago logs --workflow {self._shown_workflow}",
        ]

    def _run(self, workers: list[Worker], wanted: str, *, seed: int, broken: bool = False) -> "WorkflowRun":
        given = {
            "repository": self._repository,
            "branch": BRANCH,
            "ref": self._head(),
            "first_day": time.strftime("%Y-%m-%d"),
            "rows": self._rows,
            "seed": seed,
            "broken": broken,
        }
        run = run_workflow(self._config, self._workflow, given, workers)
        for line in attempt_lines(run):
            typer.echo(line)
        typer.echo(f"workflow {run.status}")
        if run.status != wanted:
            raise PeragoError(
                f"the demo's workflow ended {run.status}, not {wanted} ({run.reason}): the workers' logs are in"
                f" {self.site.logs}"
            )
        return run

    def _show_published(self, before: str, wanted: Sequence[str]) -> None:
        """The commits since then, which must be one of each task wanted."""
        history = self._lake.history(self._repository, BRANCH)
        newer = history[: next(at for at, (commit_id, _) in enumerate(history) if commit_id == before)]
        for commit_id, message in newer:
            typer.echo(f"  {_short(commit_id)}  {message}")
        typer.echo(f"  {_short(before)}  where it was before")
        published = [message.partition(":")[0] for _, message in reversed(newer)]
        if published != list(wanted):
            raise PeragoError(f"branch {BRANCH} has publications of {published}, not of {wanted}: please report this")

    def _save(self, path: str, file: Path) -> None:
        from perago.data.places import LakePlace

        file.parent.mkdir(exist_ok=True)
        with file.open("wb") as opened:
            LakePlace(self._objects, self._repository, BRANCH, PREFIX, writable=False).read(path, opened)

    def _head(self) -> str:
        return self._lake.head(self._repository, BRANCH).id


def _register(config: RuntimeConfig, workflow: Any) -> None:
    with author_warnings():
        tasks = [load_module_task(module) for module in MODULES]
        problems = wiring_problems(workflow, tasks)
        for definition in tasks:
            for line in asyncio.run(register_taskdef(config, build_taskdef(definition))):
                typer.echo(line)
    typer.echo(f"the workflow's wiring: {'; '.join(problems) or 'right'}")


def _kept(stack: "DevStack") -> list[str]:
    where = (
        ""
        if stack.folder.path == Path(".perago/dev").resolve()
        else f" --data-dir {shlex.quote(str(stack.folder.path))}"
    )
    urls = {report.name: report.url for report in stack.status()}
    return [
        f'eval "$(perago dev env{where})"   # then perago run, perago start, lakectl',
        f"{urls['lakefs']}   # lakeFS in a browser; `perago dev up{where}` shows its login",
        f"perago dev down{where}   # stops the servers",
    ]


def _require_extras() -> None:
    """Before minutes are spent: the examples draw with matplotlib and import pyspark."""
    with extra("dev", "`perago demo`"):
        import matplotlib
    with extra("spark", "`perago demo`"):
        import pyspark
    del matplotlib, pyspark


def _examples() -> Path:
    """Beside the package in an installation, at the root of a checkout."""
    package = Path(__file__).parents[1]
    installed = package / "examples"
    return installed if installed.exists() else package.parents[1] / "examples"


def _settings(environment: dict[str, str]) -> dict[str, str]:
    """The stack's own addresses, as flags: they win over whatever is exported."""
    return {
        "conductor_server_url": environment["CONDUCTOR_SERVER_URL"],
        "lakefs_endpoint_url": environment["LAKECTL_SERVER_ENDPOINT_URL"],
        "lakefs_access_key_id": environment["LAKECTL_CREDENTIALS_ACCESS_KEY_ID"],
        "lakefs_secret_access_key": environment["LAKECTL_CREDENTIALS_SECRET_ACCESS_KEY"],
    }


def _short(commit_id: str) -> str:
    return commit_id[:12]


def _step(title: str) -> None:
    typer.secho(f"\n{title}", bold=True)
