"""Answers to what executors ask in the middle of an attempt. Without one no fence passes."""

import asyncio

from perago.conductor.client import ConductorClient
from perago.worker.messages import FenceAnswer, FenceQuestion, SparkAnswer, SparkQuestion
from perago.worker.slot import Executor, Slot
from perago.worker.spark import SparkSource

_FENCE_SECONDS = 20.0


class Answers:
    """Every question gets an answer, if only why there is none."""

    def __init__(self, conductor: ConductorClient, spark: SparkSource) -> None:
        self._conductor = conductor
        self._spark = spark

    async def fence(self, slot: Slot, executor: Executor, asked: FenceQuestion) -> None:
        """Tell the task as Conductor has it now. After the last such answer the attempt counts as publishing."""
        running = slot.running
        if running is None or running.execution_id != asked.execution_id:
            executor.send(FenceAnswer(asked.question, None, "this execution is not the slot's"))
            return
        try:
            fresh = await asyncio.wait_for(self._conductor.current(running.task.attempt.task_id), _FENCE_SECONDS)
        except Exception as error:
            executor.send(FenceAnswer(asked.question, None, f"{type(error).__name__}: {error}"))
            return
        if running.is_finished or running.stopped_because:  # meanwhile; a thread cannot be killed for it
            executor.send(
                FenceAnswer(asked.question, None, running.stopped_because or "the worker has ended this execution")
            )
            return
        running.publishes = running.publishes or asked.last
        executor.send(FenceAnswer(asked.question, fresh))

    async def spark(self, slot: Slot, executor: Executor, asked: SparkQuestion) -> None:
        """Tell where Spark is, and remember that the attempt may have a session there."""
        try:
            url = await self._spark.url()
        except Exception as error:
            executor.send(SparkAnswer(asked.question, None, str(error)))
            return
        if slot.running is not None and slot.running.execution_id == asked.execution_id:
            slot.running.spark = url
        executor.send(SparkAnswer(asked.question, url))
