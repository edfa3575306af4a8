"""The Conductor gateway: plain HTTP over one pooled session, its errors told apart by what can be done."""

import asyncio
import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import replace
from http import HTTPStatus
from types import TracebackType
from typing import Any, Self, cast
from urllib.parse import quote, urlencode
from urllib.request import getproxies, proxy_bypass

import aiohttp
from pydantic import SecretStr
from yarl import URL

from perago.addresses import masked
from perago.conductor.errors import Answer, ConductorError, error_of, is_retryable, told_in
from perago.conductor.tasks import PolledTask, TaskResult, attempt_of, lease_body, polled_task, result_body, return_body
from perago.conductor.workflows import WorkflowRun, workflow_run
from perago.protocol.attempt import Attempt

_CONNECT_SECONDS = 5
_ANSWER_SECONDS = 20.0
_JSON = {"Content-Type": "application/json"}


@asynccontextmanager
async def within(seconds: float) -> AsyncGenerator[None]:
    """Give up after so long on what Conductor is asked in the block, with its connection and its token."""
    try:
        async with asyncio.timeout(seconds):
            yield
    except TimeoutError as error:
        raise ConductorError(f"Conductor gave no answer in {seconds:.1f} s", retryable=True) from error


class ConductorClient:
    """Calls of one Conductor server, authenticated by key and secret where given."""

    def __init__(self, server_url: str, key: str | None = None, secret: SecretStr | None = None) -> None:
        self.server_url = _api_root(server_url)
        self._credentials = (key, secret) if key and secret else None
        self._token: str | None = None
        self._renewing = asyncio.Lock()

    async def __aenter__(self) -> Self:
        # Found once: with `trust_env` aiohttp looks for it in a thread at every request, for more than a request costs.
        self._session = aiohttp.ClientSession(proxy=_proxy_for(self.server_url))
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._session.close()

    async def get_taskdef(self, name: str) -> dict[str, Any] | None:
        """The registered TaskDef, or None when Conductor knows no such task."""
        try:
            return await self._read(f"/metadata/taskdefs/{_q(name)}")
        except ConductorError as error:
            if error.status == HTTPStatus.NOT_FOUND:
                return None
            raise

    async def put_taskdef(self, taskdef: dict[str, Any]) -> None:
        """Create the TaskDef or replace the one of the same name: Conductor's POST does both."""
        await self._call("POST", "/metadata/taskdefs", [taskdef])

    async def poll(self, task_name: str, worker_id: str, count: int, wait_seconds: float = 0) -> list[PolledTask]:
        """Take up to `count` tasks. Conductor waits for a *full* batch, so wait only for one."""
        query = {"workerid": worker_id, "count": count, "timeout": round(wait_seconds * 1000)}
        path = f"/tasks/poll/batch/{_q(task_name)}?{urlencode(query)}"
        found = cast("list[dict[str, Any]]", await self._read(path, wait_seconds + 15) or [])
        return [polled_task(task) for task in found]

    async def current(self, task_id: str) -> Attempt:
        """A task as Conductor has it now: the only truth, since updates of ended tasks are answered 200 too."""
        task = await self._read(f"/tasks/{_q(task_id)}")
        try:
            return attempt_of(task)
        except (KeyError, TypeError, AttributeError) as error:
            raise ConductorError(
                f"Conductor's answer for task {task_id} is not a task ({type(error).__name__}: {error})", retryable=True
            ) from error

    async def extend_lease(self, attempt: Attempt, worker_id: str) -> None:
        await self._call("POST", "/tasks", lease_body(attempt, worker_id))

    async def give_back(self, attempt: Attempt, worker_id: str) -> None:
        """Let the task be handed out again soon, as the same attempt: only its count of polls will have changed."""
        await self._call("POST", "/tasks", return_body(attempt, worker_id))

    async def report(self, attempt: Attempt, worker_id: str, result: TaskResult) -> None:
        await self._call("POST", "/tasks", result_body(attempt, worker_id, _readable(result)))

    async def put_workflow(self, definition: dict[str, Any]) -> None:
        await self._call("PUT", "/metadata/workflow", [definition])

    async def start_workflow(self, name: str, given: dict[str, Any]) -> str:
        return (await self._call("POST", f"/workflow/{_q(name)}", given)).text

    async def workflow(self, workflow_id: str) -> WorkflowRun:
        return workflow_run(await self._read(f"/workflow/{_q(workflow_id)}"))

    async def _read(self, path: str, limit: float = _ANSWER_SECONDS) -> Any:
        answer = await self._call("GET", path, limit=limit)
        try:
            return json.loads(answer.body)
        # A proxy's own page, a connection cut in a way HTTP does not show, or what is nested too deeply for Python.
        except (ValueError, RecursionError) as error:
            raise ConductorError(
                f"Conductor at {masked(self.server_url)} answered GET {path} with what is not JSON:"
                " check CONDUCTOR_SERVER_URL",
                status=answer.status,
                retryable=True,
            ) from error

    async def _call(self, method: str, path: str, payload: Any = None, limit: float = _ANSWER_SECONDS) -> Answer:
        """Send with the token where one is needed, and once more with a new one when the server no longer takes it."""
        token = self._token
        if self._credentials and token is None:
            token = await self._renewed(token)
        answer = await self._send(method, path, payload, limit, token)
        if self._credentials and answer.status == HTTPStatus.UNAUTHORIZED:
            answer = await self._send(method, path, payload, limit, await self._renewed(token))
        if not 200 <= answer.status < 300:  # a redirect has carried nothing out
            raise error_of(answer)
        return answer

    async def _renewed(self, used: str | None) -> str | None:
        """A token other than the one used; of many calls that need it at once, one gets it for all."""
        async with self._renewing:
            if self._credentials and self._token == used:
                self._token = await self._exchange(*self._credentials)
            return self._token

    async def _exchange(self, key: str, secret: SecretStr) -> str:
        answer = await self._send("POST", "/token", {"keyId": key, "keySecret": secret.get_secret_value()})
        token = told_in(answer).get("token") if answer.status == HTTPStatus.OK else None
        if not token:
            raise ConductorError(
                f"Conductor refused CONDUCTOR_AUTH_KEY and CONDUCTOR_AUTH_SECRET ({answer.status}):"
                " correct them, or unset both for a server without authentication",
                status=HTTPStatus.UNAUTHORIZED,  # whatever the token's own answer was, even a 404
                retryable=is_retryable(answer),
            )
        return str(token)

    async def _send(
        self, method: str, path: str, payload: Any = None, limit: float = _ANSWER_SECONDS, token: str | None = None
    ) -> Answer:
        headers = {"X-Authorization": token} if token else {}
        content = None
        if payload is not None:
            headers |= _JSON
            content = json.dumps(payload, allow_nan=False).encode()
        timeout = aiohttp.ClientTimeout(sock_connect=_CONNECT_SECONDS, sock_read=limit)
        try:
            url = URL(f"{self.server_url}{path}", encoded=True)
            sent = self._session.request(
                method, url, data=content, headers=headers, timeout=timeout, allow_redirects=False
            )
            async with sent as response:
                return Answer(method, url.path, response.status, response.reason or "", await response.read())
        except ValueError:  # it repeats the address, with the password that may be in it
            raise ConductorError("Conductor's address is not a URL: check CONDUCTOR_SERVER_URL") from None
        except (aiohttp.ClientError, TimeoutError) as error:
            told = masked(f"{type(error).__name__}: {error}")  # a proxy's refusal repeats its address
            raise ConductorError(
                f"Conductor at {masked(self.server_url)} cannot be reached ({told}):"
                " check CONDUCTOR_SERVER_URL, or start a local stack with `perago dev up`",
                retryable=True,
            ) from error


def _readable(result: TaskResult) -> TaskResult:
    """A reason may quote a file name that is not UTF-8, which no JSON can carry as it is."""
    reason = result.reason
    return result if reason is None else replace(result, reason=reason.encode(errors="replace").decode())


def _proxy_for(server_url: str) -> str | None:
    """A company's proxy is named in the environment."""
    try:
        server = URL(server_url)
    except ValueError:  # the first call says so
        return None
    return None if proxy_bypass(server.host or "") else getproxies().get(server.scheme)


def _q(part: str) -> str:
    return quote(part, safe="")


def _api_root(server_url: str) -> str:
    """Accept the address with and without `/api`, as people and SDKs write both."""
    root = server_url.rstrip("/")
    return root if root.endswith("/api") else f"{root}/api"
