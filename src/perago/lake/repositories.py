"""Repositories and their branches: the few calls that set a workspace up."""

import json
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Protocol, cast

import urllib3
from lakefs_sdk.api.branches_api import BranchesApi
from lakefs_sdk.api.repositories_api import RepositoriesApi
from lakefs_sdk.api_client import ApiClient
from lakefs_sdk.configuration import Configuration
from lakefs_sdk.exceptions import ApiException
from lakefs_sdk.models.repository_creation import RepositoryCreation
from pydantic import SecretStr

from perago.lake.errors import LakeConflict, LakeNotFound, lake_error

_TIMEOUT = 20.0


@dataclass(frozen=True)
class Branch:
    repository: str
    name: str
    commit: str


class _Calls(Protocol):
    """The SDK's calls used here; it ships without types."""

    def create_repository(self, creation: Any, **options: Any) -> Any: ...
    def get_branch(self, repository: str, branch: str, **options: Any) -> Any: ...


class _Answer(Protocol):
    status: int | None
    reason: str | None
    body: str | None


class LakeClient:
    """Control calls of one lakeFS server."""

    def __init__(self, endpoint_url: str, access_key_id: str, secret_access_key: SecretStr) -> None:
        configuration = Configuration(
            host=_api_root(endpoint_url),
            username=access_key_id,
            password=secret_access_key.get_secret_value(),
        )
        # The SDK re-sends PUT and DELETE by itself otherwise.
        configuration.retries = cast("Any", urllib3.Retry(0))
        api = ApiClient(configuration)
        self._repositories = cast("_Calls", RepositoriesApi(api))
        self._branches = cast("_Calls", BranchesApi(api))

    def ensure_repository(self, name: str, storage_namespace: str, default_branch: str = "main") -> bool:
        """Create a repository; False when one of that name exists already."""
        creation = RepositoryCreation(name=name, storage_namespace=storage_namespace, default_branch=default_branch)
        try:
            with _asking(f"creating repository {name}"):
                self._repositories.create_repository(creation, _request_timeout=_TIMEOUT)
        except LakeConflict:
            return False
        return True

    def branch(self, repository: str, name: str) -> Branch:
        """The branch with its head commit."""
        with _asking(f"reading branch {name} of repository {repository}"):
            found = self._branches.get_branch(repository, name, _request_timeout=_TIMEOUT)
        return Branch(repository, name, str(found.commit_id))

    def find_branch(self, repository: str, name: str) -> Branch | None:
        try:
            return self.branch(repository, name)
        except LakeNotFound:
            return None


@contextmanager
def _asking(doing: str) -> Generator[None]:
    try:
        yield
    except ApiException as error:
        answer = cast("_Answer", error)
        raise lake_error(doing, answer.status, _message(answer)) from error
    except urllib3.exceptions.HTTPError as error:
        raise lake_error(doing, None, type(error).__name__) from error


def _message(answer: _Answer) -> str:
    try:
        return str(json.loads(answer.body or "")["message"])
    except (ValueError, KeyError, TypeError):
        return str(answer.reason)


def _api_root(endpoint_url: str) -> str:
    """Accept the address with and without `/api/v1`, as lakectl does."""
    root = endpoint_url.rstrip("/")
    return root if root.endswith("/api/v1") else f"{root}/api/v1"
