"""Where Spark is for a worker's attempts: the server that SPARK_REMOTE names, else one of the worker's own."""

import asyncio
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Protocol

import structlog

from perago.addresses import masked
from perago.authoring.errors import TaskExecutionError

_log = structlog.get_logger("perago.supervisor")

_END_SECONDS = 60


class Server(Protocol):
    """A server that starts when its address is first asked for, and again when it has died."""

    def url(self) -> str: ...
    def stop(self) -> None: ...


class SparkSource:
    """Asked by attempts; nothing is started before one asks, or before `warm_up`."""

    def __init__(self, remote: str | None, embed: Callable[[], Server]) -> None:
        self._remote = remote
        self._embed = embed
        self._server: Server | None = None
        self._is_over = False
        # One of its own: a start takes seconds, and another that asks meanwhile waits for the same server.
        self._starter = ThreadPoolExecutor(1, thread_name_prefix="perago-spark-source")

    async def url(self) -> str:
        return self._remote or await asyncio.get_running_loop().run_in_executor(self._starter, self._started)

    async def warm_up(self) -> None:
        """Start the server before the first attempt needs it; what goes wrong is told to the attempt that asks."""
        try:
            _log.info("Spark is ready", url=masked(await self.url()))
        except Exception as error:
            _log.error("Spark server not started", error=f"{type(error).__name__}: {error}")

    async def end_session(self, url: str, execution_id: str) -> int | None:
        """Interrupt what a dead executor left running; by another process, since pyspark has no place in this one."""
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "perago.data.spark_session", execution_id),
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        try:
            # The address may carry a token, which no process list should show.
            await asyncio.wait_for(process.communicate(url.encode()), _END_SECONDS)
        except TimeoutError:
            process.kill()
        return process.returncode

    async def stop(self) -> None:
        self._is_over = True
        if self._server is not None:
            await asyncio.to_thread(self._server.stop)  # not after a start under way, which it ends
        self._starter.shutdown(wait=False, cancel_futures=True)

    def _started(self) -> str:
        if self._server is None:
            self._server = self._embed()  # takes a moment
        if self._is_over:
            raise TaskExecutionError("the worker is stopping")
        return self._server.url()
