"""The supervisor's end of an executor's pipe, on an event loop that nothing may hold up."""

import asyncio
import socket
import struct
from collections.abc import AsyncGenerator, Callable, Coroutine
from contextlib import asynccontextmanager
from functools import wraps
from multiprocessing.connection import Connection
from typing import Any

from perago.worker.pipe import Pipe

LARGE = "x" * 3_000_000


class Line:
    """Both ends of a pipe, and what the supervisor heard."""

    def __init__(self) -> None:
        ours, theirs = socket.socketpair()
        self.heard: list[Any] = []
        self.closings = 0
        self.ours = Pipe(ours, self.heard.append, self._closed)
        self.theirs = Connection(theirs.detach())

    def _closed(self) -> None:
        self.closings += 1

    async def until(self, is_so: Callable[[], bool]) -> None:
        async with asyncio.timeout(30):
            while not is_so():  # noqa: ASYNC110 - nothing tells the test
                await asyncio.sleep(0.005)

    async def says(self, *messages: object) -> None:
        await self.until(lambda: self.heard == list(messages))

    async def reads(self, count: int) -> list[Any]:
        return [await asyncio.to_thread(self.theirs.recv) for _ in range(count)]


@asynccontextmanager
async def line() -> AsyncGenerator[Line]:
    made = Line()
    with made.theirs:
        yield made
        made.ours.close()


def on_a_loop(test: Callable[[], Coroutine[None, None, None]]) -> Callable[[], None]:
    @wraps(test)
    def run() -> None:
        asyncio.run(test())

    return run


@on_a_loop
async def test_messages_of_any_size_go_both_ways_in_order() -> None:
    async with line() as pipe:
        for message in ("one", LARGE, {"three": 3}):
            await asyncio.to_thread(pipe.theirs.send, message)
        await pipe.says("one", LARGE, {"three": 3})

        for message in ("four", LARGE, ["five"]):
            pipe.ours.send(message)
        assert await pipe.reads(3) == ["four", LARGE, ["five"]]


@on_a_loop
async def test_an_executor_that_does_not_read_holds_up_nobody_and_gets_all_once_it_does() -> None:
    async with line() as pipe:
        async with asyncio.timeout(5):
            for _ in range(5):
                pipe.ours.send(LARGE)
            pipe.theirs.send("still heard")
            await pipe.says("still heard")

        assert await pipe.reads(5) == [LARGE] * 5


@on_a_loop
async def test_an_executor_that_stops_in_the_middle_of_a_message_holds_up_nobody() -> None:
    async with line() as stopped, line() as other:
        with socket.socket(fileno=stopped.theirs.fileno()) as raw:
            raw.sendall(struct.pack("!i", 1000) + b"half")
            other.theirs.send("heard")
            await other.says("heard")
            raw.detach()

        assert stopped.heard == []
        assert stopped.closings == 0


@on_a_loop
async def test_what_was_said_before_a_death_is_heard_though_a_child_holds_the_pipe_open() -> None:
    async with line() as pipe:
        pipe.theirs.send("result")
        pipe.theirs.send("farewell")

        pipe.ours.hear_the_rest()

        assert pipe.heard == ["result", "farewell"]
        assert pipe.closings == 0


@on_a_loop
async def test_the_end_of_the_pipe_is_told_once() -> None:
    async with line() as pipe:
        pipe.theirs.send("last")
        pipe.theirs.close()
        await pipe.until(lambda: pipe.closings > 0)
        pipe.ours.hear_the_rest()
        pipe.ours.send("to nobody")

        assert pipe.heard == ["last"]
        assert pipe.closings == 1


@on_a_loop
async def test_after_what_is_no_message_nothing_more_is_heard() -> None:
    async with line() as pipe:
        pipe.theirs.send("understood")
        pipe.theirs.send_bytes(b"no pickle")
        pipe.theirs.send("not trusted any more")
        await pipe.until(lambda: pipe.closings > 0)
        pipe.ours.hear_the_rest()

        assert pipe.heard == ["understood"]
        assert pipe.closings == 1
