"""The files of directory workspaces in memory: a directory's path stands for it, nothing is on disk."""

from dataclasses import dataclass, field
from io import BytesIO, StringIO
from pathlib import Path

from perago.authoring.workspace import WorkspaceInput
from perago.data.manifest import Manifest
from perago.data.plan import Plan
from perago.data.tree import LocalFile, Signature
from perago.data.workspace import ListedStore
from perago.lake.objects import RemoteObject
from perago.protocol.paths import listing_prefix, object_path, workspace_file

Contents = dict[str, bytes]


class Received:
    """A sink that keeps an object's content."""

    def __init__(self) -> None:
        self.content = b""

    def restart(self) -> None:
        self.content = b""

    def write(self, chunk: bytes) -> None:
        self.content += chunk


@dataclass(frozen=True)
class InMemoryFiles:
    """`WorkspaceFiles` whose directories a body reads and writes through `directory`."""

    store: ListedStore
    _directories: dict[Path, Contents] = field(default_factory=dict[Path, Contents])
    _downloaded: dict[Path, Contents] = field(default_factory=dict[Path, Contents])

    def directory(self, workspace: Path) -> Contents:
        return self._directories[workspace]

    def download(self, source: WorkspaceInput, prefix: str, into: Path, scratch: Path) -> Manifest:
        contents: Contents = {}
        for listed in list(self.store.list(source.repository, source.ref, listing_prefix(prefix))):
            file = workspace_file(prefix, listed.path)
            if file is not None:
                contents[file] = self._fetched(source, listed)
        manifest = scratch / "manifest"
        self._directories[into] = contents
        self._downloaded[manifest] = dict(contents)
        return Manifest(manifest, "", 0, len(contents), sum(map(len, contents.values())))

    def plan(self, manifest: Manifest, workspace: Path) -> Plan:
        before, now = self._downloaded[manifest.file], self._directories[workspace]
        plan = Plan(_puts=StringIO(), _deletes=StringIO())
        for path in sorted({*before, *now}, key=str.encode):
            if path not in now:
                plan.delete(path)
            elif now[path] != before.get(path):
                plan.put(LocalFile(path, Signature(len(now[path]), 0, 0, 0)), new=path not in before)
        return plan

    def apply(self, plan: Plan, repository: str, branch: str, prefix: str, workspace: Path) -> None:
        contents = self._directories[workspace]
        for file in plan.puts():
            content = contents[file.path]
            self.store.store(
                repository, branch, object_path(prefix, file.path), lambda sent=content: BytesIO(sent), len(content)
            )
        gone = [object_path(prefix, path) for path in plan.deletes()]
        if gone:
            self.store.delete(repository, branch, gone)

    def _fetched(self, source: WorkspaceInput, listed: RemoteObject) -> bytes:
        sink = Received()
        self.store.fetch(source.repository, source.ref, listed, sink)
        return sink.content
