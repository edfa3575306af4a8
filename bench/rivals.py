"""The other ways to move a tree: a sequential client over the official SDK, s5cmd, rclone, and lakectl."""

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from lakefs_sdk.api.objects_api import ObjectsApi
from lakefs_sdk.api_client import ApiClient
from lakefs_sdk.configuration import Configuration

from perago.lake.control import LakeControl
from perago.lake.transport import api_root


@dataclass(frozen=True)
class Place:
    """A repository of the bench's own, and how to reach it."""

    environment: Mapping[str, str]
    lake: LakeControl
    repository: str

    @property
    def key(self) -> tuple[str, str]:
        variables = ("LAKECTL_CREDENTIALS_ACCESS_KEY_ID", "LAKECTL_CREDENTIALS_SECRET_ACCESS_KEY")
        return self.environment[variables[0]], self.environment[variables[1]]

    @property
    def url(self) -> str:
        return self.environment["LAKECTL_SERVER_ENDPOINT_URL"]


Mover = Callable[[Place, str, Path], None]


def tool(name: str) -> str | None:
    beside = Path(sys.executable).with_name(name)
    return str(beside) if beside.exists() else shutil.which(name)


def _s3(place: Place) -> dict[str, str]:
    key, secret = place.key
    return {**os.environ, "AWS_ACCESS_KEY_ID": key, "AWS_SECRET_ACCESS_KEY": secret, "AWS_REGION": "us-east-1"}


def _quietly(command: list[str], environment: dict[str, str]) -> None:
    subprocess.run(command, env=environment, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def s5cmd_up(place: Place, branch: str, tree: Path) -> None:
    command = [tool("s5cmd") or "s5cmd", "--endpoint-url", place.url, "cp", f"{tree}/", _s3_uri(place, branch)]
    _quietly(command, _s3(place))


def s5cmd_down(place: Place, ref: str, into: Path) -> None:
    command = [tool("s5cmd") or "s5cmd", "--endpoint-url", place.url, "cp", f"{_s3_uri(place, ref)}*", f"{into}/"]
    _quietly(command, _s3(place))


def _s3_uri(place: Place, ref: str) -> str:
    return f"s3://{place.repository}/{ref}/bench/"


def rclone_up(place: Place, branch: str, tree: Path) -> None:
    _rclone(place, str(tree), f"lakefs:{place.repository}/{branch}/bench")


def rclone_down(place: Place, ref: str, into: Path) -> None:
    _rclone(place, f"lakefs:{place.repository}/{ref}/bench", str(into))


def _rclone(place: Place, source: str, target: str) -> None:
    settings = {
        "RCLONE_CONFIG_LAKEFS_TYPE": "s3",
        "RCLONE_CONFIG_LAKEFS_PROVIDER": "Other",
        "RCLONE_CONFIG_LAKEFS_ENDPOINT": place.url,
        "RCLONE_CONFIG_LAKEFS_ACCESS_KEY_ID": place.key[0],
        "RCLONE_CONFIG_LAKEFS_SECRET_ACCESS_KEY": place.key[1],
        "RCLONE_CONFIG_LAKEFS_FORCE_PATH_STYLE": "true",
        "RCLONE_CONFIG": "/dev/null",
    }
    options = ["--transfers", "32", "--checkers", "32", "--no-traverse", "--s3-no-check-bucket"]
    _quietly([tool("rclone") or "rclone", "copy", *options, source, target], {**os.environ, **settings})


def lakectl_up(place: Place, branch: str, tree: Path) -> None:
    _lakectl(place, "upload", "-r", "-s", f"{tree}/", f"lakefs://{place.repository}/{branch}/bench/")


def lakectl_down(place: Place, ref: str, into: Path) -> None:
    _lakectl(place, "download", "-r", f"lakefs://{place.repository}/{ref}/bench/", f"{into}/")


def _lakectl(place: Place, *arguments: str) -> None:
    _quietly([tool("lakectl") or "lakectl", "fs", *arguments], {**os.environ, **place.environment})


def sequential_up(place: Place, branch: str, tree: Path) -> None:
    objects = _sdk(place)
    for file in sorted(tree.rglob("*.bin")):
        path = f"bench/{file.relative_to(tree).as_posix()}"
        objects.upload_object(place.repository, branch, path, content=str(file))


def sequential_down(place: Place, ref: str, into: Path) -> None:
    objects = _sdk(place)
    after = ""
    while True:
        page = objects.list_objects(place.repository, ref, prefix="bench/", after=after, amount=1000)
        for entry in page.results:
            target = into / str(entry.path).removeprefix("bench/")
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(objects.get_object(place.repository, ref, entry.path))
        if not page.pagination.has_more:
            return
        after = page.pagination.next_offset


def _sdk(place: Place) -> Any:
    key, secret = place.key
    return cast("Any", ObjectsApi(ApiClient(Configuration(host=api_root(place.url), username=key, password=secret))))


def available(movers: dict[str, Mover]) -> dict[str, Mover]:
    """Those whose tool is here; the sequential client always is."""
    return {name: mover for name, mover in movers.items() if name == "sequential SDK" or tool(name)}


UP: dict[str, Mover] = {
    "sequential SDK": sequential_up,
    "s5cmd": s5cmd_up,
    "rclone": rclone_up,
    "lakectl": lakectl_up,
}
DOWN: dict[str, Mover] = {
    "sequential SDK": sequential_down,
    "s5cmd": s5cmd_down,
    "rclone": rclone_down,
    "lakectl": lakectl_down,
}
