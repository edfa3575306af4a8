"""Which engine moves a directory's files, and when `auto` turns to Spark."""

from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from perago.authoring.controls import TaskControls
from perago.authoring.errors import RuntimeConfigError, TaskExecutionError
from perago.authoring.task import WorkspaceKind
from perago.config import load_runtime_config
from perago.data.engine import local_engine
from perago.data.spark_engine import CROSSING, automatic_map, engine_for
from perago.worker.facts import TaskFacts
from perago.worker.start import check_engine

ELSEWHERE = "sc://spark.example.com:15002/;token=hush"


def never() -> Any:
    raise AssertionError("no session is needed")


def without_spark() -> Any:
    raise TaskExecutionError("no server answers")


@pytest.mark.parametrize("remote", [None, "sc://127.0.0.1:15002", ELSEWHERE])
def test_local_is_local_wherever_spark_is(remote: str | None) -> None:
    assert engine_for("local", remote, never) is local_engine


def test_a_worker_refuses_such_an_engine_before_its_first_poll_where_it_would_be_used() -> None:
    config = load_runtime_config(data_engine="spark", spark_remote=ELSEWHERE)

    def facts(kind: WorkspaceKind | None) -> TaskFacts:
        return TaskFacts("features.build", TaskControls(), kind, False, {})

    check_engine(config, facts("spark"))
    check_engine(config, facts(None))
    with pytest.raises(RuntimeConfigError, match="do not see this machine's disk"):
        check_engine(config, facts("path"))


def test_a_worker_refuses_rules_on_tables_that_its_spark_cannot_see() -> None:
    def facts(kind: WorkspaceKind, needs_spark: bool) -> TaskFacts:
        return TaskFacts("features.build", TaskControls(), kind, needs_spark, {})

    remote = load_runtime_config(spark_remote=ELSEWHERE)
    check_engine(load_runtime_config(spark_remote="sc://localhost"), facts("path", needs_spark=True))
    check_engine(remote, facts("path", needs_spark=False))
    check_engine(remote, facts("spark", needs_spark=True))
    with pytest.raises(RuntimeConfigError, match=r"features\.build has rules on tables: .* unset SPARK_REMOTE"):
        check_engine(remote, facts("path", needs_spark=True))


def test_auto_is_local_where_sparks_workers_do_not_see_the_workspace() -> None:
    assert engine_for("auto", ELSEWHERE, never) is local_engine


@pytest.mark.parametrize(
    "remote", [ELSEWHERE, "sc://10.0.0.7", "sc://[2001:db8::1]:15002", "sc://127.0.0.1.example.com"]
)
def test_spark_that_cannot_see_the_workspace_is_refused_without_its_token(remote: str) -> None:
    with pytest.raises(RuntimeConfigError, match="do not see this machine's disk") as refused:
        engine_for("spark", remote, never)

    assert "hush" not in str(refused.value)
    assert "PERAGO_DATA_ENGINE" in str(refused.value)


@pytest.mark.parametrize(
    "remote",
    [None, "sc://localhost", "sc://127.0.0.1:15002/;user_id=a", "sc://LOCALHOST:1;token=x", "sc://[::1]:15002"],
)
@pytest.mark.parametrize("choice", ["auto", "spark"])
def test_a_server_on_this_machine_is_asked_only_when_there_is_something_to_do(
    choice: Any, remote: str | None, tmp_path: Path
) -> None:
    engine = engine_for(choice, remote, never)

    assert engine is not local_engine
    assert list(engine(sum, [], 2, tmp_path)) == []


def test_auto_needs_no_spark_for_a_plan_below_the_crossing(tmp_path: Path) -> None:
    partitions = [[1] * (CROSSING // 4)] * 4

    assert sum(engine_for("auto", None, never)(len, partitions, 2, tmp_path)) == CROSSING


def test_auto_goes_on_without_a_spark_that_cannot_be_had(tmp_path: Path) -> None:
    partitions = [[number, number] for number in range(50)]

    with capture_logs() as logs:
        done = list(automatic_map(without_spark, sum, partitions, 2, tmp_path, crossing=7))

    assert done == [2 * number for number in range(50)]
    assert [(entry["log_level"], entry["error"]) for entry in logs] == [("warning", "no server answers")]


def test_spark_that_was_asked_for_and_cannot_be_had_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(TaskExecutionError, match="no server answers"):
        list(engine_for("spark", None, without_spark)(sum, [[1]], 2, tmp_path))

    assert list(tmp_path.iterdir()) == []
