"""The stack as a whole: up, down and how it is."""

import os
import time
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from perago.addresses import http_address, masked, spark_address
from perago.devstack import processes, services
from perago.devstack.archives import with_archive
from perago.devstack.cache import Cache
from perago.devstack.errors import DevStackError
from perago.devstack.processes import LOOPBACK
from perago.devstack.progress import Reporter
from perago.devstack.provision import conductor_home, lakefs_binary, s3a_jars
from perago.devstack.state import Credentials, DataFolder, ServiceName, ServiceState

Health = Literal["healthy", "not answering", "crashed", "stopped", "unreachable"]
_TITLES: dict[ServiceName, str] = {"lakefs": "lakeFS", "conductor": "Conductor", "spark": "Spark Connect"}
_ALWAYS: tuple[ServiceName, ...] = ("lakefs", "conductor")
_FLAGS: dict[ServiceName, str] = {"conductor": "--conductor-url", "spark": "--spark-remote"}
_START_SECONDS = 120
_LETS_GO_SECONDS = 2.0
_LOG_TAIL = 5


@dataclass(frozen=True)
class StackOptions:
    """What a person may choose; None leaves the choice to the stack."""

    ports: dict[ServiceName, int] = field(default_factory=dict[ServiceName, int])
    lakefs_binary: Path | None = None
    conductor_url: str | None = None
    spark_remote: str | None = None
    spark: bool = False

    @property
    def external(self) -> dict[ServiceName, str]:
        given: dict[ServiceName, str | None] = {"conductor": self.conductor_url, "spark": self.spark_remote}
        return {name: url for name, url in given.items() if url}


@dataclass(frozen=True)
class ServiceReport:
    name: ServiceName
    title: str
    url: str
    health: Health
    pid: int | None
    log: Path


class DevStack:
    """Real local servers over one data folder."""

    def __init__(self, folder: DataFolder, reporter: Reporter, cache: Cache | None = None) -> None:
        self.folder = folder
        self._reporter = reporter
        self._cache = cache or Cache.of_user(reporter)

    def up(self, options: StackOptions) -> list[ServiceReport]:
        """Provision and start what does not run yet, and wait until all of it is healthy."""
        self.folder.create()
        with self.folder.lock():
            credentials = self.folder.ensure_credentials()
            recorded = self.folder.read().services
            for name, url in options.external.items():
                self._try_external(name, url, credentials)
            names: list[ServiceName] = [*_ALWAYS]
            if options.spark or options.spark_remote or "spark" in recorded:
                names.append("spark")
            for name in names:
                self._ensure_started(name, options, credentials)
            for name in names:
                self._wait_until_healthy(name, credentials)
        return self.status()

    def down(self) -> list[str]:
        """End the processes of this stack and no others; the data stays."""
        if not self.folder.path.exists():
            return []
        stopped: list[str] = []
        with self.folder.lock():
            state = self.folder.read()
            for name, service in reversed(list(state.services.items())):
                if service.external:
                    del state.services[name]
                elif service.process is not None:
                    if processes.find(service.process):
                        stopped.append(_TITLES[name])
                    processes.stop(service.process)
                    service.process = None
                self.folder.write(state)
        return stopped

    def status(self) -> list[ServiceReport]:
        """Each server with its health, asked now."""
        state = self.folder.read()
        if not state.services:
            return []
        credentials = self.folder.credentials()
        # An `up` that failed half-way has not come to all of them.
        known = dict.fromkeys(_ALWAYS, ServiceState(url="")) | state.services
        return [self._report(name, service, credentials) for name, service in known.items()]

    def environment(self) -> dict[str, str]:
        """The variables a worker needs to use this stack; an `up` or `down` under way is waited for."""
        with self.folder.lock() if self.folder.path.exists() else nullcontext():
            reports = self.status()
        unwell = [f"{report.title} is {report.health}" for report in reports if report.health != "healthy"]
        if not reports or unwell:
            raise DevStackError(f"the stack is not up ({'; '.join(unwell) or 'never started'}): run `perago dev up`")
        urls = {report.name: report.url for report in reports}
        credentials = self.folder.credentials()
        variables = {
            "CONDUCTOR_SERVER_URL": f"{urls['conductor'].removesuffix('/api')}/api",
            "LAKECTL_SERVER_ENDPOINT_URL": urls["lakefs"],
            "LAKECTL_CREDENTIALS_ACCESS_KEY_ID": credentials.lakefs_access_key_id,
            "LAKECTL_CREDENTIALS_SECRET_ACCESS_KEY": credentials.lakefs_secret_access_key.get_secret_value(),
        }
        return {**variables, "SPARK_REMOTE": urls["spark"]} if "spark" in urls else variables

    def _try_external(self, name: ServiceName, url: str, credentials: Credentials) -> None:
        """Before anything is started or kept: an address must be one, and a server answer there."""
        try:
            (spark_address if name == "spark" else http_address)(url)
        except ValueError as error:
            raise DevStackError(f"{_FLAGS[name]}: {error}") from None
        _require_answer(self._report(name, _external(url), credentials))

    def _ensure_started(self, name: ServiceName, options: StackOptions, credentials: Credentials) -> None:
        state = self.folder.read()
        service = state.services.get(name)
        external = options.external.get(name)
        if service is not None and _is_settled(service, external):
            _refuse_other_choice(name, service, options)
            return
        if external:
            state.services[name] = _external(external)
            self.folder.write(state)
            return
        if service is not None and service.process is not None:
            self._reporter.note(f"{_TITLES[name]} had crashed (log: {self.folder.log_of(name)}): starting it again")
        launch = self._launcher(name, options, credentials)
        port = self._port(name, service, options)
        url = f"sc://{LOOPBACK}:{port}" if name == "spark" else f"http://{LOOPBACK}:{port}"
        data = self.folder.path / name
        data.mkdir(exist_ok=True)
        ready = launch(data, port)
        started = processes.start(ready.command, ready.environment, self.folder.log_of(name), data)
        state.services[name] = ServiceState(url=url, port=port, process=started)
        self.folder.write(state)

    def _launcher(
        self, name: ServiceName, options: StackOptions, credentials: Credentials
    ) -> Callable[[Path, int], services.Launch]:
        """Provision first: a port is chosen only once the server can be started."""
        if name == "lakefs":
            binary = lakefs_binary(self._cache, options.lakefs_binary)
            return lambda data, port: services.lakefs_launch(binary, data, port, credentials)
        if name == "conductor":
            home = conductor_home(self._cache)
            return lambda data, port: with_archive(self._cache, services.conductor_launch(home, data, port))
        jars = s3a_jars(self._cache)
        return lambda data, port: with_archive(self._cache, services.spark_launch(jars, data, port))

    def _port(self, name: ServiceName, service: ServiceState | None, options: StackOptions) -> int:
        chosen = options.ports.get(name)
        if chosen is not None:
            if not processes.is_free(chosen):
                raise DevStackError(
                    f"port {chosen} is taken by {processes.holder_of(chosen)}:"
                    f" free it, or choose another with --{name}-port"
                )
            return chosen
        # The same address after a restart, so that exported variables stay true.
        if service is not None and service.port is not None and _becomes_free(service.port):
            return service.port
        return processes.free_port()

    def _wait_until_healthy(self, name: ServiceName, credentials: Credentials) -> None:
        deadline = time.monotonic() + _START_SECONDS
        with self._reporter.step(f"Waiting for {_TITLES[name]}") as advance:
            while True:
                report = self._report(name, self.folder.read().services[name], credentials)
                if report.health == "healthy":
                    return
                _require_answer(report)
                if report.health == "crashed" or time.monotonic() > deadline:
                    raise DevStackError(_not_started(report))
                time.sleep(0.1)
                advance(0)

    def _report(self, name: ServiceName, service: ServiceState, credentials: Credentials) -> ServiceReport:
        health = self._health(name, service, credentials)
        pid = service.process.pid if service.process and health in ("healthy", "not answering") else None
        return ServiceReport(name, _TITLES[name], service.url, health, pid, self.folder.log_of(name))

    def _health(self, name: ServiceName, service: ServiceState, credentials: Credentials) -> Health:
        if not service.external:
            if service.process is None:
                return "stopped"
            if processes.find(service.process) is None:
                return "crashed"
        answers = {
            "lakefs": lambda: services.lakefs_ready(service.url, credentials),
            "conductor": lambda: services.conductor_ready(service.url),
            "spark": lambda: services.spark_ready(service.url),
        }[name]()
        if answers:
            return "healthy"
        return "unreachable" if service.external else "not answering"


def _becomes_free(port: int) -> bool:
    """A server that was killed is told dead before the last of its threads has let go of its port."""
    deadline = time.monotonic() + _LETS_GO_SECONDS
    while not processes.is_free(port):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.01)
    return True


def _external(url: str) -> ServiceState:
    return ServiceState(url=url.rstrip("/"), external=True)


def _require_answer(report: ServiceReport) -> None:
    if report.health == "unreachable":
        raise DevStackError(
            f"{report.title} at {masked(report.url)} does not answer: start it, or name another with"
            f" {_FLAGS[report.name]}"
        )


def _is_settled(service: ServiceState, external: str | None) -> bool:
    """Whether nothing is left to start: it runs, or an earlier `up` named somebody else's server."""
    if service.external:
        return external is None
    return service.process is not None and processes.find(service.process) is not None


def _refuse_other_choice(name: ServiceName, service: ServiceState, options: StackOptions) -> None:
    port = options.ports.get(name)
    if (port is not None and port != service.port) or name in options.external:
        raise DevStackError(
            f"{_TITLES[name]} already runs at {masked(service.url)}: run `perago dev down` before choosing another"
            " address"
        )


def _not_started(report: ServiceReport) -> str:
    what = "ended while starting" if report.health == "crashed" else f"was not ready after {_START_SECONDS} s"
    try:
        tail = report.log.read_text(errors="replace").splitlines()[-_LOG_TAIL:]
    except OSError:
        tail = []
    told = os.linesep.join(f"  {line[:200]}" for line in tail)
    return (
        f"{report.title} {what}. `perago dev logs {report.name}` shows all of its log, `perago dev up` tries again,"
        f" `perago dev down` ends the rest. Its last lines:\n{told}"
    )
