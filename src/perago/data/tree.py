"""The files of a directory, in the order lakeFS lists objects."""

import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from perago.authoring.errors import TaskExecutionError
from perago.authoring.paths import MARKER_NAME


class Signature(NamedTuple):
    """What the file system says of a file; content cannot change without it, but for the last clock tick."""

    size: int
    mtime_ns: int
    ctime_ns: int
    inode: int

    @classmethod
    def of(cls, status: os.stat_result) -> "Signature":
        return cls(status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino)


class LocalFile(NamedTuple):
    path: str
    signature: Signature


def walk(root: Path) -> Iterator[LocalFile]:
    """Every file below `root` by relative path, sorted by the path's bytes; what cannot be published is refused."""
    if root.is_symlink():
        raise _refused("symlinks", os.fsencode(root.name))
    yield from _walk(os.fsencode(root), b"")


def _walk(directory: bytes, under: bytes) -> Iterator[LocalFile]:
    with os.scandir(directory) as scanned:
        # A directory sorts as its files do: by its name and the slash that follows.
        entries = sorted(
            (entry.name + b"/" if entry.is_dir(follow_symlinks=False) else entry.name, entry) for entry in scanned
        )
    for name, entry in entries:
        if entry.name == MARKER_NAME.encode():
            continue
        path = under + name
        if name.endswith(b"/"):
            yield from _walk(entry.path, path)
            continue
        status = entry.stat(follow_symlinks=False)
        if stat.S_ISLNK(status.st_mode):
            raise _refused("symlinks", path)
        if not stat.S_ISREG(status.st_mode):
            raise _refused("pipes, sockets or devices", path)
        yield LocalFile(_text(path), Signature.of(status))


def _text(path: bytes) -> str:
    try:
        return path.decode()
    except UnicodeDecodeError:
        raise _refused("file names that are not UTF-8", path) from None


def _refused(what: str, path: bytes) -> TaskExecutionError:
    shown = path.decode(errors="backslashreplace")
    return TaskExecutionError(f"workspace publication does not support {what}: {shown}")
