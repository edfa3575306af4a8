"""Refs of a repository through the official SDK: heads, commits, branches, and the three calls that publish."""

import json
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import contextmanager
from functools import cached_property
from typing import Any, Protocol, TypeVar, cast

import urllib3
from lakefs_sdk.api.branches_api import BranchesApi
from lakefs_sdk.api.commits_api import CommitsApi
from lakefs_sdk.api.refs_api import RefsApi
from lakefs_sdk.api_client import ApiClient
from lakefs_sdk.configuration import Configuration
from lakefs_sdk.exceptions import ApiException
from lakefs_sdk.models.branch_creation import BranchCreation
from lakefs_sdk.models.commit_creation import CommitCreation
from lakefs_sdk.models.merge import Merge
from lakefs_sdk.models.repository_creation import RepositoryCreation
from pydantic import SecretStr

from perago.lake.errors import LakeConflict, LakeNotFound, answered, unanswered
from perago.lake.retries import repeated
from perago.lake.transport import api_root
from perago.protocol.publication import Commit

Answer = TypeVar("Answer")

_CONNECT_SECONDS = 5.0
_READ_SECONDS = 20.0
_CHANGE_SECONDS = 60.0
# Before anything was sent, a change surely did not happen.
_NEVER_SENT = (urllib3.exceptions.NewConnectionError, urllib3.exceptions.ConnectTimeoutError)


class LakeControl:
    """Control calls of one lakeFS server; each has a time-out, and only idempotent ones are sent again."""

    def __init__(self, endpoint_url: str, access_key_id: str, secret_access_key: SecretStr) -> None:
        configuration = Configuration(
            host=api_root(endpoint_url),
            username=access_key_id,
            password=secret_access_key.get_secret_value(),
        )
        # The SDK re-sends PUT and DELETE by itself otherwise.
        configuration.retries = cast("Any", urllib3.Retry(0, redirect=0))
        self._api = ApiClient(configuration)
        self._branches = cast("Any", BranchesApi(self._api))
        self._commits = cast("Any", CommitsApi(self._api))
        self._refs = cast("Any", RefsApi(self._api))

    # Few attempts need these two, and importing them is a fifth of an executor's start.

    @cached_property
    def _repositories(self) -> Any:
        from lakefs_sdk.api.repositories_api import RepositoriesApi

        return RepositoriesApi(self._api)

    @cached_property
    def _experimental(self) -> Any:
        from lakefs_sdk.api.experimental_api import ExperimentalApi

        return ExperimentalApi(self._api)

    def ensure_repository(self, name: str, storage_namespace: str, default_branch: str = "main") -> bool:
        """Create a repository; False when one of that name exists already."""
        creation = RepositoryCreation(name=name, storage_namespace=storage_namespace, default_branch=default_branch)
        try:
            self._change(f"creating repository {name}", self._repositories.create_repository, creation)
        except LakeConflict:
            return False
        return True

    def head(self, repository: str, branch: str) -> Commit:
        """The commit a branch points to now."""
        doing = f"reading branch {branch} of repository {repository}"
        found = self._read(doing, self._branches.get_branch, repository, branch)
        return self.commit_of(repository, str(found.commit_id))

    def commit_of(self, repository: str, ref: str) -> Commit:
        found = self._read(f"reading commit {ref} of {repository}", self._commits.get_commit, repository, ref)
        return Commit(str(found.id), tuple(str(parent) for parent in found.parents), str(found.meta_range_id))

    def history(self, repository: str, ref: str, amount: int = 100) -> list[tuple[str, str]]:
        """The newest commits of a ref with their messages, for people."""
        found = self._read(f"reading the history of {ref}", self._refs.log_commits, repository, ref, amount=amount)
        return [(str(commit.id), str(commit.message)) for commit in found.results]

    def branch_exists(self, repository: str, branch: str) -> bool:
        try:
            self._read(f"looking for branch {branch}", self._branches.get_branch, repository, branch)
        except LakeNotFound:
            return False
        return True

    def branches(self, repository: str, prefix: str) -> Iterator[str]:
        """The names of all branches that begin with `prefix`, hidden ones included."""
        after = ""
        while True:
            page = self._read(
                f"listing branches of {repository}",
                self._branches.list_branches,
                repository,
                prefix=prefix,
                after=after,
                amount=1000,
                show_hidden=True,
            )
            yield from (str(branch.id) for branch in page.results)
            if not page.pagination.has_more:
                return
            after = str(page.pagination.next_offset)

    def create_branch(self, repository: str, name: str, source: str) -> None:
        """Create a hidden branch; an existing name is a `LakeConflict`."""
        creation = BranchCreation(name=name, source=source, hidden=True)
        self._change(f"creating branch {name}", self._branches.create_branch, repository, creation)

    def delete_branch(self, repository: str, name: str) -> None:
        """Delete a branch; one that is gone already is as wanted."""
        try:
            self._read(f"deleting branch {name}", self._branches.delete_branch, repository, name)
        except LakeNotFound:
            return

    def commit(self, repository: str, branch: str, message: str, metadata: Mapping[str, str]) -> str:
        creation = CommitCreation(message=message, metadata=dict(metadata))
        made = self._change(f"committing branch {branch}", self._commits.commit, repository, branch, creation)
        return str(made.id)

    def merge(
        self,
        repository: str,
        source: str,
        branch: str,
        message: str,
        metadata: Mapping[str, str],
        timeout: float | None = None,
    ) -> str:
        """Squash-merge a commit into a branch; lakeFS redoes it on a head that moves meanwhile."""
        merge = Merge(message=message, metadata=dict(metadata), squash_merge=True)
        doing = f"merging {source} into {branch}"
        made = self._change(
            doing, self._refs.merge_into_branch, repository, source, branch, timeout=timeout, merge=merge
        )
        return str(made.reference)

    def reset(self, repository: str, branch: str, ref: str, timeout: float | None = None) -> None:
        """Point a branch at another commit, whatever its head is."""
        doing = f"resetting branch {branch} to {ref}"
        self._change(doing, self._experimental.hard_reset_branch, repository, branch, ref, timeout=timeout)

    def _read(self, doing: str, call: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
        def once() -> Any:
            with _asking(doing, changes=False):
                return call(*arguments, _request_timeout=(_CONNECT_SECONDS, _READ_SECONDS), **options)

        return repeated(once)

    def _change(
        self, doing: str, call: Callable[..., Any], *arguments: Any, timeout: float | None = None, **options: Any
    ) -> Any:
        limits = (_CONNECT_SECONDS, timeout or _CHANGE_SECONDS)
        with _asking(doing, changes=True):
            return call(*arguments, _request_timeout=limits, **options)


class _Answer(Protocol):
    """The SDK ships without types."""

    status: int | None
    reason: str | None
    body: str | None


@contextmanager
def _asking(doing: str, *, changes: bool) -> Generator[None]:
    try:
        yield
    except ApiException as error:
        answer = cast("_Answer", error)
        if answer.status is None:
            raise unanswered(doing, error, changes=changes) from error
        raise answered(doing, answer.status, _message(answer), changes=changes) from error
    except urllib3.exceptions.HTTPError as error:
        wrapped = getattr(error, "reason", None)  # urllib3 wraps some of them, and repeats the whole address
        cause = wrapped if isinstance(wrapped, BaseException) else error
        # Not `from error`: its text holds the server's address, which no log may.
        raise unanswered(doing, cause, changes=changes and not isinstance(cause, _NEVER_SENT)) from None


def _message(answer: _Answer) -> str:
    try:
        return str(json.loads(answer.body or "")["message"])
    except (ValueError, KeyError, TypeError):
        return str(answer.reason)
