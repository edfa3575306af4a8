"""The servers of a demo: what runs is used, what it starts it stops."""

import signal
from collections.abc import Generator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from perago.cli.dev import print_status
from perago.config import load_runtime_config

if TYPE_CHECKING:
    from perago.devstack.stack import DevStack, StackOptions
    from perago.devstack.state import StackState


@contextmanager
def servers(stack: "DevStack", *, keep: bool) -> Generator[None]:
    """lakeFS, Conductor and Spark; those that were started here end with the block, unless they are kept."""
    before = stack.folder.read()
    running = {report.name for report in stack.status() if report.health in ("healthy", "not answering")}
    with _sigterm_as_ctrl_c():
        try:
            print_status(stack.up(_options(before)))
            yield
        finally:
            if not keep:
                _stop_others(stack, before, running)


def _options(before: "StackState") -> "StackOptions":
    """Spark is the stack's own unless SPARK_REMOTE names another; what `perago dev env` exports is the stack's own."""
    from perago.devstack.stack import StackOptions

    remote = load_runtime_config().spark_remote
    own = before.services.get("spark")
    if remote and (own is None or remote.rstrip("/") != own.url):
        return StackOptions(spark_remote=remote)
    return StackOptions(spark=True)


def _stop_others(stack: "DevStack", before: "StackState", running: set[str]) -> None:
    """Stop what did not run before, and forget a Spark that is no part of the stack."""
    from perago.devstack import processes

    with stack.folder.lock():
        state = stack.folder.read()
        for name, service in reversed(list(state.services.items())):
            if name not in running and service.process is not None:
                processes.stop(service.process)
                service.process = None
            stack.folder.write(state)
        if state.services.pop("spark", None) and "spark" in before.services:
            state.services["spark"] = before.services["spark"]
        stack.folder.write(state)


@contextmanager
def _sigterm_as_ctrl_c() -> Generator[None]:
    """A demo that is told to end cleans up too."""
    former = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, former)
