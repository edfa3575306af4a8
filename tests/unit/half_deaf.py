"""A server on loopback that says nothing to the first requests, as if the network dropped them, and takes the rest."""

import asyncio
import json
import re
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, closing, suppress
from typing import Any

from perago.conductor.client import ConductorClient

TASK = {
    "workflowInstanceId": "w-1",
    "taskId": "t-1",
    "retryCount": 0,
    "referenceTaskName": "work",
    "seq": 1,
    "iteration": 0,
    "status": "IN_PROGRESS",
}


class HalfDeaf:
    """Has one task in progress, and notes the status of each update it took."""

    def __init__(self, deaf_to: int | None = None) -> None:
        self._deaf_to = deaf_to
        self.unanswered = 0
        self.updates: list[str] = []

    @asynccontextmanager
    async def asked(self) -> AsyncGenerator[ConductorClient]:
        """A client of it, while it serves."""
        async with await asyncio.start_server(self._serve, "127.0.0.1", 0) as server:
            port = server.sockets[0].getsockname()[1]
            async with ConductorClient(f"http://127.0.0.1:{port}") as client:
                yield client

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with closing(writer), suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                given = await _request(reader)
                if self._deaf_to is None or self.unanswered < self._deaf_to:
                    self.unanswered += 1
                    await reader.read()  # until the client hangs up
                    return
                if given:
                    self.updates.append(given["status"])
                body = json.dumps(TASK).encode()
                writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body))


async def _request(reader: asyncio.StreamReader) -> dict[str, Any] | None:
    head = await reader.readuntil(b"\r\n\r\n")
    length = re.search(rb"content-length: (\d+)", head.lower())
    return json.loads(await reader.readexactly(int(length[1]))) if length else None
