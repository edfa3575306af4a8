"""One task of one workflow, delivered attempt by attempt: by the real Conductor and by the one in memory."""

import asyncio
import uuid
from collections.abc import Awaitable, Callable
from typing import Any, Protocol, TypeVar

import httpx

from perago.conductor.client import ConductorClient
from perago.conductor.tasks import ResultStatus, TaskResult
from perago.protocol.attempt import Attempt
from tests.e2e.worker import eventually
from tests.fakes.conductor import InMemoryConductor

Asked = TypeVar("Asked")
WORKER = "contract-test"
OWNER = {"ownerEmail": "data@example.com"}


class Delivery(Protocol):
    """What the tests ask of either server."""

    def poll(self, wait_seconds: float = 5) -> Attempt | None: ...
    def current(self, attempt: Attempt) -> Attempt: ...
    def report(self, attempt: Attempt, status: ResultStatus, ref: str | None = None) -> None: ...

    def extend(self, attempt: Attempt) -> None: ...
    def give_back(self, attempt: Attempt) -> None: ...

    def time_out(self) -> None:
        """Let the lease of the attempt that is out end."""
        ...

    def cancel(self) -> None:
        """Terminate the workflow while it runs."""
        ...

    def statuses(self) -> list[str]:
        """Those of all attempts, in the order of their making."""
        ...

    def completed_with(self) -> str | None: ...


class MemoryDelivery:
    def __init__(self, retries: int) -> None:
        self._conductor = InMemoryConductor.scheduling(retries)

    def poll(self, wait_seconds: float = 5) -> Attempt | None:
        before, self._conductor = self._conductor, self._conductor.polled()
        return None if self._conductor is before else self._conductor.newest

    def current(self, attempt: Attempt) -> Attempt:
        return self._conductor.current(attempt)

    def report(self, attempt: Attempt, status: ResultStatus, ref: str | None = None) -> None:
        self._conductor = self._conductor.reported(attempt, status, ref)

    def extend(self, attempt: Attempt) -> None:
        """Time is left out."""

    def give_back(self, attempt: Attempt) -> None:
        self._conductor = self._conductor.given_back(attempt)

    def time_out(self) -> None:
        self._conductor = self._conductor.timed_out()

    def cancel(self) -> None:
        self._conductor = self._conductor.cancelled()

    def statuses(self) -> list[str]:
        return [attempt.status for attempt in self._conductor.attempts]

    def completed_with(self) -> str | None:
        return self._conductor.completed_with


class RealDelivery:
    """A task with a queue of its own, asked through the worker's gateway; the rest over plain HTTP."""

    def __init__(self, url: str, http: httpx.Client, retries: int, lease_seconds: int) -> None:
        self._url, self._http = url, http
        self._name = f"contract.{uuid.uuid4().hex[:12]}"
        times = {"timeoutSeconds": 0, "responseTimeoutSeconds": lease_seconds, "timeoutPolicy": "RETRY"}
        taskdef = {"name": self._name, "retryCount": retries, "retryDelaySeconds": 0, **times, **OWNER}
        self._send("POST", "/metadata/taskdefs", json=[taskdef])
        work = {"name": self._name, "taskReferenceName": "work", "type": "SIMPLE"}
        workflow = {"name": self._name, "version": 1, "schemaVersion": 2, "tasks": [work], "timeoutSeconds": 0}
        self._send("PUT", "/metadata/workflow", json=[{**workflow, **OWNER}])
        self._workflow = self._send("POST", f"/workflow/{self._name}", json={}).text

    def poll(self, wait_seconds: float = 5) -> Attempt | None:
        found = self._ask(lambda conductor: conductor.poll(self._name, WORKER, 1, wait_seconds))
        return found[0].attempt if found else None

    def current(self, attempt: Attempt) -> Attempt:
        return self._ask(lambda conductor: conductor.current(attempt.task_id))

    def report(self, attempt: Attempt, status: ResultStatus, ref: str | None = None) -> None:
        result = TaskResult(status, {"ref": ref})
        self._ask(lambda conductor: conductor.report(attempt, WORKER, result))

    def extend(self, attempt: Attempt) -> None:
        self._ask(lambda conductor: conductor.extend_lease(attempt, WORKER))

    def give_back(self, attempt: Attempt) -> None:
        self._ask(lambda conductor: conductor.give_back(attempt, WORKER))

    def time_out(self) -> None:
        def is_noticed() -> bool:
            self._send("PUT", f"/workflow/decide/{self._workflow}")
            return "IN_PROGRESS" not in self.statuses()

        eventually(is_noticed, "Conductor times the attempt out")

    def cancel(self) -> None:
        self._send("DELETE", f"/workflow/{self._workflow}")

    def statuses(self) -> list[str]:
        return [task["status"] for task in self._tasks()]

    def completed_with(self) -> str | None:
        return next((task["outputData"]["ref"] for task in self._tasks() if task["status"] == "COMPLETED"), None)

    def _tasks(self) -> list[dict[str, Any]]:
        run = self._send("GET", f"/workflow/{self._workflow}").json()
        return sorted(run["tasks"], key=lambda task: task["retryCount"])

    def _ask(self, question: Callable[[ConductorClient], Awaitable[Asked]]) -> Asked:
        async def asked() -> Asked:
            async with ConductorClient(self._url) as conductor:
                return await question(conductor)

        return asyncio.run(asked())

    def _send(self, method: str, path: str, **options: Any) -> httpx.Response:
        answer = self._http.request(method, path, **options)
        assert answer.is_success, answer.text
        return answer
