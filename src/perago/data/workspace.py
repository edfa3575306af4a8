"""A directory workspace over an engine: a commit's objects come down, a plan's changes go up."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Protocol

from perago.authoring.workspace import WorkspaceInput
from perago.data.engine import Engine, local_engine, partitioned
from perago.data.manifest import Manifest, ManifestWriter
from perago.data.plan import Plan, plan_changes
from perago.data.transfer import Delete, Download, ObjectStore, Upload
from perago.lake.objects import PAGE, RemoteObject
from perago.protocol.paths import listing_prefix, workspace_file

# Measured on two cores: lakeFS answers an upload later than a download, so more of them may wait at once.
_UPLOAD_THREADS = 64
_DOWNLOAD_THREADS = 16
_DELETE_THREADS = 4
_PARTITION_OBJECTS = 16
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
    store: ListedStore,
    source: WorkspaceInput,
    prefix: str,
    into: Path,
    scratch: Path,
    progress: Progress,
    engine: Engine = local_engine,
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
    cut = partitioned(
        wanted(), lambda pair: pair[1].size, _PARTITION_OBJECTS, _PARTITION_BYTES, lanes=_DOWNLOAD_THREADS
    )
    fetched = closing(engine(fetch, cut, _DOWNLOAD_THREADS, scratch))  # whatever happens, it has ended
    with ManifestWriter(scratch / "manifest.jsonl") as manifest, fetched as parts:
        for entries in parts:
            manifest.add(*entries)
            progress(Transferred("download", len(entries), sum(entry.signature.size for entry in entries)))
        return manifest.seal()


def apply(
    plan: Plan,
    store: ObjectStore,
    repository: str,
    branch: str,
    prefix: str,
    workspace: Path,
    progress: Progress,
    engine: Engine = local_engine,
) -> None:
    """Make the prefix on a staging branch equal to the workspace."""
    scratch = workspace.parent
    send = Upload(store, repository, branch, prefix, workspace)
    puts = partitioned(
        plan.puts(), lambda file: file.signature.size, _PARTITION_OBJECTS, _PARTITION_BYTES, lanes=_UPLOAD_THREADS
    )
    with closing(engine(send, puts, _UPLOAD_THREADS, scratch)) as sent:
        for objects, size in sent:
            progress(Transferred("upload", objects, size))
    remove = Delete(store, repository, branch, prefix)
    deletes = partitioned(plan.deletes(), lambda _: 0, PAGE, 1)
    with closing(engine(remove, deletes, _DELETE_THREADS, scratch)) as removed:
        for objects in removed:
            progress(Transferred("delete", objects, 0))


@dataclass(frozen=True)
class DirectoryFiles:
    """The files of directory workspaces on one lakeFS server."""

    store: ListedStore
    progress: Progress = lambda _: None
    engine: Engine = local_engine

    def download(self, source: WorkspaceInput, prefix: str, into: Path, scratch: Path) -> Manifest:
        return download(self.store, source, prefix, into, scratch, self.progress, self.engine)

    def plan(self, manifest: Manifest, workspace: Path) -> Plan:
        return plan_changes(manifest, workspace, self.engine)

    def apply(self, plan: Plan, repository: str, branch: str, prefix: str, workspace: Path) -> None:
        apply(plan, self.store, repository, branch, prefix, workspace, self.progress, self.engine)
