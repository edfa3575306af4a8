"""A repository on the real lakeFS as an operator sees it, and attempts run against it."""

import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, BinaryIO, cast

import httpx
from pydantic import BaseModel

from perago.attempt.lifecycle import Completed, Execution, Failed, Servers, run_attempt
from perago.authoring.controls import TaskControls
from perago.authoring.task import TaskDefinition, definition_of, task
from perago.authoring.workspace import WorkspaceSpec
from perago.data.spark_files import SparkFiles
from perago.data.spark_session import AttemptSession
from perago.data.workspace import DirectoryFiles
from perago.lake.control import LakeControl
from perago.lake.objects import LakeObjects
from perago.protocol.attempt import Attempt
from perago.protocol.publication import Commit
from tests import conftest

ATTEMPT = Attempt(
    workflow_instance_id="wf-1",
    task_id="t-1",
    retry_count=2,
    reference_task_name="build_ref",
    seq=5,
    iteration=3,
    status="IN_PROGRESS",
)
FEATURES = WorkspaceSpec(prefix="/features")


class Params(BaseModel):
    limit: int = 1


class Result(BaseModel):
    score: float = 0.0


Body = Callable[[Path], object]


def task_of(body: Body, spec: WorkspaceSpec = FEATURES, controls: TaskControls | None = None) -> TaskDefinition:
    """A task whose body is `body`; what it returns, if anything, is the task's result."""

    @task(name="features.build", owner_email="data@example.com", workspace=spec, controls=controls)
    def run(workspace: Path, params: Params) -> Result:
        returned = body(workspace)
        return Result() if returned is None else cast("Result", returned)

    definition = definition_of(run)
    assert definition is not None
    return definition


class Conductor:
    """Answers each question with the attempt altered as told, or with an error; the last answer stays."""

    def __init__(self, *answers: Mapping[str, Any] | Exception) -> None:
        self._answers = list(answers) or [{}]
        self.asked = 0

    def current(self, attempt: Attempt) -> Attempt:
        self.asked += 1
        answer = self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]
        if isinstance(answer, Exception):
            raise answer
        return replace(attempt, **answer)


Meddling = Mapping[str, Callable[[], object]]


class WatchedLake(LakeControl):
    """The real control calls, written down by name; what is given for a name happens just before or after it."""

    def __init__(self, servers: conftest.Servers, before: Meddling | None = None, after: Meddling | None = None):
        super().__init__(*servers.config.require_lakefs())
        self._before, self._after = before or {}, after or {}
        self.calls: list[str] = []

    def _around(self, name: str, call: Callable[[], Any]) -> Any:
        self.calls.append(name)
        self._before.get(name, lambda: None)()
        answer = call()
        self._after.get(name, lambda: None)()
        return answer

    def head(self, repository: str, branch: str) -> Commit:
        return self._around("head", lambda: LakeControl.head(self, repository, branch))

    def create_branch(self, repository: str, name: str, source: str) -> None:
        self._around("create_branch", lambda: LakeControl.create_branch(self, repository, name, source))

    def delete_branch(self, repository: str, name: str) -> None:
        self._around("delete_branch", lambda: LakeControl.delete_branch(self, repository, name))

    def commit(self, repository: str, branch: str, message: str, metadata: Mapping[str, str]) -> str:
        return self._around("commit", lambda: LakeControl.commit(self, repository, branch, message, metadata))

    def merge(
        self,
        repository: str,
        source: str,
        branch: str,
        message: str,
        metadata: Mapping[str, str],
        timeout: float | None = None,
    ) -> str:
        return self._around(
            "merge", lambda: LakeControl.merge(self, repository, source, branch, message, metadata, timeout)
        )

    def reset(self, repository: str, branch: str, ref: str, timeout: float | None = None) -> None:
        self._around("reset", lambda: LakeControl.reset(self, repository, branch, ref, timeout))


class WatchedObjects(LakeObjects):
    """The real object calls, with what they sent and deleted written down.

    `meddle` is called with the moment of an upload and its object: `before`, `during` (some was read) or `after`.
    """

    def __init__(self, servers: conftest.Servers, meddle: Callable[[str, str], object] = lambda moment, path: None):
        super().__init__(*servers.config.require_lakefs())
        self._meddle = meddle
        self.fetched: list[str] = []
        self.stored: list[str] = []
        self.deleted: list[str] = []

    def fetch(self, repository: str, ref: str, wanted: Any, sink: Any) -> int:
        self.fetched.append(wanted.path)
        return super().fetch(repository, ref, wanted, sink)

    def store(self, repository: str, branch: str, path: str, content: Callable[[], BinaryIO], size: int) -> None:
        self.stored.append(path)
        self._meddle("before", path)
        super().store(repository, branch, path, lambda: self._meddled(content(), path), size)
        self._meddle("after", path)

    def delete(self, repository: str, branch: str, paths: Sequence[str]) -> None:
        self.deleted.extend(paths)
        super().delete(repository, branch, paths)

    def _meddled(self, file: BinaryIO, path: str) -> BinaryIO:
        read, meddle = file.read, self._meddle

        class Slow:
            """Reads a byte, lets the world change, and reads on."""

            begun = False

            def read(self, size: int) -> bytes:
                if self.begun:
                    return read(size)
                self.begun = True
                chunk = read(1)
                meddle("during", path)
                return chunk

            def __enter__(self) -> "Slow":
                return self

            def __exit__(self, *_: object) -> None:
                file.close()

        return cast("BinaryIO", Slow())


@dataclass(frozen=True)
class Site:
    """One repository, seen through plain HTTP, and the workspace root of a worker beside it."""

    servers: conftest.Servers
    repository: str
    root: Path
    http: httpx.Client = field(repr=False)

    @classmethod
    def at(cls, servers: conftest.Servers, repository: str, root: Path) -> "Site":
        endpoint, key, secret = servers.config.require_lakefs()
        client = httpx.Client(
            base_url=f"{endpoint.rstrip('/').removesuffix('/api/v1')}/api/v1/repositories/{repository}",
            auth=(key, secret.get_secret_value()),
            verify=False,  # it is on loopback, and reading the system's certificates takes longer than a test's calls
        )
        return cls(servers, repository, root, client)

    def ask(self, method: str, path: str, **options: Any) -> Any:
        answer = self.http.request(method, path, **options)
        assert answer.is_success, f"{method} {path}: {answer.status_code} {answer.text}"
        return answer.json() if "json" in answer.headers.get("content-type", "") else answer.text

    def put(self, path: str, content: bytes, branch: str = "main") -> None:
        self.ask("POST", f"/branches/{branch}/objects", params={"path": path}, content=content)

    def commit(self, files: Mapping[str, bytes], branch: str = "main", delete: Sequence[str] = ()) -> str:
        """Change some objects of a branch as anybody could; gives the commit."""
        for path, content in files.items():
            self.put(path, content, branch)
        if delete:
            self.ask("POST", f"/branches/{branch}/objects/delete", json={"paths": list(delete)})
        return self.ask("POST", f"/branches/{branch}/commits", json={"message": "by hand"})["id"]

    def branch(self, name: str, source: str) -> None:
        self.ask("POST", "/branches", json={"name": name, "source": source})

    def reset(self, branch: str, ref: str) -> None:
        self.ask("PUT", f"/branches/{branch}/hard_reset", params={"ref": ref})

    def protect(self, pattern: str) -> None:
        """Protect branches; only before the first write, since lakeFS keeps the rules in a cache."""
        self.ask("PUT", "/settings/branch_protection", json=[{"pattern": pattern}])

    def head(self, branch: str = "main") -> str:
        return self.ask("GET", f"/branches/{branch}")["commit_id"]

    def commit_info(self, ref: str) -> Any:
        return self.ask("GET", f"/commits/{ref}")

    def history(self, ref: str = "main") -> list[str]:
        """The commits behind a ref, newest first."""
        return [commit["id"] for commit in self.commits(ref)]

    def commits(self, ref: str = "main") -> list[dict[str, Any]]:
        return self.ask("GET", f"/refs/{ref}/commits", params={"amount": 100})["results"]

    def tree(self, ref: str = "main", prefix: str = "") -> dict[str, bytes]:
        """Every object below a prefix with its content."""
        return {path: self._content(ref, path) for path in self._listed(ref, prefix)}

    def staging_branches(self) -> list[str]:
        lake = LakeControl(*self.servers.config.require_lakefs())
        return list(lake.branches(self.repository, "perago-staging-"))

    def leftovers(self) -> list[str]:
        """What an attempt should have cleaned: staging branches and directories."""
        return [*self.staging_branches(), *self.directories()]

    def directories(self) -> list[str]:
        return sorted(entry.name for entry in self.root.iterdir()) if self.root.exists() else []

    def payload(self, ref: str | None = None, branch: str = "main") -> dict[str, Any]:
        workspace = {"repository": self.repository, "branch": branch, "ref_type": "commit", "ref": ref or self.head()}
        return {"workspace": workspace, "params": {}}

    def run(
        self,
        definition: TaskDefinition,
        ref: str | None = None,
        *,
        payload: Mapping[str, Any] | None = None,
        attempt: Attempt = ATTEMPT,
        execution_id: str | None = None,
        conductor: Conductor | None = None,
        lake: LakeControl | None = None,
        objects: LakeObjects | None = None,
        reason_length: int = 500,
        spark: str | None = None,
    ) -> Completed | Failed:
        """Run one attempt that began at `ref`, by default the head of main."""
        address = self.servers.config.require_lakefs()
        store = objects or LakeObjects(*address)
        execution = execution_id or uuid.uuid4().hex
        session = AttemptSession(lambda: str(spark), execution, address)
        return run_attempt(
            Execution(definition, attempt, execution, payload or self.payload(ref)),
            Servers(
                conductor or Conductor(),
                lake or LakeControl(*address),
                DirectoryFiles(store),
                spark=SparkFiles(session, store) if spark is not None else None,
            ),
            self.root,
            reason_length,
        )

    def publish(self, body: Body, ref: str | None = None, spec: WorkspaceSpec = FEATURES) -> str:
        """Run an attempt that must succeed; gives the ref of its output."""
        return output_ref(self.run(task_of(body, spec), ref))

    def _listed(self, ref: str, prefix: str) -> Iterator[str]:
        after = ""
        while True:
            asked = {"prefix": prefix, "after": after, "amount": "1000"}
            page = self.ask("GET", f"/refs/{ref}/objects/ls", params=asked)
            yield from (entry["path"] for entry in page["results"])
            if not page["pagination"]["has_more"]:
                return
            after = page["pagination"]["next_offset"]

    def _content(self, ref: str, path: str) -> bytes:
        answer = self.http.get(f"/refs/{ref}/objects", params={"path": path})
        assert answer.is_success, f"{path!r}: {answer.status_code} {answer.text}"
        return answer.content


def output_ref(outcome: Completed | Failed) -> str:
    assert isinstance(outcome, Completed), outcome
    return outcome.output["workspace"]["ref"]


def failed(outcome: Completed | Failed) -> Failed:
    assert isinstance(outcome, Failed), outcome
    return outcome


def nothing(workspace: Path) -> None:
    """A body that changes nothing."""


def writing(path: str, content: bytes = b"new") -> Body:
    """A body that writes one file."""

    def body(workspace: Path) -> None:
        target = workspace / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(content)

    return body


def raising(error: BaseException) -> Callable[..., Any]:
    def anything(*_: object) -> Any:
        raise error

    return anything
