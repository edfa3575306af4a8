import asyncio
import uuid
from typing import Any

import pytest
from pydantic import BaseModel

from perago.authoring.controls import ExecutionLimits, RetryPolicy, TaskControls
from perago.authoring.task import definition_of, task
from perago.authoring.taskdef import build_taskdef
from perago.conductor.client import ConductorClient
from perago.conductor.errors import ConductorError
from perago.conductor.taskdefs import ABSENT, Difference, taskdef_differences
from tests.conftest import Servers


class Params(BaseModel):
    limit: int = 3
    labels: dict[str, str] = {"title": "kept"}


class Result(BaseModel):
    row_count: int


def declared(name: str, controls: TaskControls | None = None) -> dict[str, Any]:
    @task(name=name, owner_email="data@example.com", controls=controls)
    def body(params: Params) -> Result:
        return Result(row_count=params.limit)

    definition = definition_of(body)
    assert definition is not None
    return build_taskdef(definition)


@pytest.fixture
def task_name() -> str:
    return f"test.{uuid.uuid4().hex[:12]}"


def exchanged(servers: Servers, *sent: dict[str, Any]) -> dict[str, Any]:
    async def exchange() -> dict[str, Any]:
        async with ConductorClient(servers.config.require_conductor()) as conductor:
            for taskdef in sent:
                await conductor.put_taskdef(taskdef)
            return await conductor.get_taskdef(sent[-1]["name"]) or {}

    return asyncio.run(exchange())


def test_what_conductor_gives_back_is_what_was_declared(servers: Servers, task_name: str) -> None:
    wanted = declared(task_name)

    assert taskdef_differences(exchanged(servers, wanted), wanted) == []


def test_every_limit_survives_the_round_trip(servers: Servers, task_name: str) -> None:
    limits = ExecutionLimits(concurrent_exec_limit=2, rate_limit_frequency_in_seconds=10, rate_limit_per_frequency=5)
    wanted = declared(task_name, TaskControls(limits=limits))

    assert taskdef_differences(exchanged(servers, wanted), wanted) == []


def test_a_change_replaces_the_registered_taskdef(servers: Servers, task_name: str) -> None:
    before = declared(task_name, TaskControls(limits=ExecutionLimits(concurrent_exec_limit=2)))
    after = declared(task_name, TaskControls(retry=RetryPolicy(count=7)))

    registered = exchanged(servers, before)
    assert taskdef_differences(registered, after) == [
        Difference("retryCount", 3, 7),
        Difference("concurrentExecLimit", 2, ABSENT),
    ]
    assert taskdef_differences(exchanged(servers, before, after), after) == []


def test_an_unknown_task_is_none_rather_than_an_error(servers: Servers, task_name: str) -> None:
    async def ask() -> dict[str, Any] | None:
        async with ConductorClient(servers.config.require_conductor()) as conductor:
            return await conductor.get_taskdef(task_name)

    assert asyncio.run(ask()) is None


def test_conductors_refusal_is_final_and_in_its_own_words(servers: Servers, task_name: str) -> None:
    refused = {**declared(task_name), "responseTimeoutSeconds": 600, "timeoutSeconds": 10}

    with pytest.raises(ConductorError, match="responseTimeoutSeconds: 600 must be less than") as refusal:
        exchanged(servers, refused)

    assert refusal.value.status == 400
    assert not refusal.value.retryable


def test_a_server_without_authentication_refuses_a_key_in_one_sentence(servers: Servers) -> None:
    from pydantic import SecretStr

    async def ask() -> None:
        async with ConductorClient(servers.config.require_conductor(), "key", SecretStr("hush")) as conductor:
            await conductor.get_taskdef("any")

    with pytest.raises(ConductorError, match="CONDUCTOR_AUTH_KEY") as refusal:
        asyncio.run(ask())

    assert "hush" not in str(refusal.value)


def test_an_unreachable_conductor_is_worth_another_try() -> None:
    async def ask() -> None:
        async with ConductorClient("http://127.0.0.1:9") as conductor:
            await conductor.get_taskdef("any")

    with pytest.raises(ConductorError, match="CONDUCTOR_SERVER_URL") as unreachable:
        asyncio.run(ask())

    assert unreachable.value.retryable
