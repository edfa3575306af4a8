"""The servers of the contract: the real ones and those in memory, behind the same words."""

import uuid
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from io import BytesIO
from itertools import repeat
from typing import BinaryIO, Protocol

import httpx
import pytest

from perago.attempt.ports import Lake
from perago.lake.control import LakeControl
from perago.lake.objects import LakeObjects, RemoteObject, Sink
from perago.protocol.publication import Commit
from tests.conftest import Servers
from tests.contract.delivery import Delivery, MemoryDelivery, RealDelivery
from tests.fakes.files import Received
from tests.fakes.lake import InMemoryLake


class Control(Lake, Protocol):
    def branches(self, repository: str, prefix: str) -> Iterator[str]: ...
    def ensure_repository(self, name: str, storage_namespace: str, default_branch: str = "main") -> bool: ...


class Objects(Protocol):
    def list(self, repository: str, ref: str, prefix: str) -> Iterator[RemoteObject]: ...
    def fetch(self, repository: str, ref: str, wanted: RemoteObject, sink: Sink) -> int: ...
    def store(self, repository: str, branch: str, path: str, content: Callable[[], BinaryIO], size: int) -> None: ...
    def delete(self, repository: str, branch: str, paths: Sequence[str]) -> None: ...


@dataclass(frozen=True)
class Repo:
    """One repository of one server, in the words of the tests."""

    control: Control
    objects: Objects
    name: str
    uploads_at_once: int = 1

    def put(self, branch: str, path: str, content: str = "x") -> None:
        sent = content.encode()
        self.objects.store(self.name, branch, path, lambda: BytesIO(sent), len(sent))

    def put_empty(self, branch: str, paths: Sequence[str]) -> None:
        with ThreadPoolExecutor(self.uploads_at_once) as pool:
            list(pool.map(self.put, repeat(branch), paths, repeat("")))

    def remove(self, branch: str, *paths: str) -> None:
        self.objects.delete(self.name, branch, paths)

    def paths(self, ref: str, prefix: str = "") -> list[str]:
        return [listed.path for listed in self.objects.list(self.name, ref, prefix)]

    def read(self, ref: str, path: str) -> str:
        sink = Received()
        self.objects.fetch(self.name, ref, RemoteObject(path, 0), sink)
        return sink.content.decode()

    def files(self, ref: str) -> dict[str, str]:
        return {path: self.read(ref, path) for path in self.paths(ref)}

    def commit(self, branch: str = "main", *, note: str = "") -> str:
        return self.control.commit(self.name, branch, "a commit", {"note": note})

    def commit_files(self, branch: str = "main", **contents: str) -> str:
        for path, content in contents.items():
            self.put(branch, path, content)
        return self.commit(branch)

    def staged(self, source: str, branch: str = "staging", *, remove: Sequence[str] = (), **contents: str) -> Commit:
        """A branch from `source` with one commit of changes."""
        self.control.create_branch(self.name, branch, source)
        self.remove(branch, *remove)
        return self.at(self.commit_files(branch, **contents))

    def merge(self, source: str, branch: str = "main") -> Commit:
        return self.at(self.control.merge(self.name, source, branch, "a merge", {"kind": "merge"}))

    def reset(self, ref: str, branch: str = "main") -> None:
        self.control.reset(self.name, branch, ref)

    def head(self, branch: str = "main") -> Commit:
        return self.control.head(self.name, branch)

    def at(self, ref: str) -> Commit:
        return self.control.commit_of(self.name, ref)


@pytest.fixture(params=["memory", "real"])
def repo(request: pytest.FixtureRequest) -> Repo:
    """An empty repository with branch main, on either server."""
    name = f"test-{uuid.uuid4().hex[:16]}"
    if request.param == "memory":
        lake = InMemoryLake()
        made = Repo(lake, lake, name)
    else:
        servers: Servers = request.getfixturevalue("servers")
        address = servers.config.require_lakefs()
        made = Repo(LakeControl(*address), LakeObjects(*address), name, uploads_at_once=16)
    assert made.control.ensure_repository(name, f"local://{name}")
    return made


class Deliver(Protocol):
    """Start a workflow of one task; whoever does not let attempts time out leaves the lease long."""

    def __call__(self, retries: int = 1, lease_seconds: int = 600) -> Delivery: ...


@pytest.fixture(params=["memory", "real"])
def deliver(request: pytest.FixtureRequest) -> Iterator[Deliver]:
    """Workflows on either Conductor."""
    if request.param == "memory":
        yield lambda retries=1, lease_seconds=600: MemoryDelivery(retries)
        return
    servers: Servers = request.getfixturevalue("servers")
    url = servers.config.require_conductor()
    with httpx.Client(base_url=url, timeout=30) as http:
        yield lambda retries=1, lease_seconds=600: RealDelivery(url, http, retries, lease_seconds)
