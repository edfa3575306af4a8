"""The same tasks on a real cluster, with nothing but another address."""

import threading
import time
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any

import psutil
import pyarrow as pa
import pytest
from pyspark.sql import functions as f

from perago.authoring.errors import PostGuardrailViolation
from perago.authoring.spark import SparkWorkspace
from perago.authoring.tables import change_budget, require_table
from tests.conftest import Servers
from tests.e2e.demo import check_whole, demo
from tests.integration.cluster import Cluster, standalone
from tests.integration.support import Site, failed, output_ref
from tests.integration.test_spark_workspace import names, spark_task

# A task that has taken two seconds, and longer than most, is run a second time beside the first.
SPECULATION = (
    *("--conf", "spark.speculation=true", "--conf", "spark.speculation.quantile=0.5"),
    *("--conf", "spark.speculation.multiplier=1.05", "--conf", "spark.speculation.minTaskRuntime=2s"),
)
PATIENCE = 60.0


@pytest.fixture(scope="module")
def cluster(servers: Servers, tmp_path_factory: pytest.TempPathFactory) -> Generator[Cluster]:
    with standalone(tmp_path_factory.mktemp("cluster"), *SPECULATION) as made:
        yield made


@pytest.fixture
def site(servers: Servers, repository: str, tmp_path: Path) -> Generator[Site]:
    made = Site.at(servers, repository, tmp_path / "root")
    with made.http:
        made.commit({"lake/old/part-0.csv": b"id\n1\n", "beside/x": b"x"})
        yield made


def doubled(batches: Iterator[Any]) -> Iterator[Any]:
    """A user's own function: it reaches the cluster's Python workers although they have no such module."""
    for batch in batches:
        yield pa.RecordBatch.from_arrays([pa.array([2 * row for row in batch.column(0).to_pylist()])], ["id"])


def test_tables_are_written_and_read_with_the_users_own_functions(site: Site, cluster: Cluster) -> None:
    def body(workspace: SparkWorkspace) -> None:
        made = workspace.spark.range(0, 10_000, 1, 4).mapInArrow(doubled, "id bigint")
        workspace.write(made.withColumn("day", f.col("id") % 4), "t", partition_by=["day"])
        assert workspace.read.parquet("t").agg(f.sum("id")).collect()[0][0] == 9_999 * 10_000

    before = site.head()
    rule = require_table("t", columns={"id": "bigint"}, min_rows=10_000, max_rows=10_000, unique=["id"])
    published = output_ref(site.run(spark_task(body, post=[rule]), spark=cluster.remote))

    assert site.history()[:2] == [published, before]
    assert not [path for path in names(site) if "_temporary" in path or path.endswith(("/", "_SUCCESS"))]
    assert site.leftovers() == []


def test_of_two_copies_of_a_task_that_write_at_once_one_counts(site: Site, cluster: Cluster, tmp_path: Path) -> None:
    first, second = str(tmp_path / "first"), str(tmp_path / "second")

    def slow_at_first(batches: Iterator[Any]) -> Iterator[Any]:
        """The copy that begins with row 0 waits until Spark has begun another."""
        for batch in batches:
            if 0 in batch.column(0).to_pylist():
                try:
                    Path(first).touch(exist_ok=False)
                except FileExistsError:
                    Path(second).touch()
                deadline = time.monotonic() + PATIENCE
                while not Path(second).exists():
                    assert time.monotonic() < deadline, "Spark began no other copy"
                    time.sleep(0.02)
            yield batch

    def body(workspace: SparkWorkspace) -> None:
        workspace.write(workspace.spark.range(0, 80_000, 1, 8).mapInArrow(slow_at_first, "id bigint"), "t")

    rule = require_table("t", min_rows=80_000, max_rows=80_000, unique=["id"])
    output_ref(site.run(spark_task(body, post=[rule]), spark=cluster.remote))

    assert Path(second).exists()
    assert len(names(site, "lake/t/")) == 8


def test_a_cluster_that_loses_an_executor_while_it_writes_still_writes_every_row_once(
    site: Site, cluster: Cluster
) -> None:
    def body(workspace: SparkWorkspace) -> None:
        workspace.spark.range(10).count()
        threading.Timer(1.0, lambda: next(iter(cluster.executors())).kill()).start()
        slow = workspace.spark.range(0, 400_000, 1, 12).withColumn("x", f.sha2(f.col("id").cast("string"), 512))
        workspace.write(slow, "t")

    rule = require_table("t", min_rows=400_000, max_rows=400_000, unique=["id"])
    output_ref(site.run(spark_task(body, post=[rule]), spark=cluster.remote))

    assert not [path for path in names(site) if "_temporary" in path]


def test_rules_and_budgets_stop_a_publication(site: Site, cluster: Cluster) -> None:
    write = spark_task(lambda w: w.write(w.spark.range(100), "t"), post=[require_table("t", where=["id < 50"])])
    refused = failed(site.run(write, spark=cluster.remote))
    assert isinstance(refused.error, PostGuardrailViolation)
    assert "50 rows" in refused.failure.reason

    filled = output_ref(site.run(spark_task(lambda w: w.write(w.spark.range(100), "t")), spark=cluster.remote))
    shrinks = spark_task(
        lambda w: w.write(w.spark.range(10), "t", mode="overwrite"),
        post=[require_table("t"), change_budget(rows=(0.9, 1.5))],
    )
    shrunk = failed(site.run(shrinks, spark=cluster.remote))
    assert isinstance(shrunk.error, PostGuardrailViolation)
    assert site.head() == filled
    assert site.leftovers() == []
    assert all(psutil.pid_exists(worker.pid) for worker in cluster.workers)


def test_the_demo_runs_on_it_with_only_its_address_set(cluster: Cluster, tmp_path: Path) -> None:
    output = tmp_path / "output"

    process = demo(tmp_path, output, SPARK_REMOTE=cluster.remote)
    process.wait(300)

    assert process.returncode == 0, output.read_text()
    check_whole(output.read_text())
    assert cluster.remote in output.read_text()
