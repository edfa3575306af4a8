"""`perago run`: an attempt without Conductor, the author's daily loop."""

import json
import logging
import sys
import uuid
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Annotated, Any

import structlog
import typer

from perago.authoring.errors import PeragoError
from perago.authoring.module import load_module_task
from perago.authoring.payload import build_output, parse_input
from perago.authoring.task import TaskDefinition
from perago.cli.extract import Module
from perago.config import RuntimeConfig, load_runtime_config
from perago.protocol.attempt import Attempt

if TYPE_CHECKING:
    from perago.attempt.lifecycle import Execution, Servers
    from perago.data.plan import Plan
    from perago.data.workspace import Transferred

_SHOWN = 200

Params = Annotated[str, typer.Option("--params", help="The task's params as JSON, or @FILE.")]
Repository = Annotated[str | None, typer.Option("--repository", help="The lakeFS repository to read from.")]
Branch = Annotated[str, typer.Option("--branch", help="The branch to publish to, and to read from without --ref.")]
Ref = Annotated[str | None, typer.Option("--ref", help="The input commit; the branch's head unless given.")]
Publish = Annotated[bool, typer.Option("--publish", help="Publish the change; without it the change is only shown.")]
Directory = Annotated[
    Path | None, typer.Option("--dir", help="Work in this directory, in place, with no server at all.")
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
    the change is shown, or published with --publish. With --dir the body runs in a directory of yours.

    Examples: `perago run tasks.build --dir data --params '{"limit": 3}'`,
    `perago run tasks.build --repository features --params @params.json --publish`
    """
    definition = load_module_task(module)
    given = _params(params)
    if definition.workspace is None:
        if repository or directory:
            raise PeragoError(f"{definition.name} has no workspace: leave --repository and --dir out")
        _print(_without_workspace(definition, given))
    elif directory is not None:
        if repository or publish:
            raise PeragoError("--dir works without a server: leave --repository and --publish out")
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
    result = run_definition(definition, params, directory.resolve())
    return build_output(definition, None, result)


def _on_lakefs(
    definition: TaskDefinition, params: Any, repository: str, branch: str, ref: str | None, publish: bool
) -> None:
    from perago.attempt.lifecycle import Completed, Execution, run_attempt

    config = load_runtime_config()
    with _progress() as progress:
        servers = _servers(config, progress)
        workspace = {
            "repository": repository,
            "branch": branch,
            "ref_type": "commit",
            "ref": ref or servers.lake.head(repository, branch).id,
        }
        execution = Execution(
            definition, _local_attempt(), uuid.uuid4().hex, {"workspace": workspace, "params": params}
        )
        if not publish:
            _preview(execution, servers)
            return
        outcome = run_attempt(execution, servers, config.workspace_root, config.failure_reason_max_length)
    if not isinstance(outcome, Completed):
        raise PeragoError(f"{outcome.failure.status}: {outcome.failure.reason}") from outcome.error
    _print(outcome.output)


def _preview(execution: "Execution", servers: "Servers") -> None:
    from perago.attempt.lifecycle import worked_directory

    given = parse_input(execution.definition, execution.payload)
    with (
        TemporaryDirectory(prefix="perago-run-") as root,
        worked_directory(execution, given, servers, Path(root)) as worked,
    ):
        plan = servers.files.plan(worked.manifest, worked.workspace)
        _show_changes(plan)
        plan.close()
        _print(build_output(execution.definition, None, worked.result))


def _show_changes(plan: "Plan") -> None:
    if plan.is_empty:
        typer.echo("nothing changed: nothing would be published", err=True)
        return
    lines = [f"- {path}" for path in plan.deletes()] + [
        f"+ {file.path} ({file.signature.size} bytes)" for file in plan.puts()
    ]
    for line in lines[:_SHOWN]:
        typer.echo(line, err=True)
    if len(lines) > _SHOWN:
        typer.echo(f"… and {len(lines) - _SHOWN} more", err=True)
    typer.echo(
        f"would publish {plan.added} new, {plan.changed} changed and {plan.deleted} deleted files"
        f" ({plan.bytes} bytes): add --publish to do it",
        err=True,
    )


def _servers(config: RuntimeConfig, progress: "Any") -> "Servers":
    from perago.attempt.lifecycle import Servers
    from perago.data.workspace import DirectoryFiles
    from perago.lake.control import LakeControl
    from perago.lake.objects import LakeObjects

    address = config.require_lakefs()
    return Servers(_Nobody(), LakeControl(*address), DirectoryFiles(LakeObjects(*address), progress))


class _Nobody:
    """There is no Conductor here: the attempt is current because nobody else can have it."""

    def current(self, attempt: Attempt) -> Attempt:
        return replace(attempt, status="IN_PROGRESS")


def _local_attempt() -> Attempt:
    run_id = uuid.uuid4().hex
    return Attempt(f"local-{run_id[:8]}", run_id, 0, "run", 1, 0, "IN_PROGRESS")


@contextmanager
def _progress() -> "Generator[Any]":
    """A bar per phase on a terminal, plain lines elsewhere; the attempt's own log only when asked for."""
    from perago.devstack.progress import Reporter

    structlog.configure(
        wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
    )
    reporter = Reporter()
    totals: dict[str, tuple[int, int]] = {}

    def seen(done: "Transferred") -> None:
        objects, size = totals.get(done.phase, (0, 0))
        totals[done.phase] = (objects + done.objects, size + done.bytes)

    yield seen
    for phase, (objects, size) in totals.items():
        reporter.note(f"{phase}: {objects} objects, {size} bytes")


def _params(text: str) -> Any:
    try:
        return json.loads(Path(text[1:]).read_text() if text.startswith("@") else text)
    except OSError as error:
        raise PeragoError(f"--params {text}: {error.strerror}") from error
    except ValueError as error:
        raise PeragoError(f"--params is not JSON: {error}") from error


def _print(output: dict[str, Any]) -> None:
    typer.echo(json.dumps(output, indent=2, ensure_ascii=False))
