"""Server processes of the stack: started apart from the terminal, known again by id and start time."""

import os
import random
import signal
import socket
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path

import psutil
from pydantic import BaseModel

from perago.identity import end_with_parent, lives, process_start

LOOPBACK = "127.0.0.1"
_FOR_SERVERS = range(20_000, 32_768)
_FOR_CLIENTS = ("SPARK_REMOTE", "SPARK_CONNECT_MODE_ENABLED")


class ProcessId(BaseModel):
    """A process for good: its start time tells it from a later process that got the same number."""

    pid: int
    started: float


def start(command: Sequence[str | Path], environment: Mapping[str, str], log: Path, folder: Path) -> ProcessId:
    """Start a server in a session of its own, so that Ctrl-C in the terminal is not meant for it."""
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("ab") as output:
        process = subprocess.Popen(
            command,
            cwd=folder,
            env=server_environment(environment),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    started = process_start(process.pid) or 0.0
    process.returncode = 0  # it is meant to outlive us: subprocess need not warn that nobody waits for it
    return ProcessId(pid=process.pid, started=started)


def start_child(
    command: Sequence[str | Path], environment: Mapping[str, str], log: Path, folder: Path
) -> "subprocess.Popen[bytes]":
    """Start a server that ends with the thread that starts it, whatever becomes of that."""
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("ab") as output:
        return subprocess.Popen(
            command,
            cwd=folder,
            env=server_environment(environment),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
            preexec_fn=end_with_parent,
        )


def server_environment(settings: Mapping[str, str]) -> dict[str, str]:
    """Ours and the server's settings, less what is meant for clients: a Spark server would take itself for one."""
    return {**{name: value for name, value in os.environ.items() if name not in _FOR_CLIENTS}, **settings}


def find(process: ProcessId) -> psutil.Process | None:
    """The process, if it still runs."""
    try:
        return psutil.Process(process.pid) if lives(process.pid, process.started) else None
    except psutil.NoSuchProcess:
        return None


def stop(process: ProcessId, patience: float = 15) -> None:
    """End the process and what it started: asked first, made to after `patience` seconds."""
    found = find(process)
    if found is None:
        return
    family = [found, *found.children(recursive=True)]
    _signal(family, signal.SIGTERM)
    _, left = psutil.wait_procs(family, timeout=patience)
    _signal(left, signal.SIGKILL)
    psutil.wait_procs(left, timeout=patience)


def free_port() -> int:
    """A port below those that systems lend to clients: one of theirs may be lent while a crashed server is away."""
    tried = random.SystemRandom().sample(_FOR_SERVERS, k=100)
    return next(port for port in [*tried, _lent_port()] if is_free(port))


def is_free(port: int) -> bool:
    with closing(socket.socket()) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((LOOPBACK, port))
        except OSError:
            return False
        return True


def _lent_port() -> int:
    with closing(socket.socket()) as probe:
        probe.bind((LOOPBACK, 0))
        return int(probe.getsockname()[1])


def holder_of(port: int) -> str:
    """Who listens on a port, as far as the system tells."""
    try:
        connections = psutil.net_connections("tcp")
    except psutil.AccessDenied:
        return "another process"
    for connection in connections:
        if connection.status == psutil.CONN_LISTEN and connection.laddr[1:] == (port,) and connection.pid:
            return f"process {connection.pid} ({psutil.Process(connection.pid).name()})"
    return "another process"


def _signal(family: Sequence[psutil.Process], number: int) -> None:
    for member in family:
        try:
            member.send_signal(number)
        except psutil.NoSuchProcess:
            continue
