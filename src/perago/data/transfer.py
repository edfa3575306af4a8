"""The functions over one partition: fetch objects into files, hash files, send files, delete objects."""

import os
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from io import FileIO
from itertools import count
from pathlib import Path
from typing import BinaryIO, Protocol

from xxhash import xxh3_128 as content_hash  # tells contents apart, and costs a tenth of what SHA-256 does

from perago.authoring.errors import TaskExecutionError
from perago.data.manifest import ManifestEntry
from perago.data.tree import LocalFile, Signature
from perago.lake.errors import LakeError
from perago.lake.objects import RemoteObject, Sink
from perago.protocol.paths import object_path

_CHUNK = 1024 * 1024
_SMALL = 256 * 1024
# Measured, 8 × 128 MiB: 0.6 s in every run with pieces of this size, 0.5 or 0.9 s with 64 KiB, 1.6 s with 4 KiB. Likely
# why: Linux caches a write in blocks of memory of its size, and keeps freed ones at hand for each core up to 32 KiB.
_PIECE = 32 * 1024
_ARRIVALS = count()
# Threads that change one directory at once spin in the kernel: sixteen of them cost three times one's time.
_NAMING = threading.Lock()


class ObjectStore(Protocol):
    """The object calls a transfer needs."""

    def fetch(self, repository: str, ref: str, wanted: RemoteObject, sink: Sink) -> int: ...
    def store(self, repository: str, branch: str, path: str, content: "Content", size: int) -> None: ...
    def delete(self, repository: str, branch: str, paths: Sequence[str]) -> None: ...


class Content(Protocol):
    def __call__(self) -> BinaryIO: ...


@dataclass(frozen=True)
class Download:
    """Objects of one commit into one directory; each is written aside first and appears whole."""

    store: ObjectStore
    repository: str
    ref: str
    workspace: Path
    incoming: Path

    def __call__(self, partition: Sequence[tuple[str, RemoteObject]]) -> list[ManifestEntry]:
        return [self._one(path, wanted) for path, wanted in partition]

    def _one(self, path: str, wanted: RemoteObject) -> ManifestEntry:
        arriving = f"{self.incoming}/{os.getpid()}-{next(_ARRIVALS)}"  # several processes may fill a workspace
        try:
            if wanted.size <= _SMALL:
                return self._small(path, wanted, arriving)
            digest = self._large(wanted, arriving)
            with _NAMING:
                return self._named(path, digest, arriving)
        except OSError as error:
            raise _unholdable(wanted.path, error) from error

    def _small(self, path: str, wanted: RemoteObject, arriving: str) -> ManifestEntry:
        """Received first and written then, so that many wait for lakeFS and few for the directory."""
        content = _Memory()
        self._fetch(wanted, content)
        whole = b"".join(content.chunks)
        digest = content_hash(whole).hexdigest()
        with _NAMING:
            with open(arriving, "xb", buffering=0) as file:
                _write_all(file, whole)
            return self._named(path, digest, arriving)

    def _named(self, path: str, digest: str, arriving: str) -> ManifestEntry:
        target = f"{self.workspace}/{path}"
        _appear(arriving, target)
        return ManifestEntry(path, digest, Signature.of(os.lstat(target)))

    def _large(self, wanted: RemoteObject, arriving: str) -> str:
        with open(arriving, "xb", buffering=0) as file:
            sink = _HashingFile(file, wanted.path)
            self._fetch(wanted, sink)
        return sink.digest

    def _fetch(self, wanted: RemoteObject, sink: Sink) -> None:
        received = self.store.fetch(self.repository, self.ref, wanted, sink)
        if received != wanted.size:
            raise TaskExecutionError(
                f"object {wanted.path!r} came with {received} bytes, but lakeFS lists {wanted.size}"
            )


def _unholdable(path: str, error: OSError) -> TaskExecutionError:
    return TaskExecutionError(f"object {path!r} cannot be a file of the workspace: {error.strerror or error}")


def _appear(arriving: str, target: str) -> None:
    """Give a whole file its name. A link refuses one that is taken: two objects never become one file."""
    try:
        os.link(arriving, target)
    except FileNotFoundError:
        os.makedirs(os.path.dirname(target), exist_ok=True)
        os.link(arriving, target)
    os.unlink(arriving)


class _Memory:
    def __init__(self) -> None:
        self.chunks: list[bytes] = []

    def restart(self) -> None:
        self.chunks.clear()

    def write(self, chunk: bytes) -> None:
        self.chunks.append(chunk)


class _HashingFile:
    def __init__(self, file: FileIO, path: str) -> None:
        self._file = file
        self._path = path
        self._seen = content_hash()

    def restart(self) -> None:
        if self._file.tell():
            self._file.seek(0)
            self._file.truncate()
            self._seen = content_hash()

    def write(self, chunk: bytes) -> None:
        self._seen.update(chunk)
        try:
            _write_all(self._file, chunk)
        except OSError as error:  # told here, or it would pass for an error of the connection
            raise _unholdable(self._path, error) from error

    @property
    def digest(self) -> str:
        return self._seen.hexdigest()


def _write_all(file: FileIO, content: bytes) -> None:
    left = memoryview(content)
    while left:  # a disk about to be full takes a part, and says so only at the next write
        left = left[file.write(left[:_PIECE]) :]


@dataclass(frozen=True)
class Compare:
    """Which of the files that look touched really hold something else."""

    workspace: Path

    def __call__(self, partition: Sequence[tuple[ManifestEntry, LocalFile]]) -> list[LocalFile]:
        return [file for entry, file in partition if self._differs(entry, file)]

    def _differs(self, entry: ManifestEntry, file: LocalFile) -> bool:
        if file.signature.size != entry.signature.size:
            return True
        seen = content_hash()
        with _opened_as_seen(self.workspace, file) as content:
            while chunk := content.read(_CHUNK):
                seen.update(chunk)
        return seen.hexdigest() != entry.digest


@dataclass(frozen=True)
class Upload:
    """Files of the workspace to a staging branch; a file that changes meanwhile is an error, never a torn object."""

    store: ObjectStore
    repository: str
    branch: str
    prefix: str
    workspace: Path

    def __call__(self, partition: Sequence[LocalFile]) -> tuple[int, int]:
        for file in partition:
            path = object_path(self.prefix, file.path)
            content = partial(_opened_as_seen, self.workspace, file)
            try:
                self.store.store(self.repository, self.branch, path, content, file.signature.size)
            except LakeError as error:
                if not _is_as_seen(self.workspace, file):
                    raise _written_meanwhile(file) from error
                raise
            if not _is_as_seen(self.workspace, file):
                raise _written_meanwhile(file)
        return len(partition), sum(file.signature.size for file in partition)


@dataclass(frozen=True)
class Delete:
    """Objects of a staging branch that the workspace no longer has."""

    store: ObjectStore
    repository: str
    branch: str
    prefix: str

    def __call__(self, partition: Sequence[str]) -> int:
        self.store.delete(self.repository, self.branch, [object_path(self.prefix, path) for path in partition])
        return len(partition)


def _is_as_seen(workspace: Path, file: LocalFile) -> bool:
    try:
        return Signature.of(os.lstat(f"{workspace}/{file.path}")) == file.signature
    except OSError:
        return False


def _opened_as_seen(workspace: Path, file: LocalFile) -> BinaryIO:
    """Open a file and make sure that it is still the one the walk saw."""
    try:
        # Without waiting: what was a file may have become a pipe.
        opened = os.open(f"{workspace}/{file.path}", os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except PermissionError as error:
        raise TaskExecutionError(
            f"file {file.path!r} cannot be read, so it cannot be published: {error.strerror}"
        ) from error
    except OSError as error:
        raise _written_meanwhile(file) from error
    if Signature.of(os.fstat(opened)) != file.signature:
        os.close(opened)
        raise _written_meanwhile(file)
    return os.fdopen(opened, "rb", buffering=0)


def _written_meanwhile(file: LocalFile) -> TaskExecutionError:
    return TaskExecutionError(
        f"file {file.path!r} was changed while the workspace was being published: the body left something running"
        " that still writes; wait for it before returning"
    )
