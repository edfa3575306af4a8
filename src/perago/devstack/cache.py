"""Provisioned servers under the user's cache folder: made once, whole or not at all, by one process at a time."""

import fcntl
import json
import os
import shutil
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path

from platformdirs import user_cache_path

from perago.devstack.errors import DevStackError
from perago.devstack.progress import Reporter

_MANIFEST = "perago-manifest.json"


class Cache:
    """The folder that holds what was downloaded or built; `PERAGO_CACHE_DIR` moves it."""

    def __init__(self, root: Path, reporter: Reporter) -> None:
        self.root = root
        self.reporter = reporter

    @classmethod
    def of_user(cls, reporter: Reporter) -> "Cache":
        given = os.environ.get("PERAGO_CACHE_DIR")
        return cls(Path(given) if given else user_cache_path("perago"), reporter)

    def provide(self, name: str, make: Callable[[Path], None], needed_bytes: int) -> Path:
        """The folder of an entry, made by `make` if it is missing or no longer what was made."""
        entry = self.root / name
        if is_intact(entry):
            return entry
        try:
            with self._only_one(name):
                if not is_intact(entry):
                    self._make(entry, name, make, needed_bytes)
        except OSError as error:
            raise DevStackError(
                f"the cache folder {self.root} cannot be used ({error.strerror or error}):"
                " make it writable, or name another with PERAGO_CACHE_DIR"
            ) from error
        return entry

    def scratch(self, name: str) -> Path:
        """A folder for what makes a repeated try cheaper; removed once the entry is made."""
        path = self.root / "scratch" / name
        path.mkdir(parents=True, exist_ok=True)
        return path

    def _make(self, entry: Path, name: str, make: Callable[[Path], None], needed_bytes: int) -> None:
        if entry.exists():
            self.reporter.note(f"cache entry {entry} is broken: making it anew")
            shutil.rmtree(entry)
        self._require_space(name, needed_bytes)
        building = self.scratch(name) / "entry"
        shutil.rmtree(building, ignore_errors=True)
        building.mkdir(parents=True)
        make(building)
        _write_manifest(building)
        entry.parent.mkdir(parents=True, exist_ok=True)
        building.rename(entry)
        shutil.rmtree(self.scratch(name))

    def _require_space(self, name: str, needed_bytes: int) -> None:
        free = shutil.disk_usage(self.root).free + _size(self.scratch(name))
        if free < needed_bytes:
            raise DevStackError(
                f"{name} needs {needed_bytes / 1e9:.1f} GB below {self.root}, but only {free / 1e9:.1f} GB are free:"
                " free some, or name a folder on another disk with PERAGO_CACHE_DIR"
            )

    @contextmanager
    def _only_one(self, name: str) -> Generator[None]:
        path = self.root / "locks" / f"{name.replace('/', '-')}.lock"
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("w") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                self.reporter.note(f"waiting for another process that is making {name}")
                fcntl.flock(lock, fcntl.LOCK_EX)
            yield


def is_intact(entry: Path) -> bool:
    """Whether every file that was made is there in its full size."""
    try:
        sizes: dict[str, int] = json.loads((entry / _MANIFEST).read_text())
        return all((entry / file).stat().st_size == size for file, size in sizes.items())
    except (OSError, ValueError, AttributeError):
        return False


def _write_manifest(folder: Path) -> None:
    sizes = {str(file.relative_to(folder)): file.stat().st_size for file in folder.rglob("*") if file.is_file()}
    (folder / _MANIFEST).write_text(json.dumps(sizes))


def _size(folder: Path) -> int:
    return sum(file.lstat().st_size for file in folder.rglob("*") if file.is_file())
