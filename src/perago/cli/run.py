"""`perago run`: an attempt without Conductor, the author's daily loop."""

import json
import traceback
import uuid
from collections.abc import Callable, Generator
from contextlib import ExitStack, contextmanager
from functools import cache
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Annotated, Any

import typer

import perago
from perago.authoring.errors import PeragoError, PublishFenceError, TaskExecutionError, TaskInputError
from perago.authoring.module import load_module_task
from perago.authoring.payload import build_output, output_of, parse_input
from perago.authoring.task import TaskDefinition
from perago.cli.extract import Module
from perago.config import RuntimeConfig, load_runtime_config
from perago.extras import extra
from perago.protocol.attempt import Attempt
from perago.protocol.failures import classify
from perago.protocol.publication import Refuse, decide

if TYPE_CHECKING:
    from pyspark.sql.connect.session import SparkSession

    from perago.attempt.lifecycle import Execution, Servers
    from perago.attempt.ports import Lake
    from perago.attempt.work import Changes
    from perago.data.workspace import Progress, Transferred
    from perago.devstack.embedded import EmbeddedSpark
    from perago.devstack.progress import Reporter

_SHOWN = 200

Params = Annotated[str, typer.Option("--params", help="The task's params as JSON, or @FILE.")]
Repository = Annotated[str | None, typer.Option("--repository", help="The lakeFS repository to read from.")]
Branch = Annotated[str, typer.Option("--branch", help="The branch to publish to, and to read from without --ref.")]
Ref = Annotated[str | None, typer.Option("--ref", help="The input commit; the branch's head unless given.")]
Publish = Annotated[bool, typer.Option("--publish", help="Publish the change; without it the change is only shown.")]
Directory = Annotated[
    Path | None, typer.Option("--dir", help="Work in this directory, in place, with no server but Spark.")
]


def run(
    module: Module,
    params: Params = "{}",
    repository: Repository = None,
    branch: Branch = "main",
    ref: Ref = None,
    publish: Publish = False,
    directory: Directory = None,
) -> None:
    """Run a task once, without Conductor, and print its output as JSON.

    With --repository it is a real attempt on lakeFS: the input commit is downloaded, guardrails and body run, and
    the change is shown, or published with --publish if the branch is still at that commit. With --dir the body runs in
    a directory of yours; a read-only task in a copy of it.

    Examples: `perago run tasks.build --dir data --params '{"limit": 3}'`,
    `perago run tasks.build --repository features --params @params.json --publish`
    """
    definition = load_module_task(module)
    given = _params(params)
    try:
        _run(definition, given, repository, branch, ref, publish, directory)
    except TaskInputError:
        raise
    except (Exception, SystemExit) as error:  # a body may raise either
        _explain(error)


def _run(
    definition: TaskDefinition,
    given: Any,
    repository: str | None,
    branch: str,
    ref: str | None,
    publish: bool,
    directory: Path | None,
) -> None:
    if definition.workspace is None:
        if repository or directory or ref or publish:
            raise PeragoError(f"{definition.name} has no workspace: leave --repository, --dir, --ref and --publish out")
        _print(_without_workspace(definition, given))
    elif directory is not None:
        if repository or ref or publish:
            raise PeragoError("--dir works without a server: leave --repository, --ref and --publish out")
        _print(_in_directory(definition, given, directory))
    elif repository is not None:
        _on_lakefs(definition, given, repository, branch, ref, publish)
    else:
        raise PeragoError(f"{definition.name} works on a workspace: give --repository, or --dir for a plain directory")


def _without_workspace(definition: TaskDefinition, params: Any) -> dict[str, Any]:
    given = parse_input(definition, {"params": params})
    return build_output(definition, None, definition.function(given.params))


def _in_directory(definition: TaskDefinition, params: Any, directory: Path) -> dict[str, Any]:
    from perago.testing.local import run_definition

    if not directory.is_dir():
        raise PeragoError(f"--dir {directory} is not a directory")
    with ExitStack() as sessions:
        session = _local_session(load_runtime_config(), sessions)
        result = run_definition(definition, params, directory.resolve(), session)
    return build_output(definition, None, result)


def _local_session(config: RuntimeConfig, sessions: ExitStack) -> "Callable[[], SparkSession]":
    """A session for a task that asks for one; nothing is started for the others."""

    @cache
    def opened() -> "SparkSession":
        from perago.data.spark_session import AttemptSession

        session = AttemptSession(sessions.enter_context(_spark(config)), uuid.uuid4().hex, lakefs=None)
        sessions.callback(session.close)
        return session()

    return opened


def _on_lakefs(
    definition: TaskDefinition, params: Any, repository: str, branch: str, ref: str | None, publish: bool
) -> None:
    from perago.attempt.lifecycle import Completed, Execution, run_attempt

    config = load_runtime_config()
    with _progress() as progress, _spark(config) as spark:
        execution_id = uuid.uuid4().hex
        servers = _servers(config, progress, spark, execution_id)
        workspace = {
            "repository": repository,
            "branch": branch,
            "ref_type": "commit",
            "ref": ref or servers.lake.head(repository, branch).id,
        }
        execution = Execution(definition, _local_attempt(), execution_id, {"workspace": workspace, "params": params})
        refusal = _refusal(definition, servers.lake, workspace)
        if not publish:
            _preview(execution, servers, refusal)
            return
        if refusal:
            raise PublishFenceError(refusal)
        outcome = run_attempt(execution, servers, config.workspace_root, config.failure_reason_max_length)
    if not isinstance(outcome, Completed):
        raise outcome.error
    _print(outcome.output)


def _refusal(definition: TaskDefinition, lake: "Lake", workspace: dict[str, str]) -> str | None:
    """Why the task could not publish as things are, to be told before its body has run in vain."""
    if definition.workspace is None or definition.workspace.read_only:
        return None
    repository, branch = workspace["repository"], workspace["branch"]
    start = lake.commit_of(repository, workspace["ref"])
    decision = decide(lake.head(repository, branch), start.id, changed=True, by_hand=True)
    return f"branch {branch} of {repository}: {decision.reason}" if isinstance(decision, Refuse) else None


def _preview(execution: "Execution", servers: "Servers", refusal: str | None) -> None:
    from perago.attempt.lifecycle import worked

    given = parse_input(execution.definition, execution.payload)
    with (
        TemporaryDirectory(prefix="perago-run-") as root,
        ExitStack() as cleanups,
        worked(execution, given, servers, Path(root)) as work,
    ):
        if work.place.spec.read_only:
            typer.echo(f"{execution.definition.name} is read-only: nothing would be published", err=True)
        else:
            _show_changes(work.changes(cleanups), refusal)
        _print(output_of(None, work.result))


def _show_changes(changes: "Changes", refusal: str | None) -> None:
    if changes.is_empty and not refusal:
        typer.echo("nothing changed: nothing would be published", err=True)
        return
    for line in islice(changes.lines(), _SHOWN):
        typer.echo(line, err=True)
    unseen = changes.added + changes.changed + changes.deleted - _SHOWN
    if unseen > 0:
        typer.echo(f"… and {unseen} more", err=True)
    if refusal:
        typer.echo(f"--publish would be refused: {refusal}", err=True)
        return
    typer.echo(
        f"would publish {changes.added} new, {changes.changed} changed and {changes.deleted} deleted files:"
        " add --publish to do it",
        err=True,
    )


def _servers(config: RuntimeConfig, progress: "Progress", spark: Callable[[], str], execution_id: str) -> "Servers":
    from perago.attempt.lifecycle import Servers
    from perago.data.spark_engine import engine_for
    from perago.data.spark_files import SparkFiles
    from perago.data.spark_session import AttemptSession
    from perago.data.workspace import DirectoryFiles
    from perago.lake.control import LakeControl
    from perago.lake.objects import LakeObjects

    address = config.require_lakefs()
    objects = LakeObjects(*address)
    session = AttemptSession(spark, execution_id, address)
    files = DirectoryFiles(objects, progress, engine_for(config.data_engine, config.spark_remote, session))
    return Servers(None, LakeControl(*address), files, spark=SparkFiles(session, objects))


@contextmanager
def _spark(config: RuntimeConfig) -> Generator[Callable[[], str]]:
    """Where Spark is: the server that SPARK_REMOTE names, else one of our own, started if it is asked for."""
    if config.spark_remote:
        yield lambda: str(config.spark_remote)
        return
    with ExitStack() as ours:

        @cache
        def server() -> "EmbeddedSpark":
            with extra("spark", "Spark"):
                from perago.devstack.embedded import EmbeddedSpark
                from perago.devstack.progress import Reporter
            logs = Path(ours.enter_context(TemporaryDirectory(prefix="perago-run-spark-")))
            return ours.enter_context(
                EmbeddedSpark(logs / "spark.log", logs / "spark", config.spark_memory, Reporter())
            )

        yield lambda: server().url()


def _local_attempt() -> Attempt:
    run_id = uuid.uuid4().hex
    return Attempt(f"local-{run_id[:8]}", run_id, 0, "run", 1, 0, "IN_PROGRESS")


class _Shown:
    """Each phase of a transfer as a step of its own: a bar on a terminal, lines elsewhere."""

    def __init__(self, reporter: "Reporter") -> None:
        self._reporter = reporter
        self._phase: str | None = None
        self._step = ExitStack()

    def __call__(self, done: "Transferred") -> None:
        if done.phase != self._phase:
            self.close()
            self._phase = done.phase
            self._advance = self._step.enter_context(self._reporter.step(done.phase, unit="objects"))
        self._advance(done.objects)

    def close(self) -> None:
        self._step.close()


@contextmanager
def _progress() -> "Generator[_Shown]":
    from perago.devstack.progress import Reporter

    shown = _Shown(Reporter())
    try:
        yield shown
    finally:
        shown.close()


def _explain(error: BaseException) -> None:
    """What Conductor would be told, after the traceback of the author's own code where it went wrong there."""
    if isinstance(error, PeragoError) and not isinstance(error, TaskExecutionError):
        raise error
    frames = traceback.extract_tb(error.__traceback__)
    last_of_ours = max((number for number, frame in enumerate(frames) if _is_ours(frame.filename)), default=-1)
    own = frames[last_of_ours + 1 :]
    if not isinstance(error, PeragoError) and own:
        typer.echo("".join(["Traceback (most recent call last):\n", *traceback.format_list(own)]), err=True, nl=False)
    failure = classify(error, max_length=4000)
    raise PeragoError(f"{failure.status}: {failure.reason}") from error


def _is_ours(filename: str) -> bool:
    return Path(filename).is_relative_to(Path(perago.__file__).parent)


def _params(text: str) -> Any:
    try:
        return json.loads(Path(text[1:]).read_text() if text.startswith("@") else text)
    except OSError as error:
        raise PeragoError(f"--params {text}: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        raise PeragoError(f"--params is not JSON: {error}") from error


def _print(output: dict[str, Any]) -> None:
    typer.echo(json.dumps(output, indent=2, ensure_ascii=False))
