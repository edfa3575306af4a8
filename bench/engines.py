"""Moving a directory's files by threads of one process or by Spark's Python workers, on one machine and server."""

import os
import shutil
import tempfile
import time
import uuid
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import median

from bench.attempt import peak_mib
from bench.table import Row, alternating
from bench.transfers import Bench, bench
from perago.authoring.workspace import WorkspaceInput
from perago.config import load_runtime_config
from perago.data.engine import Engine, local_engine
from perago.data.manifest import Manifest, ManifestWriter
from perago.data.spark_engine import spark_map
from perago.data.spark_session import attempt_session
from perago.data.workspace import DirectoryFiles
from perago.devstack.embedded import EmbeddedSpark
from perago.devstack.progress import Reporter
from perago.lake.objects import LakeObjects

SHAPES = {
    "2,000 × 4 KiB": (2_000, 4096),
    "20,000 × 4 KiB": (20_000, 4096),
    "500 × 1 MiB": (500, 1 << 20),
    "8 × 128 MiB": (8, 128 << 20),
}
HUGE = (100_000, 1024)
ROUNDS = 3
LONG_ROUNDS = 2


@dataclass(frozen=True)
class Mover:
    """One engine on one repository; a branch of its own each time."""

    on: Bench
    engine: Engine
    repository: str

    @property
    def files(self) -> DirectoryFiles:
        return DirectoryFiles(LakeObjects(*load_runtime_config().require_lakefs()), engine=self.engine)

    def branch(self, source: str = "main") -> str:
        name = uuid.uuid4().hex
        self.on.lake.create_branch(self.repository, name, source)
        return name

    def upload(self, manifest: Manifest, workspace: Path) -> float:
        """Plan and upload."""
        branch = self.branch()
        began = time.perf_counter()
        plan = self.files.plan(manifest, workspace)
        self.files.apply(plan, self.repository, branch, "bench", workspace)
        taken = time.perf_counter() - began
        plan.close()
        return taken

    def download(self, ref: str) -> float:
        with _scratch(self.on.folder) as scratch:
            began = time.perf_counter()
            self.fill(scratch, ref)
            return time.perf_counter() - began

    def fill(self, scratch: Path, ref: str) -> Manifest:
        target = {"repository": self.repository, "branch": "main", "ref_type": "commit", "ref": ref}
        return self.files.download(WorkspaceInput.model_validate(target), "bench", scratch / "workspace", scratch)

    def publish_a_hundredth(self, ref: str, every: int = 100) -> float:
        """Plan, upload, commit and merge after one file in a hundred was written anew."""
        with _scratch(self.on.folder) as scratch:
            manifest = self.fill(scratch, ref)
            for number, file in enumerate(sorted((scratch / "workspace").rglob("*.bin"))):
                if number % every == 0:
                    file.write_bytes(os.urandom(1024))
            target = self.branch(ref)
            began = time.perf_counter()
            staging = self.branch(ref)
            plan = self.files.plan(manifest, scratch / "workspace")
            self.files.apply(plan, self.repository, staging, "bench", scratch / "workspace")
            staged = self.on.lake.commit(self.repository, staging, "bench", {})
            self.on.lake.merge(self.repository, staged, target, "bench", {})
            taken = time.perf_counter() - began
            plan.close()
            return taken


@contextmanager
def _scratch(folder: Path) -> Generator[Path]:
    made = Path(tempfile.mkdtemp(dir=folder))
    (made / "workspace").mkdir()
    try:
        yield made
    finally:
        shutil.rmtree(made)


def rows() -> list[Row]:
    with (
        bench() as on,
        EmbeddedSpark(on.folder / "spark.log", on.folder / "spark", "2g", Reporter()) as server,
        attempt_session(server.url(), uuid.uuid4().hex, None) as spark,
    ):
        engines: dict[str, Engine] = {"local": local_engine, "spark": partial(spark_map, lambda: spark)}
        found: list[Row] = []
        for title, shape in SHAPES.items():
            found += _both_ways(on, engines, title, shape)
        return [*found, *_huge(on, engines)]


def _both_ways(on: Bench, engines: dict[str, Engine], title: str, shape: tuple[int, int]) -> list[Row]:
    repository = on.place().repository
    movers = {name: Mover(on, engine, repository) for name, engine in engines.items()}
    rounds = ROUNDS if shape[0] <= 2_000 else LONG_ROUNDS
    with _scratch(on.folder) as scratch:
        ref = _published(on, movers["local"], scratch, on.tree(*shape))
        manifest = _empty(scratch)
        up = {name: partial(mover.upload, manifest, on.tree(*shape)) for name, mover in movers.items()}
        down = {name: partial(mover.download, ref) for name, mover in movers.items()}
        next(iter(reversed(up.values())))()  # the first Python workers are started
        return [
            *_compared(f"upload {title}", alternating(up, rounds)),
            *_compared(f"download {title}", alternating(down, rounds)),
        ]


def _huge(on: Bench, engines: dict[str, Engine]) -> list[Row]:
    """One change in a hundred of very many objects: the cost of an object must stay flat, and memory small."""
    found: list[Row] = []
    Path("/proc/self/clear_refs").write_text("5")  # the peak is from now on
    before = peak_mib()
    for count in (HUGE[0] // 10, HUGE[0]):
        repository = on.place().repository
        movers = {name: Mover(on, engine, repository) for name, engine in engines.items()}
        with _scratch(on.folder) as scratch:
            ref = _published(on, movers["local"], scratch, on.tree(count, HUGE[1]))
        taken = alternating({name: partial(mover.publish_a_hundredth, ref) for name, mover in movers.items()}, 1)
        a_thousand = {name: [second / count * 1000 for second in seconds] for name, seconds in taken.items()}
        found += _compared(f"publish 1 % of {count:,} × 1 KiB", taken)
        found += _compared(f"publish 1 % of {count:,} × 1 KiB: ms an object", a_thousand)
    return [*found, Row(f"peak memory of this process meanwhile: {peak_mib():.0f} MiB, {before:.0f} at the start", [])]


def _empty(scratch: Path) -> Manifest:
    with ManifestWriter(scratch / "manifest.jsonl") as manifest:
        return manifest.seal()


def _published(on: Bench, mover: Mover, scratch: Path, tree: Path) -> str:
    branch = mover.branch()
    (scratch / "empty").mkdir()
    plan = mover.files.plan(_empty(scratch / "empty"), tree)
    mover.files.apply(plan, mover.repository, branch, "bench", tree)
    plan.close()
    return on.lake.commit(mover.repository, branch, "bench", {})


def _compared(title: str, taken: dict[str, list[float]]) -> list[Row]:
    local = median(taken["local"])
    return [
        Row(f"{title}: {name}", seconds, "local", median(seconds) / local if name != "local" else None)
        for name, seconds in taken.items()
    ]
