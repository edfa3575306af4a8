"""A second lakeFS, on S3-compatible storage: bulk data goes straight to the storage at signed addresses."""

import os
import sys
import uuid
from collections.abc import Callable, Generator
from pathlib import Path

import httpx
import pytest
from pydantic import SecretStr

from perago.authoring.workspace import WorkspaceInput
from perago.data.workspace import DirectoryFiles
from perago.devstack import processes
from perago.devstack.cache import Cache
from perago.devstack.progress import Reporter
from perago.devstack.provision import lakefs_binary
from perago.lake.control import LakeControl
from perago.lake.objects import LakeObjects
from tests.conftest import Servers

KEY = ("AKIAPRESIGNEDTEST", SecretStr("presigned-test-secret"))


@pytest.fixture(scope="module")
def address(servers: Servers, tmp_path_factory: pytest.TempPathFactory) -> Generator[tuple[str, str, SecretStr]]:
    folder = tmp_path_factory.mktemp("presigned")
    storage, lakefs = processes.free_port(), processes.free_port()
    endpoint, url = f"http://127.0.0.1:{storage}", f"http://127.0.0.1:{lakefs}"
    moto = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(storage)]
    settings = {
        "LISTEN_ADDRESS": f"127.0.0.1:{lakefs}",
        "DATABASE_TYPE": "local",
        "DATABASE_LOCAL_PATH": str(folder / "metadata"),
        "COMMITTED_LOCAL_CACHE_DIR": str(folder / "cache"),
        "BLOCKSTORE_TYPE": "s3",
        "BLOCKSTORE_S3_ENDPOINT": endpoint,
        "BLOCKSTORE_S3_FORCE_PATH_STYLE": "true",
        "BLOCKSTORE_S3_DISCOVER_BUCKET_REGION": "false",
        "BLOCKSTORE_S3_CREDENTIALS_ACCESS_KEY_ID": "any",
        "BLOCKSTORE_S3_CREDENTIALS_SECRET_ACCESS_KEY": "any",
        "AUTH_ENCRYPT_SECRET_KEY": uuid.uuid4().hex,
        "STATS_ENABLED": "false",
        "INSTALLATION_USER_NAME": "perago",
        "INSTALLATION_ACCESS_KEY_ID": KEY[0],
        "INSTALLATION_SECRET_ACCESS_KEY": KEY[1].get_secret_value(),
    }
    binary = lakefs_binary(Cache.of_user(Reporter()))
    started = [processes.start(moto, {}, folder / "moto.log", folder)]
    try:
        _wait_for(lambda: httpx.put(f"{endpoint}/bucket", headers={"Authorization": _AS_S3}).is_success)
        environment = {f"LAKEFS_{name}": value for name, value in settings.items()}
        started.append(processes.start([binary, "run"], environment, folder / "lakefs.log", folder))
        key = (KEY[0], KEY[1].get_secret_value())
        _wait_for(lambda: httpx.get(f"{url}/api/v1/repositories", auth=key).is_success)
        yield url, *KEY
    finally:
        for process in reversed(started):
            processes.stop(process)


_AS_S3 = "AWS4-HMAC-SHA256 Credential=any/20260101/us-east-1/s3/aws4_request, SignedHeaders=host, Signature=any"


def test_a_tree_round_trips_at_signed_addresses(address: tuple[str, str, SecretStr], tmp_path: Path) -> None:
    control, objects = LakeControl(*address), LakeObjects(*address)
    repository = f"signed-{uuid.uuid4().hex[:8]}"
    control.ensure_repository(repository, f"s3://bucket/{repository}")
    start = WorkspaceInput(
        repository=repository, branch="main", ref_type="commit", ref=control.head(repository, "main").id
    )
    contents = {"a b%2F.bin": os.urandom(3_000_000), "deep/empty": b"", "deep/small": b"small"}
    files = DirectoryFiles(objects)
    for name in ("first", "second"):
        (tmp_path / name / "workspace").mkdir(parents=True)

    manifest = files.download(start, "data", tmp_path / "first" / "workspace", tmp_path / "first")
    for path, content in contents.items():
        target = tmp_path / "first" / "workspace" / path
        target.parent.mkdir(exist_ok=True)
        target.write_bytes(content)
    plan = files.plan(manifest, tmp_path / "first" / "workspace")
    files.apply(plan, repository, "main", "data", tmp_path / "first" / "workspace")
    plan.close()
    commit = control.commit(repository, "main", "all", {})
    listed = list(objects.list(repository, commit, "data/"))
    again = start.model_copy(update={"ref": commit})
    files.download(again, "data", tmp_path / "second" / "workspace", tmp_path / "second")

    assert objects.presigned
    assert all(entry.url and address[0] not in entry.url for entry in listed)
    fetched = {path: (tmp_path / "second" / "workspace" / path).read_bytes() for path in contents}
    assert fetched == contents
    assert len(listed) == len(contents)


def _wait_for(ready: Callable[[], bool]) -> None:
    from stamina import retry_context

    for attempt in retry_context(on=(httpx.HTTPError, AssertionError), attempts=None, timeout=60, wait_max=0.3):
        with attempt:
            assert ready()
