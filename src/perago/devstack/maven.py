"""Artefacts of Maven repositories: streamed, resumed, and checked against a pinned hash."""

import hashlib
import os
import ssl
import time
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path

import certifi
import httpx
from jgo.maven import MavenContext

from perago.addresses import http_address
from perago.devstack.errors import DevStackError
from perago.devstack.progress import Reporter

_TRIES = 4
_CHUNK = 1 << 20
_TIMEOUT = httpx.Timeout(30, connect=15)


@dataclass(frozen=True)
class MavenArtifact:
    group: str
    artifact: str
    version: str
    sha256: str
    classifier: str | None = None
    #: What to do instead when it cannot be downloaded.
    otherwise: str = ""

    @property
    def filename(self) -> str:
        classifier = f"-{self.classifier}" if self.classifier else ""
        return f"{self.artifact}-{self.version}{classifier}.jar"


def download(wanted: MavenArtifact, into: Path, reporter: Reporter) -> Path:
    """Fetch an artefact into a folder, going on where an interrupted try stopped; a whole one is not fetched again."""
    target = into / wanted.filename
    if target.exists() and _sha256(target) == wanted.sha256:
        return target
    partial = into / f"{wanted.filename}.part"
    address = _url(wanted)
    # Apart from the address, which httpx logs and errors show.
    auth = httpx.BasicAuth(address.username, address.password) if address.userinfo else None
    url = str(address.copy_with(userinfo=b""))
    with httpx.Client(verify=_certificates(), timeout=_TIMEOUT, follow_redirects=True, auth=auth) as http:
        for attempt in range(1, _TRIES + 1):
            try:
                _stream(http, url, partial, f"Downloading {wanted.filename}", reporter)
                break
            except httpx.TransportError as error:
                if attempt == _TRIES:
                    raise _refused(wanted, url, f"{type(error).__name__}: {error}") from error
                reporter.note(f"download interrupted ({type(error).__name__}): going on")
                time.sleep(attempt)
            except httpx.HTTPStatusError as error:
                raise _refused(wanted, url, f"answer {error.response.status_code}") from error
            except httpx.TooManyRedirects as error:
                raise _refused(wanted, url, "it is redirected without end") from error
    if _sha256(partial) != wanted.sha256:
        partial.unlink()
        raise DevStackError(
            f"{wanted.filename} from {url} is not the file Perago expects (SHA-256 differs): it was deleted;"
            " try again, or check what your proxy or mirror hands out"
        )
    partial.rename(target)
    return target


def _stream(http: httpx.Client, url: str, partial: Path, title: str, reporter: Reporter) -> None:
    have = partial.stat().st_size if partial.exists() else 0
    with http.stream("GET", url, headers={"Range": f"bytes={have}-"} if have else {}) as response:
        if response.status_code == HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE:
            return  # all there already; the hash decides
        response.raise_for_status()
        resumed = have if response.status_code == HTTPStatus.PARTIAL_CONTENT else 0
        left = int(response.headers.get("content-length", 0))
        with (
            partial.open("ab" if resumed else "wb") as file,
            reporter.step(title, resumed + left if left else None, "B") as advance,
        ):
            advance(resumed)
            for chunk in response.iter_bytes(_CHUNK):
                file.write(chunk)
                advance(len(chunk))


def _url(wanted: MavenArtifact) -> httpx.URL:
    mirror = os.environ.get("PERAGO_MAVEN_REPOSITORY")
    try:
        mirror = http_address(mirror) if mirror else None
    except ValueError as error:
        raise DevStackError(f"PERAGO_MAVEN_REPOSITORY: {error}") from None
    context = MavenContext(remote_repos={"mirror": mirror} if mirror else None)
    component = context.project(wanted.group, wanted.artifact).at_version(wanted.version)
    (repository,) = context.remote_repos.values()
    return httpx.URL(f"{repository.rstrip('/')}/{component.path_prefix.as_posix()}/{wanted.filename}")


def _certificates() -> ssl.SSLContext:
    """The system's certificates (a company's proxy is known there) and certifi's, for systems that have none."""
    context = ssl.create_default_context()
    context.load_verify_locations(certifi.where())
    return context


def _sha256(file: Path) -> str:
    with file.open("rb") as content:
        return hashlib.file_digest(content, "sha256").hexdigest()


def _refused(wanted: MavenArtifact, url: str, why: str) -> DevStackError:
    return DevStackError(
        f"{wanted.filename} cannot be downloaded from {url} ({why}): check the network and HTTPS_PROXY,"
        f" set PERAGO_MAVEN_REPOSITORY to a mirror you reach, or {wanted.otherwise}"
    )
