"""Keep-alive HTTP/1.1 for bulk data: a connection for each thread and server, bodies streamed in both directions.

Two thousand small objects are two thousand times a library's overhead. What is spoken here is the part of HTTP that
lakeFS and object stores need, at about a quarter of `http.client`'s cost for a request.
"""

import re
import socket
import ssl
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cached_property
from io import BufferedReader
from typing import NamedTuple, TypeVar, cast
from urllib.parse import urlsplit

from perago.lake.errors import LakeError, unanswered

Read = TypeVar("Read")

CHUNK = 256 * 1024
# Of large bodies: between pieces threads wait for the interpreter. 8 × 128 MiB came in 0.63 s instead of 0.72.
_BODY_CHUNK = 1024 * 1024
_TIMEOUT_SECONDS = 60.0
_LONGEST_LINE = 65536
_PORTS = {"http": 80, "https": 443}
_STATUS = re.compile(rb"HTTP/1\.([01]) (\d{3}) ?([^\r\n]*)")
_NOT_PLAIN = re.compile(rb"\n(?:transfer-encoding|connection):", re.IGNORECASE)
_LENGTH = re.compile(rb"\ncontent-length:[ \t]*(\d+)", re.IGNORECASE)
_CHUNKED = re.compile(rb"\ntransfer-encoding:[ \t]*chunked", re.IGNORECASE)
_MD5_TAG = re.compile(rb"\netag:[ \t]*\"([0-9a-f]{32})\"", re.IGNORECASE)
# Of content encrypted with a key of the storage's user the tag is something else.
_OPAQUE_TAG = re.compile(rb"\nx-amz-server-side-encryption(?::[ \t]*aws:|-customer)", re.IGNORECASE)
_CLOSE = re.compile(rb"\nconnection:[ \t]*close", re.IGNORECASE)


class BrokenConnection(OSError):  # noqa: N818 - names the state
    """The other side closed, or said something that is not HTTP."""


class Origin(NamedTuple):
    """A server, as one connection reaches it."""

    scheme: str
    host: str
    port: int
    name: str


def split(url: str) -> tuple[Origin, str]:
    """The server of an address, and the rest."""
    parts = urlsplit(url)
    target = f"{parts.path}?{parts.query}" if parts.query else parts.path
    port = parts.port or _PORTS[parts.scheme]
    return Origin(parts.scheme, parts.hostname or "", port, parts.netloc.rpartition("@")[2]), target


def api_root(endpoint_url: str) -> str:
    """Accept lakeFS's address with and without `/api/v1`, as lakectl does."""
    root = endpoint_url.rstrip("/")
    return root if root.endswith("/api/v1") else f"{root}/api/v1"


class Request(NamedTuple):
    """What to send; `body` makes the content anew, so that a repeated try sends all of it."""

    method: str
    origin: Origin
    target: str
    headers: Mapping[str, str]
    doing: str
    body: Callable[[], Iterable[bytes]] | None = None
    length: int = 0


class Connections:
    """Open connections, one per thread and server; they close with the threads that used them."""

    def __init__(self) -> None:
        self._local = threading.local()

    def send(self, request: Request, read: "Callable[[Response], Read]") -> Read:
        """Send a request and give what `read` makes of its response; one not read to its end costs the connection."""
        pool = self._pool()
        connection = pool.pop(request.origin, None)
        try:
            if connection is None:
                connection = _Connection(request.origin, self._tls if request.origin.scheme == "https" else None)
            response = connection.exchange(request)
            result = read(response)
            if response.is_finished and response.keeps_alive:
                pool[request.origin] = connection
                connection = None
            return result
        except OSError as error:
            raise unanswered(request.doing, error) from error
        finally:
            if connection is not None:
                connection.close()

    @cached_property
    def _tls(self) -> ssl.SSLContext:
        """Made when the first server wants it: reading the system's certificates takes some 25 ms."""
        return ssl.create_default_context()

    def _pool(self) -> "dict[Origin, _Connection]":
        pool: dict[Origin, _Connection] | None = getattr(self._local, "pool", None)
        if pool is None:
            pool = self._local.pool = {}
        return pool


class _Connection:
    def __init__(self, origin: Origin, tls: ssl.SSLContext | None) -> None:
        connected = socket.create_connection((origin.host, origin.port), _TIMEOUT_SECONDS)
        connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._socket = tls.wrap_socket(connected, server_hostname=origin.host) if tls is not None else connected
        self._answers = cast("BufferedReader", self._socket.makefile("rb", CHUNK))

    def exchange(self, request: Request) -> "Response":
        head = _head(request)
        try:
            if request.body is None:
                self._socket.sendall(head)
            else:
                for chunk in request.body():
                    self._socket.sendall(head + chunk if head else chunk)  # one packet for a small object
                    head = b""
                if head:
                    self._socket.sendall(head)
        except (BrokenPipeError, ConnectionResetError):
            # A server that refuses a large body says why before it closes; without an answer the next line fails too.
            return Response(self._answers)
        return Response(self._answers)

    def close(self) -> None:
        self._answers.close()
        self._socket.close()

    def __del__(self) -> None:
        if hasattr(self, "_answers"):
            self.close()  # its thread has ended, and nobody else knows of it


class Response:
    """A status and a body that is read as it comes."""

    def __init__(self, answers: BufferedReader) -> None:
        self._answers = answers
        self._head = head = _answer_head(answers)
        status = _STATUS.match(head)
        if status is None:
            raise BrokenConnection("the answer is not HTTP")
        self.status = int(status[2])
        self.reason = status[3].decode("latin-1")
        is_plain = _NOT_PLAIN.search(head) is None  # as nearly every answer is
        self._chunked = not is_plain and _CHUNKED.search(head) is not None
        length = None if self._chunked else _LENGTH.search(head)
        self._left = int(length[1]) if length else (0 if self.status == 204 else None)
        ends_with_connection = self._left is None and not self._chunked
        asks_to_close = status[1] == b"0" or (not is_plain and _CLOSE.search(head) is not None)
        self.keeps_alive = not (ends_with_connection or asks_to_close)
        self.is_finished = self._left == 0

    @cached_property
    def md5(self) -> str | None:
        """What the storage says the content's MD5 is, where it says so."""
        tag = _MD5_TAG.search(self._head)
        return tag[1].decode() if tag and not _OPAQUE_TAG.search(self._head) else None

    def chunks(self) -> Iterator[bytes]:
        """The body; one that is cut off raises."""
        if self._chunked:
            yield from self._sized_chunks()
        elif self._left is None:
            while chunk := self._answers.read(_BODY_CHUNK):
                yield chunk
        else:
            while self._left:
                chunk = self._answers.read(min(_BODY_CHUNK, self._left))
                if not chunk:
                    raise BrokenConnection(f"the answer ended {self._left} bytes early")
                self._left -= len(chunk)
                yield chunk
        self.is_finished = True

    def read(self) -> bytes:
        return b"".join(self.chunks())

    def _sized_chunks(self) -> Iterator[bytes]:
        while size := _chunk_size(_line(self._answers)):
            while size:
                chunk = self._answers.read(min(_BODY_CHUNK, size))
                if not chunk:
                    raise BrokenConnection("the answer ended within a chunk")
                size -= len(chunk)
                yield chunk
            _line(self._answers)
        while _line(self._answers):  # trailers
            pass


def _head(request: Request) -> bytes:
    lines = [f"{request.method} {request.target} HTTP/1.1", f"Host: {request.origin.name}"]
    lines += [f"{name}: {value}" for name, value in request.headers.items()]
    if request.body is not None:
        lines.append(f"Content-Length: {request.length}")
    head = "\r\n".join(lines)
    if head.count("\n") != len(lines) - 1:
        raise LakeError(f"an address or header with a line break was refused while {request.doing}")
    return f"{head}\r\n\r\n".encode("latin-1")


def _answer_head(answers: BufferedReader) -> bytes:
    """Status line and headers, in one piece where they came in one packet."""
    end = answers.peek().find(b"\r\n\r\n")
    if end >= 0:
        return answers.read(end + 4)
    lines: list[bytes] = []
    while line := _line(answers):
        lines.append(line)
    return b"\r\n".join(lines) + b"\r\n"


def _chunk_size(line: bytes) -> int:
    try:
        return int(line.partition(b";")[0], 16)
    except ValueError:
        raise BrokenConnection("the answer has a chunk without a size") from None


def _line(answers: BufferedReader) -> bytes:
    line = answers.readline(_LONGEST_LINE)
    if not line.endswith(b"\n"):
        raise BrokenConnection("the connection was closed before the end of an answer")
    return line.rstrip(b"\r\n")
