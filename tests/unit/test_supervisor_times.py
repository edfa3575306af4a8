"""How long a supervisor waits, on an event loop whose time passes at once."""

import asyncio
import selectors
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import pytest
from structlog.testing import capture_logs

from perago.authoring.controls import PublishBudget, TaskControls
from perago.conductor.client import ConductorClient
from perago.conductor.errors import ConductorError
from perago.config import load_runtime_config
from perago.worker.facts import TaskFacts
from perago.worker.messages import FenceQuestion, Finished, NotReady
from perago.worker.slot import Executor, Running, Slot
from perago.worker.spark import SparkSource
from perago.worker.supervisor import Supervisor
from tests.unit.test_results import DONE, PlayedConductor, ids_in, polled

BUDGET = PublishBudget(
    observed_merge_p99_seconds=1,
    safety_margin_seconds=1,
    lakefs_merge_timeout_seconds=2,
    conductor_completion_timeout_seconds=5,
    worker_shutdown_grace_seconds=42,
    heartbeat_interval_seconds=5,
)


STARTED_AFTER = 3600


class Skipping(selectors.SelectSelector):
    """Where a loop would wait for a moment, the moment comes."""

    now = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        ready = super().select(0 if timeout else timeout)
        if timeout and not ready:
            self.now += timeout
        return ready


class QuickLoop(asyncio.SelectorEventLoop):
    def __init__(self) -> None:
        self._skipping = Skipping()
        super().__init__(self._skipping)

    def time(self) -> float:
        return self._skipping.now


def quickly(test: Coroutine[None, None, None]) -> None:
    with asyncio.Runner(loop_factory=QuickLoop) as runner:
        runner.run(test)


def now() -> float:
    return round(asyncio.get_running_loop().time(), 3)


class PlayedExecutor:
    """Is started, and ends when it is killed."""

    can_be_killed = True

    def __init__(self, slot: Slot, gone: Callable[[Executor], None]) -> None:
        self.slot, self.generation = slot.number, slot.generation
        self._gone = gone
        self.killed_at: float | None = None
        self.heard: list[Any] = []

    def send(self, message: object) -> None:
        self.heard.append(message)

    def how_it_ended(self) -> str:
        return "exit code 1"

    def kill(self) -> None:
        self.killed_at = now()
        asyncio.get_running_loop().call_soon(self._gone, cast("Executor", self))


class PlayedSpark:
    async def url(self) -> str:
        await asyncio.sleep(STARTED_AFTER)
        return "sc://at-last"

    async def end_session(self, url: str, execution_id: str) -> int:
        return 0


@dataclass
class Stage:
    """A supervisor whose executors are played."""

    supervisor: Supervisor
    starts: list[tuple[int, float]] = field(default_factory=list[tuple[int, float]])

    @classmethod
    def set_up(
        cls, logs: Path, controls: TaskControls | None = None, conductor: PlayedConductor | None = None
    ) -> "Stage":
        task = TaskFacts("features.build", controls or TaskControls(), None, False, {})
        played = cast("ConductorClient", conductor or PlayedConductor())
        spark = cast("SparkSource", PlayedSpark())
        stage = cls(Supervisor("tasks.build", task, load_runtime_config(), played, "w-1", logs, 2, spark))
        stage.supervisor._start = stage._start
        for slot in stage.supervisor._slots:
            stage._start(slot)
        return stage

    def _start(self, slot: Slot) -> None:
        self.starts.append((slot.number, now()))
        slot.generation += 1
        slot.executor = cast("Executor", PlayedExecutor(slot, self.supervisor._gone))
        slot.is_ready = True

    def slot(self, number: int) -> Slot:
        return self.supervisor._slots[number]

    def executor(self, number: int) -> Any:
        return self.slot(number).executor

    def works(self, number: int, *, publishes: bool = False) -> Running:
        running = Running(polled(f"t-{number}"), f"e-{number}", publishes=publishes)
        self.slot(number).running = running
        return running

    async def settles(self) -> None:
        while self.supervisor._background:
            await asyncio.gather(*self.supervisor._background)

    async def restarted_after(self, number: int) -> float:
        """Let an executor die; gives the time until there is another."""
        died = now()
        self.supervisor._gone(self.executor(number))
        await self.settles()
        restarted, at = self.starts[-1]
        assert restarted == number
        return round(at - died, 3)


def test_a_slot_is_filled_again_later_and_later_and_soon_again_after_a_success(tmp_path: Path) -> None:
    async def die_again_and_again() -> None:
        stage = Stage.set_up(tmp_path)
        assert [await stage.restarted_after(0) for _ in range(7)] == [1, 2, 4, 8, 16, 30, 30]

        stage.works(0)
        stage.supervisor._heard(stage.executor(0), Finished("e-0", DONE, {}, {}))
        await stage.settles()

        assert [await stage.restarted_after(0) for _ in range(2)] == [1, 2]

    quickly(die_again_and_again())


def test_a_failing_slot_delays_no_other(tmp_path: Path) -> None:
    async def die_beside_each_other() -> None:
        stage = Stage.set_up(tmp_path)
        for _ in range(4):
            await stage.restarted_after(0)
        died, before = now(), len(stage.starts)

        stage.supervisor._gone(stage.executor(0))
        stage.supervisor._gone(stage.executor(1))
        await stage.settles()

        assert [(slot, round(at - died, 3)) for slot, at in stage.starts[before:]] == [(1, 1), (0, 16)]

    quickly(die_beside_each_other())


def test_every_line_about_a_death_carries_the_ids_of_the_attempt_it_ended(tmp_path: Path) -> None:
    async def die_at_work() -> None:
        stage = Stage.set_up(tmp_path)
        stage.works(0).spark = "sc://somewhere"
        stage.supervisor._gone(stage.executor(0))
        await stage.settles()

    with capture_logs() as logged:
        quickly(die_at_work())

    phases = {line["event"]: ids_in(cast("dict[str, Any]", line))["phase"] for line in logged}
    assert {line["execution_id"] for line in logged} == {"e-0"}
    assert phases == {
        "executor ended": "running",
        "Spark session ended": "completion",
        "completion not accepted": "completion",
    }


def test_what_a_dead_executor_still_says_is_not_taken_for_its_successors(tmp_path: Path) -> None:
    conductor = PlayedConductor(has="IN_PROGRESS")

    async def speak_late() -> None:
        stage = Stage.set_up(tmp_path, conductor=conductor)
        dead = stage.executor(0)
        await stage.restarted_after(0)
        running = stage.works(0)

        for said in (
            Finished("e-0", DONE, {}, {}),
            FenceQuestion("q-1", "e-0", last=True),
            NotReady("no such module"),
        ):
            stage.supervisor._heard(dead, said)
        stage.supervisor._gone(dead)
        await asyncio.sleep(60)

        assert (stage.slot(0).running, running.publishes, running.is_finished) == (running, False, False)
        assert stage.executor(0) is not None
        assert (dead.heard, conductor.told, stage.supervisor.broken) == ([], [], None)

    quickly(speak_late())


def test_a_lease_is_extended_while_an_attempt_publishes_and_until_its_result_is_told(tmp_path: Path) -> None:
    conductor = PlayedConductor(has="IN_PROGRESS")
    conductor.answers_after = 0
    conductor.refusal = ConductorError("Conductor is away", retryable=True)

    async def publish() -> None:
        stage = Stage.set_up(tmp_path, conductor=conductor)
        executor = stage.executor(0)
        executor.is_stopped = lambda: False
        stage.supervisor._assign(stage.slot(0), polled("t-0"))  # a lease of 60 s
        running = stage.slot(0).running
        assert running is not None
        running.publishes = True
        await asyncio.sleep(100)
        assert len(conductor.extended) == 6

        stage.supervisor._heard(executor, Finished(running.execution_id, DONE, {}, {}))
        await asyncio.sleep(50)
        assert len(conductor.extended) == 9
        assert conductor.told, "the result was sent, and refused"

        conductor.refusal = None
        await asyncio.sleep(5)
        conductor.has = "COMPLETED"
        extended = len(conductor.extended)
        await asyncio.sleep(100)
        assert len(conductor.extended) == extended
        counted = stage.supervisor.metrics.registry.get_sample_value("perago_heartbeat_seconds_count")
        assert counted == extended

    quickly(publish())


@pytest.mark.parametrize(
    ("controls", "told_twice", "grace"),
    [(TaskControls(publish_budget=BUDGET), False, 42), (TaskControls(), False, 5), (TaskControls(), True, 0.2)],
    ids=["as budgeted", "without a budget", "told twice"],
)
def test_out_of_time_an_attempt_that_publishes_is_killed_after_its_grace_and_any_other_at_once(
    tmp_path: Path, controls: TaskControls, told_twice: bool, grace: float
) -> None:
    async def run_out_of_time() -> None:
        stage = Stage.set_up(tmp_path, controls)
        stage.works(0, publishes=True)
        stage.works(1)
        publishing, other = stage.executor(0), stage.executor(1)
        stage.supervisor._draining.set()
        if told_twice:
            stage.supervisor._abandon.set()
        last_poll = asyncio.create_task(asyncio.sleep(0))
        finished = asyncio.create_task(stage.supervisor._all_finished(last_poll))

        assert not await stage.supervisor._cut_short(finished)

        assert (other.killed_at, publishing.killed_at) == (0, grace)

    quickly(run_out_of_time())


def test_an_attempt_that_has_published_within_its_grace_is_not_killed(tmp_path: Path) -> None:
    async def publish_in_time() -> None:
        stage = Stage.set_up(tmp_path, TaskControls(publish_budget=BUDGET))
        stage.works(0, publishes=True)
        publishing = stage.executor(0)
        stage.supervisor._draining.set()
        last_poll = asyncio.create_task(asyncio.sleep(0))
        finished = asyncio.create_task(stage.supervisor._all_finished(last_poll))
        said = Finished("e-0", DONE, {}, {})
        asyncio.get_running_loop().call_later(41, stage.supervisor._heard, publishing, said)

        assert await stage.supervisor._cut_short(finished)

        assert publishing.killed_at is None

    quickly(publish_in_time())
