"""Keep-alive HTTP for bulk data: a connection for each thread and server, bodies streamed in both directions."""

import http.client
import ssl
import threading
from collections.abc import Callable, Generator, Iterable, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from urllib.parse import SplitResult, urlsplit

from perago.lake.errors import unanswered

CHUNK = 256 * 1024
_TIMEOUT_SECONDS = 60.0
_BROKEN = (http.client.HTTPException, OSError)


@dataclass(frozen=True)
class Request:
    """What to send; `body` makes the content anew, so that a repeated try sends all of it."""

    method: str
    url: str
    headers: Mapping[str, str]
    doing: str
    body: Callable[[], bytes | Iterable[bytes]] | None = None
    length: int = 0


class Connections:
    """Open connections, one per thread and server, closed with the pool of threads that used them.

    http.client rather than a larger library: two thousand small objects are two thousand times its overhead.
    """

    def __init__(self) -> None:
        self._local = threading.local()
        self._tls = ssl.create_default_context()

    @contextmanager
    def send(self, request: Request) -> Generator[http.client.HTTPResponse]:
        """Send a request and give its response, whose body must be read to its end for the connection to live on."""
        parts = urlsplit(request.url)
        connection = self._connection(parts)
        try:
            response = self._exchange(connection, parts, request)
            yield response
            if not response.isclosed():
                self._forget(parts)
        except _BROKEN as error:
            self._forget(parts)
            raise unanswered(request.doing, error) from error
        except BaseException:
            self._forget(parts)
            raise

    def _exchange(
        self, connection: http.client.HTTPConnection, parts: SplitResult, request: Request
    ) -> http.client.HTTPResponse:
        target = f"{parts.path}?{parts.query}" if parts.query else parts.path
        headers = dict(request.headers)
        if request.body is not None:
            headers["Content-Length"] = str(request.length)
        body = request.body() if request.body is not None else None
        connection.request(request.method, target, body, headers)
        return connection.getresponse()

    def _connection(self, parts: SplitResult) -> http.client.HTTPConnection:
        pool = self._pool()
        key = (parts.scheme, parts.netloc)
        if key not in pool:
            host, port = parts.hostname or "", parts.port
            if parts.scheme == "https":
                pool[key] = http.client.HTTPSConnection(host, port, timeout=_TIMEOUT_SECONDS, context=self._tls)
            else:
                pool[key] = http.client.HTTPConnection(host, port, timeout=_TIMEOUT_SECONDS)
        return pool[key]

    def _forget(self, parts: SplitResult) -> None:
        connection = self._pool().pop((parts.scheme, parts.netloc), None)
        if connection is not None:
            connection.close()

    def _pool(self) -> dict[tuple[str, str], Any]:
        pool: dict[tuple[str, str], Any] | None = getattr(self._local, "pool", None)
        if pool is None:
            pool = self._local.pool = {}
        return pool
