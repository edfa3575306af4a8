"""A loopback proxy in front of lakeFS that loses, delays, refuses and cuts what it is told to."""

import re
import select
import socket
import socketserver
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from enum import Enum
from functools import partial
from types import TracebackType
from typing import BinaryIO, Self, cast
from urllib.parse import urlsplit

_PIECE = 64 * 1024
_SECONDS = 30.0


@dataclass(frozen=True)
class Seen:
    """One request that arrived, whatever became of it; `path` keeps its query."""

    method: str
    path: str


class Call(Enum):
    """The lakeFS calls of an attempt, by method and path below the repository."""

    CREATE_BRANCH = ("POST", r"/branches")
    DELETE_BRANCH = ("DELETE", r"/branches/[^/]+")
    GET_BRANCH = ("GET", r"/branches/[^/]+")
    GET_COMMIT = ("GET", r"/commits/[^/]+")
    LIST = ("GET", r"/refs/[^/]+/objects/ls")
    DOWNLOAD = ("GET", r"/refs/[^/]+/objects")
    UPLOAD = ("POST", r"/branches/[^/]+/objects")
    BULK_DELETE = ("POST", r"/branches/[^/]+/objects/delete")
    COMMIT = ("POST", r"/branches/[^/]+/commits")
    MERGE = ("POST", r"/refs/[^/]+/merge/[^/]+")
    RESET = ("PUT", r"/branches/[^/]+/hard_reset")

    def __str__(self) -> str:
        return self.name.lower().replace("_", " ")

    def __call__(self, seen: Seen) -> bool:
        method, below = self.value
        return seen.method == method and bool(
            re.fullmatch(rf"/api/v1/repositories/[^/]+{below}", urlsplit(seen.path).path)
        )


Matches = Callable[[Seen], bool]
Action = Callable[["_Exchange", "Rule"], bool]


_TOLD = b'{"message": "told by the proxy"}'


@dataclass
class Rule:
    """What to do with the next `left` requests that match."""

    matches: Matches
    action: Action
    left: int
    status: int = 0
    finished: threading.Event = field(default_factory=threading.Event)
    gate: tuple[socket.socket, socket.socket] = field(default_factory=socket.socketpair)

    def release(self) -> None:
        """Let go what a delaying rule holds, now and later."""
        self.gate[1].shutdown(socket.SHUT_WR)

    def close(self) -> None:
        for end in self.gate:
            end.close()


class Proxy:
    """Forwards every request unless a rule says otherwise; the first rule that still counts decides."""

    def __init__(self, upstream_url: str) -> None:
        upstream = urlsplit(upstream_url)
        self.upstream = (upstream.hostname or "127.0.0.1", upstream.port or 80)
        self._lock = threading.Condition()
        self._rules: list[Rule] = []
        self._seen: list[Seen] = []
        self._open: set[socket.socket] = set()
        self._idle: set[socket.socket] = set()
        proxy = self

        class Handler(socketserver.StreamRequestHandler):
            def handle(self) -> None:
                proxy.serve(self.connection, cast("BinaryIO", self.rfile))

        self._server = socketserver.ThreadingTCPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,), name="proxy")

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._thread.join()
        with self._lock:
            for rule in self._rules:
                rule.release()
            for client in self._open:
                _hang_up(client)
        self._server.server_close()  # joins the threads of all connections
        for rule in self._rules:
            rule.close()

    def drop_answer(self, matches: Matches, count: int = 1) -> Rule:
        """The server carries the request out, and nobody hears of it."""
        return self._add(matches, _drop_answer, count)

    def drop_request(self, matches: Matches, count: int = 1) -> Rule:
        return self._add(matches, _drop_request, count)

    def delay_answer(self, matches: Matches, count: int = 1) -> Rule:
        """The server carries the request out; the answer waits until it is released or the client has gone."""
        return self._add(matches, _delay_answer, count)

    def slow_answer(self, matches: Matches, seconds: float) -> Rule:
        """Every such answer comes later."""
        return self._add(matches, partial(_slow_answer, seconds), sys.maxsize)

    def delay_request(self, matches: Matches, count: int = 1) -> Rule:
        """The request reaches the server only when released, whether or not the client still waits for it."""
        return self._add(matches, _delay_request, count)

    def answer(self, status: int, matches: Matches, count: int = 1, body: bytes = _TOLD) -> Rule:
        """Answer in the server's place."""
        return self._add(matches, partial(_answer, body), count, status)

    def cut_body(self, matches: Matches, count: int = 1) -> Rule:
        """Half of the answer's body, then nothing."""
        return self._add(matches, _cut_body, count)

    def cut_request(self, matches: Matches, count: int = 1) -> Rule:
        """Half of the request's body reaches the server, then both sides are cut off."""
        return self._add(matches, _cut_request, count)

    def close_after(self, matches: Matches, count: int = 1) -> Rule:
        """Answer in full, then close the connection without having said so."""
        return self._add(matches, _close_after, count)

    def close_idle(self) -> int:
        """Once nothing is under way, close all connections, as servers do after a while; gives their number."""
        with self._lock:
            assert self._lock.wait_for(lambda: self._idle == self._open, _SECONDS)
            for client in self._idle:
                _hang_up(client)
            return len(self._idle)

    def seen(self, matches: Matches) -> list[Seen]:
        with self._lock:
            return [seen for seen in self._seen if matches(seen)]

    def serve(self, client: socket.socket, stream: BinaryIO) -> None:
        """All requests of one connection."""
        client.settimeout(_SECONDS)
        with self._lock:
            self._open.add(client)
            self._idle.add(client)
        try:
            while (head := _Head.read(stream)) is not None:
                with self._lock:
                    self._idle.discard(client)
                method, path, _ = head.start.split(" ", 2)
                rule = self._chosen(Seen(method, path))
                exchange = _Exchange(self.upstream, client, stream, head)
                try:
                    goes_on = rule.action(exchange, rule) if rule else exchange.forward()
                finally:
                    exchange.close()
                    if rule:
                        rule.finished.set()
                if not goes_on:
                    return
                with self._lock:
                    self._idle.add(client)
                    self._lock.notify_all()
        except OSError:
            return  # one side has gone: so does the connection
        finally:
            with self._lock:
                self._open.discard(client)
                self._idle.discard(client)
                self._lock.notify_all()

    def _add(self, matches: Matches, action: Action, count: int, status: int = 0) -> Rule:
        rule = Rule(matches, action, count, status)
        with self._lock:
            self._rules.append(rule)
        return rule

    def _chosen(self, seen: Seen) -> Rule | None:
        with self._lock:
            self._seen.append(seen)
            for rule in self._rules:
                if rule.left and rule.matches(seen):
                    rule.left -= 1
                    return rule
        return None


@dataclass(frozen=True)
class _Head:
    raw: bytes
    start: str
    headers: dict[str, str]

    @classmethod
    def read(cls, stream: BinaryIO) -> "_Head | None":
        lines: list[bytes] = []
        while (line := stream.readline()) not in (b"\r\n", b""):
            lines.append(line)
        if not lines or not line:
            return None
        fields = (one.decode("latin-1").partition(":") for one in lines[1:])
        headers = {name.strip().lower(): value.strip() for name, _, value in fields}
        return cls(b"".join([*lines, line]), lines[0].decode("latin-1").rstrip(), headers)

    @property
    def length(self) -> int:
        return int(self.headers.get("content-length", "0"))

    @property
    def chunked(self) -> bool:
        return self.headers.get("transfer-encoding", "").lower() == "chunked"

    def body(self, stream: BinaryIO) -> Iterator[bytes]:
        """The body as it is on the wire."""
        if not self.chunked:
            yield from _exactly(stream, self.length)
            return
        while True:
            line = stream.readline()
            yield line
            size = int(line.partition(b";")[0], 16)
            if not size:
                break
            yield from _exactly(stream, size + 2)
        while (line := stream.readline()) not in (b"\r\n", b""):
            yield line
        yield line


class _Exchange:
    """One request and its answer, on an upstream connection of its own."""

    def __init__(self, upstream: tuple[str, int], client: socket.socket, stream: BinaryIO, head: _Head) -> None:
        self.client, self.stream, self.head = client, stream, head
        self._upstream = upstream
        self._server: socket.socket | None = None
        self._answers: BinaryIO | None = None

    @property
    def server(self) -> socket.socket:
        if self._server is None:
            self._server = socket.create_connection(self._upstream, timeout=_SECONDS)
            self._answers = self._server.makefile("rb")
        return self._server

    def close(self) -> None:
        if self._server is not None and self._answers is not None:
            self._answers.close()
            self._server.close()

    def request(self) -> Iterator[bytes]:
        yield self.head.raw
        yield from self.head.body(self.stream)

    def send(self, pieces: Iterator[bytes]) -> None:
        for piece in pieces:
            self.server.sendall(piece)

    def answer(self) -> tuple[_Head, Iterator[bytes]]:
        answers = self._answers
        head = _Head.read(answers) if answers else None
        if answers is None or head is None:
            raise ConnectionError("the server closed the connection")
        bodiless = self.head.start.startswith("HEAD ") or head.start.split(" ")[1] in ("204", "304")
        return head, iter(()) if bodiless else head.body(answers)

    def forward(self) -> bool:
        self.send(self.request())
        head, body = self.answer()
        self.client.sendall(head.raw)
        for piece in body:
            self.client.sendall(piece)
        return "close" not in (head.headers.get("connection", ""), self.head.headers.get("connection", ""))

    def carried_out(self, request: Iterator[bytes] | None = None) -> bytes:
        """Have the server do it, and give its whole answer."""
        self.send(request or self.request())
        head, body = self.answer()
        return head.raw + b"".join(body)


def _drop_answer(exchange: _Exchange, _: Rule) -> bool:
    exchange.carried_out()
    return False


def _drop_request(exchange: _Exchange, _: Rule) -> bool:
    for _piece in exchange.request():
        pass  # read whole, so that the client sees a clean end
    return False


def _delay_answer(exchange: _Exchange, rule: Rule) -> bool:
    answer = exchange.carried_out()
    select.select([rule.gate[0], exchange.client], [], [], _SECONDS)
    exchange.client.sendall(answer)
    return True


def _slow_answer(seconds: float, exchange: _Exchange, _: Rule) -> bool:
    answer = exchange.carried_out()
    time.sleep(seconds)
    exchange.client.sendall(answer)
    return True


def _delay_request(exchange: _Exchange, rule: Rule) -> bool:
    request = list(exchange.request())
    select.select([rule.gate[0]], [], [], _SECONDS)
    exchange.client.sendall(exchange.carried_out(iter(request)))
    return True


def _answer(body: bytes, exchange: _Exchange, rule: Rule) -> bool:
    for _piece in exchange.request():
        pass
    head = f"HTTP/1.1 {rule.status} Told\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    exchange.client.sendall(head.encode() + body)
    return True


def _cut_body(exchange: _Exchange, _: Rule) -> bool:
    exchange.send(exchange.request())
    head, body = exchange.answer()
    whole = b"".join(body)
    exchange.client.sendall(head.raw + whole[: len(whole) // 2])
    return False


def _cut_request(exchange: _Exchange, _: Rule) -> bool:
    half = _exactly(exchange.stream, exchange.head.length // 2)
    exchange.send(iter([exchange.head.raw, *half]))
    return False


def _close_after(exchange: _Exchange, _: Rule) -> bool:
    exchange.forward()
    return False


def _exactly(stream: BinaryIO, size: int) -> Iterator[bytes]:
    while size:
        piece = stream.read(min(_PIECE, size))
        if not piece:
            raise ConnectionError("a body ended early")
        yield piece
        size -= len(piece)


def _hang_up(connection: socket.socket) -> None:
    try:
        connection.shutdown(socket.SHUT_RDWR)
    except OSError:
        return  # it has gone already
