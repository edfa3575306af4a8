"""The Conductor gateway: plain HTTP over one pooled client, its errors told apart by what can be done."""

from collections.abc import Generator
from dataclasses import replace
from http import HTTPStatus
from types import TracebackType
from typing import Any, Self, cast

import httpx
from pydantic import SecretStr

from perago.conductor.errors import ConductorError, error_of, is_retryable, told_in
from perago.conductor.tasks import PolledTask, TaskResult, attempt_of, lease_body, polled_task, result_body
from perago.conductor.workflows import WorkflowRun, workflow_run
from perago.protocol.attempt import Attempt

_TIMEOUT = httpx.Timeout(20, connect=5)


class ConductorClient:
    """Calls of one Conductor server, authenticated by key and secret where given."""

    def __init__(self, server_url: str, key: str | None = None, secret: SecretStr | None = None) -> None:
        self.server_url = _api_root(server_url)
        self._http = httpx.AsyncClient(
            base_url=self.server_url,
            timeout=_TIMEOUT,
            auth=_KeyAuth(self.server_url, key, secret) if key and secret else None,
        )

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._http.aclose()

    async def get_taskdef(self, name: str) -> dict[str, Any] | None:
        """The registered TaskDef, or None when Conductor knows no such task."""
        try:
            return await self._read(f"/metadata/taskdefs/{name}")
        except ConductorError as error:
            if error.status == HTTPStatus.NOT_FOUND:
                return None
            raise

    async def put_taskdef(self, taskdef: dict[str, Any]) -> None:
        """Create the TaskDef or replace the one of the same name: Conductor's POST does both."""
        await self._call("POST", "/metadata/taskdefs", json=[taskdef])

    async def poll(self, task_name: str, worker_id: str, count: int, wait_seconds: float = 0) -> list[PolledTask]:
        """Take up to `count` tasks. Conductor waits for a *full* batch, so wait only for one."""
        query = {"workerid": worker_id, "count": count, "timeout": round(wait_seconds * 1000)}
        limit = httpx.Timeout(_TIMEOUT.read or 20, connect=_TIMEOUT.connect, read=wait_seconds + 15)
        found = cast("list[dict[str, Any]]", await self._read(f"/tasks/poll/batch/{task_name}", query, limit) or [])
        return [polled_task(task) for task in found]

    async def current(self, task_id: str) -> Attempt:
        """A task as Conductor has it now: the only truth, since updates of ended tasks are answered 200 too."""
        task = await self._read(f"/tasks/{task_id}")
        try:
            return attempt_of(task)
        except (KeyError, TypeError, AttributeError) as error:
            raise ConductorError(
                f"Conductor's answer for task {task_id} is not a task ({type(error).__name__}: {error})", retryable=True
            ) from error

    async def extend_lease(self, attempt: Attempt, worker_id: str) -> None:
        await self._call("POST", "/tasks", json=lease_body(attempt, worker_id))

    async def report(self, attempt: Attempt, worker_id: str, result: TaskResult) -> None:
        await self._call("POST", "/tasks", json=result_body(attempt, worker_id, _readable(result)))

    async def put_workflow(self, definition: dict[str, Any]) -> None:
        await self._call("PUT", "/metadata/workflow", json=[definition])

    async def start_workflow(self, name: str, given: dict[str, Any]) -> str:
        return (await self._call("POST", f"/workflow/{name}", json=given)).text

    async def workflow(self, workflow_id: str) -> WorkflowRun:
        return workflow_run(await self._read(f"/workflow/{workflow_id}"))

    async def _read(self, path: str, query: dict[str, Any] | None = None, limit: httpx.Timeout = _TIMEOUT) -> Any:
        answer = await self._call("GET", path, params=query, timeout=limit)
        try:
            return answer.json()
        except ValueError as error:  # a proxy's own page, or a connection cut in a way HTTP does not show
            raise ConductorError(
                f"Conductor at {self.server_url} answered GET {path} with what is not JSON: check CONDUCTOR_SERVER_URL",
                status=answer.status_code,
                retryable=True,
            ) from error

    async def _call(self, method: str, path: str, **content: Any) -> httpx.Response:
        try:
            response = await self._http.request(method, path, **content)
        except httpx.HTTPError as error:
            raise ConductorError(
                f"Conductor at {self.server_url} cannot be reached ({type(error).__name__}: {error}):"
                " check CONDUCTOR_SERVER_URL, or start a local stack with `perago dev up`",
                retryable=True,
            ) from error
        except httpx.InvalidURL as error:
            raise ConductorError(f"CONDUCTOR_SERVER_URL {self.server_url!r} is not a URL: {error}") from error
        if response.is_error:
            raise error_of(response)
        return response


def _readable(result: TaskResult) -> TaskResult:
    """A reason may quote a file name that is not UTF-8, which no JSON can carry as it is."""
    reason = result.reason
    return result if reason is None else replace(result, reason=reason.encode(errors="replace").decode())


class _KeyAuth(httpx.Auth):
    """Exchange key and secret for a token, and once more when the server no longer takes it."""

    requires_response_body = True

    def __init__(self, server_url: str, key: str, secret: SecretStr) -> None:
        self._url = f"{server_url}/token"
        self._key = key
        self._secret = secret
        self._token: str | None = None

    def auth_flow(self, request: httpx.Request) -> Generator[httpx.Request, httpx.Response]:
        if self._token is None:
            yield from self._exchange()
        request.headers["X-Authorization"] = self._token or ""
        response = yield request
        if response.status_code == HTTPStatus.UNAUTHORIZED:
            yield from self._exchange()
            request.headers["X-Authorization"] = self._token or ""
            yield request

    def _exchange(self) -> Generator[httpx.Request, httpx.Response]:
        answer = yield httpx.Request(
            "POST", self._url, json={"keyId": self._key, "keySecret": self._secret.get_secret_value()}
        )
        token = _token_in(answer)
        if token is None:
            raise ConductorError(
                f"Conductor refused CONDUCTOR_AUTH_KEY and CONDUCTOR_AUTH_SECRET ({answer.status_code}):"
                " correct them, or unset both for a server without authentication",
                status=HTTPStatus.UNAUTHORIZED,  # whatever the token's own answer was, even a 404
                retryable=is_retryable(answer),
            )
        self._token = token


def _token_in(answer: httpx.Response) -> str | None:
    told = told_in(answer) if answer.is_success else {}
    return str(told["token"]) if told.get("token") else None


def _api_root(server_url: str) -> str:
    """Accept the address with and without `/api`, as people and SDKs write both."""
    root = server_url.rstrip("/")
    return root if root.endswith("/api") else f"{root}/api"
