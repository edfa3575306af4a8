"""A second stack beside the one of the run: its own lakeFS, the shared Conductor."""

import json
import multiprocessing
import os
import signal
import socket
import stat
import threading
from collections.abc import Generator
from contextlib import closing
from pathlib import Path
from urllib.parse import urlsplit

import psutil
import pytest

from perago.config import load_runtime_config
from perago.devstack import processes
from perago.devstack.errors import DevStackError
from perago.devstack.progress import Reporter
from perago.devstack.stack import DevStack, ServiceReport, StackOptions
from perago.devstack.state import DataFolder
from perago.lake.control import LakeControl
from tests.conftest import SETTINGS, Servers


@pytest.fixture
def options(servers: Servers) -> StackOptions:
    return StackOptions(conductor_url=servers.environment["CONDUCTOR_SERVER_URL"])


@pytest.fixture
def stack(tmp_path: Path) -> Generator[DevStack]:
    made = DevStack(DataFolder(tmp_path / "dev"), Reporter())
    yield made
    made.down()


def lakefs_of(stack: DevStack) -> ServiceReport:
    (report,) = [report for report in stack.status() if report.name == "lakefs"]
    return report


def client_of(stack: DevStack) -> LakeControl:
    environment = stack.environment()
    config = load_runtime_config(**{name: environment[variable] for name, variable in SETTINGS.items()})
    return LakeControl(*config.require_lakefs())


def killed(stack: DevStack) -> None:
    pid = lakefs_of(stack).pid
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    psutil.wait_procs([psutil.Process(pid)] if psutil.pid_exists(pid) else [], timeout=10)


def test_up_twice_is_one_stack(stack: DevStack, options: StackOptions) -> None:
    first = stack.up(options)
    second = stack.up(StackOptions())

    assert first == second
    assert [report.health for report in second] == ["healthy", "healthy"]


def test_two_at_once_start_one_stack(stack: DevStack, options: StackOptions) -> None:
    spawn = multiprocessing.get_context("spawn")
    starters = [spawn.Process(target=_up, args=(stack.folder.path, options)) for _ in range(2)]
    for starter in starters:
        starter.start()
    for starter in starters:
        starter.join(60)

    assert [starter.exitcode for starter in starters] == [0, 0]
    assert len(_servers_of(stack)) == 1


def test_data_and_address_survive_a_restart(stack: DevStack, options: StackOptions) -> None:
    stack.up(options)
    client_of(stack).ensure_repository("kept", "local://kept")
    url = lakefs_of(stack).url

    assert stack.down() == ["lakeFS"]
    assert lakefs_of(stack).health == "stopped"
    stack.up(options)

    assert lakefs_of(stack).url == url
    assert client_of(stack).branch_exists("kept", "main")


def test_a_crashed_server_is_reported_and_started_again(
    stack: DevStack, options: StackOptions, capsys: pytest.CaptureFixture[str]
) -> None:
    stack.up(options)
    killed(stack)

    assert lakefs_of(stack).health == "crashed"
    with pytest.raises(DevStackError, match=r"lakeFS is crashed.*perago dev up"):
        stack.environment()
    stack.up(options)

    assert "lakeFS had crashed" in capsys.readouterr().err
    assert lakefs_of(stack).health == "healthy"


def test_a_crashed_server_keeps_its_address_although_its_last_threads_hold_the_port(
    stack: DevStack, options: StackOptions
) -> None:
    stack.up(options)
    url = lakefs_of(stack).url
    killed(stack)
    with closing(socket.socket()) as thread:
        thread.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        thread.bind(("127.0.0.1", urlsplit(url).port or 0))
        thread.listen()
        threading.Timer(0.3, thread.close).start()
        stack.up(options)

    assert lakefs_of(stack).url == url


def test_down_ends_just_the_processes_of_this_stack(stack: DevStack, options: StackOptions, servers: Servers) -> None:
    stack.up(options)
    assert _servers_of(stack)

    stack.down()

    assert not _servers_of(stack)
    assert {report.health for report in servers.stack.status()} == {"healthy"}
    assert stack.down() == []


def test_down_leaves_a_stranger_with_a_reused_process_id_alone(stack: DevStack, options: StackOptions) -> None:
    stack.up(options)
    state = stack.folder.read()
    process = state.services["lakefs"].process
    assert process is not None
    earlier = processes.ProcessId(pid=process.pid, started=process.started - 1000)

    processes.stop(earlier)

    assert lakefs_of(stack).health == "healthy"


def test_a_taken_port_is_named_with_its_holder(stack: DevStack, options: StackOptions) -> None:
    with closing(socket.socket()) as holder:
        holder.bind(("127.0.0.1", 0))
        holder.listen()
        port = int(holder.getsockname()[1])

        with pytest.raises(DevStackError, match=rf"port {port} is taken by process {os.getpid()}.*--lakefs-port"):
            stack.up(StackOptions(ports={"lakefs": port}, conductor_url=options.conductor_url))


def test_another_port_for_a_running_server_is_refused(stack: DevStack, options: StackOptions) -> None:
    stack.up(options)

    with pytest.raises(DevStackError, match=r"lakeFS already runs at .*perago dev down"):
        stack.up(StackOptions(ports={"lakefs": processes.free_port()}))


def test_a_given_port_is_used(stack: DevStack, options: StackOptions) -> None:
    port = processes.free_port()

    stack.up(StackOptions(ports={"lakefs": port}, conductor_url=options.conductor_url))

    assert lakefs_of(stack).url == f"http://127.0.0.1:{port}"


def test_chosen_ports_are_not_lent_to_clients_while_a_crashed_server_is_away() -> None:
    lent = Path("/proc/sys/net/ipv4/ip_local_port_range")
    first = int(lent.read_text().split()[0]) if lent.exists() else 49152

    assert {processes.free_port() < first for _ in range(20)} == {True}


def test_only_loopback_is_listened_on(servers: Servers) -> None:
    pids = {report.pid for report in servers.stack.status()}

    listening = [
        str(connection.laddr).partition("ip='")[2].partition("'")[0]
        for connection in psutil.net_connections("tcp")
        if connection.pid in pids and connection.status == psutil.CONN_LISTEN
    ]

    assert len(listening) >= 2
    assert set(listening) <= {"127.0.0.1", "::ffff:127.0.0.1", "::1"}


def test_credentials_belong_to_the_folder_and_its_owner_alone(stack: DevStack, options: StackOptions) -> None:
    stack.up(options)
    secret = stack.folder.credentials().lakefs_secret_access_key.get_secret_value()
    small = [file for file in stack.folder.path.rglob("*") if file.is_file() and file.stat().st_size < 5_000_000]
    holding = [file for file in small if secret.encode() in file.read_bytes()]

    assert [file.name for file in holding] == ["credentials.json"]
    for private in (holding[0], stack.folder.path / "stack.json"):  # an address there may carry a secret
        assert stat.S_IMODE(private.stat().st_mode) == 0o600
    assert secret not in " ".join(_servers_of(stack)[0].cmdline())


@pytest.mark.parametrize(
    ("given", "told"),
    [
        pytest.param(
            StackOptions(conductor_url="http://user:hush@127.0.0.1:9/api"),
            "Conductor at http://***@127.0.0.1:9/api does not answer: start it, or name another with --conductor-url",
            id="Conductor",
        ),
        pytest.param(
            StackOptions(spark_remote="sc://127.0.0.1:9/;token=hush"),
            "Spark Connect at sc://127.0.0.1:9 does not answer: start it, or name another with --spark-remote",
            id="Spark",
        ),
        pytest.param(
            StackOptions(spark_remote="sc://nowhere.invalid/;token=hush"),
            "Spark Connect at sc://nowhere.invalid does not answer: start it, or name another with --spark-remote",
            id="unknown host",
        ),
        pytest.param(
            StackOptions(conductor_url="user:hush@localhost"),
            "--conductor-url: write an address such as http://localhost:8080",
            id="no address",
        ),
        pytest.param(
            StackOptions(spark_remote="sc://h/;hush"), "--spark-remote: write an address such as", id="no key"
        ),
    ],
)
def test_an_address_where_nobody_answers_is_named_without_its_secrets_and_not_kept(
    stack: DevStack, given: StackOptions, told: str
) -> None:
    with pytest.raises(DevStackError) as refused:
        stack.up(given)

    assert str(refused.value).startswith(told)
    assert "hush" not in str(refused.value)
    assert stack.folder.read().services == {}


def test_an_up_that_failed_half_way_is_told_with_the_fix(stack: DevStack) -> None:
    with closing(socket.socket()) as holder:
        holder.bind(("127.0.0.1", 0))
        holder.listen()
        with pytest.raises(DevStackError, match=r"port \d+ is taken"):
            stack.up(StackOptions(ports={"conductor": int(holder.getsockname()[1])}))

    assert [(report.name, report.health) for report in stack.status()][1:] == [("conductor", "stopped")]
    with pytest.raises(DevStackError, match=r"the stack is not up \(.*Conductor is stopped\): run `perago dev up`"):
        stack.environment()


def test_a_project_in_the_data_folder_keeps_its_gitignore(stack: DevStack) -> None:
    stack.folder.path.mkdir()
    (stack.folder.path / ".gitignore").write_text("mine")

    stack.folder.create()

    assert (stack.folder.path / ".gitignore").read_text() == "mine"


def test_a_server_that_ends_at_once_is_shown_with_its_last_words(
    stack: DevStack, options: StackOptions, tmp_path: Path
) -> None:
    broken = tmp_path / "lakefs"
    broken.write_text("#!/bin/sh\necho no such disk >&2\nexit 3\n")
    broken.chmod(0o755)

    with pytest.raises(
        DevStackError, match=r"lakeFS ended while starting(.|\n)*perago dev logs lakefs(.|\n)*no such disk"
    ):
        stack.up(StackOptions(lakefs_binary=broken, conductor_url=options.conductor_url))
    assert lakefs_of(stack).health == "crashed"

    stack.up(options)
    assert lakefs_of(stack).health == "healthy"


def test_a_binary_that_cannot_be_run_is_refused(stack: DevStack, tmp_path: Path) -> None:
    with pytest.raises(DevStackError, match="is not an executable file"):
        stack.up(StackOptions(lakefs_binary=tmp_path / "nothing"))


@pytest.mark.parametrize("content", [b"{", b"\xff"], ids=["no JSON", "no text"])
@pytest.mark.parametrize(
    ("damaged", "told"),
    [
        pytest.param("stack.json", r"stack\.json is damaged", id="state"),
        pytest.param("credentials.json", r"credentials .* damaged", id="credentials"),
    ],
)
def test_a_damaged_data_folder_is_named_with_the_fix(
    stack: DevStack, options: StackOptions, damaged: str, told: str, content: bytes
) -> None:
    stack.up(options)
    stack.down()
    (stack.folder.path / damaged).write_bytes(content)

    with pytest.raises(DevStackError, match=f"{told}.*remove that"):
        stack.up(options)

    (stack.folder.path / "stack.json").write_text(json.dumps({"services": {}}))


def _up(folder: Path, options: StackOptions) -> None:
    DevStack(DataFolder(folder), Reporter()).up(options)


def _servers_of(stack: DevStack) -> list[psutil.Process]:
    """Every process that works in the stack's folder, whoever started it."""
    home = stack.folder.path / "lakefs"
    found: list[psutil.Process] = []
    for process in psutil.process_iter():
        try:
            if process.cwd() == str(home) and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
        except (psutil.NoSuchProcess, psutil.AccessDenied):
            continue
    return found
