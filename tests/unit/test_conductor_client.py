"""What the Conductor gateway says of servers that cannot be used, played on loopback."""

import asyncio

import pytest

from perago.conductor.client import ConductorClient
from perago.conductor.errors import ConductorError


async def _answering(answer: bytes) -> asyncio.Server:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(answer)
        await writer.drain()
        writer.close()

    return await asyncio.start_server(serve, "127.0.0.1", 0)


def _port(server: asyncio.Server) -> int:
    return int(server.sockets[0].getsockname()[1])


def test_the_password_of_a_proxy_that_refuses_is_in_no_message(monkeypatch: pytest.MonkeyPatch) -> None:
    async def ask() -> None:
        answer = b"HTTP/1.1 407 Proxy Authentication Required\r\nContent-Length: 0\r\n\r\n"
        async with await _answering(answer) as proxy:
            monkeypatch.setenv("https_proxy", f"http://bob:s3cret@127.0.0.1:{_port(proxy)}")
            monkeypatch.setenv("no_proxy", "")
            async with ConductorClient("https://conductor.example.com") as conductor:
                await conductor.current("t-1")

    with pytest.raises(ConductorError, match="407") as refused:
        asyncio.run(ask())

    assert "s3cret" not in str(refused.value)


def test_an_answer_nested_too_deeply_to_be_read_is_an_error_like_any_other() -> None:
    async def ask() -> None:
        body = b"[" * 100_000 + b"]" * 100_000
        head = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body)
        async with (
            await _answering(head + body) as server,
            ConductorClient(f"http://127.0.0.1:{_port(server)}") as asked,
        ):
            await asked.current("t-1")

    with pytest.raises(ConductorError, match="what is not JSON"):
        asyncio.run(ask())
