"""The gateway on a real Conductor, and what it makes of answers only a broken network gives."""

import asyncio
import base64
import json
import time
import uuid
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar

import httpx
import pytest
from pydantic import SecretStr

from perago.conductor.client import ConductorClient
from perago.conductor.errors import Answer, ConductorError
from perago.conductor.tasks import PolledTask, TaskResult
from perago.protocol.attempt import Attempt
from perago.worker.metrics import Metrics
from perago.worker.results import Results
from perago.worker.slot import Running
from tests.conftest import Servers

Asked = TypeVar("Asked")
WORKER = "gateway-test"
LEASE_SECONDS = 3
DONE = TaskResult("COMPLETED", {"result": {"score": 1.5}})


class Queue:
    """One task with a queue of its own, and workflows that fill it."""

    def __init__(
        self,
        url: str,
        http: httpx.Client,
        *,
        optional: bool = False,
        step: dict[str, Any] | None = None,
        **controls: Any,
    ) -> None:
        self._url, self._http = url, http
        self.name = f"gateway.{uuid.uuid4().hex[:12]}"
        taskdef = {"name": self.name, "ownerEmail": "data@example.com", "retryCount": 1, "retryDelaySeconds": 0}
        times = {"timeoutSeconds": 0, "responseTimeoutSeconds": LEASE_SECONDS, "timeoutPolicy": "RETRY"}
        self._send("POST", "/metadata/taskdefs", json=[{**taskdef, **times, **controls}])
        given = {"inputParameters": {"params": "${workflow.input}"}}
        work = {"name": self.name, "taskReferenceName": "work", "type": "SIMPLE", **given, **(step or {})}
        steps = [{**work, "optional": True}, {**work, "taskReferenceName": "after"}] if optional else [work]
        workflow = {"name": self.name, "version": 1, "schemaVersion": 2, "tasks": steps, "timeoutSeconds": 0}
        self._send("PUT", "/metadata/workflow", json=[{**workflow, "ownerEmail": "data@example.com"}])

    def start(self, **given: Any) -> str:
        return self._send("POST", f"/workflow/{self.name}", json=given).text

    def decide(self, workflow_id: str) -> None:
        self._send("PUT", f"/workflow/decide/{workflow_id}")

    def workflow(self, workflow_id: str) -> dict[str, Any]:
        return self._send("GET", f"/workflow/{workflow_id}").json()

    def ask(self, question: Callable[[ConductorClient], Awaitable[Asked]]) -> Asked:
        async def asked() -> Asked:
            async with ConductorClient(self._url) as conductor:
                return await question(conductor)

        return asyncio.run(asked())

    def polled(self, count: int = 1, wait_seconds: float = 5) -> list[PolledTask]:
        return self.ask(lambda conductor: conductor.poll(self.name, WORKER, count, wait_seconds))

    def one(self, **given: Any) -> PolledTask:
        self.start(**given)
        (task,) = self.polled()
        return task

    def _send(self, method: str, path: str, **options: Any) -> httpx.Response:
        answer = self._http.request(method, path, **options)
        assert answer.is_success, answer.text
        return answer


@pytest.fixture
def new_queue(servers: Servers) -> Iterator[Callable[..., Queue]]:
    url = servers.config.require_conductor()
    with httpx.Client(base_url=url, timeout=30) as http:
        yield partial(Queue, url, http)


@pytest.fixture
def queue(new_queue: Callable[..., Queue]) -> Queue:
    return new_queue()


def test_an_empty_queue_gives_nothing_at_once(queue: Queue) -> None:
    assert queue.polled(count=4, wait_seconds=0) == []


def test_a_polled_task_is_the_attempt_its_input_and_its_lease(queue: Queue) -> None:
    workflow_id = queue.start(limit=3)

    (task,) = queue.polled()

    assert task.payload == {"params": {"limit": 3}}
    assert task.lease_seconds == LEASE_SECONDS
    assert task.attempt.workflow_instance_id == workflow_id
    assert (task.attempt.retry_count, task.attempt.reference_task_name) == (0, "work")
    assert (task.attempt.status, task.attempt.worker_id) == ("IN_PROGRESS", WORKER)
    assert task.attempt.scheduled_time


@pytest.mark.parametrize(
    ("controls", "may_wait"),
    [
        ({"responseTimeoutSeconds": 10}, True),
        ({"responseTimeoutSeconds": 9}, False),
        ({"responseTimeoutSeconds": 60, "retryCount": 0}, False),
        ({"responseTimeoutSeconds": 60, "retryCount": 3, "step": {"retryCount": 0}}, False),
        ({"responseTimeoutSeconds": 60, "retryCount": 0, "step": {"retryCount": 3}}, True),
        ({"responseTimeoutSeconds": 60, "timeoutSeconds": 60}, False),
        ({"responseTimeoutSeconds": 60, "totalTimeoutSeconds": 60}, False),
        ({"responseTimeoutSeconds": 60, "pollTimeoutSeconds": 60}, False),
        ({"responseTimeoutSeconds": 60, "concurrentExecLimit": 8}, False),
        ({"responseTimeoutSeconds": 60, "rateLimitPerFrequency": 8, "rateLimitFrequencyInSeconds": 1}, False),
    ],
)
def test_a_polled_task_may_wait_where_nothing_else_counts_against_it_meanwhile(
    new_queue: Callable[..., Queue], controls: dict[str, Any], may_wait: bool
) -> None:
    assert new_queue(**controls).one().may_wait is may_wait


def test_a_failure_that_its_workflow_allows_for_has_another_name_and_was_accepted(
    new_queue: Callable[..., Queue],
) -> None:
    queue = new_queue(optional=True, retryCount=0)
    running = Running(queue.one(), "e-1")
    metrics = Metrics(queue.name)
    failed = TaskResult("FAILED", {}, "no rows")

    async def told(conductor: ConductorClient) -> Attempt:
        results = Results(conductor, WORKER, metrics, 60, jobs=1)
        assert await results.tell(running, failed, look_first=True)
        await results.read_back(running, failed, asyncio.Lock())
        return await conductor.current(running.task.attempt.task_id)

    assert queue.ask(told).status == "COMPLETED_WITH_ERRORS"
    assert metrics.registry.get_sample_value("perago_attempts_total", {"task": queue.name, "outcome": "FAILED"}) == 1


def test_the_clock_of_a_task_that_may_not_wait_runs_on_when_it_is_given_back(new_queue: Callable[..., Queue]) -> None:
    queue = new_queue(timeoutSeconds=2, responseTimeoutSeconds=2)
    task = queue.one()

    queue.ask(lambda conductor: conductor.give_back(task.attempt, WORKER))

    timed_out(queue, task)


def test_a_task_given_back_is_handed_out_again_but_not_before_conductor_has_written_that_down(queue: Queue) -> None:
    first = queue.one().attempt

    queue.ask(lambda conductor: conductor.give_back(first, WORKER))

    assert queue.polled(wait_seconds=0) == []
    (again,) = queue.polled()
    assert again.attempt == replace(first, poll_count=2)


def test_the_task_read_back_is_the_task_polled(queue: Queue) -> None:
    attempt = queue.one().attempt

    assert queue.ask(lambda conductor: conductor.current(attempt.task_id)) == attempt


def test_a_batch_takes_what_is_there_and_the_next_poll_drains_the_rest(queue: Queue) -> None:
    started = {queue.start(number=number) for number in range(3)}

    first = queue.polled(count=2)
    rest = queue.polled(count=5, wait_seconds=1)

    assert (len(first), len(rest)) == (2, 1)
    assert {task.attempt.workflow_instance_id for task in first + rest} == started
    assert queue.polled(count=5, wait_seconds=0) == []


def test_a_result_completes_the_workflow(queue: Queue) -> None:
    attempt = queue.one().attempt

    queue.ask(lambda conductor: conductor.report(attempt, WORKER, DONE))

    run = queue.workflow(attempt.workflow_instance_id)
    assert (run["status"], run["tasks"][0]["outputData"]) == ("COMPLETED", DONE.output)
    assert queue.ask(lambda conductor: conductor.current(attempt.task_id)).status == "COMPLETED"


def test_a_failed_attempt_is_delivered_again_as_another_task(queue: Queue) -> None:
    attempt = queue.one().attempt

    queue.ask(lambda conductor: conductor.report(attempt, WORKER, TaskResult("FAILED", {}, "not today")))
    (again,) = queue.polled()

    assert (again.attempt.retry_count, again.attempt.workflow_instance_id) == (1, attempt.workflow_instance_id)
    assert again.attempt.task_id != attempt.task_id
    assert queue.workflow(attempt.workflow_instance_id)["tasks"][0]["reasonForIncompletion"] == "not today"


def test_a_terminal_failure_ends_the_workflow_with_its_reason(queue: Queue) -> None:
    attempt = queue.one().attempt
    never = TaskResult("FAILED_WITH_TERMINAL_ERROR", {}, "no retry can help")

    queue.ask(lambda conductor: conductor.report(attempt, WORKER, never))

    run = queue.workflow(attempt.workflow_instance_id)
    assert (run["status"], len(run["tasks"])) == ("FAILED", 1)
    assert "no retry can help" in run["reasonForIncompletion"]
    assert queue.ask(lambda conductor: conductor.current(attempt.task_id)).status == "FAILED_WITH_TERMINAL_ERROR"


def test_an_extended_lease_outlives_the_response_timeout(queue: Queue) -> None:
    attempt = queue.one().attempt
    end = time.monotonic() + 2 * LEASE_SECONDS

    while time.monotonic() < end:
        queue.ask(lambda conductor: conductor.extend_lease(attempt, WORKER))
        queue.decide(attempt.workflow_instance_id)
        time.sleep(0.3)

    assert queue.ask(lambda conductor: conductor.current(attempt.task_id)) == attempt
    queue.ask(lambda conductor: conductor.report(attempt, WORKER, DONE))
    assert queue.workflow(attempt.workflow_instance_id)["status"] == "COMPLETED"


def test_a_late_result_is_taken_without_an_error_and_dropped(queue: Queue) -> None:
    attempt = timed_out(queue).attempt

    queue.ask(lambda conductor: conductor.report(attempt, WORKER, DONE))

    assert queue.ask(lambda conductor: conductor.current(attempt.task_id)).status == "TIMED_OUT"
    assert queue.workflow(attempt.workflow_instance_id)["status"] == "RUNNING"


def test_a_late_heartbeat_is_taken_without_an_error_and_revives_nothing(queue: Queue) -> None:
    attempt = timed_out(queue).attempt

    queue.ask(lambda conductor: conductor.extend_lease(attempt, WORKER))

    assert queue.ask(lambda conductor: conductor.current(attempt.task_id)).status == "TIMED_OUT"


def test_an_unknown_task_is_a_final_404_that_names_it(queue: Queue) -> None:
    with pytest.raises(ConductorError, match="no-such-task") as refused:
        queue.ask(lambda conductor: conductor.current("no-such-task"))

    assert (refused.value.status, refused.value.retryable) == (404, False)


def test_a_result_for_a_workflow_conductor_does_not_know_is_final(queue: Queue) -> None:
    attempt = replace(queue.one().attempt, workflow_instance_id="no-such-workflow")

    with pytest.raises(ConductorError, match="no-such-workflow") as refused:
        queue.ask(lambda conductor: conductor.report(attempt, WORKER, DONE))

    assert (refused.value.status, refused.value.retryable) == (404, False)


def timed_out(queue: Queue, task: PolledTask | None = None) -> PolledTask:
    """A task that nobody has to do with any more, once Conductor has noticed."""
    task = task or queue.one()
    deadline = time.monotonic() + 60
    while queue.ask(lambda conductor: conductor.current(task.attempt.task_id)).status != "TIMED_OUT":
        assert time.monotonic() < deadline, "Conductor never timed the task out"
        time.sleep(0.3)
        queue.decide(task.attempt.workflow_instance_id)
    return task


# What a real server does not give when asked to


Answers = Callable[[httpx.Request], httpx.Response]


def with_answers(answers: Answers, key: str | None = None, secret: str | None = None) -> ConductorClient:
    client = ConductorClient("http://conductor.test", key, SecretStr(secret) if secret else None)

    async def send(method: str, path: str, payload: Any = None, limit: float = 0, token: str | None = None) -> Answer:
        await asyncio.sleep(0)  # others may go on meanwhile, as on a real connection
        headers = {"X-Authorization": token} if token else {}
        answered = answers(httpx.Request(method, f"{client.server_url}{path}", headers=headers, json=payload))
        return Answer(method, f"/api{path}", answered.status_code, answered.reason_phrase, answered.content)

    client._send = send
    return client


def read_task(client: ConductorClient) -> None:
    async def asked() -> None:
        async with client:
            await client.current("t-1")

    asyncio.run(asked())


IDS = {"workflowInstanceId": "w-1", "taskId": "t-1", "retryCount": 0, "referenceTaskName": "work"}
TASK = {**IDS, "seq": 1, "iteration": 0, "status": "IN_PROGRESS"}
HTML = {"text": "<html>", "headers": {"content-type": "text/html"}}


@pytest.mark.parametrize(
    ("status", "body", "retryable"),
    [
        (502, HTML, True),
        (503, HTML, True),
        (504, {"json": {"message": "late"}}, True),
        (500, {"json": {"message": "locked", "retryable": True}}, True),
        (500, {"json": {"message": "NaN", "retryable": False}}, False),
        (500, {"json": {"message": "untold"}}, False),
        (500, HTML, False),
        (500, {"json": ["not", "an", "object"]}, False),
        (500, {"json": {"message": None, "retryable": "true"}}, False),
        (400, {"json": {"message": "wrong", "retryable": False}}, False),
        (404, {"json": {"message": "none"}}, False),
        (409, {"text": ""}, False),
    ],
)
def test_only_gateway_trouble_and_what_conductor_calls_retryable_is_tried_again(
    status: int, body: dict[str, Any], retryable: bool
) -> None:
    with pytest.raises(ConductorError, match=f"answered {status} to GET /api/tasks/t-1") as refused:
        read_task(with_answers(lambda _: httpx.Response(status, **body)))

    assert (refused.value.status, refused.value.retryable) == (status, retryable)


def test_every_validation_error_is_told() -> None:
    told = {"message": "Invalid", "validationErrors": [{"message": "name is empty"}, {"message": "seq is odd"}]}

    with pytest.raises(ConductorError, match="name is empty; seq is odd"):
        read_task(with_answers(lambda _: httpx.Response(400, json=told)))


@pytest.mark.parametrize(
    "said",
    [b"", b"HTTP/1.1 200 OK\r\nContent-Length: 90\r\n\r\n{", b"SSH-2.0-OpenSSH\r\n"],
    ids=["nothing", "a part", "no HTTP"],
)
def test_a_broken_connection_is_worth_another_try(said: bytes) -> None:
    async def ask_a_server_that_cuts() -> None:
        async def cut(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.readuntil(b"\r\n\r\n")
            writer.write(said)
            writer.close()

        async with await asyncio.start_server(cut, "127.0.0.1", 0) as server:
            port = server.sockets[0].getsockname()[1]
            async with ConductorClient(f"http://127.0.0.1:{port}") as client:
                await client.current("t-1")

    with pytest.raises(ConductorError, match="cannot be reached") as unreachable:
        asyncio.run(ask_a_server_that_cuts())

    assert unreachable.value.retryable


def test_a_user_in_the_address_is_sent_as_basic_authentication() -> None:
    async def ask_a_guarded_server() -> Attempt:
        async def guard(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            asked = await reader.readuntil(b"\r\n\r\n")
            allowed = b"authorization: basic " + base64.b64encode(b"user:h@sh").lower() in asked.lower()
            body = json.dumps(TASK).encode() if allowed else b""
            status = b"200 OK" if allowed else b"401 Unauthorized"
            writer.write(b"HTTP/1.1 %b\r\nContent-Length: %d\r\n\r\n%b" % (status, len(body), body))
            writer.close()

        async with await asyncio.start_server(guard, "127.0.0.1", 0) as server:
            port = server.sockets[0].getsockname()[1]
            async with ConductorClient(f"http://user:h%40sh@127.0.0.1:{port}") as client:
                return await client.current("t-1")

    assert asyncio.run(ask_a_guarded_server()).task_id == "t-1"


@pytest.mark.parametrize("place", ["127.0.0.1:9", "nowhere.invalid", "[::1", "h:port", ""])
def test_a_password_in_the_address_is_never_shown(place: str) -> None:
    with pytest.raises(ConductorError) as unreachable:
        read_task(ConductorClient(f"http://user:hush@{place}"))

    assert "CONDUCTOR_SERVER_URL" in str(unreachable.value)
    assert "hush" not in f"{unreachable.value} {unreachable.value.__cause__!r}"


def test_a_redirect_has_carried_nothing_out() -> None:
    with pytest.raises(ConductorError, match="answered 302 to GET"):
        read_task(with_answers(lambda _: httpx.Response(302, json=TASK)))


@pytest.mark.parametrize("body", [HTML, {"text": ""}, {"content": b"\xff\xfe{"}], ids=["html", "empty", "bytes"])
def test_a_success_that_is_not_json_is_trouble_on_the_way_and_worth_another_try(body: dict[str, Any]) -> None:
    with pytest.raises(ConductorError, match="not JSON") as strange:
        read_task(with_answers(lambda _: httpx.Response(200, **body)))

    assert strange.value.retryable


class Guarded:
    """A server that wants a token, and for a while gives out good ones."""

    def __init__(self, *token_answers: httpx.Response) -> None:
        self._answers = list(token_answers)
        self.valid: str | None = None
        self.exchanges: list[dict[str, Any]] = []
        self.tokens_seen: list[str | None] = []

    def __call__(self, request: httpx.Request) -> httpx.Response:
        if request.url.path == "/api/token":
            self.exchanges.append(json.loads(request.content))
            answer = self._answers.pop(0)
            self.valid = answer.json().get("token") if answer.is_success and answer.content[:1] == b"{" else None
            return answer
        token = request.headers.get("X-Authorization")
        self.tokens_seen.append(token)
        good = token is not None and token == self.valid
        return httpx.Response(200, json=TASK) if good else httpx.Response(401, json={"message": "token"})


def token(value: str) -> httpx.Response:
    return httpx.Response(200, json={"token": value})


def test_one_token_serves_many_calls() -> None:
    server = Guarded(token("first"))

    async def twice() -> None:
        async with with_answers(server, "key", "hush") as client:
            await client.current("t-1")
            await client.current("t-1")

    asyncio.run(twice())

    assert server.exchanges == [{"keyId": "key", "keySecret": "hush"}]
    assert server.tokens_seen == ["first", "first"]


def test_a_token_the_server_no_longer_takes_is_exchanged_once_and_the_call_sent_again() -> None:
    server = Guarded(token("first"), token("second"))

    async def across_an_expiry() -> None:
        async with with_answers(server, "key", "hush") as client:
            await client.current("t-1")
            server.valid = None
            await client.current("t-1")

    asyncio.run(across_an_expiry())

    assert server.tokens_seen == ["first", "first", "second"]


def test_calls_at_once_survive_an_expiry_together() -> None:
    server = Guarded(token("first"), token("second"))

    async def all_at_once() -> None:
        async with with_answers(server, "key", "hush") as client:
            await client.current("t-1")
            server.valid = None
            await asyncio.gather(*(client.current("t-1") for _ in range(8)))

    asyncio.run(all_at_once())

    assert len(server.exchanges) == 2
    assert server.tokens_seen.count("second") == 8


def test_a_server_that_takes_no_token_at_all_is_a_final_401() -> None:
    server = Guarded(token("first"), httpx.Response(200, json={"token": "second"}))
    server_refuses = with_answers(
        lambda request: server(request) if request.url.path == "/api/token" else httpx.Response(401), "key", "hush"
    )

    with pytest.raises(ConductorError, match="401") as refused:
        read_task(server_refuses)

    assert not refused.value.retryable
    assert len(server.exchanges) == 2


@pytest.mark.parametrize(
    ("answer", "retryable"),
    [
        (httpx.Response(401, json={"message": "hush is wrong"}), False),
        (httpx.Response(404), False),
        (httpx.Response(200, json={}), False),
        (httpx.Response(200, json=["hush"]), False),
        (httpx.Response(200, text="<html>hush</html>"), False),
        (httpx.Response(503, text="hush"), True),
    ],
    ids=["refused", "no such page", "no token", "no object", "no JSON", "gateway"],
)
def test_a_failed_exchange_names_the_variables_and_never_the_secret(answer: httpx.Response, retryable: bool) -> None:
    with pytest.raises(ConductorError, match="CONDUCTOR_AUTH_KEY") as refused:
        read_task(with_answers(Guarded(answer), "key", "hush"))

    assert "hush" not in str(refused.value)
    assert refused.value.retryable is retryable
