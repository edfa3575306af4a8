"""What is Spark's own about a Spark workspace: tables in place, leftovers, lost servers, writers that go on."""

import os
import signal
import threading
import time
import uuid
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any, cast

import pytest
from pyspark.sql import functions as f
from pyspark.sql.connect.session import SparkSession

from perago.authoring.errors import TaskExecutionError
from perago.authoring.guardrails import require_file
from perago.authoring.spark import SparkWorkspace
from perago.authoring.tables import require_table
from perago.authoring.task import TaskDefinition, definition_of, task
from perago.authoring.workspace import WorkspaceSpec
from perago.data.places import DirectoryPlace
from perago.data.spark_session import attempt_session, end_session, session_id_of
from perago.data.spark_workspace import PlacedWorkspace
from perago.devstack.embedded import EmbeddedSpark
from tests.conftest import Servers
from tests.integration.support import Params, Result, Site, failed, output_ref, task_of

Body = Callable[[SparkWorkspace], object]


def spark_task(body: Body, **spec: Any) -> TaskDefinition:
    @task(name="tables.build", owner_email="d@example.com", workspace=WorkspaceSpec(prefix="/lake", **spec))
    def build(workspace: SparkWorkspace, params: Params) -> Result:
        body(workspace)
        return Result()

    definition = definition_of(build)
    assert definition is not None
    return definition


@pytest.fixture
def site(servers: Servers, repository: str, tmp_path: Path) -> Generator[Site]:
    made = Site.at(servers, repository, tmp_path / "root")
    with made.http:
        made.commit({"lake/raw/days.csv": b"day,amount\n1,10\n2,20\n", "lake/old/_SUCCESS": b"", "beside/x": b"x"})
        yield made


def names(site: Site, below: str = "lake/") -> list[str]:
    return sorted(path.removeprefix(below) for path in site.tree() if path.startswith(below))


def test_tables_are_read_and_written_in_place_and_published_without_leftovers(site: Site, spark_remote: str) -> None:
    def body(workspace: SparkWorkspace) -> None:
        days = workspace.read.option("header", True).schema("day int, amount int").csv("raw/days.csv")
        workspace.write(days, "clean", partition_by=["day"])
        workspace.write(days, "clean", mode="append", partition_by=["day"])
        workspace.write(days, "marked", success_marker=True)
        days.write.json(workspace.uri("direct"))
        assert workspace.read.parquet("clean").agg(f.sum("amount")).collect()[0][0] == 60
        assert workspace.exists("clean") and not workspace.exists("clea")
        assert len(workspace.files("clean")) == 4

    output_ref(site.run(spark_task(body), spark=spark_remote))

    found = names(site)
    assert not [path for path in found if "_temporary" in path or path.endswith("/")]
    assert [path for path in found if path.endswith("_SUCCESS")] == ["marked/_SUCCESS", "old/_SUCCESS"]
    assert sorted({path.split("/")[1] for path in found if path.startswith("clean/")}) == ["day=1", "day=2"]
    assert site.leftovers() == []


def test_what_spark_left_behind_is_neither_published_nor_a_change(site: Site, spark_remote: str) -> None:
    leftovers = ("t/_temporary/0/part-0", "t/.spark-staging-1/day=1/part-0", "t/_SUCCESS")

    def only_leftovers(workspace: SparkWorkspace) -> None:
        [staging] = site.staging_branches()
        for path in leftovers:
            site.put(f"lake/{path}", b"half", staging)

    def a_file_too(workspace: SparkWorkspace) -> None:
        only_leftovers(workspace)
        with workspace.open("t/part-0", "w") as file:
            file.write("whole")

    before = site.head()
    assert output_ref(site.run(spark_task(only_leftovers), spark=spark_remote)) == before
    output_ref(site.run(spark_task(a_file_too), spark=spark_remote))

    assert [path for path in names(site) if path.startswith("t/")] == ["t/part-0"]


def test_a_side_file_of_the_body_is_its_own_whatever_it_is_called(site: Site, spark_remote: str) -> None:
    def body(workspace: SparkWorkspace) -> None:
        with workspace.open("t/_SUCCESS", "w") as file:
            file.write("by the body")

    output_ref(site.run(spark_task(body, post=[require_file("t/_SUCCESS")]), spark=spark_remote))

    assert site.tree(prefix="lake/t/") == {"lake/t/_SUCCESS": b"by the body"}


def test_paths_cannot_leave_the_prefix(site: Site, spark_remote: str) -> None:
    uses: list[Callable[[SparkWorkspace, str], object]] = [
        lambda workspace, path: workspace.uri(path),
        lambda workspace, path: workspace.read.parquet(path),
        lambda workspace, path: workspace.read.csv([path]),
        lambda workspace, path: workspace.open(path, "wb"),
        lambda workspace, path: workspace.remove(path),
        lambda workspace, path: workspace.files(path),
        lambda workspace, path: workspace.write(workspace.spark.range(1), path),
    ]

    def body(workspace: SparkWorkspace) -> None:
        for path in ("../x", "/x", "a//b", "s3a://elsewhere/x", ".perago-attempt.json"):
            for use in uses:
                with pytest.raises(ValueError, match="workspace path"):
                    use(workspace, path)

    before = site.head()
    assert output_ref(site.run(spark_task(body), spark=spark_remote)) == before


def test_what_is_written_outside_the_prefix_is_never_published(site: Site, spark_remote: str) -> None:
    def body(workspace: SparkWorkspace) -> None:
        workspace.spark.range(3).write.parquet(workspace.uri().removesuffix("/lake") + "/beside/table")

    before = site.head()
    outcome = failed(site.run(spark_task(body), spark=spark_remote))

    assert "outside its prefix 'lake'" in outcome.failure.reason
    assert site.head() == before


def test_a_read_only_workspace_refuses_to_write(site: Site, spark_remote: str) -> None:
    writes: list[Body] = [
        lambda workspace: workspace.write(workspace.spark.range(1), "t"),
        lambda workspace: workspace.open("t", "w"),
        lambda workspace: workspace.remove("raw"),
    ]
    for write in writes:
        outcome = failed(site.run(spark_task(write, read_only=True), spark=spark_remote))
        assert "read-only" in outcome.failure.reason


@pytest.mark.parametrize("path", ["t", "t/"])
def test_a_failed_write_leaves_no_part_of_a_table(site: Site, spark_remote: str, path: str) -> None:
    def body(workspace: SparkWorkspace) -> None:
        good = workspace.spark.range(100)
        workspace.write(good, path, success_marker=True)
        some_fail = workspace.spark.range(0, 100, 1, 8).selectExpr("if(id = 99, raise_error('bad row'), id) AS id")
        with pytest.raises(Exception, match="bad row"):
            workspace.write(some_fail, path, mode="append")
        assert workspace.read.parquet("t").count() == 100

    output_ref(site.run(spark_task(body), spark=spark_remote))

    assert "t/_SUCCESS" in names(site)


@pytest.mark.parametrize("then", ["nothing", "write", "remove"])
def test_a_table_lost_to_a_failed_overwrite_is_not_published_as_gone(site: Site, spark_remote: str, then: str) -> None:
    site.commit({"lake/t/old.csv": b"1\n"})
    before = site.head()

    def body(workspace: SparkWorkspace) -> None:
        with pytest.raises(Exception, match="bad row"):
            workspace.write(workspace.spark.sql("SELECT raise_error('bad row') AS id"), "t", mode="overwrite")
        if then == "write":
            workspace.write(workspace.spark.range(3), "t", mode="overwrite")
        if then == "remove":
            workspace.remove("t")

    outcome = site.run(spark_task(body), spark=spark_remote)

    if then == "nothing":
        assert "'t' could not be stored" in failed(outcome).failure.reason
        assert site.head() == before
    else:
        assert site.head() == output_ref(outcome)
        assert any(name.startswith("t/") for name in names(site)) == (then == "write")


def test_a_failed_block_writes_no_side_file(site: Site, spark_remote: str) -> None:
    def body(workspace: SparkWorkspace) -> None:
        with pytest.raises(KeyError), workspace.open("half.txt", "w") as file:
            file.write("half")
            raise KeyError("k")
        assert not workspace.exists("half.txt")
        with pytest.raises(FileNotFoundError):
            workspace.open("half.txt")

    output_ref(site.run(spark_task(body), spark=spark_remote))


def test_a_side_file_left_open_or_lost_fails_the_attempt(site: Site, spark_remote: str) -> None:
    kept: list[Any] = []

    def leaves_it_open(workspace: SparkWorkspace) -> None:
        kept.append(workspace.open("report.json", "w"))

    def never_hears_of_the_loss(workspace: SparkWorkspace) -> None:
        def refuse(path: str, content: Any, size: int) -> None:
            raise TaskExecutionError("lakeFS is away")

        cast("Any", workspace)._place.write = refuse
        workspace.open("report.json", "w").write("{}")

    open_still = failed(site.run(spark_task(leaves_it_open), spark=spark_remote))
    lost = failed(site.run(spark_task(never_hears_of_the_loss), spark=spark_remote))

    assert "left 'report.json' open" in open_still.failure.reason
    assert "'report.json' could not be stored: lakeFS is away" in lost.failure.reason
    assert site.leftovers() == []


def test_an_operation_that_outlives_the_body_fails_the_attempt(site: Site, spark_remote: str) -> None:
    def body(workspace: SparkWorkspace) -> None:
        # Spark ends a sleeping task at once; one that only computes goes on until it next sends something.
        slowly = "java_method('java.lang.Thread', 'sleep', 50L)"
        endless = workspace.spark.range(0, 100_000, 1, 100_000).selectExpr("id", slowly)
        threading.Thread(target=lambda: _ignoring(lambda: workspace.write(endless, "t")), daemon=True).start()
        staging = site.staging_branches()[0]
        _wait_until(lambda: any("_temporary" in path for path in site.tree(staging)))

    outcome = failed(site.run(spark_task(body), spark=spark_remote))

    assert "of its Spark operations still ran" in outcome.failure.reason
    assert site.leftovers() == []


def test_two_attempts_at_once_never_see_each_others_writes(site: Site, spark_remote: str) -> None:
    both, seen = threading.Barrier(2, timeout=60), dict[str, int]()

    def body_of(number: int) -> Body:
        def body(workspace: SparkWorkspace) -> None:
            workspace.write(workspace.spark.range(number), "t")
            workspace.spark.range(number).createOrReplaceTempView("mine")
            both.wait()
            seen[f"table {number}"] = workspace.read.parquet("t").count()
            seen[f"view {number}"] = workspace.spark.table("mine").count()

        return body

    tasks = [
        threading.Thread(target=site.run, args=(spark_task(body_of(number)),), kwargs={"spark": spark_remote})
        for number in (10, 20)
    ]
    for running in tasks:
        running.start()
    for running in tasks:
        running.join(120)

    assert seen == {"table 10": 10, "table 20": 20, "view 10": 10, "view 20": 20}
    assert site.leftovers() == []


def test_a_session_closed_by_the_server_is_an_ordinary_failure(site: Site, spark_remote: str) -> None:
    execution = uuid.uuid4().hex

    def body(workspace: SparkWorkspace) -> None:
        end_session(spark_remote, execution)
        workspace.write(workspace.spark.range(3), "t")

    outcome = failed(site.run(spark_task(body), spark=spark_remote, execution_id=execution))

    assert outcome.failure.status == "FAILED"
    assert site.leftovers() == []
    active = SparkSession.getActiveSession()  # the next attempt's functions ask it
    assert active is None or active.session_id != session_id_of(execution)


def test_whoever_outlives_an_execution_can_end_what_it_runs(spark_remote: str) -> None:
    execution, ended = uuid.uuid4().hex, threading.Event()

    def runs_long(spark: SparkSession) -> None:
        with pytest.raises(Exception, match=r"."):
            spark.range(10**15).agg(f.max(f.rand())).collect()
        ended.set()

    with attempt_session(spark_remote, execution, None) as spark:
        thread = threading.Thread(target=runs_long, args=(spark,))
        thread.start()
        time.sleep(1)
        end_session(spark_remote, execution)
        assert ended.wait(30)
        thread.join()


def test_a_spark_server_killed_while_it_writes_fails_the_attempt_and_the_retry_completes(
    site: Site, own_spark: EmbeddedSpark
) -> None:
    def dies(workspace: SparkWorkspace) -> None:
        pid = own_spark.pid
        assert pid is not None
        threading.Timer(1.5, os.kill, (pid, signal.SIGKILL)).start()
        slow = workspace.spark.range(0, 10**9, 1, 64).select("id", f.rand().alias("x"))
        workspace.write(slow, "t")

    before = site.head()
    outcome = failed(site.run(spark_task(dies), spark=own_spark.url()))
    assert outcome.failure.status == "FAILED"
    assert site.head() == before
    assert site.leftovers() == []

    published = output_ref(site.run(spark_task(lambda w: w.write(w.spark.range(5), "t")), spark=own_spark.url()))

    assert site.history()[:2] == [published, before]
    assert not [path for path in names(site) if "_temporary" in path]


def test_an_attempt_works_after_one_that_reached_no_server(site: Site, spark_remote: str) -> None:
    def body(workspace: SparkWorkspace) -> None:
        workspace.write(workspace.spark.range(3).select(f.lit(1).alias("one")), "t")

    failed(site.run(spark_task(lambda workspace: None), spark="sc://127.0.0.1:9"))

    assert SparkSession.getActiveSession() is None
    output_ref(site.run(spark_task(body), spark=spark_remote))


def test_an_unreachable_server_is_one_sentence_without_secrets(site: Site) -> None:
    outcome = failed(site.run(spark_task(lambda workspace: None), spark="sc://127.0.0.1:9/;token=hush"))

    assert isinstance(outcome.error, TaskExecutionError)
    (told,) = outcome.failure.reason.splitlines()
    assert "the Spark server at sc://127.0.0.1:9 cannot be used (" in told
    assert "Connection refused): see whether it runs, and check SPARK_REMOTE" in told
    assert "hush" not in told
    assert site.leftovers() == []


def test_the_secret_is_in_no_log_of_the_server(site: Site, own_spark: EmbeddedSpark) -> None:
    def body(workspace: SparkWorkspace) -> None:
        table = workspace.spark.range(10)
        workspace.write(table, "t")
        assert secret not in str(cast("Any", table)._explain_string(extended=True))

    secret = site.servers.config.require_lakefs()[2].get_secret_value()
    output_ref(site.run(spark_task(body), spark=own_spark.url()))

    assert secret not in own_spark._log.read_text()


def _ignoring(work: Callable[[], object]) -> None:
    try:
        work()
    except Exception:
        return


def _wait_until(condition: Callable[[], bool]) -> None:
    while not condition():
        time.sleep(0.05)


ODD = "by day/day=2024-01-01 (a+b)@ö"


def test_a_table_of_a_directory_workspace_is_found_by_any_name(site: Site, spark_remote: str) -> None:
    def body(workspace: Path) -> None:
        (workspace / ODD).mkdir(parents=True)
        (workspace / ODD / "rows.csv").write_text("id\n1\n2\n")

    spec = WorkspaceSpec(prefix="/data", post=[require_table(ODD, min_rows=2, max_rows=2)])
    output_ref(site.run(task_of(body, spec), spark=spark_remote))

    assert site.tree(prefix="data/") == {f"data/{ODD}/rows.csv": b"id\n1\n2\n"}


def test_a_plain_directory_is_written_and_read_by_any_name_and_by_patterns(spark_remote: str, tmp_path: Path) -> None:
    with attempt_session(spark_remote, uuid.uuid4().hex, None) as spark:
        workspace = PlacedWorkspace(spark, DirectoryPlace(tmp_path))
        workspace.write(spark.range(3), ODD)

        assert workspace.exists(ODD)
        assert {Path(file).suffix for file in workspace.files()} == {".parquet"}
        assert workspace.read.parquet(ODD).count() == 3
        assert workspace.read.parquet("by day/*").count() == 3
