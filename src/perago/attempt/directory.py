"""An attempt's own directory: made once, marked, never reused, and collected when its owner is gone."""

import errno
import json
import os
import re
import shutil
import stat
import time
from collections.abc import Callable, Collection, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from perago.attempt.spreading import spread_below
from perago.authoring.paths import MARKER_NAME
from perago.identity import lives, process_start
from perago.protocol.attempt import Attempt
from perago.protocol.names import branch_segment

_OURS = re.compile(r".+-[0-9a-f]{32}")
_MARKER_BYTES = 64 * 1024


@dataclass(frozen=True)
class AttemptDirectory:
    """Holds the marker and the download manifest; the body gets `workspace/` inside."""

    path: Path

    @property
    def workspace(self) -> Path:
        return self.path / "workspace"

    @classmethod
    def create(cls, root: Path, attempt: Attempt, execution_id: str, task_name: str) -> "AttemptDirectory":
        root.mkdir(parents=True, exist_ok=True)
        spread_below(root)
        directory = cls(root.resolve() / directory_name(attempt, execution_id))
        marker = {
            "task": task_name,
            "attempt": asdict(attempt),
            "execution_id": execution_id,
            "pid": os.getpid(),
            "process_started": process_start(os.getpid()),
            "created": time.time(),
        }
        directory.path.mkdir(mode=0o700)
        try:
            (directory.path / MARKER_NAME).write_text(json.dumps(marker, indent=2))
            directory.workspace.mkdir()
        except BaseException:
            directory.remove()
            raise
        return directory

    def remove(self) -> None:
        """Remove the directory, also what a body locked; one that is gone already is as wanted."""
        try:
            self._remove_tree()
        except FileNotFoundError:
            if self.path.exists():
                raise
        except PermissionError:
            _unlock(self.path)
            self._remove_tree()

    def _remove_tree(self) -> None:
        try:
            shutil.rmtree(self.path)
        except RecursionError as error:
            told = "directories are nested too deeply to be removed"
            raise OSError(errno.ENAMETOOLONG, told, str(self.path)) from error


def directory_name(attempt: Attempt, execution_id: str) -> str:
    """The name of an execution's directory below the workspace root."""
    return f"{branch_segment(attempt.task_id)}-{execution_id}"


@dataclass(frozen=True)
class Leftover:
    path: Path
    why: Literal["its owner has ended", "it has no readable marker and is old"]


def leftovers(root: Path, ttl_seconds: float, now: float, keep: Collection[str] = ()) -> Iterator[Leftover]:
    """Directories of attempts that nobody works in any more; those named in `keep` are known to be worked in.

    A marker tells the owner, and only its process id and start time are believed: a body may have written it.
    Without a readable one the directory's age decides. Anything not named like an attempt is not ours.
    """
    if not root.is_dir():
        return
    for entry in sorted(root.iterdir()):
        if entry.name in keep or entry.is_symlink() or not entry.is_dir() or not _OURS.fullmatch(entry.name):
            continue
        owner = _owner(entry)
        if owner is None:
            if _age(entry, now) > ttl_seconds:
                yield Leftover(entry, "it has no readable marker and is old")
        elif not lives(*owner):
            yield Leftover(entry, "its owner has ended")


def collect(
    root: Path, ttl_seconds: float, now: float, failed: Callable[[Path, OSError], None], keep: Collection[str] = ()
) -> list[Leftover]:
    """Remove leftovers; one that cannot be removed is told and left for the next time."""
    removed: list[Leftover] = []
    for leftover in leftovers(root, ttl_seconds, now, keep):
        try:
            AttemptDirectory(leftover.path).remove()
            removed.append(leftover)
        except OSError as error:
            failed(leftover.path, error)
    return removed


def _owner(directory: Path) -> tuple[int, float] | None:
    marker = directory / MARKER_NAME
    try:
        if not stat.S_ISREG(marker.lstat().st_mode):  # a body may have put a link or a pipe in its place
            return None
        with marker.open("rb") as file:
            told: Any = json.loads(file.read(_MARKER_BYTES))
        return int(told["pid"]), float(told["process_started"])
    except (OSError, ValueError, TypeError, KeyError, OverflowError, RecursionError):
        return None


def _age(directory: Path, now: float) -> float:
    try:
        return now - directory.lstat().st_mtime
    except FileNotFoundError:  # its owner has just removed it
        return 0.0


def _unlock(directory: Path) -> None:
    """Give back the permissions without which a directory keeps its entries."""
    locked = [directory]
    while locked:
        unlocked = locked.pop()
        unlocked.chmod(0o700)
        with os.scandir(unlocked) as entries:
            locked.extend(Path(entry.path) for entry in entries if entry.is_dir(follow_symlinks=False))
