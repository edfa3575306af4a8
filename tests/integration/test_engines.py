"""Two engines, one plan: the same trees, plans, branches, progress and errors, locally and over Spark's workers."""

import base64
import os
import subprocess
import sys
import time
import uuid
from collections import Counter
from collections.abc import Callable, Generator, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from pathlib import Path
from stat import S_IMODE
from typing import Any

import psutil
import pytest
from pydantic import SecretStr
from pyspark.sql.connect.session import SparkSession

from perago.attempt.lifecycle import Execution, Servers, run_attempt
from perago.authoring.errors import TaskExecutionError
from perago.authoring.workspace import WorkspaceInput
from perago.data import spark_engine
from perago.data.engine import Engine, local_engine
from perago.data.manifest import Manifest
from perago.data.plan import Plan
from perago.data.spark_engine import automatic_map, engine_for, spark_map
from perago.data.spark_session import attempt_session
from perago.data.transfer import Download
from perago.data.workspace import DirectoryFiles, Transferred
from perago.devstack.embedded import EmbeddedSpark
from perago.lake.control import LakeControl
from perago.lake.objects import LakeObjects, RemoteObject
from tests import conftest
from tests.integration.support import ATTEMPT, Conductor, Site, failed, task_of
from tests.integration.test_hostile_trees import HOLDABLE, PART, files_of

SOON = 300.0  # pyspark alone would go on for ten minutes
MANY = {f"p/many/{number:04}": b"%d" % number for number in range(120)}


@pytest.fixture
def site(servers: conftest.Servers, repository: str, tmp_path: Path) -> Generator[Site]:
    made = Site.at(servers, repository, tmp_path / "root")
    with made.http:
        yield made


@contextmanager
def session_at(remote: str) -> Generator[SparkSession]:
    with attempt_session(remote, uuid.uuid4().hex, None) as spark:
        yield spark


@pytest.fixture(scope="module")
def shared_session(spark_remote: str) -> Generator[SparkSession]:
    """Each session has Python workers of its own, which take longer to start than most tests."""
    with session_at(spark_remote) as session:
        yield session


@pytest.fixture
def spark(shared_session: SparkSession, monkeypatch: pytest.MonkeyPatch) -> SparkSession:
    """A session whose transfers need several waves."""
    monkeypatch.setattr(spark_engine, "_FIRST_SLICE", 4)
    monkeypatch.setattr(spark_engine, "_LARGEST_SLICE", 16)
    return shared_session


@dataclass
class Side:
    """One engine with a directory of its own."""

    site: Site
    engine: Engine
    scratch: Path
    objects: LakeObjects
    told: list[Transferred] = field(default_factory=list)

    @property
    def workspace(self) -> Path:
        return self.scratch / "workspace"

    @property
    def files(self) -> DirectoryFiles:
        return DirectoryFiles(self.objects, self.told.append, self.engine)

    def download(self, ref: str) -> Manifest:
        target = {"repository": self.site.repository, "branch": "main", "ref_type": "commit", "ref": ref}
        self.workspace.mkdir(parents=True)
        return self.files.download(WorkspaceInput.model_validate(target), "p", self.workspace, self.scratch)

    def apply(self, plan: Plan, branch: str) -> None:
        self.files.apply(plan, self.site.repository, branch, "p", self.workspace)

    @property
    def moved(self) -> Counter[str]:
        """Objects and bytes of each phase."""
        total: Counter[str] = Counter()
        for done in self.told:
            total[f"{done.phase} objects"] += done.objects
            total[f"{done.phase} bytes"] += done.bytes
        return total

    def left_behind(self) -> list[str]:
        return sorted(path.name for path in [*self.scratch.glob("spark-*"), *self.scratch.glob("incoming/*")])


@pytest.fixture
def sides(site: Site, spark: SparkSession, tmp_path: Path) -> list[Side]:
    address = site.servers.config.require_lakefs()

    engines: dict[str, Engine] = {
        "local": local_engine,
        "spark": engine_for("spark", None, lambda: spark),
        "auto": partial(automatic_map, lambda: spark, crossing=30),
    }
    return [Side(site, engine, tmp_path / name, LakeObjects(*address)) for name, engine in engines.items()]


def change(workspace: Path) -> None:
    """Some of everything, with files that only look changed."""
    for number in range(0, 120, 3):
        (workspace / f"many/{number:04}").write_bytes(b"changed %d" % number)
    for number in range(1, 120, 3):
        (workspace / f"many/{number:04}").unlink()
    for number in range(2, 120, 3):
        (workspace / f"many/{number:04}").touch()
    for name in HOLDABLE[::3]:
        (workspace / name).write_bytes(b"changed")
    for name in HOLDABLE[1::3]:
        (workspace / name).unlink()
    for number in range(60):
        (workspace / "made" / f"{number % 7}").mkdir(parents=True, exist_ok=True)
        (workspace / "made" / f"{number % 7}" / f"{number} é").write_bytes(b"n" * number)
    (workspace / "large").write_bytes(b"large" * (8 << 20))
    (workspace / "empty").touch()


def planned(plan: Plan) -> tuple[Any, ...]:
    return plan.added, plan.changed, plan.deleted, plan.bytes, sorted(plan.lines())


def test_trees_manifests_plans_branches_and_progress_are_the_same(site: Site, sides: list[Side]) -> None:
    head = site.commit({f"p/{name}": name.encode() * 2 for name in HOLDABLE} | MANY | {"beside": b"b"})
    trees: list[Any] = []
    manifests: list[Any] = []
    plans: list[Any] = []
    branches: list[Any] = []
    for number, side in enumerate(sides):
        manifest = side.download(head)
        trees.append(
            (files_of(side.workspace), sorted(S_IMODE(path.stat().st_mode) for path in side.workspace.rglob("*")))
        )
        manifests.append([(entry.path, entry.digest, entry.signature.size) for entry in manifest.entries()])
        change(side.workspace)
        site.branch(f"b{number}", head)
        with closing(side.files.plan(manifest, side.workspace)) as plan:
            plans.append(planned(plan))
            side.apply(plan, f"b{number}")
        branches.append(site.tree(f"b{number}"))

    assert trees[0][0] == {path.removeprefix("p/"): content for path, content in MANY.items()} | {
        name: name.encode() * 2 for name in HOLDABLE
    }
    assert branches[0] == {f"p/{path}": content for path, content in files_of(sides[0].workspace).items()} | {
        "beside": b"b"
    }
    for seen in (trees, manifests, plans, branches, [side.moved for side in sides]):
        assert seen[1] == seen[0]
        assert seen[2] == seen[0]
    assert [side.left_behind() for side in sides] == [[], [], []]


def test_an_unchanged_tree_is_an_empty_plan(site: Site, sides: list[Side]) -> None:
    head = site.commit(MANY)
    for side in sides:
        manifest = side.download(head)
        for path in side.workspace.rglob("*"):
            path.touch()

        with closing(side.files.plan(manifest, side.workspace)) as plan:
            assert plan.is_empty


def _clash(side: Side) -> None:
    side.download(side.site.head("clash"))


def _long_name(side: Side) -> None:
    side.download(side.site.head("long"))


def _no_such_commit(side: Side) -> None:
    side.download("0" * 64)


def _fetch(side: Side, wanted: RemoteObject, ref: str) -> None:
    (side.scratch / "incoming").mkdir(parents=True)
    fetch = Download(side.objects, side.site.repository, ref, side.workspace, side.scratch / "incoming")
    list(side.engine(fetch, [[("x", wanted)]], 4, side.scratch))


def _no_such_object(side: Side) -> None:
    _fetch(side, RemoteObject("p/none", 1), side.site.head())


def _other_size(side: Side) -> None:
    _fetch(side, RemoteObject("p/many/0000", 12), side.site.head())


def _published(side: Side, meddle: Callable[[Path], object], branch: str = "b") -> None:
    manifest = side.download(side.site.head())
    for number in range(40):
        (side.workspace / f"new{number:02}").write_bytes(b"new")
    with closing(side.files.plan(manifest, side.workspace)) as plan:
        meddle(side.workspace)
        side.apply(plan, branch)


def _rewritten(side: Side) -> None:
    _published(side, lambda workspace: (workspace / "new33").write_bytes(b"other"))


def _removed(side: Side) -> None:
    _published(side, lambda workspace: (workspace / "new33").unlink())


def _made_a_pipe(side: Side) -> None:
    def meddle(workspace: Path) -> None:
        (workspace / "new33").unlink()
        os.mkfifo(workspace / "new33")

    _published(side, meddle)


def _two_rewritten(side: Side) -> None:
    def meddle(workspace: Path) -> None:
        (workspace / "new07").unlink()
        (workspace / "new33").unlink()

    _published(side, meddle)


def _no_such_branch(side: Side) -> None:
    _published(side, lambda workspace: None, "none")


def _wrong_secret(side: Side) -> None:
    endpoint, key, _ = side.objects.address
    right, side.objects = side.objects, LakeObjects(endpoint, key, SecretStr("wrong"))
    try:
        _fetch(side, RemoteObject("p/many/0000", 1), side.site.head())
    finally:
        side.objects = right


def _changed_while_compared(side: Side) -> None:
    manifest = side.download(side.site.head())
    (side.workspace / "many/0001").write_bytes(b"0")

    def meddling(work: Any, partitions: Any, threads: int, scratch: Path) -> Generator[Any]:
        taken = list(partitions)
        (side.workspace / "many/0001").write_bytes(b"2")
        return side.engine(work, taken, threads, scratch)

    DirectoryFiles(side.objects, engine=meddling).plan(manifest, side.workspace)


@pytest.mark.parametrize(
    "go_wrong",
    [
        _clash,
        _long_name,
        _no_such_commit,
        _no_such_object,
        _other_size,
        _rewritten,
        _removed,
        _made_a_pipe,
        _two_rewritten,
        _no_such_branch,
        _wrong_secret,
        _changed_while_compared,
    ],
)
def test_errors_are_the_same_in_kind_and_words(site: Site, sides: list[Side], go_wrong: Callable[[Side], None]) -> None:
    head = site.commit(dict(list(MANY.items())[:40]))
    for branch in ("b", "clash", "long"):
        site.branch(branch, head)
    site.commit({"p/many/0020/below": b"x"}, "clash")
    site.commit({f"p/m/{'n' * 256}": b"x"}, "long")
    told: list[tuple[type, str]] = []
    for side in sides[:2]:
        with pytest.raises(Exception) as raised:
            go_wrong(side)
        told.append((raised.type, str(raised.value)))
        assert side.left_behind() == [] or go_wrong in (_clash, _long_name, _no_such_object, _other_size, _wrong_secret)
        assert not list(side.scratch.glob("spark-*"))

    assert told[1] == told[0]


def test_results_come_in_order_and_the_source_is_read_a_wave_ahead(spark: SparkSession, tmp_path: Path) -> None:
    read: list[int] = []

    def source() -> Iterator[list[int]]:
        for number in range(10_000):
            read.append(number)
            yield [number]

    results = spark_map(lambda: spark, sum, source(), 3, tmp_path)

    assert list(islice(results, 30)) == list(range(30))
    results.close()
    assert len(read) <= 3 * 16 * (os.cpu_count() or 1)
    assert list(tmp_path.iterdir()) == []


def test_of_two_errors_the_earlier_partition_is_told_with_its_traceback(spark: SparkSession, tmp_path: Path) -> None:
    partitions: list[list[Any]] = [[1]] * 5 + [[]] + [[1]] * 3 + [[1, "a"]] + [[1]] * 100

    with pytest.raises(ValueError, match="empty") as raised:
        list(spark_map(lambda: spark, max, partitions, 4, tmp_path))

    assert "In a Spark worker" in "".join(raised.value.__notes__)


def test_the_first_error_stops_what_has_not_begun_also_in_other_slices(spark: SparkSession, tmp_path: Path) -> None:
    begun = tmp_path / "begun"
    begun.mkdir()
    slow = [["sh", "-c", f"sleep 0.2; touch {begun}/{number}"] for number in range(1000)]

    with pytest.raises(subprocess.CalledProcessError):
        list(spark_map(lambda: spark, subprocess.check_call, [["false"], *slow], 2, tmp_path))

    seen = len(list(begun.iterdir()))
    time.sleep(0.6)
    assert len(list(begun.iterdir())) == seen  # what ran has ended
    assert seen <= 3 * (os.cpu_count() or 1) * 2


def test_closing_ends_what_runs(spark: SparkSession, tmp_path: Path) -> None:
    ticks = tmp_path / "ticks"
    ticks.mkdir()
    tick = [["sh", "-c", f"sleep 0.1; touch {ticks}/{number}"] for number in range(1000)]
    results = spark_map(lambda: spark, subprocess.check_call, tick, 1, tmp_path)

    assert next(results) == 0
    results.close()

    seen = len(list(ticks.iterdir()))
    time.sleep(0.5)
    assert len(list(ticks.iterdir())) <= seen + (os.cpu_count() or 1)  # the commands themselves, not their workers
    assert not list(tmp_path.glob("spark-*"))


def test_no_secret_and_no_file_name_is_in_a_spark_plan_and_files_are_private(
    site: Site, sides: list[Side], spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    head, side = site.commit(MANY), sides[1]
    endpoint, key, secret = side.objects.address
    plans: list[bytes] = []
    modes: set[int] = set()
    held: list[bytes] = []
    client: Any = spark.client
    send = client.to_table_as_iterator

    def watched(plan: Any, *rest: Any, **more: Any) -> Any:
        plans.append(plan.SerializeToString())
        for path in side.scratch.glob("spark-*/*"):
            modes.update({S_IMODE(path.parent.stat().st_mode), S_IMODE(path.stat().st_mode) & 0o077})
            held.append(path.read_bytes())
        return send(plan, *rest, **more)

    monkeypatch.setattr(client, "to_table_as_iterator", watched)
    manifest = side.download(head)
    for path in side.workspace.rglob("0*"):
        path.write_bytes(b"!")
    site.branch("b", head)
    with closing(side.files.plan(manifest, side.workspace)) as plan:
        side.apply(plan, "b")

    known = secret.get_secret_value().encode()
    coded = base64.b64encode(f"{key}:{secret.get_secret_value()}".encode())
    assert len(plans) > 3
    telling = (known, coded, key.encode(), endpoint.encode(), b"many/")
    assert not [what for sent in plans for what in telling if what in sent]
    assert any(known in content for content in held)  # it is where only its owner can read it
    assert modes <= {0o700, 0o000, 0o044}
    assert side.left_behind() == []


def test_a_killed_worker_is_a_failure(own_spark: EmbeddedSpark, tmp_path: Path) -> None:
    commands = [["true"]] * 20 + [["sh", "-c", "kill -9 $PPID"]] + [["true"]] * 20
    with session_at(own_spark.url()) as spark:
        began = time.monotonic()
        with pytest.raises(TaskExecutionError, match="the transfer on Spark was broken off"):
            list(spark_map(lambda: spark, subprocess.check_call, commands, 2, tmp_path))

        assert time.monotonic() - began < SOON
        assert list(spark_map(lambda: spark, sum, [[1], [2]], 2, tmp_path)) == [1, 2]
    assert not list(tmp_path.glob("spark-*"))


def workers_of(pid: int) -> list[psutil.Process]:
    """Spark's Python workers, without the daemon that forks them."""
    return [process for child in psutil.Process(pid).children() for process in child.children(recursive=True)]


@pytest.mark.parametrize(("phase", "victim"), [("upload", "server"), ("download", "workers")])
def test_an_attempt_whose_spark_is_killed_fails_and_publishes_nothing(
    site: Site, own_spark: EmbeddedSpark, victim: str, phase: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spark_engine, "_FIRST_SLICE", 4)
    monkeypatch.setattr(spark_engine, "_LARGEST_SLICE", 4)
    head = site.commit(MANY)
    address = site.servers.config.require_lakefs()
    killed: list[float] = []

    def kill(done: Transferred) -> None:
        if done.phase == phase and not killed:
            assert own_spark.pid is not None
            for process in workers_of(own_spark.pid) if victim == "workers" else [psutil.Process(own_spark.pid)]:
                process.kill()
            killed.append(time.monotonic())

    def body(workspace: Path) -> None:
        for path in workspace.rglob("0*"):
            path.write_bytes(b"changed")

    with session_at(own_spark.url()) as spark:
        files = DirectoryFiles(LakeObjects(*address), kill, engine_for("spark", own_spark.url(), lambda: spark))
        servers = Servers(Conductor(), LakeControl(*address), files)
        execution = Execution(task_of(body, PART), ATTEMPT, uuid.uuid4().hex, site.payload())
        outcome = run_attempt(execution, servers, site.root)

    if victim == "server":
        assert "the transfer on Spark was broken off" in failed(outcome).failure.reason
    assert killed and time.monotonic() - killed[0] < SOON
    changed = dict.fromkeys(MANY, b"changed")
    assert site.tree() == (MANY if site.head() == head else changed)
    assert site.leftovers() == []
    assert address[2].get_secret_value() not in own_spark._log.read_text(errors="replace")


def test_workers_stop_when_the_process_they_work_for_is_killed(spark_remote: str, tmp_path: Path) -> None:
    begun = tmp_path / "begun"
    begun.mkdir()
    script = f"""
import subprocess, uuid
from pathlib import Path
from perago.data.spark_engine import spark_map
from perago.data.spark_session import attempt_session
with attempt_session({spark_remote!r}, uuid.uuid4().hex, None) as spark:
    commands = (["sh", "-c", f"sleep 0.1; touch {begun}/{{number}}"] for number in range(5000))
    list(spark_map(lambda: spark, subprocess.check_call, commands, 4, Path({str(tmp_path)!r})))
"""
    client = subprocess.Popen([sys.executable, "-c", script])
    deadline = time.monotonic() + SOON
    while not list(begun.iterdir()):
        assert time.monotonic() < deadline
        time.sleep(0.02)
    client.kill()
    client.wait()

    time.sleep(0.5)
    seen = len(list(begun.iterdir()))
    time.sleep(1)
    assert len(list(begun.iterdir())) == seen
