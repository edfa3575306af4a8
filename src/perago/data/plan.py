"""What a body changed, as a plan: the downloaded tree against the directory as it is now."""

import json
import tempfile
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import IO

from perago.data.engine import Engine, local_engine, partitioned
from perago.data.manifest import Manifest, ManifestEntry
from perago.data.transfer import Compare
from perago.data.tree import LocalFile, Signature, walk

_HASH_THREADS = 4
_HASH_FILES = 64
_HASH_BYTES = 64 * 1024 * 1024


def _nameless() -> IO[str]:
    return tempfile.TemporaryFile("w+", encoding="utf-8")


@dataclass
class Plan:
    """Files to send and paths to delete, in order; kept on disk, so that its size does not matter.

    The file has no name: a body cannot reach it.
    """

    added: int = 0
    changed: int = 0
    deleted: int = 0
    bytes: int = 0
    _puts: IO[str] = field(default_factory=_nameless, repr=False)
    _deletes: IO[str] = field(default_factory=_nameless, repr=False)

    @property
    def is_empty(self) -> bool:
        return not (self.added or self.changed or self.deleted)

    def puts(self) -> Iterator[LocalFile]:
        self._puts.seek(0)
        for line in self._puts:
            path, size, mtime_ns, ctime_ns, inode = json.loads(line)
            yield LocalFile(path, Signature(size, mtime_ns, ctime_ns, inode))

    def deletes(self) -> Iterator[str]:
        self._deletes.seek(0)
        for line in self._deletes:
            yield json.loads(line)

    def lines(self) -> Iterator[str]:
        """Each change, for people."""
        yield from (f"- {path}" for path in self.deletes())
        yield from (f"+ {file.path} ({file.signature.size} bytes)" for file in self.puts())

    def put(self, file: LocalFile, *, new: bool) -> None:
        found = file.signature
        self._puts.write(json.dumps((file.path, found.size, found.mtime_ns, found.ctime_ns, found.inode)) + "\n")
        self.bytes += found.size
        if new:
            self.added += 1
        else:
            self.changed += 1

    def delete(self, path: str) -> None:
        self._deletes.write(json.dumps(path) + "\n")
        self.deleted += 1

    def close(self) -> None:
        self._puts.close()
        self._deletes.close()


def plan_changes(manifest: Manifest, workspace: Path, engine: Engine = local_engine) -> Plan:
    """Walk the directory once against the manifest; only files that look touched are read."""
    plan = Plan()

    def suspects() -> Iterator[tuple[ManifestEntry, LocalFile]]:
        for before, now in _joined(manifest.entries(), walk(workspace)):
            if now is None and before is not None:
                plan.delete(before.path)
            elif before is None and now is not None:
                plan.put(now, new=True)
            elif before is not None and now is not None and _may_differ(before, now, manifest.sealed_ns):
                yield before, now

    try:
        cut = partitioned(suspects(), lambda pair: pair[1].signature.size, _HASH_FILES, _HASH_BYTES)
        with closing(engine(Compare(workspace), cut, _HASH_THREADS, manifest.file.parent)) as compared:
            for file in chain.from_iterable(compared):
                plan.put(file, new=False)
    except BaseException:
        plan.close()
        raise
    return plan


def _may_differ(before: ManifestEntry, now: LocalFile, sealed_ns: int) -> bool:
    return now.signature != before.signature or now.signature.ctime_ns >= sealed_ns


def _joined(
    before: Iterator[ManifestEntry], now: Iterator[LocalFile]
) -> Iterator[tuple[ManifestEntry | None, LocalFile | None]]:
    """Both sides come sorted by their paths' bytes, so one pass pairs them."""
    left, right = next(before, None), next(now, None)
    while left is not None or right is not None:
        left_path = left.path.encode() if left else None
        right_path = right.path.encode() if right else None
        if right_path is None or (left_path is not None and left_path < right_path):
            yield left, None
            left = next(before, None)
        elif left_path is None or right_path < left_path:
            yield None, right
            right = next(now, None)
        else:
            yield left, right
            left, right = next(before, None), next(now, None)
