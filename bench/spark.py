"""Spark workspaces: writes and reads beside local disk, the end of an attempt by size, rules beside one scan."""

import time
import uuid
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

from pydantic import BaseModel
from pyspark.sql import functions as f

from bench.rivals import Place
from bench.table import Row, alternating
from bench.transfers import Bench, bench
from perago.attempt.lifecycle import Completed, Execution, Servers, run_attempt
from perago.authoring.guardrails import Guardrail
from perago.authoring.spark import SparkWorkspace
from perago.authoring.tables import RequireTable, require_table
from perago.authoring.task import definition_of, task
from perago.authoring.workspace import WorkspaceSpec
from perago.config import load_runtime_config
from perago.data.spark_files import SparkFiles
from perago.data.spark_session import AttemptSession
from perago.data.tables import table_violation
from perago.data.workspace import DirectoryFiles
from perago.devstack.embedded import EmbeddedSpark
from perago.devstack.progress import Reporter
from perago.lake.objects import LakeObjects
from perago.protocol.attempt import Attempt

ROWS = 5_000_000
FILES = 32
ROUNDS = 5
SMALL, LARGE = 30_000, 30_000_000  # rows of 32 random bytes: about 1 MB and 1 GB


class Nothing(BaseModel):
    pass


class _Nobody:
    def current(self, attempt: Attempt) -> Attempt:
        return attempt


class SparkBench:
    """Attempts of Spark tasks on one embedded server."""

    def __init__(self, on: Bench, server: EmbeddedSpark) -> None:
        self._on = on
        self._address = load_runtime_config().require_lakefs()
        self._server = server
        self._place = on.place()

    def attempt(
        self, body: Callable[[SparkWorkspace], object], post: list[Guardrail] | None = None, place: Place | None = None
    ) -> float:
        """Run one; gives the seconds from the end of the body to the end of the attempt."""
        where = place or self._place
        entered: dict[str, float] = {}

        @task(name="bench.spark", owner_email="b@example.com", workspace=WorkspaceSpec(prefix="/t", post=post or []))
        def run(workspace: SparkWorkspace, params: Nothing) -> Nothing:
            body(workspace)
            return Nothing()

        definition = definition_of(run)
        assert definition is not None
        head = self._on.lake.head(where.repository, "main").id
        workspace = {"repository": where.repository, "branch": "main", "ref_type": "commit", "ref": head}
        attempt = Attempt("wf", uuid.uuid4().hex, 0, "bench", 1, 0, "IN_PROGRESS")
        objects = LakeObjects(*self._address)
        execution_id = uuid.uuid4().hex
        servers = Servers(
            _Nobody(),
            self._on.lake,
            DirectoryFiles(objects),
            watch=lambda phase: entered.update({phase: time.perf_counter()}),
            spark=SparkFiles(AttemptSession(self._server.url, execution_id, self._address), objects),
        )
        execution = Execution(definition, attempt, execution_id, {"workspace": workspace, "params": {}})
        outcome = run_attempt(execution, servers, self._on.folder / "workspaces")
        assert isinstance(outcome, Completed), outcome
        return time.perf_counter() - entered["post"]

    def writes_and_reads(self) -> list[Row]:
        local = self._on.folder / "local-table"
        rows: list[Row] = []

        def body(workspace: SparkWorkspace) -> None:
            table = orders(workspace.spark, ROWS, FILES)
            writes = {
                "local disk": lambda: _timed(lambda: table.write.mode("overwrite").parquet(local.as_uri())),
                "SparkWorkspace.write": lambda: _timed(lambda: workspace.write(table, "orders", mode="overwrite")),
            }
            _warm(writes)
            rows.extend(_compared(f"write {ROWS:,} rows in {FILES} files", alternating(writes, ROUNDS)))
            reads = {
                "local disk": lambda: _timed(lambda: _scan(workspace.spark.read.parquet(local.as_uri()))),
                "workspace.read": lambda: _timed(lambda: _scan(workspace.read.parquet("orders"))),
            }
            _warm(reads)
            rows.extend(_compared(f"read {ROWS:,} rows", alternating(reads, ROUNDS)))
            rules = {
                "one scan": lambda: _timed(lambda: _scan(workspace.read.parquet("orders"))),
                "all rules, a whole number unique": lambda: _timed(lambda: _hold(workspace, _rules("id"))),
                "all rules, a text unique": lambda: _timed(lambda: _hold(workspace, _rules("name"))),
            }
            _warm(rules)
            rows.extend(_compared(f"rules on {ROWS:,} rows", alternating(rules, ROUNDS)))

        self.attempt(body)
        return rows

    def ends(self) -> list[Row]:
        """From the end of the body to the end of the attempt, small and large."""
        self.attempt(lambda workspace: workspace.write(noise(workspace.spark, SMALL), "warm"))
        taken = alternating(
            {
                "1 MB": lambda: self._end_of(SMALL),
                "1 GB": lambda: self._end_of(LARGE),
            },
            ROUNDS,
        )
        return _compared("end of body to COMPLETED", taken)

    def _end_of(self, rows: int) -> float:
        return self.attempt(
            lambda workspace: workspace.write(noise(workspace.spark, rows), "t"), place=self._on.place()
        )


def rows() -> list[Row]:
    with bench() as on:
        starts = [_start(on.folder / f"spark-{number}.log") for number in range(ROUNDS)]
        with EmbeddedSpark(on.folder / "spark.log", on.folder / "spark", "3g", Reporter()) as server:
            spark = SparkBench(on, server)
            return [Row("embedded Spark starts", starts), *spark.writes_and_reads(), *spark.ends()]


def orders(spark: Any, count: int, files: int) -> Any:
    number = f.col("id")
    return spark.range(0, count, 1, files).select(
        "id",
        (number % 1000).alias("customer"),
        (f.rand(1) * 100).alias("amount"),
        f.date_add(f.lit("2024-01-01").cast("date"), (number % 365).cast("int")).alias("day"),
        f.concat(f.lit("order-"), number).alias("name"),
    )


def noise(spark: Any, count: int) -> Any:
    return spark.range(0, count, 1, 8).select(*(f.rand(seed).alias(f"x{seed}") for seed in range(4)))


def _scan(table: Any) -> None:
    """Every column is read."""
    table.agg(*(f.max(name) for name in table.columns)).collect()


def _rules(key: str) -> RequireTable:
    rule = require_table(
        "orders",
        columns={"id": "bigint", "amount": "double"},
        min_rows=ROWS,
        not_null=["id", "customer", "amount"],
        unique=[key],
        where=["amount >= 0", "customer < 1000", "day >= '2024-01-01'"],
    )
    assert isinstance(rule, RequireTable)
    return rule


def _hold(workspace: SparkWorkspace, rule: RequireTable) -> None:
    assert table_violation(workspace.spark, rule, workspace.uri(rule.path)) is None


def _start(log: Path) -> float:
    with EmbeddedSpark(log, log.with_suffix(".scratch"), "1g", Reporter()) as server:
        return _timed(server.url)


def _timed(work: Callable[[], object]) -> float:
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


def _warm(subjects: dict[str, Callable[[], float]]) -> None:
    """Until the server has compiled what they need."""
    for measure in (*subjects.values(), *subjects.values()):
        measure()


def _compared(what: str, taken: dict[str, list[float]]) -> list[Row]:
    first = next(iter(taken))
    base = median(taken[first])
    return [
        Row(f"{what}: {name}", seconds, first, median(seconds) / base if name != first else 1.0)
        for name, seconds in taken.items()
    ]
