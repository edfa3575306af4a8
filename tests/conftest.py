"""One set of real servers for the whole run; a repository of its own for each test."""

import os
import subprocess
import sys
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import structlog
from xdist.scheduler import LoadScopeScheduling

from perago.config import RuntimeConfig, load_runtime_config
from perago.devstack.progress import Reporter
from perago.devstack.stack import DevStack, StackOptions
from perago.devstack.state import DataFolder
from perago.lake.control import LakeControl

pytest_plugins = ["tests.explorer.summary"]
SETTINGS = {
    "conductor_server_url": "CONDUCTOR_SERVER_URL",
    "lakefs_endpoint_url": "LAKECTL_SERVER_ENDPOINT_URL",
    "lakefs_access_key_id": "LAKECTL_CREDENTIALS_ACCESS_KEY_ID",
    "lakefs_secret_access_key": "LAKECTL_CREDENTIALS_SECRET_ACCESS_KEY",
}


# Its way with tracebacks, drawn with every local variable, took a tenth of the whole run.
*_PROCESSORS, _ = structlog.get_config()["processors"]
_PLAIN = structlog.dev.ConsoleRenderer(exception_formatter=structlog.dev.plain_traceback)
structlog.configure(processors=[*_PROCESSORS, _PLAIN])
# Else each look at a branch waits 3 ms for others to share it with.
os.environ.setdefault("LAKEFS_GRAVELER_MAX_BATCH_DELAY", "0s")
# A server of one test ends before a thorough compilation of it has paid. The quick one alone would have 48 MB for its
# code, which the Spark server of a whole run fills, and then fails; it gets what Java has by default.
os.environ.setdefault("JDK_JAVA_OPTIONS", "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=240m -XX:+UseSerialGC")
_KEPT = ("HOME", "PATH", "PERAGO_CACHE_DIR", "PYTHONPATH", "JDK_JAVA_OPTIONS")


def bare_environment(**settings: str) -> dict[str, str]:
    """What a command needs of this process's environment, and no settings but those given."""
    return {name: os.environ[name] for name in _KEPT if name in os.environ} | {"COLUMNS": "200"} | settings


# Their fixtures start servers or workers that all of their tests share, so each stays in one test process.
_TOGETHER = {
    "tests/e2e/test_hostile_bodies.py",
    "tests/e2e/test_outages.py",
    "tests/integration/test_engines.py",
    "tests/integration/test_presigned.py",
    "tests/integration/test_spark_cluster.py",
    "tests/integration/test_spark_workspace.py",
}


class _Scheduling(LoadScopeScheduling):
    """The largest of these modules first, then every other test for itself."""

    def _split_scope(self, nodeid: str) -> str:
        module = nodeid.partition("::")[0]
        return module if module in _TOGETHER else nodeid


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> _Scheduling:
    return _Scheduling(config, log)


@dataclass(frozen=True)
class Servers:
    stack: DevStack
    environment: Mapping[str, str]

    @property
    def config(self) -> RuntimeConfig:
        return load_runtime_config(**{name: self.environment[variable] for name, variable in SETTINGS.items()})


@pytest.fixture(scope="session")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Servers:
    """Real lakeFS and Conductor. Without them a test fails, unless PERAGO_TEST_SERVERS=skip asks for less."""
    if os.environ.get("PERAGO_TEST_SERVERS") == "skip":
        pytest.skip("PERAGO_TEST_SERVERS=skip")
    stack = _stack_of(tmp_path_factory)
    stack.up(StackOptions())
    return Servers(stack, stack.environment())


@pytest.fixture(scope="session")
def spark_remote(servers: Servers) -> str:
    """The address of one Spark Connect server, started when the first test asks for it."""
    servers.stack.up(StackOptions(spark=True))
    return servers.stack.environment()["SPARK_REMOTE"]


def pytest_sessionfinish(session: pytest.Session) -> None:
    """The servers end with the run; its workers share them, so only the one that started the workers ends them."""
    if "PERAGO_TEST_STACK" not in os.environ and not hasattr(session.config, "workerinput"):
        _stack_of(session.config._tmp_path_factory).down()  # pyright: ignore[reportAttributeAccessIssue]


def _stack_of(factory: pytest.TempPathFactory) -> DevStack:
    kept = os.environ.get("PERAGO_TEST_STACK")
    base = factory.getbasetemp()
    shared = base.parent if "PYTEST_XDIST_WORKER" in os.environ else base
    return DevStack(DataFolder(Path(kept) if kept else shared / "stack"), Reporter())


@pytest.fixture(scope="session")
def lake(servers: Servers) -> LakeControl:
    return LakeControl(*servers.config.require_lakefs())


@pytest.fixture
def repository(lake: LakeControl) -> str:
    """An empty repository with branch main."""
    name = f"test-{uuid.uuid4().hex[:16]}"
    assert lake.ensure_repository(name, f"local://{name}")
    return name


Perago = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def perago(tmp_path: Path) -> Perago:
    """The installed command, run in a folder of its own with no settings but those given."""

    def run(*arguments: str | Path, env: Mapping[str, str] | None = None) -> subprocess.CompletedProcess[str]:
        command = Path(sys.executable).with_name("perago")
        return subprocess.run(
            [command, *arguments],
            cwd=tmp_path,
            env=bare_environment(**(env or {})),
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )

    return run
