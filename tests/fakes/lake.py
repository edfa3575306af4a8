"""lakeFS in memory, behind the calls of `LakeControl` and `LakeObjects`, as far as Perago can tell them apart.

`tests/contract` runs one suite on this and on the real server; what differs is a mistake here. Two of lakeFS's
habits matter most: an object keeps the address it was uploaded to, so that equal content uploaded twice makes two
trees though no difference; and merge and reset take no expected head, but work on whatever the branch holds.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, cached_property
from hashlib import sha256
from typing import BinaryIO

from perago.lake.errors import LakeError, answered
from perago.lake.objects import PAGE, RemoteObject, Sink
from perago.protocol.publication import Commit

_BRANCH = re.compile(r"\w[-\w]*", re.ASCII)


@dataclass(frozen=True)
class Entry:
    """An object: what it holds, and where that was uploaded to."""

    content: bytes
    address: str


Entries = Mapping[str, Entry]
#: Uncommitted changes of a branch; None stands for a deletion.
Changes = Mapping[str, Entry | None]


@dataclass(frozen=True)
class StoredCommit:
    commit: Commit
    entries: Entries

    @cached_property
    def files(self) -> dict[str, bytes]:
        return {path: entry.content for path, entry in self.entries.items()}


@dataclass
class Repository:
    default_branch: str
    commits: dict[str, StoredCommit]
    heads: dict[str, str]
    changes: dict[str, Changes] = field(default_factory=dict[str, Changes])
    uploads: dict[str, int] = field(default_factory=dict[str, int])

    def fork(self) -> "Repository":
        return Repository(
            self.default_branch, dict(self.commits), dict(self.heads), dict(self.changes), dict(self.uploads)
        )

    def ancestry(self, commit: str) -> Iterator[str]:
        """A commit and those before it; a squash merge has one parent, so history is a line."""
        at: str | None = commit
        while at is not None:
            yield at
            at = self.commits[at].commit.first_parent


class InMemoryLake:
    """Control and object calls of one lakeFS server."""

    def __init__(self) -> None:
        self._repositories: dict[str, Repository] = {}

    def fork(self) -> "InMemoryLake":
        """The same server once more, to go another way from here."""
        twin = InMemoryLake()
        twin._repositories = {name: repository.fork() for name, repository in self._repositories.items()}
        return twin

    def repository(self, name: str) -> Repository:
        """For those who look behind the API."""
        return self._known(name, "looking behind the API")

    # -- control ---------------------------------------------------------------------------------------------------

    def ensure_repository(self, name: str, storage_namespace: str, default_branch: str = "main") -> bool:
        if name in self._repositories:
            return False
        root = _commit_id((), "", "Repository created", {"namespace": storage_namespace})
        first = StoredCommit(Commit(root, (), ""), {})
        self._repositories[name] = Repository(default_branch, {root: first}, {default_branch: root})
        return True

    def head(self, repository: str, branch: str) -> Commit:
        doing = f"reading branch {branch} of repository {repository}"
        known = self._known(repository, doing)
        return known.commits[_head_of(known, branch, doing)].commit

    def commit_of(self, repository: str, ref: str) -> Commit:
        doing = f"reading commit {ref} of {repository}"
        known = self._known(repository, doing)
        return known.commits[_resolved(known, ref, doing)].commit

    def branch_exists(self, repository: str, branch: str) -> bool:
        return repository in self._repositories and branch in self._repositories[repository].heads

    def branches(self, repository: str, prefix: str) -> Iterator[str]:
        known = self._known(repository, f"listing branches of {repository}")
        yield from sorted(branch for branch in known.heads if branch.startswith(prefix))

    def create_branch(self, repository: str, name: str, source: str) -> None:
        doing = f"creating branch {name}"
        known = self._known(repository, doing)
        if not _BRANCH.fullmatch(name):
            raise answered(doing, 400, "branch id: invalid value: validation error")
        commit = _resolved(known, source, doing)
        if name in known.heads:
            raise answered(doing, 409, "branch already exists: not unique")
        known.heads[name] = commit

    def delete_branch(self, repository: str, name: str) -> None:
        if not self.branch_exists(repository, name):
            return
        known = self._repositories[repository]
        if name == known.default_branch:
            raise answered(f"deleting branch {name}", 403, "cannot delete repository default branch")
        del known.heads[name]
        known.changes.pop(name, None)

    def commit(self, repository: str, branch: str, message: str, metadata: Mapping[str, str]) -> str:
        doing = f"committing branch {branch}"
        known = self._known(repository, doing)
        head = known.commits[_head_of(known, branch, doing)]
        if not _is_dirty(known, branch):
            raise answered(doing, 400, "commit: no changes")
        entries = _overlaid(head.entries, known.changes.pop(branch))
        return _advance(known, branch, entries, message, metadata)

    def merge(
        self,
        repository: str,
        source: str,
        branch: str,
        message: str,
        metadata: Mapping[str, str],
        timeout: float | None = None,
    ) -> str:
        doing = f"merging {source} into {branch}"
        known = self._known(repository, doing)
        head = known.commits[_head_of(known, branch, doing)]
        if _is_dirty(known, branch):
            raise answered(doing, 400, "uncommitted changes (dirty branch)")
        theirs = known.commits[_resolved(known, source, doing)]
        base = _common_ancestor(known, theirs, head)
        if theirs.commit.tree == base.commit.tree:
            raise answered(doing, 400, f"update branch {branch}: no changes")
        entries = theirs.entries
        if head.commit.tree != base.commit.tree:
            entries = _merged(base.entries, theirs.entries, head.entries, answered(doing, 409, "Conflict"))
        return _advance(known, branch, entries, message, metadata)

    def reset(self, repository: str, branch: str, ref: str, timeout: float | None = None) -> None:
        doing = f"resetting branch {branch} to {ref}"
        known = self._known(repository, doing)
        _head_of(known, branch, doing)
        known.heads[branch] = _resolved(known, ref, doing)  # uncommitted changes stay, as on the real server

    # -- objects ---------------------------------------------------------------------------------------------------

    def list(self, repository: str, ref: str, prefix: str) -> Iterator[RemoteObject]:
        entries = self._entries(repository, ref, f"listing {prefix or '/'} at {ref}")
        for path in sorted(entries, key=str.encode):
            if path.startswith(prefix):
                yield RemoteObject(path, len(entries[path].content))

    def fetch(self, repository: str, ref: str, wanted: RemoteObject, sink: Sink) -> int:
        doing = f"reading object {wanted.path!r}"
        found = self._entries(repository, ref, doing).get(wanted.path)
        if found is None:
            raise answered(doing, 404, "not found")
        sink.restart()
        sink.write(found.content)
        return len(found.content)

    def store(self, repository: str, branch: str, path: str, content: Callable[[], BinaryIO], size: int) -> None:
        doing = f"writing object {path!r}"
        known = self._known(repository, doing)
        _head_of(known, branch, doing)
        if not path:
            raise answered(doing, 400, "empty value is not allowed")
        with content() as file:
            sent = file.read(size)
        uploads = known.uploads[branch] = known.uploads.get(branch, 0) + 1
        known.changes[branch] = {**known.changes.get(branch, {}), path: Entry(sent, f"{branch}/{uploads}")}

    def delete(self, repository: str, branch: str, paths: Sequence[str]) -> None:
        doing = f"deleting {len(paths)} objects of branch {branch}"
        if len(paths) > PAGE:
            raise answered(doing, 400, f"request size exceeded, max paths is set to {PAGE}")
        known = self._known(repository, doing)
        if branch in known.heads:  # the real server says nothing of a branch that is not there
            known.changes[branch] = {**known.changes.get(branch, {}), **dict.fromkeys(paths)}

    def _entries(self, repository: str, ref: str, doing: str) -> Entries:
        known = self._known(repository, doing)
        committed = known.commits[_resolved(known, ref, doing)].entries
        return _overlaid(committed, known.changes.get(ref, {}))

    def _known(self, repository: str, doing: str) -> Repository:
        if repository not in self._repositories:
            raise answered(doing, 404, "repository not found")
        return self._repositories[repository]


def _head_of(known: Repository, branch: str, doing: str) -> str:
    if branch not in known.heads:
        raise answered(doing, 404, "branch not found")
    return known.heads[branch]


def _resolved(known: Repository, ref: str, doing: str) -> str:
    """A branch's head, a commit, or the one commit whose id begins so."""
    if ref in known.heads:
        return known.heads[ref]
    found = [ref] if ref in known.commits else [commit for commit in known.commits if commit.startswith(ref)]
    if len(found) != 1:
        raise answered(doing, 404, "not found")
    return found[0]


def _is_dirty(known: Repository, branch: str) -> bool:
    """Only a change that differs counts: the same content uploaded again is none."""
    committed = known.commits[known.heads[branch]].entries
    changes = known.changes.get(branch, {})
    return any(_content(entry) != _content(committed.get(path)) for path, entry in changes.items())


def _overlaid(entries: Entries, changes: Changes) -> Entries:
    return {path: entry for path, entry in {**entries, **changes}.items() if entry is not None}


def _content(entry: Entry | None) -> bytes | None:
    return None if entry is None else entry.content


def _common_ancestor(known: Repository, one: StoredCommit, other: StoredCommit) -> StoredCommit:
    ours = set(known.ancestry(other.commit.id))
    return known.commits[next(commit for commit in known.ancestry(one.commit.id) if commit in ours)]


def _merged(base: Entries, source: Entries, target: Entries, conflict: LakeError) -> Entries:
    """Three ways by path: a change on one side is taken, the same change on both is one, others conflict."""
    merged: dict[str, Entry | None] = {}
    for path in {*base, *source, *target}:
        before, theirs, ours = (_content(side.get(path)) for side in (base, source, target))
        if theirs not in (before, ours) and ours != before:
            raise conflict
        merged[path] = target.get(path) if theirs == before != ours else source.get(path)
    return _overlaid({}, merged)


def _advance(known: Repository, branch: str, entries: Entries, message: str, metadata: Mapping[str, str]) -> str:
    parents = (known.heads[branch],)
    tree = _tree_id(frozenset(entries.items()))
    made = Commit(_commit_id(parents, tree, message, metadata), parents, tree)
    known.commits[made.id] = StoredCommit(made, entries)
    known.heads[branch] = made.id
    return made.id


@cache
def _tree_id(entries: frozenset[tuple[str, Entry]]) -> str:
    return _digest("tree", sorted((path, entry.address, entry.content.hex()) for path, entry in entries))


def _commit_id(parents: tuple[str, ...], tree: str, message: str, metadata: Mapping[str, str]) -> str:
    """A commit is named by what it says; lakeFS adds the time in seconds, which has no place here."""
    return _digest("commit", parents, tree, message, sorted(metadata.items()))


def _digest(*parts: object) -> str:
    return sha256(repr(parts).encode()).hexdigest()
