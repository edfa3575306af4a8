"""The worker's page: is it alive, is it ready, what has it counted.

Served from a thread, so that a stalled event loop is told instead of being waited for.
"""

import json
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest

from perago.authoring.errors import RuntimeConfigError

Report = Callable[[], tuple[bool, dict[str, Any]]]


@contextmanager
def serve_status(address: str, healthy: Report, ready: Report, registry: CollectorRegistry) -> Generator[str]:
    """Serve `/healthz`, `/readyz` and `/metrics` at HOST:PORT while the block runs; gives the address in use."""
    host, _, port = address.rpartition(":")
    pages = {"/healthz": healthy, "/readyz": ready}

    class Page(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            if self.path == "/metrics":
                self._answer(200, CONTENT_TYPE_LATEST, generate_latest(registry))
            elif self.path in pages:
                good, told = pages[self.path]()
                self._answer(200 if good else 503, "application/json", json.dumps(told).encode())
            else:
                self._answer(404, "text/plain", b"/healthz, /readyz or /metrics\n")

        def _answer(self, status: int, kind: str, body: bytes) -> None:
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the base class names it
            pass

    try:
        server = ThreadingHTTPServer((host or "127.0.0.1", int(port)), Page)
    except OSError as error:
        raise RuntimeConfigError(
            f"--http {address} cannot be served: {error.strerror}; name an address and a free port of this machine"
        ) from error
    except (ValueError, OverflowError) as error:
        raise RuntimeConfigError(
            f"--http {address} cannot be served: write HOST:PORT, or :8090 for loopback"
        ) from error
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, name="perago-status", daemon=True).start()
    try:
        yield f"http://{server.server_address[0]}:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
