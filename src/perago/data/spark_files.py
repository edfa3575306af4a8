"""The files of Spark workspaces on one lakeFS server: opened for an attempt, settled before they are committed."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from perago.authoring.errors import TaskExecutionError
from perago.data.places import LakePlace, Objects, is_leftover
from perago.data.spark_session import AttemptSession, stragglers
from perago.data.spark_workspace import PlacedWorkspace
from perago.lake.objects import PAGE, Change
from perago.protocol.paths import listing_prefix

_SAMPLE = 200


class ComparedObjects(Objects, Protocol):
    def uncommitted(self, repository: str, branch: str) -> Iterable[Change]: ...
    def difference(self, repository: str, left: str, right: str, prefix: str) -> Iterable[Change]: ...


@dataclass(frozen=True)
class Changed:
    """How much of a workspace differs."""

    added: int = 0
    changed: int = 0
    deleted: int = 0
    sample: Sequence[Change] = ()

    def lines(self) -> Iterator[str]:
        """The first of the changes, for people."""
        yield from (f"{'-' if change.kind == 'removed' else '+'} {change.path}" for change in self.sample)

    @property
    def is_empty(self) -> bool:
        return not (self.added or self.changed or self.deleted)


@dataclass(frozen=True)
class SparkFiles:
    """Spark and lakeFS together, for one execution."""

    session: AttemptSession
    objects: ComparedObjects

    def place(self, repository: str, ref: str, prefix: str, *, writable: bool = False) -> LakePlace:
        return LakePlace(self.objects, repository, ref, prefix, writable=writable)

    def settle(self, workspace: PlacedWorkspace, repository: str, branch: str, prefix: str) -> Changed:
        """Make a branch ready to be committed: nothing writes any more, and what Spark left behind is gone."""
        running = stragglers(workspace.spark)
        if running:
            raise TaskExecutionError(
                f"the body returned while {running} of its Spark operations still ran: wait for them before returning"
            )
        within = listing_prefix(prefix)
        counts = {"added": 0, "changed": 0, "removed": 0}
        leftovers: list[str] = []
        sample: list[Change] = []
        for change in self.objects.uncommitted(repository, branch):
            if not change.path.startswith(within):
                raise TaskExecutionError(
                    f"the body wrote object {change.path!r}, which lies outside its prefix {prefix!r}:"
                    " address files by workspace.uri, workspace.read and workspace.write"
                )
            inside = change.path.removeprefix(within)
            if change.kind == "added" and is_leftover(inside) and not workspace.was_asked_for(inside):
                leftovers.append(change.path)
            else:
                counts[change.kind] += 1
                if len(sample) < _SAMPLE:
                    sample.append(change)
        self._remove(repository, branch, leftovers)
        return Changed(counts["added"], counts["changed"], counts["removed"], sample)

    def difference(self, repository: str, left: str, right: str, prefix: str) -> Changed:
        kinds = [change.kind for change in self.objects.difference(repository, left, right, listing_prefix(prefix))]
        return Changed(kinds.count("added"), kinds.count("changed"), kinds.count("removed"))

    def _remove(self, repository: str, branch: str, paths: Sequence[str]) -> None:
        for start in range(0, len(paths), PAGE):
            self.objects.delete(repository, branch, paths[start : start + PAGE])
