"""Downloads from a repository on loopback that can be told to misbehave."""

import hashlib
import re
import threading
from collections.abc import Generator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from perago.devstack.errors import DevStackError
from perago.devstack.maven import MavenArtifact, download
from perago.devstack.progress import Reporter

CONTENT = bytes(range(256)) * 4096
ARTIFACT = MavenArtifact("org.example", "server", "1.0", hashlib.sha256(CONTENT).hexdigest(), "boot", "use another")
PATH = "/org/example/server/1.0/server-1.0-boot.jar"


class Repository(ThreadingHTTPServer):
    status = 200
    cut_after: int | None = None
    served: list[tuple[str, str | None]]


class Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        repository = self.server
        assert isinstance(repository, Repository)
        wanted = self.headers.get("Range")
        repository.served.append((self.path, wanted))
        start = int(wanted.removeprefix("bytes=").removesuffix("-")) if wanted else 0
        status = repository.status
        if status == 200 and wanted:
            status = 206 if start < len(CONTENT) else 416
        body = CONTENT[start:] if status in (200, 206) else b""
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        cut, repository.cut_after = repository.cut_after, None
        self.wfile.write(body[:cut])

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class names it
        pass


@pytest.fixture
def repository(monkeypatch: pytest.MonkeyPatch) -> Generator[Repository]:
    server = Repository(("127.0.0.1", 0), Handler)
    server.served = []
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    monkeypatch.setenv("PERAGO_MAVEN_REPOSITORY", f"http://127.0.0.1:{server.server_port}")
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


def test_an_artefact_is_fetched_by_its_coordinates(repository: Repository, tmp_path: Path) -> None:
    jar = download(ARTIFACT, tmp_path, Reporter())

    assert jar.read_bytes() == CONTENT
    assert repository.served == [(PATH, None)]
    assert [file.name for file in tmp_path.iterdir()] == ["server-1.0-boot.jar"]


def test_a_download_goes_on_where_an_earlier_one_stopped(repository: Repository, tmp_path: Path) -> None:
    (tmp_path / "server-1.0-boot.jar.part").write_bytes(CONTENT[:5000])

    assert download(ARTIFACT, tmp_path, Reporter()).read_bytes() == CONTENT
    assert repository.served == [(PATH, "bytes=5000-")]


def test_a_connection_cut_half_way_is_resumed_by_itself(repository: Repository, tmp_path: Path) -> None:
    repository.cut_after = len(CONTENT) // 2

    assert download(ARTIFACT, tmp_path, Reporter()).read_bytes() == CONTENT
    assert len(repository.served) == 2


def test_a_download_that_was_whole_already_is_only_checked(repository: Repository, tmp_path: Path) -> None:
    (tmp_path / "server-1.0-boot.jar.part").write_bytes(CONTENT)

    assert download(ARTIFACT, tmp_path, Reporter()).read_bytes() == CONTENT


def test_another_file_than_the_pinned_one_is_deleted(repository: Repository, tmp_path: Path) -> None:
    (tmp_path / "server-1.0-boot.jar.part").write_bytes(b"x" * 5000)

    with pytest.raises(DevStackError, match=r"is not the file Perago expects \(SHA-256 differs\): it was deleted"):
        download(ARTIFACT, tmp_path, Reporter())

    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("status", [403, 404])
def test_a_refused_download_says_what_to_do(repository: Repository, tmp_path: Path, status: int) -> None:
    repository.status = status

    fix = "set PERAGO_MAVEN_REPOSITORY to a mirror you reach, or use another"
    with pytest.raises(DevStackError, match=rf"cannot be downloaded .*answer {status}.*{re.escape(fix)}"):
        download(ARTIFACT, tmp_path, Reporter())
