"""Downloads from a repository on loopback that can be told to misbehave."""

import base64
import hashlib
import io
import re
import threading
import zipfile
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from perago.devstack import provision, versions
from perago.devstack.cache import Cache
from perago.devstack.errors import DevStackError
from perago.devstack.maven import MavenArtifact, download
from perago.devstack.progress import Advance, Reporter

CONTENT = bytes(range(256)) * 4096
ARTIFACT = MavenArtifact("org.example", "server", "1.0", hashlib.sha256(CONTENT).hexdigest(), "boot", "use another")
PATH = "/org/example/server/1.0/server-1.0-boot.jar"


class Repository(ThreadingHTTPServer):
    content = CONTENT
    status = 200
    cut_after: int | None = None
    authorised: str | None = None
    served: list[tuple[str, str | None]]


class Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        repository = self.server
        assert isinstance(repository, Repository)
        wanted = self.headers.get("Range")
        repository.served.append((self.path, wanted))
        start = int(wanted.removeprefix("bytes=").removesuffix("-")) if wanted else 0
        status = repository.status
        if repository.authorised and self.headers.get("Authorization") != repository.authorised:
            status = 401
        if status == 200 and wanted:
            status = 206 if start < len(repository.content) else 416
        body = repository.content[start:] if status in (200, 206) else b""
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        if status == 302:
            self.send_header("Location", self.path)
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


def test_a_download_that_was_checked_already_is_not_asked_for_again(repository: Repository, tmp_path: Path) -> None:
    download(ARTIFACT, tmp_path, Reporter())

    assert download(ARTIFACT, tmp_path, Reporter()).read_bytes() == CONTENT
    assert len(repository.served) == 1


def test_a_download_that_was_damaged_since_is_fetched_anew(repository: Repository, tmp_path: Path) -> None:
    (tmp_path / "server-1.0-boot.jar").write_bytes(CONTENT[:-1])

    assert download(ARTIFACT, tmp_path, Reporter()).read_bytes() == CONTENT


class Interrupted(Reporter):
    """Ctrl-C at the first sign of progress of one step."""

    def __init__(self, title: str) -> None:
        super().__init__()
        self._title = title

    @contextmanager
    def step(self, title: str, total: int | None = None, unit: str = "") -> Generator[Advance]:
        with super().step(title, total, unit) as advance:
            yield interrupt if title == self._title else advance


def interrupt(amount: int) -> None:
    raise KeyboardInterrupt


def test_an_interrupted_unpacking_of_conductor_does_not_download_it_again(
    repository: Repository, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as jar:
        jar.writestr("BOOT-INF/classes/Server.class", b"class")
        jar.writestr("BOOT-INF/lib/some.jar", b"jar")
    repository.content = packed.getvalue()
    monkeypatch.setattr(versions, "CONDUCTOR_SHA256", hashlib.sha256(repository.content).hexdigest())

    with pytest.raises(KeyboardInterrupt):
        provision.conductor_home(Cache(tmp_path, Interrupted("Unpacking Conductor")))
    home = provision.conductor_home(Cache(tmp_path, Reporter()))

    with zipfile.ZipFile(home / "classes.jar") as classes:
        assert classes.read("Server.class") == b"class"
    assert (home / "BOOT-INF" / "lib" / "some.jar").read_bytes() == b"jar"
    assert len(repository.served) == 1


def test_interrupted_downloads_of_many_jars_keep_those_that_came(
    repository: Repository, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    locked = provision._locked

    def as_served(line: str) -> MavenArtifact:
        return replace(locked(line), sha256=ARTIFACT.sha256)

    monkeypatch.setattr(provision, "_locked", as_served)

    with pytest.raises(KeyboardInterrupt):
        provision.s3a_jars(Cache(tmp_path, Interrupted("Downloading Spark's S3A jars")))
    jars = provision.s3a_jars(Cache(tmp_path, Reporter()))

    assert len(repository.served) == len(set(repository.served)) == len([*jars.glob("*.jar")])


def test_another_file_than_the_pinned_one_is_deleted(repository: Repository, tmp_path: Path) -> None:
    (tmp_path / "server-1.0-boot.jar.part").write_bytes(b"x" * 5000)

    with pytest.raises(DevStackError, match=r"is not the file Perago expects \(SHA-256 differs\): it was deleted"):
        download(ARTIFACT, tmp_path, Reporter())

    assert list(tmp_path.iterdir()) == []


@pytest.fixture
def guarded(repository: Repository, monkeypatch: pytest.MonkeyPatch) -> Repository:
    """A repository that asks for the user and password in its address."""
    repository.authorised = f"Basic {base64.b64encode(b'user:h@sh').decode()}"
    monkeypatch.setenv("PERAGO_MAVEN_REPOSITORY", f"http://user:h%40sh@127.0.0.1:{repository.server_port}")
    return repository


def test_a_repository_with_a_password_is_used_and_its_password_never_logged(
    guarded: Repository, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")

    assert download(ARTIFACT, tmp_path, Reporter()).read_bytes() == CONTENT
    assert "127.0.0.1" in caplog.text
    assert "sh@" not in caplog.text


@pytest.mark.parametrize("status", [403, 200])
def test_a_refusal_shows_the_repository_without_its_password(guarded: Repository, tmp_path: Path, status: int) -> None:
    guarded.status = status
    guarded.content = b"something else"

    with pytest.raises(DevStackError) as refused:
        download(ARTIFACT, tmp_path, Reporter())

    assert f"from http://127.0.0.1:{guarded.server_port}{PATH}" in str(refused.value)
    assert "sh@" not in str(refused.value)


@pytest.mark.parametrize("address", ["repository.example/maven", "http://user:hu/sh@h", "http://h:port"])
def test_a_repository_that_has_no_address_is_refused_by_its_variable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, address: str
) -> None:
    monkeypatch.setenv("PERAGO_MAVEN_REPOSITORY", address)

    with pytest.raises(DevStackError) as refused:
        download(ARTIFACT, tmp_path, Reporter())

    assert str(refused.value) == "PERAGO_MAVEN_REPOSITORY: write an address such as http://localhost:8080"


@pytest.mark.parametrize(
    ("status", "told"), [(403, "answer 403"), (404, "answer 404"), (302, "it is redirected without end")]
)
def test_a_refused_download_says_what_to_do(repository: Repository, tmp_path: Path, status: int, told: str) -> None:
    repository.status = status

    fix = "set PERAGO_MAVEN_REPOSITORY to a mirror you reach, or use another"
    with pytest.raises(DevStackError, match=rf"cannot be downloaded .*{told}.*{re.escape(fix)}"):
        download(ARTIFACT, tmp_path, Reporter())
