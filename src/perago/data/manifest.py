"""What was downloaded: path, hash and stat signature of each file, in listing order, outside the body's view."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from hashlib import file_digest, sha256
from pathlib import Path
from types import TracebackType
from typing import NamedTuple, Self

from perago.authoring.errors import TaskExecutionError
from perago.data.tree import Signature


class ManifestEntry(NamedTuple):
    path: str
    digest: str
    signature: Signature


@dataclass(frozen=True)
class Manifest:
    """A written manifest. Its own digest stays in memory: a body that alters the file is found out.

    `sealed_ns` is the file system's clock once all was downloaded: a file whose signature is not older may
    have been changed within the same tick, so only its hash tells.
    """

    file: Path
    digest: str
    sealed_ns: int
    objects: int
    bytes: int

    def entries(self) -> Iterator[ManifestEntry]:
        """The entries in order, once the file is found to be what was written; raises if it is not, or changes."""
        seen = sha256()
        try:
            with self.file.open("rb") as lines:
                if file_digest(lines, "sha256").hexdigest() != self.digest:
                    raise _altered(self.file)
                lines.seek(0)
                for line in lines:
                    seen.update(line)
                    path, digest, size, mtime_ns, ctime_ns, inode = json.loads(line)
                    yield ManifestEntry(path, digest, Signature(size, mtime_ns, ctime_ns, inode))
        except (OSError, ValueError) as error:
            raise _altered(self.file) from error
        if seen.hexdigest() != self.digest:
            raise _altered(self.file)


class ManifestWriter:
    """Writes entries as they come and seals the file."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._seen = sha256()
        self._objects = 0
        self._bytes = 0

    def __enter__(self) -> Self:
        self._opened = self._file.open("xb")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._opened.close()

    def add(self, *entries: ManifestEntry) -> None:
        lines = "".join(map(_line, entries)).encode()
        self._seen.update(lines)
        self._opened.write(lines)
        self._objects += len(entries)
        self._bytes += sum(entry.signature.size for entry in entries)

    def seal(self) -> Manifest:
        self._opened.flush()
        self._file.chmod(0o400)  # also moves its ctime to now, by the file system's own clock
        sealed_ns = self._file.stat().st_ctime_ns
        return Manifest(self._file, self._seen.hexdigest(), sealed_ns, self._objects, self._bytes)


def _line(entry: ManifestEntry) -> str:
    found = entry.signature
    numbers = f"{found.size},{found.mtime_ns},{found.ctime_ns},{found.inode}"
    return f'[{json.dumps(entry.path)},"{entry.digest}",{numbers}]\n'  # a third of a whole row's dumps


def _altered(file: Path) -> TaskExecutionError:
    return TaskExecutionError(
        f"the download manifest {file.name} was altered or removed while the body ran: what changed cannot be told"
    )
