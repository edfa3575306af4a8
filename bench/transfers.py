"""Publishing and downloading trees: Perago's whole attempt against other tools doing the same on the same server."""

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Generator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

from bench import rivals
from bench.rivals import Mover, Place
from bench.table import Row, alternating
from perago.attempt.spreading import spread_below
from perago.config import load_runtime_config
from perago.devstack.progress import Reporter
from perago.devstack.stack import DevStack, StackOptions
from perago.devstack.state import DataFolder
from perago.lake.control import LakeControl

SMALL = (2_000, 4 * 1024)
LARGE = (8, 128 * 1024 * 1024)
ROUNDS = 5
LONG_ROUNDS = 4
MEMORY_LIMIT_MIB = 300


class Bench:
    """A server, trees on disk, and the peak memory of every attempt run."""

    def __init__(self, folder: Path, environment: dict[str, str]) -> None:
        self.folder = folder
        self.environment = environment
        os.environ.update(environment)
        self.lake = LakeControl(*load_runtime_config().require_lakefs())
        self.peak_mib = 0.0

    def place(self) -> Place:
        name = f"bench-{uuid.uuid4().hex[:12]}"
        self.lake.ensure_repository(name, f"local://{name}")
        return Place(self.environment, self.lake, name)

    def tree(self, count: int, size: int) -> Path:
        root = self.folder / f"tree-{count}-{size}"
        if not root.exists():
            for number in range(count):
                file = root / f"part-{number // 500:03}" / f"{number:06}.bin"
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_bytes(os.urandom(min(size, 1 << 20)) * max(1, size >> 20))
        return root

    def attempt(self, place: Place, **job: Any) -> dict[str, Any]:
        """One attempt in a process of its own, starting at the head of main."""
        file = self.folder / "job.json"
        head = self.lake.head(place.repository, "main").id
        file.write_text(json.dumps({"repository": place.repository, "ref": head, **job}))
        ran = subprocess.run(
            [sys.executable, "-m", "bench.attempt", file, self.folder / "workspaces"],
            cwd=Path(__file__).parents[1],
            check=True,
            stdout=subprocess.PIPE,
            text=True,
        )
        told: dict[str, Any] = json.loads(ran.stdout)
        self.peak_mib = max(self.peak_mib, told["peak_mib"])
        return told

    def published(self, tree: Path) -> Place:
        place = self.place()
        self.attempt(place, tree=str(tree))
        return place

    def publish_with(self, mover: Mover, tree: Path) -> float:
        """What a careful user of another tool does: a branch, the copy, a commit, a merge, the branch removed."""
        place = self.place()
        started = time.perf_counter()
        self.lake.create_branch(place.repository, "work", "main")
        mover(place, "work", tree)
        commit = self.lake.commit(place.repository, "work", "bench", {})
        self.lake.merge(place.repository, commit, "main", "bench", {})
        self.lake.delete_branch(place.repository, "work")
        return time.perf_counter() - started

    def download_with(self, mover: Mover, place: Place) -> float:
        into = Path(tempfile.mkdtemp(dir=self.folder))
        head = self.lake.head(place.repository, "main").id
        started = time.perf_counter()
        mover(place, head, into)
        taken = time.perf_counter() - started
        shutil.rmtree(into)
        return taken

    def publish(self, tree: Path) -> float:
        return float(self.attempt(self.place(), tree=str(tree))["after body"])

    def download(self, place: Place) -> float:
        return float(self.attempt(place)["before body"])

    def republish(self, place: Place) -> float:
        return float(self.attempt(place, rewrite_every=100)["after body"])


@contextmanager
def bench() -> Generator[Bench]:
    folder = Path(tempfile.mkdtemp(prefix="perago-bench-"))
    spread_below(folder)  # other tools' downloads get what an attempt's directory gets
    stack = DevStack(DataFolder(folder / "stack"), Reporter())
    try:
        stack.up(StackOptions())
        yield Bench(folder, stack.environment())
    finally:
        stack.down()
        shutil.rmtree(folder, ignore_errors=True)


def rows() -> list[Row]:
    with bench() as on:
        found = [*_publishing(on, SMALL, "2,000 × 4 KiB"), *_downloading(on, SMALL, "2,000 × 4 KiB")]
        found += _republishing(on)
        found += [*_publishing(on, LARGE, "8 × 128 MiB"), *_downloading(on, LARGE, "8 × 128 MiB")]
        found += _per_file(on)
        peak = f"peak memory of an attempt's process: {on.peak_mib:.0f} MiB (limit {MEMORY_LIMIT_MIB})"
        return [*found, Row(peak, [])]


def _publishing(on: Bench, shape: tuple[int, int], title: str) -> list[Row]:
    tree = on.tree(*shape)
    subjects = {name: partial(on.publish_with, mover, tree) for name, mover in rivals.available(rivals.UP).items()}
    taken = alternating({"perago": partial(on.publish, tree), **subjects}, ROUNDS if shape == SMALL else LONG_ROUNDS)
    return _compared(f"publish {title}", taken)


def _downloading(on: Bench, shape: tuple[int, int], title: str) -> list[Row]:
    place = on.published(on.tree(*shape))
    subjects = {name: partial(on.download_with, mover, place) for name, mover in rivals.available(rivals.DOWN).items()}
    taken = alternating({"perago": partial(on.download, place), **subjects}, ROUNDS if shape == SMALL else LONG_ROUNDS)
    return _compared(f"download {title}", taken)


def _republishing(on: Bench) -> list[Row]:
    tree = on.tree(*SMALL)
    place = on.published(tree)
    subjects = {
        "sequential SDK, full": partial(on.publish_with, rivals.sequential_up, tree),
        "perago, full": partial(on.publish, tree),
        "perago": partial(on.republish, place),
    }
    return _compared("republish, 1 % of 2,000 changed", alternating(subjects, LONG_ROUNDS))


def _per_file(on: Bench) -> list[Row]:
    """Milliseconds a file must not grow with the number of files."""
    found: list[Row] = []
    first: float | None = None
    for count in (2_000, 10_000, 50_000):
        seconds = [on.publish(on.tree(count, 4 * 1024)) / count * 1000 for _ in range(1 if count > 10_000 else 2)]
        first = first or median(seconds)
        found.append(Row(f"publish {count:,} × 4 KiB: ms a file", seconds, "2,000 files", median(seconds) / first))
    return found


def _compared(title: str, taken: dict[str, list[float]]) -> list[Row]:
    ours = median(taken["perago"])
    return [
        Row(f"{title}: {name}", seconds, "perago" if name != "perago" else "", _ratio(name, seconds, ours))
        for name, seconds in taken.items()
    ]


def _ratio(name: str, seconds: list[float], ours: float) -> float | None:
    return None if name == "perago" else median(seconds) / ours
