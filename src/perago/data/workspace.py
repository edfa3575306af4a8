"""A directory workspace over the local engine: a commit's objects come down, a plan's changes go up."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Protocol

from perago.authoring.workspace import WorkspaceInput
from perago.data.engine import ordered_map, partitioned
from perago.data.manifest import Manifest, ManifestWriter
from perago.data.plan import Plan, plan_changes
from perago.data.transfer import Download, ObjectStore, Upload
from perago.lake.objects import PAGE, RemoteObject
from perago.protocol.paths import listing_prefix, object_path, workspace_file

# Measured on two cores: lakeFS answers an upload later than a download, so more of them may wait at once.
_UPLOAD_THREADS = 64
_DOWNLOAD_THREADS = 16
_DELETE_THREADS = 4
_PARTITION_OBJECTS = 4
_PARTITION_BYTES = 32 * 1024 * 1024


@dataclass(frozen=True)
class Transferred:
    """So much more of a phase is done."""

    phase: Literal["download", "upload", "delete"]
    objects: int
    bytes: int


Progress = Callable[[Transferred], None]


class ListedStore(ObjectStore, Protocol):
    def list(self, repository: str, ref: str, prefix: str) -> Iterable[RemoteObject]: ...


def download(
    store: ListedStore, source: WorkspaceInput, prefix: str, into: Path, scratch: Path, progress: Progress
) -> Manifest:
    """Fill `into` with the objects below the prefix at the input commit; `scratch` holds what is not for the body."""

    def wanted() -> Iterator[tuple[str, RemoteObject]]:
        for listed in store.list(source.repository, source.ref, listing_prefix(prefix)):
            file = workspace_file(prefix, listed.path)
            if file is not None:
                yield file, listed

    incoming = scratch / "incoming"
    incoming.mkdir()
    fetch = Download(store, source.repository, source.ref, into, incoming)
    cut = partitioned(wanted(), lambda pair: pair[1].size, _PARTITION_OBJECTS, _PARTITION_BYTES)
    with ManifestWriter(scratch / "manifest.jsonl") as manifest:
        for entries in ordered_map(fetch, cut, _DOWNLOAD_THREADS):
            for entry in entries:
                manifest.add(entry)
            progress(Transferred("download", len(entries), sum(entry.signature.size for entry in entries)))
        return manifest.seal()


def apply(
    plan: Plan, store: ObjectStore, repository: str, branch: str, prefix: str, workspace: Path, progress: Progress
) -> None:
    """Make the prefix on a staging branch equal to the workspace."""
    send = Upload(store, repository, branch, prefix, workspace)
    # Few files go one by one, each on a thread of its own; many go in handfuls.
    handful = _PARTITION_OBJECTS if plan.added + plan.changed > _UPLOAD_THREADS * _PARTITION_OBJECTS else 1
    puts = partitioned(plan.puts(), lambda file: file.signature.size, handful, _PARTITION_BYTES)
    for objects, size in ordered_map(send, puts, _UPLOAD_THREADS):
        progress(Transferred("upload", objects, size))

    def remove(paths: list[str]) -> int:
        store.delete(repository, branch, [object_path(prefix, path) for path in paths])
        return len(paths)

    deletes = partitioned(plan.deletes(), lambda _: 0, PAGE, 1)
    for objects in ordered_map(remove, deletes, _DELETE_THREADS):
        progress(Transferred("delete", objects, 0))


@dataclass(frozen=True)
class DirectoryFiles:
    """The files of directory workspaces on one lakeFS server."""

    store: ListedStore
    progress: Progress = lambda _: None

    def download(self, source: WorkspaceInput, prefix: str, into: Path, scratch: Path) -> Manifest:
        return download(self.store, source, prefix, into, scratch, self.progress)

    def plan(self, manifest: Manifest, workspace: Path) -> Plan:
        return plan_changes(manifest, workspace)

    def apply(self, plan: Plan, repository: str, branch: str, prefix: str, workspace: Path) -> None:
        apply(plan, self.store, repository, branch, prefix, workspace, self.progress)
