"""Answers to executors: what happens between a question and its answer counts."""

import asyncio
from collections.abc import Callable
from dataclasses import replace
from typing import Any, cast

import pytest

from perago.conductor.client import ConductorClient
from perago.conductor.errors import ConductorError
from perago.protocol.attempt import Attempt
from perago.worker.answers import Answers
from perago.worker.messages import FenceAnswer, FenceQuestion
from perago.worker.slot import Executor, Running, Slot
from perago.worker.spark import SparkSource
from tests.unit.test_results import polled


class Asked:
    """A Conductor that answers after something has happened."""

    def __init__(self, happened: Callable[[], None]) -> None:
        self._happened = happened

    async def current(self, task_id: str) -> Attempt:
        self._happened()
        return polled(task_id).attempt


class Listening:
    def __init__(self) -> None:
        self.heard: list[Any] = []

    def send(self, message: object) -> None:
        self.heard.append(message)


def answer(running: Running, happened: Callable[[], None] = lambda: None, asked_by: str = "e-1") -> FenceAnswer:
    """What the last fence of an execution is told."""
    slot, executor = Slot(0, running=running), Listening()
    answers = Answers(cast("ConductorClient", Asked(happened)), cast("SparkSource", None))
    asyncio.run(answers.fence(slot, cast("Executor", executor), FenceQuestion("q-1", asked_by, last=True)))
    (told,) = executor.heard
    assert told.question == "q-1"
    return told


@pytest.fixture
def running() -> Running:
    return Running(polled("t-1"), "e-1")


def test_the_task_as_conductor_has_it_is_told_and_after_the_last_fence_the_attempt_publishes(running: Running) -> None:
    assert answer(running).fresh == running.task.attempt
    assert running.publishes


def test_another_execution_is_told_nothing(running: Running) -> None:
    assert answer(running, asked_by="e-0").fresh is None
    assert not running.publishes


def test_a_conductor_that_cannot_be_asked_is_no_answer(running: Running) -> None:
    def away() -> None:
        raise ConductorError("not today", retryable=True)

    assert answer(running, away) == FenceAnswer("q-1", None, "ConductorError: not today")
    assert not running.publishes


@pytest.mark.parametrize("end", [{"is_finished": True}, {"stopped_because": "its workflow was terminated"}])
def test_an_attempt_that_was_ended_while_conductor_was_asked_does_not_publish(
    running: Running, end: dict[str, Any]
) -> None:
    def ended() -> None:
        vars(running).update(vars(replace(running, **end)))

    assert answer(running, ended).fresh is None
    assert not running.publishes
