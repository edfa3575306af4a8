"""Each rule on a table, held and broken, on a real Spark Connect server. The files are written without Spark."""

import uuid
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.errors import PySparkException
from pyspark.sql.connect.session import SparkSession

from perago import change_budget, require_table
from perago.authoring.tables import ChangeBudget, RequireTable
from perago.data import table_keys
from perago.data.tables import Changes, ComparedTable, budget_violation, table_violation

ADDRESS = "struct<city:string,zip:bigint>"
NOW = datetime(2026, 5, 2, 12, tzinfo=UTC)
ORDERS: dict[str, list[Any]] = {
    "id": [1, 2, 3, 3, 3, 4, 4],
    "amount": [1.0, -2.0, float("nan"), None, 5.0, 6.0, 7.0],
    "email": ["a@x", "b@x", "c@x", None, "e@x", "f@x", "g@x"],
    "address": [{"city": "Bern", "zip": zip_code} for zip_code in (1, 2, 3, 4, 5, 6, 7)],
    "updated_at": [datetime(2026, 5, 1, hour, tzinfo=UTC) for hour in range(7)],
}


@pytest.fixture(scope="session")
def spark(spark_remote: str) -> Iterator[SparkSession]:
    session = SparkSession.builder.remote(spark_remote).create()
    yield session
    session.stop()


@pytest.fixture(scope="module")
def orders(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return parquet(tmp_path_factory.mktemp("tables") / "orders", ORDERS)


def parquet(folder: Path, columns: Any) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    table = columns if isinstance(columns, pa.Table) else pa.table(dict(columns))
    pq.write_table(table, folder / f"part-{uuid.uuid4().hex}.parquet")
    return folder


def text(path: Path, content: str | bytes) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def found(spark: SparkSession, table: Path, **rules: Any) -> str | None:
    rule = require_table(table.name, **rules)
    assert isinstance(rule, RequireTable)
    violation = table_violation(spark, rule, table.as_uri(), NOW)
    assert violation is None or ("\n" not in violation and "org.apache" not in violation), violation
    return violation


@pytest.mark.parametrize(
    "rules",
    [
        {},
        {"columns": {"id": "long", "address.city": "string"}, "min_rows": 7, "max_rows": 7},
        {"schema": f"amount double, id bigint, email string, address {ADDRESS}, updated_at timestamp"},
        {"not_null": ["id", "address.city"], "where": ["id > 0", "email IS NULL OR email LIKE '%@x'"]},
        {"unique": ["address.zip", ("id", "address.zip"), "updated_at"]},
        {"freshness": ("updated_at", timedelta(hours=30)), "mask": ["email"]},
    ],
    ids=lambda rules: ",".join(rules) or "readable",
)
def test_a_table_that_obeys_every_rule_is_no_violation(spark: SparkSession, orders: Path, rules: Any) -> None:
    assert found(spark, orders, **rules) is None


@pytest.mark.parametrize(
    ("rules", "violation"),
    [
        ({"min_rows": 8}, "7 rows: at least 8 needed"),
        ({"max_rows": 6}, "7 rows: at most 6 allowed"),
        (
            {"columns": {"id": "int", "address.zip": "string", "total": "double"}, "not_null": ["address.street"]},
            "column total is missing; column address.street is missing;"
            " it has the columns id, amount, email, address, updated_at;"
            " column id is bigint, not int; column address.zip is bigint, not string",
        ),
        (
            {"schema": "id bigint, amount double, email string, updated_at timestamp"},
            "column address (struct<city:string,zip:bigint>) is not in the schema",
        ),
        ({"mask": ["e_mail"]}, "column e_mail is missing; it has the columns id, amount, email, address, updated_at"),
        ({"freshness": ("id", timedelta(1))}, "freshness: column id is bigint, not a date or a timestamp"),
        (
            {"freshness": ("updated_at", timedelta(hours=29))},
            "7 rows: the newest updated_at is 2026-05-01 06:00:00 UTC, older than 1 day, 5:00:00",
        ),
        (
            {"freshness": ("updated_at", timedelta(hours=29)), "mask": ["updated_at"]},
            "7 rows: the newest updated_at is ***, older than 1 day, 5:00:00",
        ),
        ({"unique": ["id"]}, "7 rows: id is not unique: 2 keys repeated (e.g. {id=3} 3 times, {id=4} 2 times)"),
        (
            {"unique": [("id", "address.city")], "mask": ["id"]},
            "7 rows: (id, address.city) is not unique: 2 keys repeated"
            " (e.g. {id=***, address.city=Bern} 3 times, {id=***, address.city=Bern} 2 times)",
        ),
    ],
    ids=str,
)
def test_a_broken_rule_is_told_with_what_was_found(
    spark: SparkSession, orders: Path, rules: Any, violation: str
) -> None:
    assert found(spark, orders, **rules) == violation


LOWEST, HIGHEST = -(2**63), 2**63 - 1
WHOLE_NUMBERS: dict[str, tuple[pa.DataType, list[int | None], list[int | None]]] = {
    "close together": (pa.int64(), [5, 3, 1], [4, 2, None]),
    "around zero": (pa.int32(), [-2, -1, 0], [1, 2, 3]),
    "at the lower end": (pa.int64(), [LOWEST, LOWEST + 2], [LOWEST + 1]),
    "at the upper end": (pa.int64(), [HIGHEST, HIGHEST - 2], [HIGHEST - 1, None]),
    "far apart": (pa.int64(), [LOWEST, HIGHEST], [0, None]),
    "small": (pa.int8(), [-128, 127], [0]),
    "over the edge of a bitmap": (pa.int64(), list(range(32770)), list(range(32770, 65540))),
}


@pytest.mark.parametrize("shape", WHOLE_NUMBERS)
def test_a_key_of_whole_numbers_in_a_large_table_is_unique_until_one_of_them_repeats(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, shape: str
) -> None:
    monkeypatch.setattr(table_keys, "_MOST_FETCHED", 0)
    kind, first, second = WHOLE_NUMBERS[shape]
    folder = parquet(tmp_path / "numbers", {"n": pa.array(first, kind)})
    parquet(folder, {"n": pa.array(second, kind)})
    assert found(spark, folder, unique=["n"]) is None
    for repeated in (first[0], second[-1]):
        again = parquet(
            parquet(tmp_path / f"again-{repeated}", {"n": pa.array([*first, *second], kind)}),
            {"n": pa.array([repeated], kind)},
        )
        told = "NULL" if repeated is None else repeated
        assert (found(spark, again, unique=["n"]) or "").endswith(
            f" rows: n is not unique: 1 key repeated (e.g. {{n={told}}} 2 times)"
        )


@pytest.mark.parametrize(
    ("most_fetched", "first", "second"),
    [(0, ["a", "b"], ["c", None]), (100, ["a", "b"], ["c", None]), (100, [0, -1], [HIGHEST, None])],
    ids=["texts grouped by Spark", "texts sorted here", "numbers sorted here"],
)
def test_a_key_is_unique_until_one_of_its_values_repeats(
    spark: SparkSession,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    most_fetched: int,
    first: list[Any],
    second: list[Any],
) -> None:
    monkeypatch.setattr(table_keys, "_MOST_FETCHED", most_fetched)
    batch_rows = spark.conf.get("spark.sql.execution.arrow.maxRecordsPerBatch")
    folder = parquet(tmp_path / "keys", {"n": first})
    parquet(folder, {"n": second})
    assert found(spark, folder, unique=["n"]) is None
    parquet(folder, {"n": first[:1]})
    told = f"5 rows: n is not unique: 1 key repeated (e.g. {{n={first[0]}}} 2 times)"
    assert found(spark, folder, unique=["n"]) == told
    assert spark.conf.get("spark.sql.execution.arrow.maxRecordsPerBatch") == batch_rows


def test_every_broken_rule_is_told_at_once_with_counts_and_masked_rows(spark: SparkSession, orders: Path) -> None:
    told = found(
        spark,
        orders,
        min_rows=9,
        not_null=["amount", "email"],
        where=["amount >= 0"],
        unique=["address.city"],
        mask=["email", "address.zip"],
    )

    assert told is not None
    assert told.startswith(
        "7 rows: at least 9 needed; amount is missing in 2 rows (e.g. {id=3, amount=nan, email=***, "
    )
    assert "address={city=Bern, zip=***}" in told
    assert "email is missing in 1 row (e.g. {id=3, amount=NULL, email=***, " in told
    # NULL is not true; to Spark NaN is greater than any number, so only not_null finds it.
    assert "amount >= 0 is broken by 2 rows (e.g. {id=2, amount=-2.0, " in told
    assert "address.city is not unique: 1 key repeated (e.g. {address.city=Bern} 7 times)" in told
    assert "@x" not in told


def test_nulls_in_a_key_are_equal_and_their_place_counts(spark: SparkSession, tmp_path: Path) -> None:
    crossed = parquet(tmp_path / "crossed", {"a": [None, 1, 1], "b": [1, None, 1]})
    alike = parquet(tmp_path / "alike", {"a": pa.array([None, None, 1], pa.int64())})

    assert found(spark, crossed, unique=[("a", "b")]) is None
    assert found(spark, alike, unique=["a"]) == "3 rows: a is not unique: 1 key repeated (e.g. {a=NULL} 2 times)"


def test_long_values_and_wide_rows_are_cut(spark: SparkSession, tmp_path: Path) -> None:
    wide = parquet(tmp_path / "wide", {"long": ["x" * 200], **{f"c{index}": [index] for index in range(20)}})

    told = found(spark, wide, where=["c19 < 0"])

    assert told == (
        f"1 row: c19 < 0 is broken by 1 row (e.g. {{long={'x' * 79}…, c0=0, c1=1, c2=2, c3=3, c4=4, c5=5, c19=19}})"
    )


def test_an_empty_table_passes_rules_on_columns_and_rows_alone(spark: SparkSession, tmp_path: Path) -> None:
    empty = parquet(tmp_path / "empty", pa.table({"id": pa.array([], pa.int64()), "at": pa.array([], pa.date32())}))

    assert found(spark, empty, columns={"id": "bigint"}, not_null=["id"], unique=["id"], where=["id > 0"]) is None
    assert found(spark, empty, min_rows=1) == "0 rows: at least 1 needed"
    assert found(spark, empty, freshness=("at", timedelta(1))) == "0 rows: at holds no value, so nothing is fresh"


def test_partition_columns_are_columns(spark: SparkSession, tmp_path: Path) -> None:
    for day in (1, 2):
        parquet(tmp_path / "daily" / f"day={day}", {"id": [1, 2]})

    assert (
        found(spark, tmp_path / "daily", schema="id bigint, day int", unique=[("id", "day")], not_null=["day"]) is None
    )
    assert found(spark, tmp_path / "daily", where=["day < 2"]) == (
        "4 rows: day < 2 is broken by 2 rows (e.g. {id=1, day=2}, {id=2, day=2})"
    )


def test_a_column_whose_name_holds_a_dot_or_a_backtick_is_found(spark: SparkSession, tmp_path: Path) -> None:
    odd = parquet(tmp_path / "odd", {"a.b": [1, 1], "c`d": [1, None]})

    assert found(spark, odd, columns={"a.b": "bigint"}, not_null=["c`d"], unique=["a.b"]) == (
        "2 rows: c`d is missing in 1 row (e.g. {a.b=1, c`d=NULL});"
        " a.b is not unique: 1 key repeated (e.g. {a.b=1} 2 times)"
    )


def test_csv_json_and_text_are_known_by_their_suffix(spark: SparkSession, tmp_path: Path) -> None:
    csv = text(tmp_path / "a.csv", "id,name\n1,x\n2,y\n")
    lines = text(tmp_path / "lines" / "part-0.jsonl", '{"id": 1}\n{"id": 2}\n').parent

    assert found(spark, csv, schema="id int, name string", unique=["id"], min_rows=2) is None
    assert found(spark, lines, schema="id bigint", min_rows=2) is None
    assert found(spark, text(tmp_path / "a.txt", "x\ny\n"), schema="value string", max_rows=2) is None
    text(lines / "more.csv", "id\n3\n")
    assert found(spark, lines) == "it holds files of several formats (csv, json): say which with format="


def test_a_missing_path_or_an_empty_directory_is_a_violation(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()

    assert found(spark, tmp_path / "none") == "no such file or directory"
    assert found(spark, tmp_path / "empty") == "the directory holds no files"
    assert found(spark, tmp_path / "empty", format="text") == "the directory holds no files"


@pytest.mark.parametrize("name", ["t.parquet", "t.csv", "t.json", "t.txt", "t.orc"])
def test_a_file_of_no_bytes_is_a_violation(spark: SparkSession, tmp_path: Path, name: str) -> None:
    assert found(spark, text(tmp_path / name, "")) == f"1 of 1 files is empty (0 bytes): {name}"


def test_a_file_of_no_bytes_among_others_is_a_violation_unless_spark_writes_such(
    spark: SparkSession, tmp_path: Path
) -> None:
    table = parquet(tmp_path / "table", {"id": [1]})
    text(table / "zero.parquet", "")
    csv = text(tmp_path / "csv" / "a.csv", "id\n1\n").parent
    text(csv / "zero.csv", "")
    lines = text(tmp_path / "json" / "a.json", '{"id": 1}\n').parent
    text(lines / "zero.json", "")

    assert found(spark, table) == "1 of 2 files is empty (0 bytes): zero.parquet"
    assert found(spark, csv) == "1 of 2 files is empty (0 bytes): zero.csv"
    assert found(spark, lines, max_rows=1) is None


def test_corrupt_files_are_violations_even_when_no_column_is_asked_for(spark: SparkSession, tmp_path: Path) -> None:
    garbage = parquet(tmp_path / "garbage", {"id": [1]})
    text(garbage / "bad.parquet", b"no parquet at all" * 10)
    cut = parquet(tmp_path / "cut", {"id": list(range(1000))})
    whole = next(cut.iterdir())
    whole.write_bytes(whole.read_bytes()[:-20])
    mixed = parquet(parquet(tmp_path / "mixed", {"id": [1]}), {"id": ["one"]})
    ragged = text(tmp_path / "ragged.csv", "a,b\n1,2\n3\n")
    swapped = text(text(tmp_path / "swapped" / "1.csv", "a,b\n1,2\n").parent / "2.csv", "b,a\n1,2\n").parent
    broken = text(tmp_path / "broken.json", '{"a": 1}\n{"a": \n')

    assert "bad.parquet is not a Parquet file" in str(found(spark, garbage))
    assert "is not a Parquet file" in str(found(spark, cut))
    assert "Failed to merge incompatible data types" in str(found(spark, mixed))
    assert "Malformed CSV record" in str(found(spark, ragged))
    assert "CSV header does not conform to the schema" in str(found(spark, swapped))
    assert "Malformed records" in str(found(spark, broken))


def test_a_format_the_server_lacks_is_a_violation(spark: SparkSession, tmp_path: Path) -> None:
    assert "Failed to find data source: avro" in str(found(spark, text(tmp_path / "a", "x"), format="avro"))


@pytest.mark.parametrize(
    ("condition", "told"),
    [
        ("id >", "Syntax error"),
        ("nosuch > 1", "`nosuch` cannot be resolved"),
        ("id", "DATATYPE_MISMATCH"),
        ("count(*) > 1", "aggregate function"),
        ("cast(email as int) > 1", "The value 'a@x'"),
    ],
)
def test_a_condition_spark_cannot_evaluate_is_a_violation(
    spark: SparkSession, orders: Path, condition: str, told: str
) -> None:
    assert told in str(found(spark, orders, where=[condition]))


def test_a_masked_value_is_in_no_error_text_and_in_no_log(
    spark: SparkSession, orders: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    told = found(spark, orders, where=["cast(email as int) > 1"], mask=["email"])

    assert told == "Spark cannot read it or evaluate a rule on it: CAST_INVALID_INPUT"
    assert "@x" not in "".join(capfd.readouterr())


def test_a_lost_session_is_an_error_and_no_violation(spark_remote: str, orders: Path) -> None:
    lost = SparkSession.builder.remote(spark_remote).create()
    lost.stop()
    rule = require_table("orders")
    assert isinstance(rule, RequireTable)

    with pytest.raises((PySparkException, ValueError)):
        table_violation(lost, rule, orders.as_uri())


def check(name: str, **statistics: Any) -> SimpleNamespace:
    return SimpleNamespace(name=name, statistics=statistics, ignore_na=True, raise_warning=False)


def test_a_model_is_checked_as_the_rules_it_stands_for(spark: SparkSession, orders: Path) -> None:
    def column(dtype: str, nullable: bool, unique: bool, *checks: SimpleNamespace) -> SimpleNamespace:
        return SimpleNamespace(dtype=dtype, nullable=nullable, unique=unique, checks=list(checks))

    columns = {
        "id": column("int64", False, True, check("greater_than", min_value=0)),
        "amount": column("float64", True, False, check("less_than_or_equal_to", max_value=6)),
        "email": column("str", True, False, check("str_matches", pattern=r"[a-f]@\w")),
    }
    model = SimpleNamespace(name="Orders", columns=columns, checks=[], strict=False, unique=None, index=None)

    told = str(found(spark, orders, schema=model))

    assert "amount IS NULL OR isnan(amount) OR amount <= 6 is broken by 1 row (e.g. {id=4, amount=7.0" in told
    assert "RLIKE '^(?:[a-f]@\\\\w)' is broken by 1 row" in told
    assert "id is not unique: 2 keys repeated" in told


def test_a_pandera_model_is_accepted(spark: SparkSession, orders: Path) -> None:
    pandera: Any = pytest.importorskip("pandera.pyspark", reason="pandera is not installed")
    types: Any = pytest.importorskip("pyspark.sql.types")
    fields = {
        "id": pandera.Field(ge=2),
        "email": pandera.Field(isin=["a@x", "b@x"], nullable=True),
        "__annotations__": {"id": types.LongType(), "email": types.StringType()},
    }
    model: Any = type("Orders", (pandera.DataFrameModel,), fields)

    told = str(found(spark, orders, schema=model, mask=["email"]))

    assert "id >= 2 is broken by 1 row" in told
    assert "email IS NULL OR email IN ('a@x', 'b@x') is broken by 4 rows" in told


def exceeded(
    spark: SparkSession | None, changes: Changes, pairs: Sequence[tuple[Path | None, Path | None]] = (), **limits: Any
) -> str | None:
    budget, rule = change_budget(**limits), require_table("t")
    assert isinstance(budget, ChangeBudget)
    assert isinstance(rule, RequireTable)
    tables = [ComparedTable(rule, a.as_uri() if a else None, b.as_uri() if b else None) for a, b in pairs]
    return budget_violation(budget, changes, tables, spark)


NOTHING = Changes(10, 0, 0, 0)


@pytest.mark.parametrize(
    ("changes", "limits", "violation"),
    [
        (Changes(10, 5, 0, 1), {"max_deleted_fraction": 0.1}, None),
        (
            Changes(10, 5, 0, 2),
            {"max_deleted_fraction": 0.1},
            "2 of 10 objects deleted (20.0%), at most 10.0% allowed",
        ),
        (Changes(0, 5, 0, 0), {"max_deleted_fraction": 0}, None),
        (Changes(10, 1, 1, 1), {"max_changed_objects": 3}, None),
        (
            Changes(10, 1, 2, 1),
            {"max_changed_objects": 3},
            "4 objects changed (1 added, 2 changed, 1 deleted), at most 3 allowed",
        ),
    ],
)
def test_a_budget_of_objects_needs_no_spark(changes: Changes, limits: Any, violation: str | None) -> None:
    assert exceeded(None, changes, **limits) == violation


def test_a_budget_of_rows_bounds_the_new_count_over_the_old(spark: SparkSession, tmp_path: Path) -> None:
    ten, five = parquet(tmp_path / "ten", {"id": range(10)}), parquet(tmp_path / "five", {"id": range(5)})
    none = parquet(tmp_path / "none", pa.table({"id": pa.array([], pa.int64())}))
    text(tmp_path / "bad.parquet", "bad")

    assert exceeded(spark, NOTHING, [(ten, five), (None, ten), (none, ten), (None, None)], rows=(0.5, 1.5)) is None
    assert exceeded(spark, NOTHING, [(ten, five), (five, ten)], rows=(0.6, 1.5)) == (
        "t: 5 rows after 10 rows before (0.50 times), between 0.6 and 1.5 times allowed;"
        " t: 10 rows after 5 rows before (2.00 times), between 0.6 and 1.5 times allowed"
    )
    assert exceeded(spark, NOTHING, [(ten, None)], rows=(0.5, 1.5)) == (
        "t: 0 rows after 10 rows before (0.00 times), between 0.5 and 1.5 times allowed"
    )
    assert "not a Parquet file" in str(exceeded(spark, NOTHING, [(ten, tmp_path / "bad.parquet")], rows=(0.5, 1.5)))


def test_a_budget_of_schema_compares_columns_and_types(spark: SparkSession, tmp_path: Path) -> None:
    def table(name: str, **types: Any) -> Path:
        return parquet(tmp_path / name, pa.table({column: pa.array([], kind) for column, kind in types.items()}))

    inner = pa.struct([("x", pa.int32())])
    old = table("old", a=pa.int32(), b=pa.float32(), c=pa.date32(), d=pa.decimal128(10, 2), e=inner)
    turned = table("turned", e=inner, d=pa.decimal128(10, 2), c=pa.date32(), b=pa.float32(), a=pa.int32())
    wider = table(
        "wider",
        a=pa.int64(),
        b=pa.float64(),
        c=pa.timestamp("us", "UTC"),
        d=pa.decimal128(12, 3),
        e=pa.struct([("x", pa.int64()), ("y", pa.string())]),
        new=pa.string(),
    )

    assert exceeded(spark, NOTHING, [(old, turned), (None, old)], schema="equal") is None
    assert exceeded(spark, NOTHING, [(old, wider), (old, turned)], schema="compatible") is None
    assert exceeded(spark, NOTHING, [(old, wider)], schema="equal") == (
        "t: column a was int and is bigint, column b was float and is double, column c was date and is timestamp,"
        " column d was decimal(10,2) and is decimal(12,3), column e was struct<x:int> and is struct<x:bigint,y:string>,"
        " column new is new; the schema must stay equal"
    )
    told = str(exceeded(spark, NOTHING, [(wider, old)], schema="compatible"))
    assert "column a was bigint and is int" in told
    assert "column d was decimal(12,3) and is decimal(10,2)" in told
    assert "column new is gone; the schema must stay compatible" in told
    assert exceeded(spark, NOTHING, [(old, None)], schema="equal") == (
        "t: the table is gone, its schema must stay equal"
    )
